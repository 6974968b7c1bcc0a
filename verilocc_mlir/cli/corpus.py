"""``verilocc corpus``: kernels and the data set made of them (package ``verilocc_model``)."""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import click

from verilocc_mlir.cli.given import HELP, POSITIVE, Command, Group, given_as, needs_model
from verilocc_mlir.cli.options import cluster_address, ray_options
from verilocc_mlir.errors import ExitCode, InputError
from verilocc_mlir.pipeline.candidates import LABELLED, Answer
from verilocc_mlir.store import Store
from verilocc_model.corpus.build import KernelLimits, Recipe, make
from verilocc_model.corpus.labels import DEFAULT_TEACHERS
from verilocc_model.corpus.shards import read_journal, read_lines, read_manifest, summary
from verilocc_model.corpus.sources import FAMILIES, SOURCES, TARGETS, Cell
from verilocc_model.corpus.stream import Exported, cells, export, read_list


@click.group("corpus", cls=Group, context_settings=HELP)
def corpus_command() -> None:
    """Kernels of many sources, and the data set of allocation problems made of them."""
    needs_model()


def _filters(command: Any) -> Any:
    for option in (
        click.option("--family", "families", multiple=True, help="Only this one; may be given again."),
        click.option("--source", "sources", multiple=True, help="Only this one; may be given again."),
        click.option("--target", "targets", multiple=True, help="Only this one; may be given again."),
        click.option("--seed", type=int, default=0, show_default=True, help="Which cells, in which order."),
    ):
        command = option(command)
    return command


def _store_option(command: Any) -> Any:
    return click.option(
        "--store", "store_path", type=click.Path(path_type=Path), metavar="DIR", help="Keep the kernels' IR there."
    )(command)


def _cells(seed: int, targets: tuple[str, ...], sources: tuple[str, ...], families: tuple[str, ...]) -> Any:
    checks = ((targets, TARGETS, "target"), (sources, SOURCES, "source"), (families, FAMILIES, "family"))
    for names, choices, kind in checks:
        for name in names:
            if name not in choices:
                raise InputError(f"there is no {kind} {name!r}", hint=f"choose of: {', '.join(choices)}")
    return cells(seed, targets=targets or TARGETS, sources=sources or SOURCES, families=families or None)


@corpus_command.command("list", cls=Command, context_settings=HELP)
@_filters
@click.option("--count", type=click.IntRange(1), default=20, show_default=True, help="How many.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def list_command(
    count: int, as_json: bool, seed: int, targets: tuple[str, ...], sources: tuple[str, ...], families: tuple[str, ...]
) -> None:
    """Name the first cells of a seed; nothing is compiled."""
    for cell in islice(_cells(seed, targets, sources, families), count):
        click.echo(json.dumps({"name": cell.name, **cell.to_data()}) if as_json else str(cell))


