"""``verilocc report``: compile, prove, and write one HTML page about it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from verilocc_mlir.cli.compile import read_source
from verilocc_mlir.cli.help import Command, grouped_help
from verilocc_mlir.cli.options import (
    LLVM_OPTIONS,
    PROOF_OPTIONS,
    TARGET_OPTIONS,
    asks_for_help,
    compile_options,
    print_target_help,
    settings_of,
)
from verilocc_mlir.cli.output import STDIO, check_writable
from verilocc_mlir.cli.page import smt_dir_option, write_recorded
from verilocc_mlir.cli.server import (
    SERVER_OPTIONS,
    access_options,
    allocators_for,
    asked_of_server,
    server_option,
    warn_missed,
)
from verilocc_mlir.errors import InputError

_GROUPS: dict[str, Any] = {
    "verilocc report": [
        {"name": "Target, as for llc", "options": TARGET_OPTIONS},
        {"name": "Result", "options": ["--output", "--emit", "--smt-dir", "--allow-unproved", "--quiet"]},
        {"name": "Allocation and proof", "options": PROOF_OPTIONS},
        {"name": "Server", "options": SERVER_OPTIONS},
        {"name": "LLVM", "options": LLVM_OPTIONS},
    ]
}


@click.command("report", cls=Command, context_settings=grouped_help(_GROUPS))
@click.argument("source", metavar="IN", default=STDIO)
@click.option("-o", "--output", metavar="FILE", default="", help="The page; - is standard output. [default: IN.html]")
@smt_dir_option
@click.option("--allow-unproved", is_flag=True, help="Go on after a phase that is not proved; the exit code stays.")
@click.option("-q", "--quiet", is_flag=True, help="No table.")
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

    from verilocc_mlir.pipeline.compile import compile_module
    from verilocc_mlir.pipeline.recording import Recording

    recording = Recording()
    with allocators_for(settings) as allocators:
        compiled = compile_module(
            data, source, settings, allow_unproved=allow_unproved, allocators=allocators, recording=recording
        )
    write_recorded(destination, compiled.report, recording, smt_dir)
    if quiet:
        warn_missed(compiled.report.server)
    else:
        from verilocc_mlir.report.text import console, print_report

        print_report(replace(compiled.report, output=destination), console(stderr=destination == STDIO))
    return int(compiled.report.exit_code)
