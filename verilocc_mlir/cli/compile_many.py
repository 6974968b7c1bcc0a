"""``verilocc compile-many``."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from verilocc_mlir.cli.given import POSITIVE, Command, given_as, grouped_help
from verilocc_mlir.cli.options import (
    LLVM_OPTIONS,
    PROOF_OPTIONS,
    RAY_OPTIONS,
    TARGET_OPTIONS,
    asks_for_help,
    cluster_address,
    compile_options,
    print_target_help,
    ray_options,
    settings_of,
)
from verilocc_mlir.cli.output import STDIO, check_writable, make_directory, write
from verilocc_mlir.cli.server import (
    LOCAL,
    SERVER_OPTIONS,
    access_options,
    asked_of_server,
    server_option,
    server_version,
)
from verilocc_mlir.errors import ExitCode, InputError
from verilocc_mlir.pipeline.batch.executors import LocalExecutor, RayExecutor
from verilocc_mlir.pipeline.batch.jobs import Executor
from verilocc_mlir.pipeline.batch.run import PATTERNS, BatchOptions, compile_batch, plan
from verilocc_mlir.pipeline.checked_settings import check_settings
from verilocc_mlir.pipeline.key import Keys, versions
from verilocc_mlir.report.tables import console, item_line, print_batch
from verilocc_mlir.results.batch import BatchItem, BatchReport, to_json
from verilocc_mlir.store import Store, default_directory
from verilocc_mlir.toolchain.choose import choose_tools
from verilocc_mlir.toolchain.find import LlvmTools
from verilocc_mlir.version import __version__

_DEFAULT_JOB_SECONDS = 3600.0
_DEFAULT_MEMORY_MIB = 2048
_GROUPS: dict[str, Any] = {
    "verilocc compile-many": [
        {"name": "Target, as for llc", "options": [*TARGET_OPTIONS, "--mcpu-for"]},
        {"name": "Inputs and results", "options": ["--glob", "--output", "--emit", "--reports", "--report"]},
        {"name": "Work", "options": ["--jobs", "--job-seconds", "--memory", "--retry", "--cache", "--no-cache"]},
        {"name": "More than one machine", "options": RAY_OPTIONS},
        {"name": "Display", "options": ["--progress", "--quiet"]},
        {"name": "Allocation and proof", "options": PROOF_OPTIONS},
        {"name": "Server", "options": SERVER_OPTIONS},
        {"name": "LLVM", "options": LLVM_OPTIONS},
    ]
}


class _Processor(click.ParamType[tuple[str, str]]):
    """``PATTERN=CPU``."""

    name = "PATTERN=CPU"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        pattern, _, cpu = str(value).rpartition("=")
        if not pattern or not cpu:
            self.fail(f"{value!r} is not PATTERN=CPU, such as 'mi300/*.ll=gfx942'", param, ctx)
        return pattern, cpu


@dataclass(frozen=True)
class _CompileManyGiven:
    sources: tuple[Path, ...]
    out: Path | None
    patterns: tuple[str, ...]
    processors: tuple[tuple[str, str], ...]
    jobs: int
    job_seconds: float
    memory_mib: int
    ray: bool
    ray_address: str
    retry: bool
    cache: Path | None
    no_cache: bool
    reports: bool
    report_path: str
    progress: bool
    quiet: bool
    options: dict[str, Any]


@click.command("compile-many", cls=Command, context_settings=grouped_help(_GROUPS))
@click.argument("sources", metavar="DIR...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    "out",
    metavar="OUT",
    type=click.Path(path_type=Path),
    help="Directory for the results. [default: beside the inputs]",
)
@click.option(
    "--glob", "patterns", multiple=True, metavar="PATTERN", help="Inputs in DIR. [default: *.ll, *.bc and *.mir]"
)
@click.option(
    "--mcpu-for", "processors", type=_Processor(), multiple=True,
    help="Target of the inputs whose path ends so; the first that fits. [default: --mcpu, or the IR's target-cpu]",
)  # fmt: skip
@click.option(
    "-j", "--jobs", type=click.IntRange(0), default=0, metavar="N", help="Inputs at once. [default: one a core]"
)
@click.option(
    "--job-seconds",
    type=POSITIVE,
    default=_DEFAULT_JOB_SECONDS,
    show_default=True,
    help="For one input; then UNKNOWN.",
)
@click.option(
    "--memory",
    "memory_mib",
    type=click.IntRange(512),
    default=_DEFAULT_MEMORY_MIB,
    show_default=True,
    metavar="MIB",
    help="For one worker, and for each tool it starts; then UNKNOWN.",
)
@ray_options
@click.option("--retry", is_flag=True, help="Try again what an earlier run did not prove.")
@click.option(
    "--cache",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where results are kept. [default: $XDG_CACHE_HOME/verilocc or ~/.cache/verilocc]",
)
@click.option("--no-cache", is_flag=True, help="Keep no results, and take none that are kept.")
@click.option("--reports", is_flag=True, help="Write the report of each input too, as NAME.report.json.")
@click.option(
    "--report", "report_path", default="", metavar="FILE.json", help="Write the summary as JSON; - is stdout."
)
@click.option("--progress/--no-progress", default=True, help="Show each result as it is ready. [default: on]")
@click.option("-q", "--quiet", is_flag=True, help="Say only what went wrong.")
@server_option("none: no server")
@access_options
@compile_options
@given_as(_CompileManyGiven, rest="options")
def compile_many_command(given: _CompileManyGiven) -> int:
    """Compile many files, and all in directories, as verilocc compile does each; one that fails stops no other.

    Results are written as they are ready. A run that was interrupted goes on where it was when it is started again.
    The exit code is the gravest: 1 before 2 before 3 before 0.
    """
    if given.cache is not None and given.no_cache:
        raise click.UsageError("--cache and --no-cache exclude each other")
    settings = settings_of(asked_of_server(given.options))
    if asks_for_help(settings):
        return print_target_help(settings)
    if settings.server == LOCAL:
        raise click.UsageError("--server=local is for one file; start a server: verilocc serve --listen=unix:PATH")
    cluster = cluster_address(given.ray, given.ray_address)

    check_settings(settings)

    inputs = plan(given.sources, given.out, settings.emit, given.patterns or PATTERNS, given.processors)
    for directory in sorted({i.root for i in inputs}):
        make_directory(str(directory))
    if given.report_path:
        check_writable(given.report_path)

    start = time.monotonic()
    toolchain = choose_tools(settings.toolchain, settings.llvm)
    version = server_version(settings)
    keys = Keys(settings, toolchain, version)
    chosen = {i.cpu for i in inputs if i.cpu}
    keys_for = {cpu: Keys(replace(settings, cpu=cpu), toolchain, version) for cpu in chosen}
    executor = _executor(given.jobs, given.job_seconds, given.memory_mib, toolchain, cluster)
    warnings: list[str] = []
    items: list[BatchItem] = []
    with _progress(len(inputs), given.progress and not given.quiet) as (show, say):

        def warn(message: str) -> None:
            warnings.append(message)
            say(f"verilocc: warning: {message}")

        store = None if given.no_cache else _store(given.cache, warn)
        batch = BatchOptions(settings, keys, store, given.reports, given.retry, warn, keys_for)
        try:
            with closing(compile_batch(inputs, executor, batch)) as results:
                for item in results:
                    items.append(item)
                    show(item)
        except KeyboardInterrupt:
            say(f"verilocc: interrupted; {len(items)} of {len(inputs)} are finished, the same command does the rest")
            return ExitCode.INTERRUPTED
    report = BatchReport(
        __version__,
        toolchain.version_text,
        settings.to_data(),
        tuple(items),
        tuple(warnings),
        time.monotonic() - start,
    )
    if given.report_path:
        write(given.report_path, to_json(report).encode())
    if not given.quiet:
        print_batch(report, console(stderr=given.report_path == STDIO))
    return int(report.exit_code)


def _executor(
    jobs: int, job_seconds: float, memory_mib: int, toolchain: LlvmTools, ray_address: str | None
) -> Executor:
    """Worker processes here, or tasks of the Ray cluster at that address."""
    if ray_address is None:
        return LocalExecutor(jobs or len(os.sched_getaffinity(0)), job_seconds, memory_mib=memory_mib)
    return RayExecutor(ray_address, jobs, job_seconds, versions(toolchain), memory_mib=memory_mib)


def _store(directory: Path | None, warn: Callable[[str], None]) -> Store | None:
    """The store; None, and a warning, where the usual one cannot be had.

    Raises:
        InputError: the one that was asked for is not to be trusted.
    """

    try:
        store = Store(default_directory() if directory is None else directory, warn)
        store.check()
    except (RuntimeError, InputError) as error:
        if directory is not None:
            raise
        warn(f"results are not kept: {error}")
        return None
    return store


_Show = tuple["Callable[[BatchItem], None]", Callable[[str], None]]


@contextmanager
def _progress(total: int, wanted: bool) -> Generator[_Show, None, None]:
    """How a result is shown, and how a line is said, both on standard error: under a bar on a terminal, else in lines.

    What is not proved is always shown.
    """
    number = 0

    def plain(item: BatchItem) -> None:
        nonlocal number
        number += 1
        if wanted or item.exit_code:
            click.echo(f"[{number}/{total}] {item_line(item)}", err=True)

    if not (wanted and sys.stderr.isatty()):
        yield plain, lambda line: click.echo(line, err=True)
        return

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("compiling", total=total)

        def advance(item: BatchItem) -> None:
            bar.advance(task)
            if item.exit_code:
                bar.console.print(Text(item_line(item)))

        yield advance, lambda line: bar.console.print(Text(line))