@corpus_command.command("export", cls=Command, context_settings=HELP)
@click.option("--list", "list_path", type=click.Path(path_type=Path), required=True, metavar="FILE.json",
              help="The kernels, such as benchmarks/kernel_corpus.json.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), required=True, metavar="DIR", help="Where NAME.ll go.")
@click.option("-j", "--jobs", type=click.IntRange(1), default=1, show_default=True, help="Kernels at once.")
@_store_option
def export_command(list_path: Path, out: Path, jobs: int, store_path: Path | None) -> int:
    """Make the LLVM IR of listed kernels again; exit code 1 if some differ from the list, or cannot be made."""
    kernels = read_list(list_path)
    counts: Counter[str] = Counter()

    def show(one: Exported) -> None:
        counts["same" if one.same else "other" if one.path else "failed"] += 1
        if one.failure:
            click.echo(f"{one.kernel.name}: {one.failure}", err=True)
        if sys.stderr.isatty():
            click.echo(f"\r{counts.total()}/{len(kernels)}", err=True, nl=False)

    export(kernels, out, store=Store(store_path) if store_path else None, jobs=jobs, progress=show)
    click.echo(f"{counts['same']} of {len(kernels)} kernels are as listed, {counts['other']} differ, "
               f"{counts['failed']} could not be made: {out}")  # fmt: skip
    return ExitCode.PROVED if counts["same"] == len(kernels) else ExitCode.REFUTED


def _made(
    recipe: Any, out: Path, jobs: int | None, cluster: str | None, store_path: Path | None,
    progress: Callable[[Any, int], None],
) -> list[dict[str, Any]] | None:  # fmt: skip
    """The journal of a data set that is made here or on a Ray cluster; None where it was interrupted."""

    # On a node, a relative path would be one of Ray's directories there.
    store = Store(store_path.absolute()) if store_path else None
    try:
        if cluster is None:
            return make(recipe, out, jobs=jobs or 1, store=store, progress=progress)
        from verilocc_model.corpus.on_ray import RayRunner

        runner = RayRunner(cluster, recipe.sources)
        return make(recipe, out, jobs=jobs or 0, runner=runner, store=store, progress=progress)
    except KeyboardInterrupt:
        click.echo(f"interrupted; what is done is kept in {out}, and the same command goes on from there", err=True)
        return None


@dataclass(frozen=True)
class _MakeGiven:
    out: Path
    kernels: int
    teachers: tuple[str, ...]
    most_instructions: int
    kernel_seconds: float
    jobs: int | None
    ray: bool
    ray_address: str
    quiet: bool
    store_path: Path | None
    seed: int
    targets: tuple[str, ...]
    sources: tuple[str, ...]
    families: tuple[str, ...]


@corpus_command.command("make", cls=Command, context_settings=HELP)
@_filters
@click.option("--out", type=click.Path(path_type=Path), required=True, metavar="DIR", help="The data set.")
@click.option("--kernels", type=click.IntRange(1), default=1000, show_default=True, help="How many, in all.")
@click.option("--teacher", "teachers", multiple=True, metavar="NAME",
              help="An allocator, improved, or llvm-greedy. [default: llvm-greedy, deterministic]")  # fmt: skip
@click.option("--most-instructions", type=click.IntRange(1), default=4000, show_default=True, help="Of a kernel.")
@click.option("--kernel-seconds", type=POSITIVE, default=180.0, show_default=True,
              help="For one kernel; then it is left out.")  # fmt: skip
@click.option("-j", "--jobs", type=click.IntRange(1), default=None, metavar="N",
              help="Kernels at once. [default: 1; with --ray one a CPU]")  # fmt: skip
@ray_options
@click.option("-q", "--quiet", is_flag=True, help="Show no kernels as they are done.")
@_store_option
@given_as(_MakeGiven)
def make_command(given: _MakeGiven) -> int:
    """Make the data set, or go on with it: problems of kernels and labels that are proved.

    Started again with the same options it continues where it was; with more --kernels it grows. With --ray, kernels are
    made on the nodes of a Ray cluster, each with the same versions installed: docs/guide/service-operate.md.
    """
    cluster = cluster_address(given.ray, given.ray_address)

    _cells(given.seed, given.targets, given.sources, given.families)
    recipe = Recipe(
        given.kernels,
        given.seed,
        given.targets or TARGETS,
        given.sources or SOURCES,
        given.families or None,
        KernelLimits(given.most_instructions, given.kernel_seconds),
        given.teachers or DEFAULT_TEACHERS,
    )

    def show(row: Any, remaining: int) -> None:
        if not given.quiet:
            outcome = row["failure"] or ", ".join(
                f"{record['phase']} {record['ranges']} ranges {record['outcome']}, {len(record['ranks'])} labels"
                for record in row["records"]
            )
            click.echo(f"{remaining} left  {row['cell']} {row['seconds']:.1f} s: {outcome}", err=True)

    journal = _made(recipe, given.out, given.jobs, cluster, given.store_path, show)
    if journal is None:
        return ExitCode.INTERRUPTED
    kept_problems = sum(record["outcome"] == "kept" for row in journal for record in row["records"])
    click.echo(f"{given.out}: {kept_problems} problems of {len(journal)} kernels")
    return ExitCode.PROVED


@dataclass(frozen=True)
class _PlansGiven:
    out: Path
    kernels: int
    list_path: Path | None
    plans: tuple[str, ...]
    most_instructions: int
    kernel_seconds: float
    spilled: bool
    jobs: int | None
    ray: bool
    ray_address: str
    quiet: bool
    store_path: Path | None
    seed: int
    targets: tuple[str, ...]
    sources: tuple[str, ...]
    families: tuple[str, ...]


@corpus_command.command("plans", cls=Command, context_settings=HELP)
@_filters
@click.option("--out", type=click.Path(path_type=Path), required=True, metavar="DIR", help="The data set.")
@click.option("--kernels", type=click.IntRange(1), default=1000, show_default=True, help="How many, in all.")
@click.option("--list", "list_path", type=click.Path(path_type=Path), metavar="FILE.json|DIR",
              help="Take the kernels of a list, such as benchmarks/kernel_corpus.json, or of a data set.")  # fmt: skip
@click.option(
    "--plan", "plans", multiple=True, metavar="WORDS", help="Only this answer beside the default; again for more."
)
@click.option("--most-instructions", type=click.IntRange(1), default=4000, show_default=True,
              help="Of LLVM's code of a kernel.")  # fmt: skip
@click.option("--kernel-seconds", type=POSITIVE, default=300.0, show_default=True,
              help="For all answers of one kernel; then it is left out.")  # fmt: skip
@click.option("--spilled", is_flag=True, help="Only kernels that LLVM spills registers of.")
@click.option("-j", "--jobs", type=click.IntRange(1), default=None, metavar="N",
              help="Kernels at once. [default: 1; with --ray one a CPU]")  # fmt: skip
@ray_options
@click.option("-q", "--quiet", is_flag=True, help="Show no kernels as they are done.")
@_store_option
@given_as(_PlansGiven)
def plans_command(given: _PlansGiven) -> int:
    """Label kernels with what each plan costs, or go on with it. Nothing is proved.

    Started again with the same options it continues where it was; with more --kernels it grows. A data set that other
    code has labelled is refused.
    """
    cluster = cluster_address(given.ray, given.ray_address)

    from verilocc_model.plans.labels import PlanLimits, PlanRecipe

    _cells(given.seed, given.targets, given.sources, given.families)
    answers = [Answer.parse(name) for name in given.plans]
    listed = _listed(given.list_path) if given.list_path else []
    wanted = [
        cell
        for cell in listed
        if cell.target in (given.targets or TARGETS)
        and cell.source in (given.sources or SOURCES)
        and (not given.families or cell.family in given.families)
    ]
    if listed and not wanted:
        raise InputError("the list has no such kernel", where=str(given.list_path))
    random.Random(given.seed).shuffle(wanted)
    names = tuple(dict.fromkeys(map(str, (Answer(), *answers) if answers else LABELLED)))
    recipe = PlanRecipe(
        given.kernels, given.seed, given.targets or TARGETS, given.sources or SOURCES, given.families or None,
        PlanLimits(given.most_instructions, given.kernel_seconds, given.spilled), names, tuple(wanted),
    )  # fmt: skip

    def show(row: Any, remaining: int) -> None:
        if not given.quiet:
            click.echo(f"{remaining} left  {row['cell']} {row['seconds']:.1f} s {row['failure']}".rstrip(), err=True)

    journal = _made(recipe, given.out, given.jobs, cluster, given.store_path, show)
    if journal is None:
        return ExitCode.INTERRUPTED
    labelled = sum(bool(row["records"]) for row in journal)
    click.echo(f"{given.out}: {labelled} kernels labelled, {len(journal) - labelled} left out")
    return ExitCode.PROVED


def _listed(path: Path) -> list[Cell]:
    """The kernels of a list, or of a data set."""
    if path.is_dir():
        return [Cell.from_data(json.loads(line)["cell"]) for line in read_lines(path)]
    return [kernel.cell for kernel in read_list(path)]


@corpus_command.command("remeasure", cls=Command, context_settings=HELP)
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--count", type=click.IntRange(1), default=5, show_default=True, help="Kernels, drawn at random.")
@click.option("--seed", type=int, default=0, show_default=True)
@_store_option
def remeasure_command(directory: Path, count: int, seed: int, store_path: Path | None) -> int:
    """Label some kernels of a set of verilocc corpus plans again; exit code 1 if a label differs."""
    from verilocc_model.plans.labels import remeasured

    kernels = differing = 0
    for differences in remeasured(directory, count, seed, Store(store_path) if store_path else None):
        kernels, differing = kernels + 1, differing + bool(differences)
        for one in differences:
            click.echo(f"{one.cell}: {one.what} was {one.was}, is {one.now}", err=True)
    click.echo(f"{directory}: {kernels - differing} of {kernels} kernels have the same labels")
    return ExitCode.REFUTED if differing else ExitCode.PROVED


@corpus_command.command("measured", cls=Command, context_settings=HELP)
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--journal", "journals", multiple=True, required=True, type=click.Path(path_type=Path), metavar="FILE",
    help="What verilocc measure --ir wrote, with plans for names.",
)  # fmt: skip
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="DIR", help="The new data set.")
def measured_command(directory: Path, journals: tuple[Path, ...], out: Path) -> int:
    """Write the kernels of a set of verilocc corpus plans that were measured, with labels by the clock.

    verilocc train critic and verilocc train plans learn from them.
    """
    from verilocc_model.plans.data import measured_labels

    kernels, labels = measured_labels(directory, journals, out)
    click.echo(f"{out}: {labels} labels by the clock, of {kernels} kernels")
    return ExitCode.PROVED


