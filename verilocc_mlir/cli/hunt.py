"""``verilocc hunt``."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from verilocc_mlir.cli.given import POSITIVE, Command, given_as, grouped_help
from verilocc_mlir.cli.options import RAY_OPTIONS, cluster_address, ray_options
from verilocc_mlir.cli.output import check_directory, make_directory, write
from verilocc_mlir.errors import ExitCode, InputError
from verilocc_mlir.files import JsonLines
from verilocc_mlir.hooks.iree_compiler import find_iree_compile, iree_sources
from verilocc_mlir.hooks.triton.native import cached_kernels
from verilocc_mlir.pipeline.hunt.run import (
    JOURNAL_NAME,
    Execute,
    Hunt,
    HuntInput,
    chosen_variants,
    here,
    inputs_in,
    on_ray,
)
from verilocc_mlir.pipeline.hunt.worker import Task
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.report.written import folder_name, group_report, summary
from verilocc_mlir.results.hunt import FAULTS, HUNT_VERSION, Group, HuntReport, Reduced, data_of, group
from verilocc_mlir.toolchain import ToolchainChoice
from verilocc_mlir.version import __version__

_GROUPS: dict[str, Any] = {
    "verilocc hunt": [
        {"name": "Target", "options": ["--mcpu", "--mattr"]},
        {
            "name": "What LLVM is asked",
            "options": ["--variants", "--options", "--verify", "-O", "--toolchain", "--llvm"],
        },
        {
            "name": "Work",
            "options": ["--out", "--jobs", "--case-seconds", "--memory", "--hours", "--reduce-seconds", "--again"],
        },
        {"name": "More than one machine", "options": RAY_OPTIONS},
        {"name": "Limits", "options": ["--solver-seconds", "--tool-seconds"]},
        {"name": "Display", "options": ["--quiet"]},
    ]
}
_EVERY_S = 10.0
"""Between two lines of progress that have nothing to say but how far it is."""


@dataclass(frozen=True)
class _HuntGiven:
    paths: tuple[Path, ...]
    out: Path
    cpu: str
    features: str
    variants: str
    added: tuple[str, ...]
    verify: bool
    opt_level: int
    toolchain: str
    llvm: Path | None
    jobs: int
    case_seconds: float
    memory_mib: int
    reduce_seconds: float
    hours: float | None
    again: bool
    ray: bool
    ray_address: str
    solver_seconds: float
    tool_seconds: float
    quiet: bool


@click.command("hunt", cls=Command, context_settings=grouped_help(_GROUPS))
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("hunt"), show_default=True, metavar="DIR",
    help="Journal, summary, and a folder for each group.",
)  # fmt: skip
@click.option(
    "--mcpu", "cpu", default="", metavar="CPU", help="Target. [default: the IR's target-cpu, else the one in the name]"
)
@click.option("--mattr", "features", default="", metavar="LIST", help="Target features, as llc takes them.")
@click.option("--variants", default="", metavar="NAMES", help="Only these, separated by commas. [default: all]")
@click.option(
    "--options", "added", multiple=True, metavar="OPTIONS", help='One more: "-stress-regalloc=5 -regalloc=basic".'
)
@click.option("--verify", is_flag=True, help="Have LLVM's machine verifier look too, after each pass.")
@click.option("-O", "opt_level", type=click.IntRange(1, 3), default=3, show_default=True, help="llc's level.")
@click.option(
    "--toolchain", type=click.Choice([c.value for c in ToolchainChoice]), default="auto", show_default=True,
    help="Which LLVM.",
)  # fmt: skip
@click.option("--llvm", type=click.Path(path_type=Path), default=None, metavar="DIR", help="Directory of llc, or llc.")
@click.option(
    "-j", "--jobs", type=click.IntRange(0), default=0, metavar="N", help="Cases at once. [default: one a core]"
)
@click.option(
    "--case-seconds", type=POSITIVE, default=600.0, show_default=True,
    help="For one case; then unknown.",
)  # fmt: skip
@click.option(
    "--memory", "memory_mib", type=click.IntRange(512), default=2048, show_default=True, metavar="MIB",
    help="For one worker, and for each tool it starts.",
)  # fmt: skip
@click.option(
    "--reduce-seconds", type=click.FloatRange(0), default=120.0, show_default=True,
    help="For one group's example; 0: reduce none.",
)  # fmt: skip
@click.option("--hours", type=POSITIVE, default=None, help="Take no new case after so long.")
@click.option("--again", is_flag=True, help="Try once more what was not proved.")
@ray_options
@click.option("--solver-seconds", type=POSITIVE, default=60.0, show_default=True)
@click.option("--tool-seconds", type=POSITIVE, default=300.0, show_default=True)
@click.option("-q", "--quiet", is_flag=True, help="Say only what is wrong.")
@given_as(_HuntGiven)
def hunt_command(given: _HuntGiven) -> int:
    """Look for faults of LLVM's register allocators: audit what they make of each PATH under many options.

    PATH is IR or machine IR (.ll, .bc, .mir), a folder of it, a cache folder of Triton's, or a module for IREE (.mlir).
    Faults are grouped by cause; one of each group is made small and written to DIR. A hunt that was interrupted goes on
    where it was when it is started again.

    Exit codes: 1 an allocation is wrong, 3 LLVM ended or a verdict is unknown, 2 no input is usable, 0 all proved.
    """
    cluster = cluster_address(given.ray, given.ray_address)

    chosen = chosen_variants(tuple(filter(None, given.variants.split(","))), given.added)
    settings = Settings(
        cpu=given.cpu,
        features=given.features,
        opt_level=given.opt_level,
        solver_seconds=given.solver_seconds,
        tool_seconds=given.tool_seconds,
        toolchain=ToolchainChoice(given.toolchain),
        llvm=given.llvm,
        verify=given.verify,
    )
    check_directory(str(given.out))
    inputs = hunted(given.paths, given.cpu, given.out)
    make_directory(str(given.out))
    execute = (
        here(given.jobs, settings, given.case_seconds, given.memory_mib)
        if cluster is None
        else on_ray(cluster, given.jobs, settings, given.case_seconds, given.memory_mib)
    )
    journal = JsonLines(given.out / JOURNAL_NAME)
    hunt = Hunt(inputs, chosen, settings, journal, again=given.again, seconds=3600 * (given.hours or 0.0))
    interrupted = False
    try:
        _follow(hunt, execute, given.quiet)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        journal.close()
    rows = tuple(hunt.rows.values())
    report = HuntReport(__version__, hunt.llvm, rows, group(rows), hunt.total - len(rows))
    if not interrupted:
        try:
            _write_groups(report, given.out, given.reduce_seconds, execute, given.quiet)
        except KeyboardInterrupt:
            interrupted = True
    _write_summary(report, given.out)
    if interrupted:
        click.echo(
            f"verilocc: interrupted; {len(rows)} of {hunt.total} cases are done, the same command goes on", err=True
        )
        return ExitCode.INTERRUPTED
    counts = report.counts()
    click.echo(
        f"{counts['cases']} cases, {counts['phases']} phases, {counts['proved']} proved; "
        f"{len(report.groups)} groups of faults: {given.out / 'hunt.md'}"
    )
    return int(report.exit_code)


def _follow(hunt: Hunt, execute: Execute, quiet: bool) -> None:
    """Run it, and say what is wrong at once and how far it is from time to time."""
    shown = time.monotonic()
    for row in hunt.run(execute):
        wrong = [f"{s.kind.value}, {s.cause}" for s in row.suspects if s.kind in FAULTS]
        number = f"[{len(hunt.rows)}/{hunt.total}]"
        if wrong:
            click.echo(f"{number} {row.case.name}: {'; '.join(wrong)}", err=True)
        elif not quiet and (sys.stderr.isatty() or time.monotonic() - shown > _EVERY_S):
            shown = time.monotonic()
            click.echo(f"{number} {row.case.name}", err=True)


def _write_groups(report: HuntReport, out: Path, seconds: float, execute: Execute, quiet: bool) -> None:
    """A folder for each group that has none, with its example made small."""
    waiting = {g.key: g for g in report.groups if not (out / folder_name(g) / "report.md").exists()}
    tasks = [
        Task(g.example.case, g.key, Path(g.example.case.path).read_bytes(), g.suspect, seconds)
        for g in waiting.values()
    ]
    if not seconds:
        for group in waiting.values():
            _write_group(group, "it was not asked for", report.llvm, out)
        return
    for task, reduced in execute(tasks):
        _write_group(waiting[task.key], reduced, report.llvm, out)
        if not quiet:
            click.echo(f"reduced: {folder_name(waiting[task.key])}", err=True)


def _write_group(group: Group, reduced: Reduced | str, llvm: str, out: Path) -> None:
    folder = out / folder_name(group)
    make_directory(str(folder))
    source = Path(group.example.case.path)
    texts: dict[str, str] = {"group.json": json.dumps(data_of(group), indent=1)}
    if not isinstance(reduced, str):
        texts |= {
            "before.mir": reduced.given,
            "audited.before.mir": reduced.printed,
            "after.mir": reduced.after,
            "original.before.mir": reduced.original,
            "original.after.mir": reduced.original_after,
        }
    for name, text in texts.items():
        if text:
            write(str(folder / name), text.encode())
    write(str(folder / f"input{source.suffix}"), source.read_bytes())
    write(str(folder / "report.md"), group_report(group, reduced, llvm).encode())


def _write_summary(report: HuntReport, out: Path) -> None:
    data = {
        "hunt_version": HUNT_VERSION,
        "llvm": report.llvm,
        "version": report.version,
        "left": report.waiting,
        **report.counts(),
        "groups": [data_of(g) for g in report.groups],
    }
    write(str(out / "hunt.json"), json.dumps(data, indent=1).encode())
    write(str(out / "hunt.md"), summary(report, [folder_name(g) for g in report.groups]).encode())


# The inputs of a hunt: files, folders, caches of Triton's, and what IREE makes of a module.


def hunted(paths: Sequence[Path], cpu: str, out: Path) -> tuple[HuntInput, ...]:
    """Every input in ``paths``.

    Raises:
        InputError: there is none. ToolchainError: there is no compiler for a module.
    """
    modules = [path for path in paths if path.suffix in (".mlir", ".mlirbc")]
    of_modules = tuple(HuntInput(path, cpu) for module in modules for path in _dispatches(module, cpu, out))
    others = [path for path in paths if path not in modules]
    inputs = of_modules + (inputs_in(others, cpu, out) if others else ())
    if not any(given.path.suffix == ".llir" for given in inputs):
        return inputs
    cached = {
        Path(f"{kernel.stem}.llir"): kernel.cpu
        for path in others
        for kernel in cached_kernels(path if path.is_dir() else path.parent)
    }
    known = (HuntInput(i.path, cached.get(i.path, cpu)) for i in inputs if i.path.suffix != ".llir" or i.path in cached)
    return tuple(given for given in known if not cpu or given.cpu == cpu)


def _dispatches(module: Path, cpu: str, out: Path) -> Sequence[Path]:
    if not module.is_file():
        raise InputError("no such file", where=str(module))
    if not cpu:
        raise click.UsageError("a module needs its target: -mcpu=gfx942")
    return iree_sources(module, cpu, find_iree_compile(), out / "inputs" / module.stem)
