"""Rows about what moves, with the reason: as an allocator gave it, or as far as the text shows it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from verilocc_mlir.analysis.cfg import control_flow
from verilocc_mlir.explain.follow import TextMove
from verilocc_mlir.explain.pressure import Curve, at
from verilocc_mlir.problem.build import frequency
from verilocc_mlir.results.page import Action, PhaseRecord

TITLES = {
    "spill": "spilled",
    "reload": "reloaded",
    "rematerialised": "rematerialised",
    "rematerialise": "rematerialised",
    "split": "split",
    "copy": "copied",
    "accumulator": "moved between banks",
    "added": "added",
}


@dataclass(frozen=True, slots=True)
class MoveRow:
    """One row.

    Attributes:
        kind: as of ``TextMove`` or ``Action``.
        name: the live range, or ``""``.
        block: ``bb.3``.
        index: instruction of the text before allocation that it stands at.
        text: the instruction, ``""`` where only an action is known.
        line: its line in the text after allocation, 0 where there is none.
        depth: loops around it.
        weight: estimated executions.
        reason: why, in a sentence.
    """

    kind: str
    name: str
    block: str
    index: int
    text: str
    line: int
    depth: int
    weight: float
    reason: str

    @property
    def title(self) -> str:
        return TITLES.get(self.kind, self.kind)


def move_rows(record: PhaseRecord, moves: Sequence[TextMove], wanted: Curve, by: str) -> list[MoveRow]:
    """Actions as they were given, then the text's moves, each in program order.

    Args:
        record: the phase; its problem is there.
        moves: those of the text that was used.
        wanted: demand over the program.
        by: whose allocation it is, for the reasons.
    """
    problem = record.problem
    if problem is None:
        return []
    starts = problem.block_starts
    labels = [f"bb.{b.number}" for b in record.before.blocks]

    def block_of(slot: int) -> int:
        return max(bisect_right(starts, slot) - 1, 0)

    rows = [_action_row(a, labels[block_of(a.point)], problem.block_depths[block_of(a.point)]) for a in record.actions]
    last = control_flow(record.before).first[-1] - 1
    room = sum(len(b.registers) for b in problem.budgets) + (2 if problem.special else 0)
    for move in moves:
        depth = problem.block_depths[move.block]
        reason = _reason(move, at(wanted, move.slot), room, by, problem.phase == "sgpr")
        index = min(move.slot // 4, last)
        rows.append(
            MoveRow(
                move.kind, move.name, labels[move.block], index, move.text, move.line, depth, frequency(depth), reason
            )
        )
    return rows


def _action_row(action: Action, block: str, depth: int) -> MoveRow:
    return MoveRow(action.kind, action.register, block, action.point // 4, "", 0, depth, action.weight, action.reason)


def _reason(move: TextMove, wanted: int, room: int, by: str, scalar: bool) -> str:
    if move.kind == "copy":
        if len(set(move.banks)) == 2:
            return f"from {move.banks[1].upper()} to {move.banks[0].upper()}; stood before allocation"
        return "stood before allocation; its ends have different registers"
    if move.kind == "accumulator":
        return "moves between VGPR and AGPR; stood before allocation"
    live = f"{wanted} of {room} registers are wanted here"
    if move.kind == "split":
        between = f" from {move.banks[1].upper()} to {move.banks[0].upper()}" if len(set(move.banks)) == 2 else ""
        return f"{by} split the live range{between}; {live}"
    if move.kind in ("spill", "reload"):
        lane = "_TO_VGPR" in move.text or "_FROM_VGPR" in move.text
        where = "a lane of a vector register" if lane else "a slot that LLVM lowers to lanes" if scalar else "memory"
        return f"{by} keeps it in {where} for a while; {live}"
    if move.kind == "rematerialised":
        return f"{by} repeats it instead of keeping the value; {live}"
    return f"added by {by}"


def summary(rows: Sequence[MoveRow]) -> list[tuple[str, int, float]]:
    """``(title, how many, estimated executions)`` of each kind, heaviest first."""
    totals: dict[str, tuple[int, float]] = {}
    for row in rows:
        count, weight = totals.get(row.title, (0, 0.0))
        totals[row.title] = (count + 1, weight + row.weight)
    return sorted(((k, n, w) for k, (n, w) in totals.items()), key=lambda item: (-item[2], item[0]))
