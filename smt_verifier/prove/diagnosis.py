"""A refutation, prepared for the next attempt: the minimal violations, which live ranges must move, and where to.

The next attempt starts from the nearest valid assignment (``nearest.py``). Where none is near, it keeps every register
but those of ``moves``: for each of these it takes one of ``free``, or makes room as ``blocked`` says.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort

from msgspec import Struct

from smt_verifier.outcome import Outcome
from smt_verifier.prove.case import Case, ProofResult, Violation, build_case, without
from smt_verifier.prove.constraints import free_registers, places
from smt_verifier.prove.nearest import Nearest, nearest
from smt_verifier.prove.occupancy import Rectangle
from verilocc_mlir.problem.model import AllocationProblem, Proposal, Segment
from verilocc_mlir.target.registers import lane_list

STAGES = ("block boundary", "early-clobber definitions", "operands read, results defined", "dead definitions end")
"""What happens at the four slots of an instruction."""


class Point(Struct, frozen=True):
    """A program point: layout position of the block, instruction in it, and one of ``STAGES``; both count from 0."""

    slot: int
    block: int
    instruction: int
    stage: str


class Relocation(Struct, frozen=True):
    """A live range that must move.

    Attributes:
        range_id: its id.
        register: where it was proposed.
        because: names of the core violations it takes part in; more than ``MAX_VIOLATIONS`` may hide them.
        free: registers it could have, the ranges that stay being where they are; the first few. Two ranges that move
            may be offered the same one.
        blocked: why there is none.
    """

    range_id: int
    register: str
    because: tuple[str, ...]
    free: tuple[str, ...]
    blocked: Blocked | None


class Diagnosis(Struct, frozen=True):
    """A refutation, explained.

    Attributes:
        problem, result: what was asked and answered.
        core: violations that no other one implies.
        implied: names of the others.
        moves: the live ranges of a minimal correction set: all others can stay where they are, and none of these can.
        nearest: the valid assignment that the next attempt starts from; None for what is not refuted.
    """

    problem: AllocationProblem
    result: ProofResult
    core: tuple[Violation, ...]
    implied: tuple[str, ...]
    moves: tuple[Relocation, ...]
    nearest: Nearest | None = None

    def point(self, slot: int) -> Point | None:
        return point(self.problem, slot)


def diagnose(problem: AllocationProblem, proposal: Proposal, result: ProofResult) -> Diagnosis:
    """Explain ``result``, which is ``prove``'s answer on ``problem`` and ``proposal``.

    Nothing here is a proof but that of the nearest assignment: ``prove`` alone says whether a proposal is right.
    """
    if result.outcome is not Outcome.REFUTED:
        return Diagnosis(problem, result, (), (), ())
    case = build_case(problem, proposal)
    core = result.core
    moving = correction_set(case)
    staying = without(case, moving)
    reasons: dict[int, list[str]] = {}
    for violation in core:
        for i in violation.ranges:
            reasons.setdefault(i, []).append(violation.name)
    moves: list[Relocation] = []
    for i in moving:
        free = free_registers(staying, i)
        blocked = None if free else why_blocked(staying, i)
        moves.append(Relocation(i, proposal.registers[i], tuple(reasons.get(i, ())), free, blocked))
    core_names = {violation.name for violation in core}
    implied = tuple(v.name for v in result.violations if v.name not in core_names)
    return Diagnosis(problem, result, core, implied, tuple(moves), nearest(problem, proposal, result))


def point(problem: AllocationProblem, slot: int) -> Point | None:
    if slot < 0:
        return None
    block = max(0, bisect_right(problem.block_starts, slot) - 1)
    start = problem.block_starts[block] if problem.block_starts else 0
    return Point(slot, block, (slot - start) // 4, STAGES[slot % 4])


def lanes_text(lanes: int, count: int) -> str:
    """A lane mask of ``count`` lanes as LLVM's subregister indices, ``sub0_sub1`` or ``sub2_lo16``; "" for all."""
    if lanes == (1 << count) - 1:
        return ""
    names: list[str] = []
    for k in lane_list(lanes):
        register, half = divmod(k, 2)
        prefix = f"sub{register}" if count > 2 else ""
        if half and lanes >> (k - 1) & 1:
            continue
        whole = not half and lanes >> (k + 1) & 1
        names.append("_".join(filter(None, (prefix, "" if whole else ("lo16", "hi16")[half]))))
    return "_".join(names)


# Why no register is free for a live range: an unsatisfiable core over the live ranges that stay.
#
# For each register the range could have, a set of live ranges holds part of it while the range is live. A *core* is a
# set of live ranges that meets each of these sets: with the core alone in place there is still no register, and with
# any one of it gone there is (irreducible). The other way round, the set that is lightest to move is the cheapest way
# to make room. Registers that a fixed occupation holds are blocked whatever moves.


class Blocked(Struct, frozen=True):
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


# Which live ranges must move: a minimal correction set of a refuted proposal.
#
# The placements of a proposal that can stand together form a satisfiable subset. Grown one live range at a time, the
# one most expensive to move first, it ends maximal: each range left out breaks a rule by itself or meets one that
# stays. Those left out are the *correction set*: without them the rest is proved, and none of them can be put back. It
# is irreducible, not always the smallest (Liffiton and Sakallah, Algorithms for computing minimal unsatisfiable
# subsets, 2008).


def correction_set(case: Case) -> tuple[int, ...]:
    """Ids of the live ranges that must move, ascending; empty for a proposal that is right."""
    ranges = case.problem.ranges
    misplaced = {i for i in case.located if not case.is_legal(ranges[i], case.first_unit(i))}
    misplaced.update(owner for owner, _, _ in case.occupancy.fixed_overlaps())
    of_owner = case.occupancy.of_owner()
    occupied: dict[int, list[Segment]] = {}
    staying: set[int] = set()
    for i in sorted(set(case.located) - misplaced, key=lambda i: (-ranges[i].weight, i)):
        rectangles = of_owner.get(i, [])
        if _fits(rectangles, occupied):
            staying.add(i)
            for r in rectangles:
                for unit in range(r.unit, r.unit + r.high - r.low):
                    insort(occupied.setdefault(unit, []), (r.start, r.end))
    return tuple(live.id for live in ranges if live.id not in staying)


def _fits(rectangles: list[Rectangle], occupied: dict[int, list[Segment]]) -> bool:
    for r in rectangles:
        for unit in range(r.unit, r.unit + r.high - r.low):
            segments = occupied.get(unit, [])
            before = bisect_left(segments, (r.end, 0)) - 1
            if before >= 0 and segments[before][1] > r.start:
                return False
    return True
