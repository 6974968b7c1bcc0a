"""First fit: live ranges in the order in which they start, each in the first registers that are free where it is live.

It needs no proof of its own. What it proposes is proved by VeriLocc-MLIR, and refuted where it is wrong.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from verilocc_mlir.allocators import AllocationFailure
from verilocc_mlir.problem.model import PROBLEM_VERSION, AllocationProblem, LiveRange, Proposal, Segment
from verilocc_mlir.target.registers import Bank, physical_register, tuple_name


class FirstFit:
    """An allocator is a name, a version, and this one method. The version changes whenever results can."""

    name = "mine"
    version = "1"

    def allocate(self, problem: AllocationProblem) -> Proposal:
        """A register for every live range.

        Raises:
            AllocationFailure: no registers are free for one of them. The caller spills, and asks again.
        """
        occupied: defaultdict[int, list[Segment]] = defaultdict(list)  # by 16-bit unit of the register files
        for fixed in problem.fixed:
            for unit in fixed.units:
                occupied[unit] += fixed.segments
        registers = [""] * len(problem.ranges)
        for live_range in sorted(problem.ranges, key=_start):
            register = _first_free(live_range, problem, occupied)
            registers[live_range.id] = register
            for unit, segments in _units(live_range, register):
                occupied[unit] += segments
        return Proposal(PROBLEM_VERSION, f"{self.name}/{self.version}", tuple(registers))


def make(seconds: float) -> FirstFit:
    """The entry point. ``seconds`` is the time for one problem, for allocators that search as long as they may."""
    del seconds
    return FirstFit()


def _start(live_range: LiveRange) -> tuple[int, int]:
    starts = [group.segments[0][0] for group in live_range.groups]
    return min(starts, default=0), live_range.id


def _first_free(live_range: LiveRange, problem: AllocationProblem, occupied: defaultdict[int, list[Segment]]) -> str:
    for register in _candidates(live_range, problem):
        if not any(_overlap(segments, occupied[unit]) for unit, segments in _units(live_range, register)):
            return register
    raise AllocationFailure(f"no registers are free for {live_range.name}", reason="fragmentation")


def _candidates(live_range: LiveRange, problem: AllocationProblem) -> Iterator[str]:
    """Names of the registers that the range's banks, width, alignment and limit admit, lowest first."""
    for budget in problem.budgets:
        if budget.bank not in live_range.banks:
            continue
        allocatable = set(budget.registers)
        for first in budget.registers:
            end = first + live_range.width
            if first % live_range.align or (live_range.limit and end > live_range.limit):
                continue
            if allocatable.issuperset(range(first, end)):
                half = "_lo16" if live_range.lanes == 1 else ""
                yield tuple_name(Bank(budget.bank), first, live_range.width) + half


def _units(live_range: LiveRange, register: str) -> Iterator[tuple[int, tuple[Segment, ...]]]:
    """The 16-bit units that the range occupies in ``register``, each with the slots where it does: lane k is unit k."""
    units = physical_register(register).units
    for group in live_range.groups:
        for lane in range(live_range.lanes):
            if group.lanes >> lane & 1:
                yield units[lane], group.segments


def _overlap(these: tuple[Segment, ...], those: list[Segment]) -> bool:
    return any(start < other_end and other_start < end for start, end in these for other_start, other_end in those)
