"""The cold command: what it loads, what it starts, and that it ends with its exit code."""

from __future__ import annotations

import gc
import inspect
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from support import llc

from smt_verifier.certificate.second import second_program
from verilocc_mlir.cli.main import SUMMARIES, cli
from verilocc_mlir.toolchain.loaded_tools import available

KERNEL = """
define amdgpu_kernel void @k(ptr addrspace(1) %p) {
  store i32 7, ptr addrspace(1) %p
  ret void
}
"""
NOT_LOADED = (
    "torch", "ray", "grpc", "z3", "elftools", "rich", "rich_click", "importlib.metadata", "ortools",
    "smt_verifier.prove.diagnosis", "smt_verifier.audit.core.judge", "smt_verifier.certificate.produce",
    "verilocc_mlir.spilling.relieve", "verilocc_mlir.results.page",
)  # fmt: skip

COMPILE = """
import atexit, sys
import verilocc_mlir.cli.main as cold

atexit.register(lambda: print("loaded:", *sorted(set({names!r}) & sys.modules.keys())))
cold.main()
"""


def command(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, check=False
    )


def test_a_compile_loads_what_it_needs(tmp_path: Path) -> None:
    llc()  # Triton's library is found by the metadata of its package.
    source = tmp_path / "k.ll"
    source.write_text(KERNEL)
    code = COMPILE.format(names=NOT_LOADED).replace("cold.main()", "sys.exit(cold.run(sys.argv[1:]))")
    done = command(code, "compile", source, "-mcpu=gfx942", "-q")
    assert (done.returncode, done.stdout, done.stderr) == (0, "loaded:\n", "")
    assert source.with_suffix(".hsaco").exists()


def test_no_second_interpreter_starts_and_no_probe_runs_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The solver's process is a copy; what tools say of their version is kept."""
    llc()  # Triton's library is loaded by a second interpreter.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source = tmp_path / "k.ll"
    source.write_text(KERNEL)
    code = """
import subprocess, sys
import verilocc_mlir.cli.main as cold

started = []
launch = subprocess.Popen.__init__
subprocess.Popen.__init__ = lambda self, argv, **more: (started.append(argv[0]), launch(self, argv, **more))[1]
status = cold.run(sys.argv[1:])
print(sys.executable in started, len(started))
sys.exit(status)
"""
    done = [command(code, "compile", source, "-mcpu=gfx942", "-q") for _ in range(2)][1]
    assert (done.returncode, done.stderr) == (0, "")
    # llc for all its three runs, the assembler of ours and of LLVM's own, the linker: no probe of a version among them.
    # Where there was no C compiler, llc starts three times. The second checker is asked once.
    checks = 1 if second_program() is not None else 0
    assert done.stdout == f"False {(4 if available() else 6) + checks}\n"


@pytest.mark.parametrize(
    ("arguments", "status"), [(["--version"], 0), (["compile", "--nope"], 2), (["compile", "no"], 2)]
)
def test_the_process_ends_with_its_exit_code_and_all_that_was_printed(arguments: list[str], status: int) -> None:
    done = command("from verilocc_mlir.cli.main import main; main()", *arguments)
    assert done.returncode == status
    assert done.stdout or done.stderr


def test_what_the_command_wants_done_at_the_end_is_done() -> None:
    code = """
import atexit
import verilocc_mlir.cli.main as cold

run = cold.run
cold.run = lambda arguments: (atexit.register(print, "late"), run(arguments))[1]
cold.main()
"""
    assert command(code, "--version").stdout.splitlines()[-1] == "late"


THRESHOLD = gc.get_threshold()
"""Python's own, before ``conftest.py`` sets one for the tests."""
USERS = """
import dataclasses, gc, os, signal, sys

def found():
    handler = signal.getsignal(signal.SIGTERM)
    changed = [name for name in os.environ if name.startswith(("GRPC", "OPENBLAS", "LLVM"))]
    create = getattr(dataclasses, "_create_fn", found)
    assert gc.get_threshold() == {threshold} and gc.get_freeze_count() == 0, "collector"
    assert handler is signal.SIG_DFL, "signal"
    assert create is found or create.__module__ == "dataclasses", "dataclasses"
    assert set(changed) <= {before}, changed
    raise ValueError("as Python is")
"""


@pytest.mark.long
def test_a_users_program_finds_python_as_it_is(tmp_path: Path) -> None:
    """Transformers reads the source of the methods of its dataclasses, say."""
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("iree.compiler", reason="IREE is not installed")
    source = tmp_path / "users.py"
    source.write_text(USERS.format(threshold=THRESHOLD, before={"", *os.environ}))
    argv = ["torch", f"{source}:found", "--target=gfx942", "-o", tmp_path / "x.vmfb"]
    done = command("from verilocc_mlir.cli.main import main; main()", *argv)
    assert (done.returncode, done.stdout) == (2, "")
    assert "it raised ValueError: as Python is" in done.stderr


def test_the_list_of_commands_loads_none_of_them() -> None:
    code = (
        "import sys, verilocc_mlir.cli.main as m; m.run(['--help']);"
        "print([n for n in sys.modules if n.startswith(('verilocc_mlir.pipeline', 'verilocc_mlir.cli.compile'))])"
    )
    assert command(code).stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("name", SUMMARIES)
def test_a_command_is_listed_with_its_own_words(name: str) -> None:
    shown = cli.get_command(click.Context(cli), name)
    assert shown is not None
    assert shown.help is not None
    assert " ".join(inspect.cleandoc(shown.help).partition("\n\n")[0].split()) == SUMMARIES[name]
