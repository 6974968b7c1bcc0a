"""``verilocc doctor``: what is found, what is missing, and the command that mends it."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import click

from smt_verifier.certificate.second import maker_program, second_program
from smt_verifier.checker import COMPILED
from verilocc_mlir.allocators.registry import DEFAULT_SECONDS, is_taken, plugin_called, plugins
from verilocc_mlir.cli.given import HELP, Command
from verilocc_mlir.errors import ExitCode, ToolchainError, VeriloccError
from verilocc_mlir.toolchain.choose import choose_tools
from verilocc_mlir.toolchain.drivers.triton_probe import find_triton
from verilocc_mlir.toolchain.find import find_toolchain, survey

_EXTRA = re.compile(r"""extra\s*==\s*['"](?P<extra>[^'"]+)['"]""")
_DISTRIBUTION = "verilocc-mlir"
_OPTIONAL_TOOLS = {
    "opt": "optimising unoptimised IR; modules with calls",
    "objdump": "looking at code objects ('make demo')",
    "dis": "reading bitcode (.bc)",
}


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked for. ``needed``: without it ``verilocc compile`` does not work. ``mend``: the command to run."""

    name: str
    found: bool
    detail: str
    mend: str = ""
    needed: bool = True


@click.command("doctor", cls=Command, context_settings=HELP)
@click.option("--llvm", type=click.Path(path_type=Path), default=None, metavar="DIR", help="Directory of llc, or llc.")
def doctor_command(llvm: Path | None) -> int:
    """Say what is found, what is missing, and how to mend it. Exit code 0 if all that is needed is there, else 2."""
    checkers = [_first_checker(), _second_checker(), _maker()]
    checks = [_python(), *_packages(), *_tools(llvm), *checkers, *_ways_in(), *_allocators()]
    for check in checks:
        mark = "ok      " if check.found else "MISSING " if check.needed else "absent  "
        click.echo(f"{mark} {check.name}: {check.detail}")
        if not check.found and check.mend:
            click.echo(f"          mend: {check.mend}")
    broken = sum(1 for c in checks if c.needed and not c.found)
    click.echo(f"{broken} missing" if broken else "everything needed is there")
    return ExitCode.BAD_INPUT if broken else ExitCode.PROVED


def _python() -> Check:
    version = platform.python_version()
    return Check("python", sys.version_info >= (3, 10), f"{version}, {sys.executable}", "use Python 3.10 or newer")


def _first_checker() -> Check:
    """The checker in Python, compiled by mypyc or interpreted."""
    mend = "pip install mypy setuptools, a C compiler and Python's headers, then: python scripts/compile_checker.py"
    detail = str(COMPILED) if COMPILED is not None else "interpreted: a certificate takes 1.6 times the CPU"
    return Check("first checker, compiled", COMPILED is not None, detail, mend, needed=False)


_BUILD = "install cargo (apt-get install cargo), then: python scripts/build_second_checker.py"


def _second_checker() -> Check:
    """The checker in Rust: without it the one in Python alone accepts certificates."""
    program = second_program()
    detail = str(program) if program is not None else "certificates are checked by the checker in Python alone"
    return Check("second checker", program is not None, detail, _BUILD, needed=False)


def _maker() -> Check:
    """The maker of certificates in Rust: without it the one in Python makes them, in more time."""
    program = maker_program()
    detail = str(program) if program is not None else "certificates are made in Python"
    return Check("maker of certificates", program is not None, detail, _BUILD, needed=False)


