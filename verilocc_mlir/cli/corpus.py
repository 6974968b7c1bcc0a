"""``verilocc corpus``: kernels and the data set made of them (package ``verilocc_model``)."""

from __future__ import annotations

import json
import sys
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import click
from rich_click import RichCommand, RichGroup

from verilocc_mlir.cli.extras import needs_model
from verilocc_mlir.errors import ExitCode, InputError

_HELP = {"help_option_names": ["-h", "--help"]}


@click.group("corpus", cls=RichGroup, context_settings=_HELP)
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
    from verilocc_model.corpus.cells import FAMILIES, SOURCES, TARGETS
    from verilocc_model.corpus.stream import cells

    checks = ((targets, TARGETS, "target"), (sources, SOURCES, "source"), (families, FAMILIES, "family"))
    for given, known, what in checks:
        for name in given:
            if name not in known:
                raise InputError(f"there is no {what} {name!r}", hint=f"choose of: {', '.join(known)}")
    return cells(seed, targets=targets or TARGETS, sources=sources or SOURCES, families=families or None)


@corpus_command.command("list", cls=RichCommand, context_settings=_HELP)
@_filters
@click.option("--count", type=click.IntRange(1), default=20, show_default=True, help="How many.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def list_command(
    count: int, as_json: bool, seed: int, targets: tuple[str, ...], sources: tuple[str, ...], families: tuple[str, ...]
) -> None:
    """Name the first cells of a seed; nothing is compiled."""
    for cell in islice(_cells(seed, targets, sources, families), count):
        click.echo(json.dumps({"name": cell.name, **cell.to_data()}) if as_json else str(cell))


@corpus_command.command("export", cls=RichCommand, context_settings=_HELP)
@click.option("--list", "list_path", type=click.Path(path_type=Path), required=True, metavar="FILE.json",
              help="The kernels, such as benchmarks/kernel_corpus.json.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), required=True, metavar="DIR", help="Where NAME.ll go.")
@click.option("-j", "--jobs", type=click.IntRange(1), default=1, show_default=True, help="Kernels at once.")
@_store_option
def export_command(list_path: Path, out: Path, jobs: int, store_path: Path | None) -> int:
    """Make the LLVM IR of listed kernels again; exit code 1 if some differ from the list, or cannot be made."""
    from verilocc_mlir.store import Store
    from verilocc_model.corpus.kernel_list import Exported, export, read_list

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
