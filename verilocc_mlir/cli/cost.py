"""``verilocc cost`` and ``verilocc compare``: what final machine code costs, by the model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from msgspec.structs import replace

from verilocc_mlir.cli.given import POSITIVE, Command, grouped_help
from verilocc_mlir.cli.output import STDIO, read
from verilocc_mlir.cost.compare import compare
from verilocc_mlir.cost.read import ReadOptions, cost_of_file, read_work_group
from verilocc_mlir.cost.together import files_together
from verilocc_mlir.errors import InputError
from verilocc_mlir.pipeline.resources import undeclared_in
from verilocc_mlir.report.tables import console, print_comparison, print_costs
from verilocc_mlir.results.cost_document import comparison_json, cost_json
from verilocc_mlir.target.targets import target
from verilocc_mlir.toolchain.inputs import decode
from verilocc_mlir.version import __version__

if TYPE_CHECKING:
    from verilocc_mlir.cost.model import CostedFile

_Command = TypeVar("_Command", bound=Callable[..., Any])
_OPTIONS = (
    click.option("--mcpu", "cpu", default="", metavar="CPU", help="Target. [default: the one the file names]"),
    click.option("--mattr", "features", default="", metavar="LIST", help="For machine IR: features, as for llc."),
    click.option("--ir", default="", metavar="FILE.ll", help="IR of the kernels, for constant trip counts."),
    click.option(
        "--work-group", default="", metavar="X[xY[xZ]]",
        help="Work-items of a work-group as started. [default: as the file says]",
    ),
    click.option("--json", "as_json", is_flag=True, help="JSON instead of tables."),
    click.option(
        "--llvm", type=click.Path(path_type=Path), default=None, metavar="DIR", help="Directory of llc, or llc."
    ),
    click.option(
        "--tool-seconds", type=POSITIVE, default=300.0, show_default=True,
        help="For one run of an LLVM tool.",
    ),
)  # fmt: skip


def _context(command: str) -> dict[str, Any]:
    groups = [
        {"name": "Target and trip counts", "options": ["--mcpu", "--mattr", "--ir", "--work-group"]},
        {"name": "Result", "options": ["--json"]},
        {"name": "LLVM", "options": ["--llvm", "--tool-seconds"]},
    ]
    return grouped_help({f"verilocc {command}": groups})


def _cost_options(command: _Command) -> _Command:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command("cost", cls=Command, context_settings=_context("cost"))
@click.argument("source", metavar="FILE")
@_cost_options
def cost_command(source: str, as_json: bool, **options: Any) -> int:
    """What the kernels of FILE cost by the model: a code object, llc's assembly (.s) or machine IR (.mir).

    Modelled, not measured: for ranking allocations of one kernel. Registers that are not assigned yet, LLVM assigns.
    """
    file = _costed(source, options)
    if as_json:
        click.echo(cost_json(file, __version__), nl=False)
    else:
        print_costs(file, console())
    return 0


@click.command("compare", cls=Command, context_settings=_context("compare"))
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@_cost_options
def compare_command(first: str, second: str, as_json: bool, **options: Any) -> int:
    """What the kernels of A and B cost by the model, side by side, and which component the difference comes from.

    A and B are as for verilocc cost, and for one target. Their loops run equally often in both: as the IR says, or the
    code of either. Where that is not possible, they do not compare.
    """
    a, b = _costed(first, options), _costed(second, options)
    if a.target != b.target:
        raise InputError(f"{first} is for {a.target}, {second} for {b.target}: their cycles cannot be compared")
    if not a.functions.keys() & b.functions.keys():
        raise InputError(f"{first} and {second} have no function of one name")
    rows = compare(files_together(a, b, target(a.target)))
    if as_json:
        click.echo(comparison_json(a, b, rows, __version__), nl=False)
    else:
        print_comparison(a, b, rows, console())
    return 0


def _costed(source: str, options: dict[str, Any]) -> CostedFile:
    ir = options["ir"]
    read_options = ReadOptions(
        options["cpu"],
        options["features"],
        decode(read(ir), ir) if ir else "",
        options["llvm"],
        timeout=options["tool_seconds"],
        work_group=read_work_group(options["work_group"]) if options["work_group"] else None,
    )
    file = cost_of_file(read(source), "<stdin>" if source == STDIO else source, read_options)
    beyond = undeclared_in(file.code, target(file.target))
    return replace(file, notes=(*file.notes, *(f"{name}: {words}" for name, words in beyond.items())))
