"""``fixed``: no live range holds a unit while something fixed does: arguments, call clobbers, return values, VCC …"""

from __future__ import annotations

from collections.abc import Sequence

from smt_verifier.prove.case import Case
from smt_verifier.prove.constraints.base import Goal, free_registers, segments_of, word
from smt_verifier.prove.constraints.interference import term, title
from smt_verifier.prove.result import Violation


class Fixed:
    """A rectangle is apart from the fixed occupations of its units (``apart`` is defined by ``interference``)."""

    rule = "fixed"

    def definitions(self, case: Case) -> str:
        return ""

    def goals(self, case: Case) -> list[Goal]:
        """One for each neighbourhood of a live range with a fixed occupation."""
        rectangles = case.occupancy.rectangles
        return [
            Goal(
                f"fixed/{title(rectangles[index])}/{first}:{last}@{start}",
                f"(apart {term(rectangles[index])} {word(first)} {word(last)} #x{start:08x} #x{end:08x})",
                rectangles[index].owner,
            )
            for index, start, end, first, last in case.occupancy.neighbours[1]
        ]

    def explain(self, case: Case, violated: Sequence[Goal], most: int) -> list[Violation]:
        """One for each live range that sits in a fixed occupation."""
        overlaps = list(case.occupancy.fixed_overlaps())[:most]
        return [_violation(case, range_id, lanes, slot) for range_id, lanes, slot in overlaps]


def _violation(case: Case, range_id: int, lanes: int, slot: int) -> Violation:
    live, register = case.problem.ranges[range_id], case.proposal.registers[range_id]
    unit = case.first_unit(range_id)
    units = {unit + lane for lane in range(live.lanes) if lanes >> lane & 1}
    reasons = [
        occupation.reason
        for occupation in case.problem.fixed
        if not units.isdisjoint(occupation.units) and any(start <= slot < end for start, end in occupation.segments)
    ]
    return Violation(
        rule=Fixed.rule,
        ranges=(range_id,),
        names=(live.name,),
        slot=slot,
        lanes=(lanes,),
        registers=(register,),
        segments=(segments_of(live, lanes),),
        message=f"{live.name} in ${register} (lanes {lanes:#x}) meets {', '.join(reasons)} at slot {slot}",
        free=free_registers(case, range_id),
    )
