"""Why no register is free for a live range: an unsatisfiable core over the live ranges that stay.

For each register the range could have, a set of live ranges holds part of it while the range is live. A *core* is a
set of live ranges that meets each of these sets: with the core alone in place there is still no register, and with any
one of it gone there is (irreducible). The other way round, the set that is lightest to move is the cheapest way to make
room. Registers that a fixed occupation holds are blocked whatever moves.
"""

from __future__ import annotations

from dataclasses import dataclass

from smt_verifier.prove.case import Case
from smt_verifier.prove.constraints.base import places
from verilocc_mlir.problem.model import AllocationProblem


@dataclass(frozen=True)
class Blocked:
    """Attributes:
    candidates: how many registers class, alignment, budget and reservation leave to the range.
    fixed: how many of them something fixed holds (arguments, clobbers), so that no move frees them.
    core: ids of live ranges that block all others, irreducible; ascending.
    cheapest: the register that is freed most cheaply, "" where all are fixed or there is no candidate.
    evict: ids of the live ranges that hold it, ascending.
    """

    candidates: int
    fixed: int
    core: tuple[int, ...]
    cheapest: str
    evict: tuple[int, ...]


def why_blocked(case: Case, range_id: int) -> Blocked | None:
    """Why ``range_id`` has no register among the ranges of ``case.occupancy``; None where one is free."""
    movable: dict[str, frozenset[int]] = {}
    fixed = candidates = 0
    for unit, name in places(case, range_id):
        candidates += 1
        owners, is_fixed = case.occupancy.holders(range_id, unit)
        if is_fixed:
            fixed += 1
        elif owners:
            movable[name] = owners
        else:
            return None
    problem = case.problem
    cheapest = min(movable, key=lambda name: (_weight(problem, movable[name]), len(movable[name]), name), default="")
    return Blocked(
        candidates,
        fixed,
        _hitting_set(list(movable.values()), problem),
        cheapest,
        tuple(sorted(movable.get(cheapest, ()))),
    )


def _weight(problem: AllocationProblem, ids: frozenset[int]) -> float:
    return sum(problem.ranges[i].weight for i in ids)


def _hitting_set(sets: list[frozenset[int]], problem: AllocationProblem) -> tuple[int, ...]:
    """Live ranges that meet every set: greedy, most sets first, then each that is not needed is dropped."""
    members: dict[int, set[int]] = {}
    for number, ids in enumerate(sets):
        for i in ids:
            members.setdefault(i, set()).add(number)
    chosen: list[int] = []
    remaining = set(range(len(sets)))
    while remaining:
        best = max(members, key=lambda i: (len(members[i] & remaining), -problem.ranges[i].weight, -i))
        chosen.append(best)
        remaining -= members[best]
    for i in list(chosen):
        covered_by_others = set[int]().union(*(members[k] for k in chosen if k != i))
        if len(covered_by_others) == len(sets):
            chosen.remove(i)
    return tuple(sorted(chosen))
