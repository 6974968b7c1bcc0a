"""Find and run ``iree-compile``.

It runs as a process: in IREE's Python bindings the options used here are global and can be given once only.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from verilocc_mlir.errors import InputError, ToolchainError
from verilocc_mlir.target.targets import TARGETS
from verilocc_mlir.toolchain.run import ToolFailure, ToolRun, run_tool

VARIABLE = "VERILOCC_IREE_COMPILE"
"""Environment variable: the iree-compile to use, before any other."""

EXTRA_HINT = "pip install 'verilocc-mlir[iree]', or name an iree-compile with VERILOCC_IREE_COMPILE=PATH"
DEFAULT_SECONDS = 1800.0

_ERROR = re.compile(r"^(?P<where>\S.*?:\d+:\d+): (?:fatal )?error: (?P<what>.+)$|^.*?\berror: (?P<plain>.+)$")
_UNKNOWN_OPTION = re.compile(r"Unknown command line argument '(?P<option>[^']+)'")
_BAD_FLAG = re.compile(
    r"^iree-compile: (?P<what>for the -.+|Too many positional arguments.*|Not enough positional.*)$", re.MULTILINE
)
"""How LLVM's command line begins what it says of a value; errors of the module have a place, or "error:" before."""
_FLAGS = "iree-compile --help lists its flags"
_VERSION = re.compile(r"compiler version (?P<version>\S+)")


@dataclass(frozen=True)
class IreeCompiler:
    """An iree-compile and how long one run of it may take, in seconds."""

    path: Path
    seconds: float = DEFAULT_SECONDS

    def version(self) -> str:
        """Its version, ``"3.13.0rc20261016"``.

        Raises:
            ToolchainError: it cannot be run.
        """
        run = run_tool([self.path, "--version"], timeout=self.seconds, stage="version")
        match = _VERSION.search(run.stdout.decode("utf-8", "replace"))
        return match["version"] if match else "of unknown version"

    def run(self, source: Path, output: Path, flags: Sequence[str], *, stage: str, shown_as: str = "") -> ToolRun:
        """Compile ``source`` to ``output``.

        Args:
            shown_as: what messages call the source.

        Raises:
            InputError: it rejects the module, or a flag. ToolchainError: it crashed or timed out.
        """
        command = [self.path, source, *flags, "-o", output]
        where = shown_as or str(source)
        try:
            run = run_tool(command, timeout=self.seconds, stage=stage, where=where)
        except ToolFailure as failure:
            if failure.status < 0:
                raise
            raise _rejected(failure.stderr, str(source), where) from failure
        if not Path(output).exists():
            lines = run.stdout.decode("utf-8", "replace").splitlines()
            said = next((line for line in lines if line.strip()), "nothing")
            raise FlagError(
                f"{self.path} compiled nothing; it said: {said.strip()}",
                where=where,
                hint="leave out flags that print something, and name an iree-compile",
            )
        return run


def find_iree_compile(path: str | Path | None = None) -> IreeCompiler:
    """The iree-compile named; else $VERILOCC_IREE_COMPILE, the one of this Python's packages, or the one on PATH.

    Raises:
        ToolchainError: there is none.
    """
    named = path or os.environ.get(VARIABLE)
    if named:
        program = shutil.which(str(named))
        if program is None:
            raise ToolchainError(f"{named} is no program that can be run", hint=EXTRA_HINT)
        return IreeCompiler(Path(program))
    candidate = _packaged()
    if candidate is not None:
        return IreeCompiler(candidate)
    on_path = shutil.which("iree-compile")
    if on_path is None:
        raise ToolchainError("iree-compile was not found", hint=EXTRA_HINT)
    return IreeCompiler(Path(on_path))


def _packaged() -> Path | None:
    """The program inside the iree-base-compiler package, without the Python script around it."""
    try:
        spec = importlib.util.find_spec("iree.compiler")
    except ModuleNotFoundError:
        return None
    for directory in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(directory) / "_mlir_libs" / "iree-compile"
        if os.access(path, os.X_OK):
            return path
    return None


class FlagError(InputError):
    """iree-compile rejects a flag, not the module, or a flag has it do something else."""


def _rejected(stderr: str, source: str, shown_as: str) -> InputError:
    option = _UNKNOWN_OPTION.search(stderr)
    if option:
        return FlagError(f"iree-compile does not know {option['option']}", hint=_FLAGS)
    value = _BAD_FLAG.search(stderr)
    if value:
        return FlagError(f"iree-compile does not take its flags: {value['what']}", hint=_FLAGS)
    for line in stderr.splitlines():
        match = _ERROR.match(line)
        if match:
            where = (match["where"] or shown_as).replace(source, shown_as)
            return InputError(f"iree-compile: {match['what'] or match['plain']}", where=where)
    lines = [line for line in stderr.splitlines() if line.strip()]
    return InputError(f"iree-compile: {lines[0] if lines else 'failed without a message'}", where=shown_as)


# What is wrong with a GPU or with flags of iree-compile whatever the module: said before any work.


_ARCHITECTURE = re.compile(r'#iree_gpu\.target<arch = "(?P<name>[^"]+)"')
_UNKNOWN = re.compile(r"Unknown ROCM target|ROCM target not set")
_EMPTY = "module {}\n"
_UP_TO = "--compile-to=preprocessing"
"""As far as IREE says in the module what GPU it is for."""


def check_target(iree: IreeCompiler, target: str, flags: Sequence[str] = ()) -> None:
    """Have iree-compile read them, with a module that has nothing in it: a tenth of a second.

    Args:
        target: as ``--iree-rocm-target`` takes it.
        flags: further flags of iree-compile.

    Raises:
        InputError: IREE does not know the GPU, or no allocation for it can be proved here; IREE does not take a flag.
        ToolchainError: iree-compile cannot be run.
    """
    name = _architecture(iree, target, flags)
    if name is None:
        raise InputError(f"IREE knows no GPU {target!r}", hint=_known(iree))
    if name and name not in TARGETS:
        shown = name if name == target else f"{target} ({name})"
        raise InputError(f"no allocation for {shown} can be proved here", hint=_known(iree))


def _architecture(iree: IreeCompiler, target: str, flags: Sequence[str] = ()) -> str | None:
    """``"gfx942"`` for ``"mi300x"``; None where IREE does not know it, ``""`` where it does not say."""
    with tempfile.TemporaryDirectory(prefix="verilocc-") as temporary:
        source, output = Path(temporary, "empty.mlir"), Path(temporary, "out.mlir")
        source.write_text(_EMPTY)
        all_flags = ["--iree-hal-target-device=hip", f"--iree-rocm-target={target}", *flags, _UP_TO]
        try:
            iree.run(source, output, all_flags, stage="target", shown_as=target)
        except FlagError:
            raise
        except InputError as error:  # of the empty module with these flags: what there is to say, the module's own says
            return None if _UNKNOWN.search(error.what) else ""
        match = _ARCHITECTURE.search(output.read_text("utf-8", "replace"))
    return match["name"] if match else ""


def _known(iree: IreeCompiler) -> str:
    there = ", ".join(name for name in TARGETS if _architecture(iree, name) == name)
    return f"give one of {there}, or a product of these, such as mi300x"
