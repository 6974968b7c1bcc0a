"""``verilocc why``: where a kernel spills or loses a wave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from verilocc_mlir.cli.given import POSITIVE, Command, grouped_help
from verilocc_mlir.cli.output import STDIO, read
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.pipeline.why import why
from verilocc_mlir.report.tables import console
from verilocc_mlir.report.why import print_why
from verilocc_mlir.results.why import to_json

_GROUPS: dict[str, Any] = {
    "verilocc why": [
        {"name": "Target", "options": ["--mcpu", "--mattr", "-O"]},
        {"name": "What is shown", "options": ["--function", "--allocator", "--lds", "--values", "--json"]},
        {"name": "LLVM", "options": ["--llvm", "--tool-seconds"]},
    ]
}


@click.command("why", cls=Command, context_settings=grouped_help(_GROUPS))
@click.argument("source", metavar="FILE")
@click.option("--mcpu", "cpu", default="", metavar="CPU", help="Target. [default: the IR's target-cpu]")
@click.option("--mattr", "features", default="", metavar="LIST", help="Target features, as for llc.")
@click.option("-O", "opt_level", type=click.IntRange(1, 3), default=3, show_default=True, help="llc's level.")
@click.option("--function", default="", metavar="NAME", help="This one alone. [default: all of the file]")
@click.option(
    "--allocator",
    default="llvm",
    show_default=True,
    metavar="NAME",
    help="Whose spills are shown: LLVM's, or those of an allocator of verilocc compile.",
)
@click.option(
    "--lds",
    type=click.IntRange(0),
    default=0,
    metavar="BYTES",
    help="LDS that a launch asks for besides, as Triton's do (shared in a kernel's .json).",
)
@click.option(
    "--values", type=click.IntRange(1), default=12, show_default=True, metavar="N", help="Values shown of each list."
)
@click.option("--json", "as_json", is_flag=True, help="JSON with all of it, instead of tables.")
@click.option("--llvm", type=click.Path(path_type=Path), default=None, metavar="DIR", help="Directory of llc, or llc.")
@click.option(
    "--tool-seconds",
    type=POSITIVE,
    default=300.0,
    show_default=True,
    help="For one LLVM tool.",
)
def why_command(source: str, function: str, lds: int, values: int, as_json: bool, **options: Any) -> int:
    """Where the functions of FILE need most registers, the values that are live there, and what costs waves or spills.

    FILE is LLVM IR, bitcode, or machine IR before allocation. With debug information, values have source lines. What
    might help is a hint, never a promise.

    Exit codes: 0, or 2 for bad input or a failed tool.
    """
    path = "<stdin>" if source == STDIO else source
    run = why(read(source), path, Settings(verify=False, **options), function=function, launch_lds=lds)
    if as_json:
        click.echo(to_json(run), nl=False)
    else:
        print_why(run, console(), values)
    return 0
