"""Entry point: llc's spelling of options, one message for each error, and the exit codes.

Exit codes: 0 proved and written, 1 refuted, 2 bad input or usage, 3 unknown, 130 interrupted. A defect of this program
proves nothing and so ends with 3, traceback shown.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import io
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn, cast

import click

from verilocc_mlir.cli.given import HELP, Group
from verilocc_mlir.cli.output import discard, end_on_sigterm
from verilocc_mlir.errors import ExitCode, VeriloccError
from verilocc_mlir.mir.model import stop_before
from verilocc_mlir.own_process import look_for_garbage_seldom
from verilocc_mlir.version import __version__

_LLC_OPTIONS = ("mcpu", "mtriple", "mattr")
_LLC_FLAGS = tuple(f"-{name}" for name in _LLC_OPTIONS)


_COMMANDS = {
    "compile": "compile",
    "report": "compile",
    "compile-many": "compile_many",
    "iree": "frontend",
    "torch": "frontend",
    "allocate": "allocate",
    "audit": "audit",
    "hunt": "hunt",
    "recheck": "audit",
    "cost": "cost",
    "compare": "cost",
    "measure": "measure",
    "gate": "gate",
    "why": "why",
    "serve": "serve",
    "corpus": "corpus",
    "train": "train",
    "adapt": "train",
    "eval": "train",
    "doctor": "doctor",
}
"""The commands in the order of the help, each with its module of this package, where it is ``NAME_command``."""

SUMMARIES = {
    "compile": "Compile LLVM IR (.ll, .bc) or pre-RA machine IR (.mir) for an AMD GPU; IN is - for standard input.",
    "report": "Compile as verilocc compile does, and write a page about it instead of the result: "
    "one HTML file with pictures.",
    "compile-many": "Compile many files, and all in directories, as verilocc compile does each; one that "
    "fails stops no other.",
    "iree": "Compile an MLIR module with IREE, its GPU kernels with register assignments that are proved.",
    "torch": "Compile a Torch module through IREE, its GPU kernels with register assignments that are proved.",
    "allocate": f"Have a server allocate machine IR (llc {stop_before(0)} for sgpr, greedy,2 for vgpr), "
    "and audit it here.",
    "audit": "Prove that AFTER computes what BEFORE does, or show where it does not.",
    "hunt": "Look for faults of LLVM's register allocators: audit what they make of each PATH under many options.",
    "recheck": "Replay the obligations that verilocc audit --smt-dir=DIR wrote.",
    "cost": "What the kernels of FILE cost by the model: a code object, llc's assembly (.s) or machine IR (.mir).",
    "compare": "What the kernels of A and B cost by the model, side by side, and which component the "
    "difference comes from.",
    "measure": "Run BASE and each CANDIDATE in turns on one device, on the same inputs, and say which is faster.",
    "gate": "Compare what kernels take with a baseline or with budgets: registers, spills, waves, "
    "scratch, LDS, and whether they are proved.",
    "why": "Where the functions of FILE need most registers, the values that are live there, and "
    "what costs waves or spills.",
    "serve": "Serve allocation and audit over gRPC until SIGTERM or Ctrl-C; "
    "docs/guide/service-operate.md has the limits.",
    "corpus": "Kernels of many sources, and the data set of allocation problems made of them.",
    "train": "Train the model. Interrupted runs go on where they were when the same command is given again.",
    "adapt": "Adapt a model to a GPU that it has not seen, with the labelled problems for it in DIR.",
    "eval": "Measure the model and the trivial policies on the problems in DIR; every answer is proved.",
    "doctor": "Say what is found, what is missing, and how to mend it. Exit code 0 if all that is "
    "needed is there, else 2.",
}
"""The first paragraph of each command's help, so that the list of commands loads no module of them."""

_WITH_OTHERS_CODE = ("torch", "serve", "corpus", "train", "adapt", "eval")
"""Commands in whose process a user's program runs, or large packages of others: Python stays as it is there."""


