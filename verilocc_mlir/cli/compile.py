"""``verilocc compile``."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich_click import RichCommand, RichHelpConfiguration

from verilocc_mlir.cli.output import STDIO, check_writable, make_directory, write
from verilocc_mlir.errors import InputError
from verilocc_mlir.pipeline.settings import (
    DEFAULT_ALLOCATOR,
    DEFAULT_SOLVER_SECONDS,
    DEFAULT_TOOL_SECONDS,
    Emit,
    Settings,
)

_GROUPS: dict[str, Any] = {
    "verilocc compile": [
        {"name": "Target, as for llc", "options": ["--mcpu", "--mattr", "--mtriple", "-O"]},
        {
            "name": "Result",
            "options": ["--output", "--emit", "--allow-unproved", "--report", "--save-temps", "--quiet"],
        },
        {"name": "Allocation and proof", "options": ["--allocator", "--fallback", "--solver-seconds"]},
        {"name": "LLVM", "options": ["--llvm", "--llc", "--verify", "--tool-seconds"]},
    ]
}
_SECONDS = click.FloatRange(0, min_open=True)
_CONTEXT = {
    "help_option_names": ["-h", "--help"],
    "rich_help_config": RichHelpConfiguration(option_groups=_GROUPS),
}


@click.command("compile", cls=RichCommand, context_settings=_CONTEXT)
@click.argument("source", metavar="IN", default=STDIO)
@click.option("--mcpu", "cpu", default="", metavar="CPU", help="Target, e.g. gfx942. [default: the IR's target-cpu]")
@click.option("--mattr", "features", default="", metavar="LIST", help="Target features, as llc takes them.")
@click.option("--mtriple", "triple", default="", metavar="TRIPLE", help="Checked only: must be an AMDGPU's.")
@click.option("-O", "opt_level", type=click.IntRange(1, 3), default=3, show_default=True, help="llc's level.")
@click.option("-o", "--output", metavar="OUT", default="", help="Result; - is standard output. [default: as llc]")
@click.option("--emit", type=click.Choice([e.value for e in Emit]), default=Emit.HSACO.value, show_default=True)
@click.option(
    "--allocator", default=DEFAULT_ALLOCATOR, show_default=True, metavar="NAME", help="llvm: LLVM's, audited."
)
@click.option("--fallback/--no-fallback", default=True, help="Take LLVM's allocation where ours fails. [default: on]")
@click.option("--allow-unproved", is_flag=True, help="Write the result whatever the verdict; the exit code stays.")
@click.option("--report", "report_path", default="", metavar="FILE.json", help="Write the report as JSON; - is stdout.")
@click.option("--save-temps", default="", metavar="DIR", help="Keep the machine IR before and after allocation there.")
@click.option("-q", "--quiet", is_flag=True, help="No table.")
@click.option("--llvm", type=click.Path(path_type=Path), default=None, metavar="DIR", help="Directory of llc, or llc.")
@click.option("--llc", "llc_options", multiple=True, metavar="FLAG", help="Hand a flag to llc, e.g. -fp-contract=fast.")
@click.option("--verify/--no-verify", "verify", default=True, help="Run llc's machine verifier too. [default: on]")
@click.option(
    "--solver-seconds",
    type=_SECONDS,
    default=DEFAULT_SOLVER_SECONDS,
    show_default=True,
    help="For one question; then UNKNOWN.",
)
@click.option(
    "--tool-seconds",
    type=_SECONDS,
    default=DEFAULT_TOOL_SECONDS,
    show_default=True,
    help="For one run of llc or ld.lld.",
)
def compile_command(
    source: str,
    cpu: str,
    features: str,
    triple: str,
    opt_level: int,
    output: str,
    emit: str,
    allocator: str,
    fallback: bool,
    allow_unproved: bool,
    report_path: str,
    save_temps: str,
    quiet: bool,
    llvm: Path | None,
    llc_options: tuple[str, ...],
    verify: bool,
    solver_seconds: float,
    tool_seconds: float,
) -> int:
    """Compile LLVM IR (.ll, .bc) or pre-RA machine IR (.mir) for an AMD GPU; IN is - for standard input.

    The result is written only if every register assignment in it is proved.
    """
    settings = Settings(
        cpu=cpu,
        features=features,
        triple=triple,
        opt_level=opt_level,
        allocator=allocator,
        emit=Emit(emit),
        also=(Emit.MIR,) if save_temps else (),
        fallback=fallback,
        verify=verify,
        solver_seconds=solver_seconds,
        tool_seconds=tool_seconds,
        llvm=llvm,
        llc_options=llc_options,
    )
    destination = output or default_output(source, settings.emit)
    if report_path == destination == STDIO:
        raise InputError("the result and the report cannot both go to standard output", hint="give one a file name")
    if destination == source != STDIO:
        raise InputError("the result would overwrite the input", where=source, hint="give another name with -o")
    if save_temps:
        make_directory(save_temps)
    for path in filter(None, (destination, report_path)):
        check_writable(path)
    data = _read(source)

    from verilocc_mlir.pipeline.compile import compile_module
    from verilocc_mlir.report.json import to_json

    compiled = compile_module(data, source, settings, allow_unproved=allow_unproved)
    report = compiled.report
    if save_temps:
        for when, text in (("before", compiled.before.encode()), ("after", compiled.also.get(Emit.MIR))):
            if text:
                write(str(Path(save_temps) / f"{_stem(source)}.{when}.mir"), text)
    if compiled.data is not None and (report.exit_code == 0 or allow_unproved):
        write(destination, compiled.data)
        report = replace(report, output=destination)
    if report_path:
        write(report_path, to_json(report).encode())
    if not quiet:
        from verilocc_mlir.report.text import console, print_report

        print_report(report, console(stderr=STDIO in (destination, report_path)))
    return int(report.exit_code)


def default_output(source: str, emit: Emit) -> str:
    """Where the result goes without ``-o``, as llc: standard output for standard input, else IN with another suffix."""
    return STDIO if source == STDIO else str(Path(source).with_suffix(emit.suffix))


def _stem(source: str) -> str:
    return "stdin" if source == STDIO else Path(source).stem


def _read(source: str) -> bytes:
    if source == STDIO:
        if sys.stdin.isatty():
            raise InputError("no input", hint="name a file, or pipe one in; see verilocc compile --help")
        return sys.stdin.buffer.read()
    try:
        return Path(source).read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=source) from error