@corpus_command.command("show", cls=Command, context_settings=HELP)
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--json", "as_json", is_flag=True, help="Everything, as JSON.")
def show_command(directory: Path, as_json: bool) -> None:
    """Count what a data set holds."""
    read_manifest(directory)
    counts = summary(list(read_journal(directory)))
    if as_json:
        click.echo(json.dumps(counts, indent=1))
        return
    left_out = f"{counts['duplicates']} duplicates, {counts['leaks']} that are in another part too"
    click.echo(f"{counts['problems']} problems of {counts['kernels']} kernels, {counts['kernels_failed']} failed")
    click.echo(f"left out: {left_out}")
    click.echo(f"parts: {counts['splits']}; base model's training: {counts['base_training']}")
    for phase, facts in counts["phases"].items():
        click.echo(f"{phase}: {facts['problems']} problems, {facts['fit']} fit, {facts['without_label']} without label")
        for name, teacher_row in facts["teachers"].items():
            share = teacher_row["labels_where_it_fits"]
            click.echo(
                f"  {name}: {teacher_row['labels']} labels, {teacher_row['best']} best; of those that fit {share}"
            )
    cells: list[dict[str, Any]] = counts["cells"]
    if cells:
        click.echo("  ".join(f"{name:>11}" for name in cells[0]))
    for row in cells:
        click.echo("  ".join(f"{value!s:>11}" for value in row.values()))
