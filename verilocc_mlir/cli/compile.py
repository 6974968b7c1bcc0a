"""``verilocc compile``, and ``verilocc report``: the same with one HTML page about it."""

from __future__ import annotations

import shutil
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from verilocc_mlir.cli.given import Command, grouped_help
from verilocc_mlir.cli.options import (
    LLVM_OPTIONS,
    PROOF_OPTIONS,
    TARGET_OPTIONS,
    asks_for_help,
    compile_options,
    print_target_help,
    settings_of,
)
from verilocc_mlir.cli.output import (
    STDIO,
    Progress,
    check_writable,
    discard,
    make_directory,
    new_recording,
    read,
    smt_dir_option,
    write,
    write_recorded,
    written_last,
)
from verilocc_mlir.cli.server import (
    SERVER_OPTIONS,
    access_options,
    allocators_for,
    asked_of_server,
    server_option,
    warn_missed,
)
from verilocc_mlir.errors import InputError
from verilocc_mlir.pipeline.settings import Emit, Settings

if TYPE_CHECKING:
    from verilocc_mlir.pipeline.compile import Compiled
    from verilocc_mlir.pipeline.events import Listener
    from verilocc_mlir.pipeline.recording import Recording
    from verilocc_mlir.results.compile import Report

_GROUPS: dict[str, Any] = {
    "verilocc compile": [
        {"name": "Target, as for llc", "options": TARGET_OPTIONS},
        {
            "name": "Result",
            "options": ["--output", "--emit", "--allow-unproved", "--report", "--html", "--smt-dir"],
        },
        {"name": "More", "options": ["--save-temps", "--quiet"]},
        {"name": "Allocation and proof", "options": PROOF_OPTIONS},
        {"name": "Server", "options": SERVER_OPTIONS},
        {"name": "LLVM", "options": LLVM_OPTIONS},
    ]
}


@click.command("compile", cls=Command, context_settings=grouped_help(_GROUPS))
@click.argument("source", metavar="IN", default=STDIO)
@click.option("-o", "--output", metavar="OUT", default="", help="Result; - is standard output. [default: as llc]")
@click.option("--allow-unproved", is_flag=True, help="Write the result whatever the verdict; the exit code stays.")
@click.option("--report", "report_path", default="", metavar="FILE.json", help="Write the report as JSON; - is stdout.")
@click.option("--html", default="", metavar="FILE", help="Write the page with pictures; - is stdout.")
@smt_dir_option
@click.option("--save-temps", default="", metavar="DIR", help="Keep the machine IR before and after allocation there.")
@click.option("-q", "--quiet", is_flag=True, help="No table, no progress.")
@server_option("local: one in this process, none: no server")
@access_options
@compile_options
def compile_command(
    source: str,
    output: str,
    allow_unproved: bool,
    report_path: str,
    html: str,
    smt_dir: Path | None,
    save_temps: str,
    quiet: bool,
    **options: Any,
) -> int:
    """Compile LLVM IR (.ll, .bc) or pre-RA machine IR (.mir) for an AMD GPU; IN is - for standard input.

    The result is written only if every register assignment in it is proved. A function that nobody proves is left out
    of it.
    """
    settings = replace(settings_of(asked_of_server(options)), also=(Emit.MIR,) if save_temps else ())
    if asks_for_help(settings):
        return print_target_help(settings)
    destination = output or default_output(source, settings.emit)
    destinations = [path for path in (destination, report_path, html) if path]
    if destinations.count(STDIO) > 1:
        raise InputError("the result and the report cannot both go to standard output", hint="give one a file name")
    if html and html in (destination, report_path, source):
        raise InputError("the page would overwrite another file", where=html, hint="give another name with --html")
    if destination == source != STDIO:
        raise InputError("the result would overwrite the input", where=source, hint="give another name with -o")
    if save_temps:
        make_directory(save_temps)
    for path in destinations:
        check_writable(path)
    data = read_source(source)

    from smt_verifier.smt import default_solver

    # While this process is small, and has no thread but this one.
    default_solver().start(fork=True)
    recording = new_recording() if html or smt_dir else None
    with Progress(source, sys.stderr, wanted=not quiet) as listeners:
        compiled = _compiled(data, source, settings, recording, listeners, allow_unproved=allow_unproved)
    report = compiled.report
    if save_temps:
        for when, text in (("before", compiled.before.encode()), ("after", compiled.also.get(Emit.MIR))):
            if text:
                write(str(Path(save_temps) / f"{_stem(source)}.{when}.mir"), text)
    with ExitStack() as last:
        if compiled.data is not None and (report.exit_code == 0 or report.left_out or allow_unproved):
            last.enter_context(written_last(destination, compiled.data))
            report = replace(report, output=destination)
        if recording is not None:
            write_recorded(html, report, recording, smt_dir)
        if report_path:
            from verilocc_mlir.results.compile_document import to_json

            write(report_path, to_json(report).encode())
        _show(report, quiet=quiet, to_stderr=STDIO in destinations)
    return int(report.exit_code)


