"""Which live ranges must move: a minimal correction set of a refuted proposal.

The placements of a proposal that can stand together form a satisfiable subset. Grown one live range at a time, the
one most expensive to move first, it ends maximal: each range left out breaks a rule by itself or meets one that stays.
Those left out are the *correction set*: without them the rest is proved, and none of them can be put back. It is
irreducible, not always the smallest (Liffiton and Sakallah, Algorithms for computing minimal unsatisfiable subsets,
2008).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import replace

from smt_verifier.prove.case import Case
from smt_verifier.prove.facts import is_legal
from smt_verifier.prove.occupancy import Occupancy, Rectangle
from verilocc_mlir.problem.model import Segment


def correction_set(case: Case) -> tuple[int, ...]:
    """Ids of the live ranges that must move, ascending; empty for a proposal that is right."""
    ranges = case.problem.ranges
    misplaced = {i for i in case.located if not is_legal(case.problem, ranges[i], case.first_unit(i))}
    misplaced.update(owner for owner, _, _ in case.occupancy.fixed_overlaps())
    occupied: dict[int, list[Segment]] = {}
    staying: set[int] = set()
    for i in sorted(set(case.located) - misplaced, key=lambda i: (-ranges[i].weight, i)):
        rectangles = case.occupancy.of_owner.get(i, [])
        if _fits(rectangles, occupied):
            staying.add(i)
            for r in rectangles:
                for unit in range(r.unit, r.unit + r.high - r.low):
                    insort(occupied.setdefault(unit, []), (r.start, r.end))
    return tuple(live.id for live in ranges if live.id not in staying)


def without(case: Case, moved: Iterable[int]) -> Case:
    """The case in which some live ranges are nowhere; every other one stays."""
    removed = set(moved)
    located = tuple(i for i in case.located if i not in removed)
    units = {i: case.first_unit(i) for i in located}
    return replace(case, located=located, occupancy=Occupancy(case.problem, units))


def _fits(rectangles: list[Rectangle], occupied: dict[int, list[Segment]]) -> bool:
    for r in rectangles:
        for unit in range(r.unit, r.unit + r.high - r.low):
            segments = occupied.get(unit, [])
            before = bisect_left(segments, (r.end, 0)) - 1
            if before >= 0 and segments[before][1] > r.start:
                return False
    return True