class _Commands(Group):
    """Loads the module of a command when the command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"verilocc_mlir.cli.{_COMMANDS[cmd_name]}")
        command: click.Command = getattr(module, f"{cmd_name.replace('-', '_')}_command")
        return command

    def listed(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return click.Command(cmd_name, help=SUMMARIES[cmd_name])


@click.group(cls=_Commands, context_settings=HELP)
@click.version_option(__version__, prog_name="verilocc")
def cli() -> None:
    """Compile for AMD GPUs with register assignments that are proved before they become code.

    Exit codes: 0 proved and written, 1 refuted, 2 bad input or usage, 3 unknown.
    """


def llc_spelling(arguments: Sequence[str]) -> list[str]:
    """``-mcpu=gfx942`` and ``-mcpu gfx942``, as llc takes them, with the two dashes that click wants."""
    return [f"-{a}" if a.partition("=")[0] in _LLC_FLAGS else a for a in arguments]


def run(arguments: Sequence[str]) -> int:
    """Run one command line (without the program's name) and return the exit code; messages go to standard error."""
    try:
        result = cli.main(args=llc_spelling(arguments), prog_name="verilocc", standalone_mode=False)
        return int(result) if isinstance(result, int) else 0
    except click.exceptions.Abort:
        return _interrupted()
    except KeyboardInterrupt:
        return _interrupted()
    except click.ClickException as error:
        error.show()
        return ExitCode.BAD_INPUT
    except VeriloccError as error:
        print(f"verilocc: error: {error.render()}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        discard(sys.stdout)
        return ExitCode.BAD_INPUT
    except OSError as error:
        print(f"verilocc: error: {error}", file=sys.stderr)
        return ExitCode.BAD_INPUT
    except Exception:
        traceback.print_exc()
        message = "this is a defect of verilocc; nothing was proved that it has not reported"
        print(f"verilocc: error: {message}", file=sys.stderr)
        return ExitCode.UNKNOWN


def _interrupted() -> int:
    print("verilocc: interrupted; nothing was written", file=sys.stderr)
    return ExitCode.INTERRUPTED


def _leave(status: list[int]) -> None:
    """End at once, where there is an exit code: Python takes every object apart before, 30 ms for a small compile."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or there is none
            stream.flush()
    if status:
        os._exit(status[0])


def main() -> NoReturn:
    """The console script. SIGTERM ends it as Ctrl-C does: tools killed, nothing written, exit code 130."""
    status: list[int] = []
    atexit.register(_leave, status)  # first, so that it comes after all that others want done at the end
    _prepare_streams()
    command = next((argument for argument in sys.argv[1:] if not argument.startswith("-")), "")
    if command != "torch":  # a user's program runs first there
        end_on_sigterm()
    if command not in _WITH_OTHERS_CODE:
        look_for_garbage_seldom()
    status.append(_flushed(run(sys.argv[1:])))
    sys.exit(status[0])


def _prepare_streams() -> None:
    """No file takes the place of a standard stream that is closed, and no character is a reason to fail."""
    for place in range(3):
        with contextlib.suppress(OSError):
            os.fstat(place)
            continue
        os.open(os.devnull, os.O_RDWR)
    if sys.stderr is None:  # pyright: ignore[reportUnnecessaryComparison]
        sys.stderr = os.fdopen(2, "w", encoding="utf-8")
    if sys.stdout is not None:  # pyright: ignore[reportUnnecessaryComparison]
        cast("io.TextIOWrapper[Any]", sys.stdout).reconfigure(errors="backslashreplace")


def _flushed(code: int) -> int:
    """The exit code when all that was said has left this program; Python's own at the end would be another."""
    try:
        if sys.stdout is not None:  # pyright: ignore[reportUnnecessaryComparison]
            sys.stdout.flush()
    except BrokenPipeError:
        discard(sys.stdout)
    except OSError as error:
        discard(sys.stdout)
        print(f"verilocc: error: standard output: cannot be written: {error.strerror}", file=sys.stderr)
        return code or ExitCode.BAD_INPUT
    return code


if __name__ == "__main__":
    main()
