"""A gate's result for a terminal and a log."""

from __future__ import annotations

from verilocc_mlir.results.gate import Compared, GateRun, Status

_WIDTH = max(len(status.value) for status in Status)


def to_text(run: GateRun) -> str:
    """One line for each kernel that differs, the gravest first, then the counts."""
    lines = [_line(row, run.fails(row)) for row in run.rows if row.status is not Status.SAME]
    notes = [f"note: {note}" for note in run.notes]
    return "\n".join([*lines, *notes, f"{run.baseline}: {run.summary}", _verdict(run)]) + "\n"


def _verdict(run: GateRun) -> str:
    if run.updated:
        return f"wrote {run.baseline}"
    return "the gate fails" if run.exit_code else "nothing is worse than the tolerances allow"


def _line(row: Compared, failing: bool) -> str:
    changes = ", ".join(f"{change}{' (worse)' * change.worse}" for change in row.changes)
    where = f" [{row.now.path}]" if row.now is not None and failing else ""
    return f"{row.status.value:{_WIDTH}}  {row.kernel.title}{': ' * bool(changes)}{changes}{where}"
