"""Options, progress and output that ``verilocc iree`` and ``verilocc torch`` share."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from verilocc_mlir.cli.options import kernel_options, settings_of
from verilocc_mlir.cli.output import STDIO, check_directory, check_writable, make_directory, write, written_last
from verilocc_mlir.cli.page import write_page
from verilocc_mlir.cli.server import LOCAL, access_options, asked_of_server, server_option
from verilocc_mlir.errors import InputError, VeriloccError
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.store import Store

if TYPE_CHECKING:
    from verilocc_mlir.hooks.iree_result import IreeResult

_Command = TypeVar("_Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option("-o", "--output", required=True, metavar="OUT.vmfb", help="The compiled module."),
    click.option("--report", "report_path", default="", metavar="FILE.json", help="Write the report; - is stdout."),
    click.option("--html", default="", metavar="DIR", help="Write a page of the module there, and one of each kernel."),
    click.option("--save-temps", default="", metavar="DIR", help="Keep each kernel's code objects and machine IR."),
    click.option("--only-proved", is_flag=True, help="Write nothing unless every kernel is proved."),
    click.option(
        "-j", "--jobs", type=click.IntRange(0), default=0, metavar="N", help="Kernels at once; 0: one a core."
    ),
    click.option(
        "--replace",
        "replace",
        type=click.Choice(["always", "better", "measured", "never"]),
        default="better",
        show_default=True,
        help="Which of IREE's kernels ours replace; better: where ours is no worse by the model; measured: where it is "
        "not slower, by the journal $VERILOCC_MEASURED or on the GPU that is here.",
    ),
    click.option(
        "--cache",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Where results are kept. [default: $XDG_CACHE_HOME/verilocc or ~/.cache/verilocc]",
    ),
    click.option("--no-cache", is_flag=True, help="Keep no results, and take none that are kept."),
    click.option("-q", "--quiet", is_flag=True, help="No progress, no table."),
    click.option("--iree", "iree_path", default="", metavar="PATH", help="The iree-compile to use."),
    click.argument("flags", nargs=-1, type=click.UNPROCESSED, metavar="[-- IREE-COMPILE-FLAGS]"),
)


def frontend_options(command: _Command) -> _Command:
    """Add what both commands take; the command gets them as the keyword arguments of ``Request`` and ``finish``."""
    for decorate in (kernel_options, access_options, server_option("none: no server"), *reversed(_OPTIONS)):
        command = decorate(command)
    return command


def settings_taken(options: dict[str, Any]) -> Settings:
    """How the kernels are compiled: what ``kernel_options`` and those of the server added, taken out of ``options``."""
    own = (
        "output", "report_path", "html", "save_temps", "only_proved", "jobs", "replace", "cache", "no_cache", "quiet",
        "iree_path", "flags",
    )  # fmt: skip
    kernel_settings = {name: options.pop(name) for name in [*options] if name not in own}
    settings = settings_of(asked_of_server(kernel_settings))
    if settings.server == LOCAL:
        raise click.UsageError("--server=local is for one file; start a server: verilocc serve --listen=unix:PATH")
    return settings


def check(options: dict[str, Any], source: str) -> None:
    """Fail before the work rather than after it.

    Raises:
        InputError: an output that cannot be written, or that is the input or standard output twice; a cache that is
            not to be trusted.
    """
    output, report = options["output"], options["report_path"]
    if output == source:
        raise InputError("the result would overwrite the input", where=source, hint="give another name with -o")
    if output == report:
        raise InputError("the result and the report cannot go to the same place", hint="give one another name")
    for path in filter(None, (output, report)):
        check_writable(path)
    for path in filter(None, (options["html"], options["save_temps"])):
        check_directory(path)
    if options["cache"] is not None:
        Store(options["cache"]).check()


def cache_of(options: dict[str, Any]) -> Path | bool:
    """Where results are kept: as ``compile_mlir`` takes it.

    Raises:
        click.UsageError: somewhere and nowhere.
    """
    if options["cache"] is not None and options["no_cache"]:
        raise click.UsageError("--cache and --no-cache exclude each other")
    return False if options["no_cache"] else options["cache"] or True


def progress_of(options: dict[str, Any]) -> Callable[[str], None]:
    """Where the lines about each step go: standard error, or nowhere."""
    return (lambda _: None) if options["quiet"] else (lambda line: click.echo(line, err=True))


def finish(result: IreeResult, options: dict[str, Any], settings: Settings) -> int:
    """Write the file, the report and what else was asked for; show the table. Returns the exit code."""
    output, report = options["output"], options["report_path"]
    is_written = result.proved or not options["only_proved"]
    if options["save_temps"]:
        result.save_temps(Path(options["save_temps"]))
    with written_last(output, result.vmfb) if is_written else nullcontext():
        if report:
            write(report, result.to_json().encode())
        if options["html"]:
            _write_pages(Path(options["html"]), result, settings, progress_of(options))
        if not options["quiet"]:
            from verilocc_mlir.hooks.iree_table import print_result
            from verilocc_mlir.report.text import console

            print_result(result, output if is_written else "", console(stderr=STDIO in (output, report)))
    return int(result.exit_code)


def _write_pages(directory: Path, result: IreeResult, settings: Settings, progress: Callable[[str], None]) -> None:
    """``index.html`` of the module, and a page for each kernel, which is compiled once more for it."""
    from verilocc_mlir.hooks.module_page import module_page
    from verilocc_mlir.pipeline.compile import compile_module
    from verilocc_mlir.pipeline.recording import Recording

    make_directory(str(directory))
    links: dict[str, str] = {}
    for number, kernel in enumerate(result.kernels):
        source = kernel.source
        if source is None:
            continue
        progress(f"page [{number + 1}/{len(result.kernels)}] {kernel.executable}")
        recording = Recording()
        try:
            compiled = compile_module(source.ir, kernel.executable, source.settings(settings), recording=recording)
        except VeriloccError:  # the reason stands in the module's page
            continue
        links[kernel.executable] = f"kernel-{number}.html"
        write_page(str(directory / links[kernel.executable]), compiled.report, recording)
    write(str(directory / "index.html"), module_page(result, links).encode())
