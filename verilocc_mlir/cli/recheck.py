"""``verilocc recheck``: replay recorded obligations with a solver of your choice."""

from __future__ import annotations

from pathlib import Path

import click
from rich_click import RichCommand

from verilocc_mlir.cli.help import HELP
from verilocc_mlir.cli.limits import solver_limits
from verilocc_mlir.errors import InputError


@click.command("recheck", cls=RichCommand, context_settings=HELP)
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--solver", type=click.Choice(["z3", "cvc5", "bitwuzla"]), default="z3", show_default=True)
@solver_limits
def recheck_command(directory: Path, solver: str, solver_seconds: float, solver_memory: int) -> int:
    """Replay the obligations that verilocc audit --smt-dir=DIR wrote.

    Exit codes: 0 every file is the recorded one and its verdict is reached again, 1 a verdict differs, 2 a file is
    missing or changed, 3 a limit was hit.
    """
    from smt_verifier.artefacts import Rechecked, recheck
    from smt_verifier.outcome import Outcome, combine
    from smt_verifier.smt.replay import installed
    from verilocc_mlir.report.model import EXIT_CODES

    if not installed(solver):
        raise InputError(f"{solver} is not installed", hint="pip install 'verilocc-mlir[solvers]'")

    def show(row: Rechecked) -> None:
        if not row.agrees:
            click.echo(f"{row.name}: recorded {row.recorded}, {solver} says {row.outcome} {row.reason}".rstrip())

    rows = recheck(directory, solver, timeout_s=solver_seconds, memory_mib=solver_memory, progress=show)
    agreed = sum(1 for row in rows if row.agrees)
    click.echo(f"{solver}: {agreed} of {len(rows)} obligations as recorded")
    wrong = combine(
        Outcome.REFUTED if row.outcome in (Outcome.PROVED, Outcome.REFUTED) else row.outcome
        for row in rows
        if not row.agrees
    )
    return int(EXIT_CODES[wrong])