def _packages() -> Iterator[Check]:
    """The packages this project declares, those of the extra ``solvers`` as optional."""
    try:
        declared = metadata.requires(_DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        yield Check(_DISTRIBUTION, False, "not installed in this Python", "make venv")
        return
    for requirement in declared:
        specification, _, marker = requirement.partition(";")
        extra = _EXTRA.search(marker)
        if extra and extra["extra"] != "solvers":
            continue
        match = re.match(r"[\w.-]+", specification)
        name = match[0] if match else specification.strip()
        title = "package " + name + (" (cross-checks verdicts)" if extra else "")
        mend = "pip install '.[solvers]'" if extra else "make venv"
        pinned = specification.partition("==")[2].strip()
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            yield Check(title, False, "not installed", mend, needed=not extra)
            continue
        if pinned and version != pinned:
            yield Check(title, False, f"{version} instead of {pinned}", mend, needed=not extra)
        else:
            yield Check(title, True, version)


_WAYS_IN = (
    ("torch", "torch", "verilocc torch, torch.compile and the language model", "torch"),
    ("IREE's compiler", "iree-base-compiler", "verilocc iree and torch", "iree"),
    ("IREE's runtime", "iree-base-runtime", "running a .vmfb on a GPU here", "iree"),
    ("torch-mlir", "torch-mlir", "the pass on MLIR modules (Python 3.11 alone)", "mlir"),
    ("Triton", "triton", "its hook", "triton"),
    ("gRPC", "grpcio", "verilocc serve, and asking a server", "service"),
    ("Ray", "ray", "more than one machine", "ray"),
    ("OR-Tools", "ortools", "--allocator=exact", "exact"),
    ("transformers", "transformers", "the language model", "model"),
)
"""What it is, its distribution, what needs it, and the extra of this project that brings it."""


def _ways_in() -> Iterator[Check]:
    """The packages of the ways in; none is needed for ``verilocc compile``."""
    for name, distribution, use, extra in _WAYS_IN:
        try:
            version = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            mend = f"pip install '{_DISTRIBUTION}[{extra}]'"
            yield Check(name, False, f"not installed; needed for {use}", mend, needed=False)
        else:
            yield Check(name, True, f"{version}, for {use}", needed=False)


def _allocators() -> Iterator[Check]:
    """The allocators of other packages, each loaded and made as a compilation would."""

    for plugin in plugins():
        what = f"--allocator={plugin.name}"
        where = f"{plugin.package}, {plugin.place}"
        if is_taken(plugin.name):
            yield Check(what, False, f"{where}: never asked, the name is taken", "give it another name", needed=False)
            continue
        try:
            plugin_called(plugin.name)
            allocator = plugin.make(DEFAULT_SECONDS)
        except VeriloccError as error:
            yield Check(what, False, error.what, error.hint, needed=False)
        else:
            yield Check(what, True, f"{where}, version {allocator.version}", needed=False)


def _tools(llvm: Path | None) -> Iterator[Check]:
    try:
        tritons = Check("Triton's LLVM", True, f"{find_triton().version_text}, for --toolchain=triton", needed=False)
    except ToolchainError as error:
        tritons = Check("Triton's LLVM", False, error.what, error.hint, needed=False)
    yield from _llc(llvm, needed=llvm is not None or not tritons.found)
    yield tritons
    try:
        yield Check("LLVM that is used", True, choose_tools(llvm=llvm).version_text)
    except VeriloccError as error:
        yield Check("LLVM that is used", False, error.what.splitlines()[0], error.hint)


def _llc(llvm: Path | None, *, needed: bool) -> Iterator[Check]:
    try:
        tools = find_toolchain(llvm)
    except ToolchainError as error:
        for candidate in survey(llvm):
            if not candidate.accepted:
                yield Check(f"{candidate.tool} {candidate.path}", False, candidate.reason, needed=False)
        yield Check("LLVM", False, error.what, error.hint or "make llvm", needed=needed)
        return
    yield Check("LLVM", True, f"{tools.version_text}, from {tools.source}")
    yield Check("llc", True, str(tools.llc))
    yield Check("ld.lld", True, str(tools.lld))
    for attribute, use in _OPTIONAL_TOOLS.items():
        path: Path | None = getattr(tools, attribute)
        yield Check(f"llvm {attribute}", path is not None, str(path or f"not found; needed for {use}"), needed=False)
