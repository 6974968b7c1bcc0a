"""Whether problem and proposal have the shape that the theorem assumes."""

from __future__ import annotations

from smt_verifier.prove.facts import BANKS
from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.problem.model import PROBLEM_VERSION, AllocationProblem, LiveRange, Proposal, Segment
from verilocc_mlir.target.classes import register_class
from verilocc_mlir.target.registers import physical_register

MAX_SLOT = 2**31
"""Slots are 32-bit unsigned numbers in the obligations."""


def input_fault(problem: AllocationProblem, proposal: Proposal) -> str:
    """Why this is not a problem with an answer; empty where it is. Every register class must be a known one."""
    if problem.version != PROBLEM_VERSION or proposal.version != PROBLEM_VERSION:
        return f"version {problem.version} problem with version {proposal.version} proposal; this is {PROBLEM_VERSION}"
    if len(proposal.registers) != len(problem.ranges):
        return f"the proposal has {len(proposal.registers)} registers, the problem {len(problem.ranges)} live ranges"
    if not 0 <= problem.slots < MAX_SLOT:
        return f"{problem.slots} slots"
    return _budget_fault(problem) or _fixed_fault(problem) or _range_fault(problem)


def unknown_class(problem: AllocationProblem) -> str:
    """A register class that this version cannot read, in one sentence; empty where it knows them all."""
    for name in dict.fromkeys(live.register_class for live in problem.ranges):
        try:
            register_class(name)
        except VeriloccError as error:
            return error.what
    return ""


def _budget_fault(problem: AllocationProblem) -> str:
    banks = [budget.bank for budget in problem.budgets]
    if len(set(banks)) != len(banks) or not set(banks) <= set(BANKS):
        return f"budgets for the banks {', '.join(banks)}"
    for budget in problem.budgets:
        if any(not 0 <= number < 1024 for number in budget.registers):
            return f"a register number in the budget of {budget.bank} is out of range"
    for name in problem.special:
        try:
            physical_register(name)
        except VeriloccError as error:
            return error.what
    return ""


def _fixed_fault(problem: AllocationProblem) -> str:
    for occupation in problem.fixed:
        if fault := _segments_fault(occupation.segments, problem.slots):
            return f"fixed occupation ({occupation.reason}): {fault}"
    return ""


def _range_fault(problem: AllocationProblem) -> str:
    for position, live in enumerate(problem.ranges):
        if live.id != position:
            return f"live range {live.name} has id {live.id} at position {position}"
        if fault := _shape_fault(live) or _groups_fault(live, problem.slots):
            return f"live range {live.name}: {fault}"
    return ""


def _shape_fault(live: LiveRange) -> str:
    cls = register_class(live.register_class)
    if (live.width, live.lanes) != (cls.width, cls.lanes):
        return f"{live.width} registers, {live.lanes} lanes, but its class {cls.name} has {cls.width} and {cls.lanes}"
    if live.align not in (1, 2, 4, 8, 16):
        return f"alignment {live.align}"
    if live.limit < 0 or not set(live.banks) <= {*BANKS, "special"}:
        return f"limit {live.limit}, banks {', '.join(live.banks)}"
    return ""


def _groups_fault(live: LiveRange, slots: int) -> str:
    grouped = 0
    for group in live.groups:
        if group.lanes <= 0 or group.lanes >> live.lanes:
            return f"lane mask {group.lanes:#x} of {live.lanes} lanes"
        if group.lanes & grouped:
            return f"lanes {group.lanes & grouped:#x} are in two groups"
        grouped |= group.lanes
        if fault := _segments_fault(group.segments, slots):
            return fault
    return ""


def _segments_fault(segments: tuple[Segment, ...], slots: int) -> str:
    last = 0
    for start, end in segments:
        if not last <= start < end <= slots:
            return f"segment [{start}, {end}) is empty, out of order or outside the function's {slots} slots"
        last = end
    return ""
