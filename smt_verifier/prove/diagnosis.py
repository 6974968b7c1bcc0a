"""A refutation, prepared for the next attempt: the minimal violations, which live ranges must move, and where to.

The next attempt keeps every register but those of ``moves``. For each of these it takes one of ``free``, or makes room
as ``blocked`` says.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from smt_verifier.outcome import Outcome
from smt_verifier.prove.blocked import Blocked, why_blocked
from smt_verifier.prove.case import build_case
from smt_verifier.prove.constraints.base import free_registers
from smt_verifier.prove.correction import correction_set, without
from smt_verifier.prove.result import ProofResult, Violation
from verilocc_mlir.problem.model import AllocationProblem, Proposal
from verilocc_mlir.target.lanes import lane_list

STAGES = ("block boundary", "early-clobber definitions", "operands read, results defined", "dead definitions end")
"""What happens at the four slots of an instruction."""


@dataclass(frozen=True)
class Point:
    """A program point: layout position of the block, instruction in it, and one of ``STAGES``; both count from 0."""

    slot: int
    block: int
    instruction: int
    stage: str


@dataclass(frozen=True)
class Relocation:
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


@dataclass(frozen=True)
class Diagnosis:
    """A refutation, explained.

    Attributes:
        problem, result: what was asked and answered.
        core: violations that no other one implies.
        implied: names of the others.
        moves: the live ranges of a minimal correction set: all others can stay where they are, and none of these can.
    """

    problem: AllocationProblem
    result: ProofResult
    core: tuple[Violation, ...]
    implied: tuple[str, ...]
    moves: tuple[Relocation, ...]

    def point(self, slot: int) -> Point | None:
        return point(self.problem, slot)


def diagnose(problem: AllocationProblem, proposal: Proposal, result: ProofResult) -> Diagnosis:
    """Explain ``result``, which is ``prove``'s answer on ``problem`` and ``proposal``.

    Nothing here is a proof: ``prove`` alone says whether the next proposal is right.
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
    return Diagnosis(problem, result, core, implied, tuple(moves))


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
