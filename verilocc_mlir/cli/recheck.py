"""``verilocc recheck``: recorded obligations, compared with the texts they are of, and replayed with any solver."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from verilocc_mlir.cli.audit import listing
from verilocc_mlir.cli.help import HELP, Command
from verilocc_mlir.cli.limits import solver_limits
from verilocc_mlir.errors import InputError

if TYPE_CHECKING:
    from smt_verifier.outcome import Outcome
    from smt_verifier.smt import Obligation


@click.command("recheck", cls=Command, context_settings=HELP)
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@click.argument("texts", nargs=-1, type=click.Path(path_type=Path), metavar="[BEFORE.mir AFTER.mir]...")
@click.option("--solver", type=click.Choice(["z3", "cvc5", "bitwuzla"]), default="z3", show_default=True)
@click.option("--mcpu", "cpu", default="", metavar="CPU", help="With texts: as for audit.")
@solver_limits
def recheck_command(
    directory: Path, texts: tuple[Path, ...], solver: str, cpu: str, solver_seconds: float, solver_memory: int
) -> int:
    """Replay the obligations that verilocc audit --smt-dir=DIR wrote.

    With the texts that were audited (of several phases in the order of the phases), they are audited again, and the
    files must be what the audit asks. Without them the files are replayed; that they belong to any program is not
    checked.

    Exit codes: 0 every file is the recorded one and its verdict is reached again, and the texts given are proved; 1 a
    verdict differs, or the texts are refuted; 2 the folder is not what it says, or not of these texts; 3 a limit was
    hit, or the audit cannot decide.
    """
    from smt_verifier.outcome import Outcome, combine
    from smt_verifier.recheck import Rechecked, recheck
    from smt_verifier.smt.replay import installed
    from verilocc_mlir.results.compile import EXIT_CODES

    if not installed(solver):
        raise InputError(f"{solver} is not installed", hint="pip install 'verilocc-mlir[solvers]'")
    if len(texts) % 2:
        raise click.UsageError("give both texts of each pair, BEFORE.mir and AFTER.mir")
    if cpu and not texts:
        raise click.UsageError("--mcpu goes with BEFORE.mir and AFTER.mir")

    def show(row: Rechecked) -> None:
        if not row.agrees:
            click.echo(f"{row.name}: recorded {row.recorded}, {solver} says {row.outcome} {row.reason}".rstrip())

    again = _Again(texts, cpu, solver_seconds, solver_memory)
    rows = recheck(
        directory,
        solver,
        texts=again.data,
        ask=again.ask if texts else None,
        timeout_s=solver_seconds,
        memory_mib=solver_memory,
        progress=show,
    )
    agreed = sum(1 for row in rows if row.agrees)
    click.echo(f"{solver}: {agreed} of {len(rows)} obligations as recorded")
    if texts:
        click.echo(f"the audit of these texts says: {combine(again.outcomes)}")
    else:
        click.echo("files only: whether they belong to any program was not checked; for that give BEFORE.mir AFTER.mir")
    wrong = [
        Outcome.REFUTED if row.outcome in (Outcome.PROVED, Outcome.REFUTED) else row.outcome
        for row in rows
        if not row.agrees
    ]
    return int(EXIT_CODES[combine([*wrong, *again.outcomes])])


class _Again:
    """Audits given texts once more and keeps what is asked."""

    def __init__(self, texts: Sequence[Path], cpu: str, seconds: float, memory_mib: int) -> None:

        self._listings = [listing(str(path)) for path in texts]
        self._cpu = cpu
        self._seconds = seconds
        self._memory_mib = memory_mib
        self._asked = 0
        self.data = [one.text.encode() for one in self._listings]
        self.outcomes: list[Outcome] = []

    def ask(self, _before: bytes, _after: bytes) -> list[Obligation]:
        """What the audit asks of the next pair."""
        from smt_verifier.artefacts import RecordingSolver
        from smt_verifier.smt import Solver
        from verilocc_mlir.pipeline.audit import SolverLimits, audit_texts

        recorders: list[RecordingSolver] = []

        def record(_phase: str, solver: Solver) -> Solver:
            recorders.append(RecordingSolver(solver))
            return recorders[-1]

        before, after = self._listings[self._asked : self._asked + 2]
        self._asked += 2
        limits = SolverLimits(self._seconds, self._memory_mib)
        self.outcomes.append(audit_texts(before, after, self._cpu, limits=limits, record=record).outcome)
        return [obligation for recorder in recorders for obligation, _ in recorder.answers]
