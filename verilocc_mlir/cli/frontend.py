"""``verilocc iree`` and ``verilocc torch``: modules through IREE, with the options, progress and output they share."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeVar

import click

from verilocc_mlir.cli.given import HELP, Command
from verilocc_mlir.cli.options import kernel_options, settings_of
from verilocc_mlir.cli.output import (
    STDIO,
    check_directory,
    check_writable,
    end_on_sigterm,
    make_directory,
    write,
    write_page,
    written_last,
)
from verilocc_mlir.cli.server import LOCAL, access_options, asked_of_server, server_option, warn_missed
from verilocc_mlir.errors import InputError, VeriloccError
from verilocc_mlir.hooks.iree import compile_mlir
from verilocc_mlir.hooks.iree_compiler import check_target, find_iree_compile
from verilocc_mlir.hooks.iree_result import IreeResult
from verilocc_mlir.hooks.module_page import module_page, print_result
from verilocc_mlir.hooks.torch import compile
from verilocc_mlir.hooks.torch_import import IREE_FLAGS, front_end
from verilocc_mlir.pipeline.checked_settings import check_settings
from verilocc_mlir.pipeline.compile import compile_module
from verilocc_mlir.pipeline.recording import Recording
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.report.tables import console
from verilocc_mlir.store import Store

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
            print_result(result, output if is_written else "", console(stderr=STDIO in (output, report)))
    return int(result.exit_code)


def _write_pages(directory: Path, result: IreeResult, settings: Settings, progress: Callable[[str], None]) -> None:
    """``index.html`` of the module, and a page for each kernel, which is compiled once more for it."""
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


# ``verilocc torch``.


_FORM = (
    "give FILE.py:factory, where factory() returns (module, example_inputs) or (module, example_inputs, dynamic_shapes)"
)


@click.command("torch", cls=Command, context_settings=HELP)
@click.argument("source", metavar="FILE.py:factory")
@click.option("--target", required=True, metavar="TARGET", help="gfx942, mi300x, …: as --iree-rocm-target.")
@frontend_options
def torch_command(source: str, target: str, **options: Any) -> int:
    """Compile a Torch module through IREE, its GPU kernels with register assignments that are proved.

    factory() returns (module, example_inputs), or (module, example_inputs, dynamic_shapes) as torch.export takes them.
    The exit codes are those of verilocc iree.
    """
    file, _, factory = source.rpartition(":")
    if not file or not factory.isidentifier():
        raise InputError(f"{source!r} does not name a factory", hint=_FORM)
    check(options, file)

    settings = settings_taken(options)
    check_settings(settings)
    iree = find_iree_compile(options["iree_path"])
    check_target(iree, target, (*IREE_FLAGS, *options["flags"]))
    front_end("torch")
    program = _made(Path(file), factory)
    end_on_sigterm()
    compiled = compile(
        program[0],
        program[1],
        target=target,
        dynamic_shapes=program[2] if len(program) > 2 else None,
        flags=options["flags"],
        settings=settings,
        jobs=options["jobs"],
        replace=options["replace"],
        cache=cache_of(options),
        iree=iree,
        progress=progress_of(options),
    )
    return finish(compiled.result, options, settings)


def _made(file: Path, factory: str) -> tuple[Any, ...]:
    if not file.is_file():
        raise InputError("no such file", where=str(file))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise InputError("this is no Python file", where=str(file), hint=_FORM)
    module = importlib.util.module_from_spec(spec)
    # As for a script: its own directory comes first, and it can be found by name (dataclasses, pickle).
    sys.path.insert(0, str(file.resolve().parent))
    sys.modules[file.stem] = module
    try:
        spec.loader.exec_module(module)
        if not hasattr(module, factory):
            raise InputError(f"it has no {factory}", where=str(file), hint=_FORM)
        returned = getattr(module, factory)()
    except VeriloccError:
        raise
    except Exception as error:
        raise InputError(f"it raised {type(error).__name__}: {error}", where=_place(file, error)) from error
    if not isinstance(returned, tuple) or len(returned) not in (2, 3):  # pyright: ignore[reportUnknownArgumentType]
        raise InputError(f"{factory}() did not return two or three things", where=str(file), hint=_FORM)
    return returned  # pyright: ignore[reportUnknownVariableType]


def _place(file: Path, error: BaseException) -> str:
    """The line of the user's file that raised it."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename).resolve() == file.resolve():
            line = trace.tb_lineno
        trace = trace.tb_next
    return f"{file}:{line}" if line else str(file)


# ``verilocc iree``.


@click.command("iree", cls=Command, context_settings=HELP)
@click.argument("source", metavar="MODULE.mlir")
@click.option(
    "--iree-rocm-target", "target", required=True, metavar="TARGET", help="gfx942, mi300x, …: as for iree-compile."
)
@frontend_options
def iree_command(source: str, target: str, **options: Any) -> int:
    """Compile an MLIR module with IREE, its GPU kernels with register assignments that are proved.

    A kernel that is not proved stays as IREE made it, and is named. Exit code 0: every kernel in OUT.vmfb is proved;
    1 or 3: it was written, but some are not (see --only-proved); 2: bad input, or a tool is missing or failed.
    """
    check(options, source)

    settings = settings_taken(options)
    result = compile_mlir(
        Path(source),
        target=target,
        flags=options["flags"],
        settings=settings,
        jobs=options["jobs"],
        replace=options["replace"],
        cache=cache_of(options),
        iree=find_iree_compile(options["iree_path"]),
        progress=progress_of(options),
    )
    if options["quiet"]:
        warn_missed(*result.server)
    return finish(result, options, settings)