def _compiled(
    data: bytes,
    source: str,
    settings: Settings,
    recording: Recording | None,
    listeners: tuple[Listener, ...],
    *,
    allow_unproved: bool,
) -> Compiled:
    from verilocc_mlir.pipeline.compile import compile_module

    with allocators_for(settings) as allocators:
        return compile_module(
            data,
            source,
            settings,
            allow_unproved=allow_unproved,
            allocators=allocators,
            recording=recording,
            listeners=listeners,
        )


def _show(report: Report, *, quiet: bool, to_stderr: bool) -> None:
    """The table, or, where none is wanted, a warning if the server had not its part."""
    if quiet:
        warn_missed(report.server)
    else:
        from verilocc_mlir.report.text import WIDTH, render

        to = sys.stderr if to_stderr else sys.stdout
        width = shutil.get_terminal_size().columns if to is not None and to.isatty() else WIDTH
        try:
            click.echo(render(report, width), file=to)
        except BrokenPipeError:  # whoever read has enough: that is no verdict
            discard(to)


def default_output(source: str, emit: Emit) -> str:
    """Where the result goes without ``-o``, as llc: standard output for standard input, else IN with another suffix."""
    return STDIO if source == STDIO else str(Path(source).with_suffix(emit.suffix))


def _stem(source: str) -> str:
    return "stdin" if source == STDIO else Path(source).stem


def read_source(source: str) -> bytes:
    """The input's bytes.

    Raises:
        InputError: it cannot be read, or standard input is a terminal.
    """
    if source == STDIO and sys.stdin and sys.stdin.isatty():
        raise InputError("no input", hint="name a file, or pipe one in; see verilocc compile --help")
    return read(source)


# ``verilocc report``: compile, prove, and write one HTML page about it.


_REPORT_GROUPS: dict[str, Any] = {
    "verilocc report": [
        {"name": "Target, as for llc", "options": TARGET_OPTIONS},
        {"name": "Result", "options": ["--output", "--emit", "--smt-dir", "--allow-unproved", "--quiet"]},
        {"name": "Allocation and proof", "options": PROOF_OPTIONS},
        {"name": "Server", "options": SERVER_OPTIONS},
        {"name": "LLVM", "options": LLVM_OPTIONS},
    ]
}


@click.command("report", cls=Command, context_settings=grouped_help(_REPORT_GROUPS))
@click.argument("source", metavar="IN", default=STDIO)
@click.option("-o", "--output", metavar="FILE", default="", help="The page; - is standard output. [default: IN.html]")
@smt_dir_option
@click.option("--allow-unproved", is_flag=True, help="Go on after a phase that is not proved; the exit code stays.")
@click.option("-q", "--quiet", is_flag=True, help="No table, no progress.")
@server_option("local: one in this process, none: no server")
@access_options
@compile_options
def report_command(
    source: str, output: str, smt_dir: Path | None, allow_unproved: bool, quiet: bool, **options: Any
) -> int:
    """Compile as verilocc compile does, and write a page about it instead of the result: one HTML file with pictures.

    The page is written whatever the verdict, and says it; exit codes are those of verilocc compile.
    """
    settings = settings_of(asked_of_server(options))
    if asks_for_help(settings):
        return print_target_help(settings)
    destination = output or (STDIO if source == STDIO else str(Path(source).with_suffix(".html")))
    if destination == source != STDIO:
        raise InputError("the page would overwrite the input", where=source, hint="give another name with -o")
    check_writable(destination)
    data = read_source(source)

    recording = new_recording()
    with Progress(source, sys.stderr, wanted=not quiet) as listeners:
        compiled = _compiled(data, source, settings, recording, listeners, allow_unproved=allow_unproved)
    write_recorded(destination, compiled.report, recording, smt_dir)
    _show(replace(compiled.report, output=destination), quiet=quiet, to_stderr=destination == STDIO)
    return int(compiled.report.exit_code)
