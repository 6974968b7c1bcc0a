"""``interference``: no two live ranges hold the same 16-bit unit at the same slot.

Early-clobber definitions are covered: they start at slot ``4*i+1``, before the operands of instruction *i* are released
at ``4*i+2``. So are tied operands: both ends are one live range. One goal for each pair of neighbours in the file of a
unit; that these suffice is the lemma of ``occupancy``.
"""

from __future__ import annotations

from collections.abc import Sequence

from smt_verifier.prove.case import Case
from smt_verifier.prove.constraints.base import Goal, free_registers, segments_of, word
from smt_verifier.prove.occupancy import Overlap, Rectangle
from smt_verifier.prove.result import Violation


class Interference:
    """Two rectangles are apart in units or in slots."""

    rule = "interference"

    def definitions(self, case: Case) -> str:
        """Two rectangles, by first unit, end unit, start slot, end slot."""
        unit, slot = "(_ BitVec 16)", "(_ BitVec 32)"
        arguments = " ".join(f"(f{k} {unit}) (l{k} {unit}) (s{k} {slot}) (e{k} {slot})" for k in (1, 2))
        return f"(define-fun apart ({arguments}) Bool (or (bvule l1 f2) (bvule l2 f1) (bvule e1 s2) (bvule e2 s1)))\n"

    def goals(self, case: Case) -> list[Goal]:
        """One for each pair of neighbours."""
        rectangles = case.occupancy.rectangles
        terms = [term(rectangle) for rectangle in rectangles]
        titles = [title(rectangle) for rectangle in rectangles]
        return [
            Goal(f"interference/{titles[a]}/{titles[b]}", f"(apart {terms[a]} {terms[b]})", rectangles[a].owner)
            for a, b in case.occupancy.neighbours[0]
        ]

    def explain(self, case: Case, violated: Sequence[Goal], most: int) -> list[Violation]:
        """One for each pair of live ranges in each other's way, neighbours or not."""
        return [_violation(case, overlap) for overlap in case.occupancy.overlaps(most)]


def term(r: Rectangle) -> str:
    """The four numbers of a rectangle, its units from the proposal."""
    first = f"u{r.owner}" if r.low == 0 else f"(bvadd u{r.owner} {word(r.low)})"
    return f"{first} (bvadd u{r.owner} {word(r.high)}) #x{r.start:08x} #x{r.end:08x}"


def title(r: Rectangle) -> str:
    """A rectangle's stable name: ``12[0:4]@40`` is lanes 0-3 of live range 12 from slot 40."""
    return f"{r.owner}[{r.low}:{r.high}]@{r.start}"


def _violation(case: Case, overlap: Overlap) -> Violation:
    both = [(overlap.first, overlap.first_lanes), (overlap.second, overlap.second_lanes)]
    both.sort(key=lambda end: (case.problem.ranges[end[0]].weight, end[0]))
    ranges = [case.problem.ranges[range_id] for range_id, _ in both]
    registers = [case.proposal.registers[range_id] for range_id, _ in both]
    return Violation(
        rule=Interference.rule,
        ranges=tuple(live.id for live in ranges),
        names=tuple(live.name for live in ranges),
        slot=overlap.slot,
        lanes=tuple(lanes for _, lanes in both),
        registers=tuple(registers),
        segments=tuple(segments_of(live, lanes) for live, (_, lanes) in zip(ranges, both, strict=True)),
        message=(
            f"{ranges[0].name} in ${registers[0]} (lanes {both[0][1]:#x}) and {ranges[1].name} in ${registers[1]} "
            f"(lanes {both[1][1]:#x}) are both live at slot {overlap.slot}"
        ),
        free=free_registers(case, ranges[0].id),
    )
