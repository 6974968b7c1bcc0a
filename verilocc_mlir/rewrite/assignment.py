"""Which physical register each virtual register got, and which of its lanes hold something at a slot."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

from verilocc_mlir.errors import InputError
from verilocc_mlir.problem.model import AllocationProblem, LiveRange, Proposal
from verilocc_mlir.target.registers import PhysicalRegister, physical_register


@dataclass(frozen=True)
class Placed:
    """One virtual register and its place.

    Attributes:
        live_range: the range it came from.
        register: what it was given.
    """

    live_range: LiveRange
    register: PhysicalRegister

    def live_lanes(self, slot: int) -> int:
        """Mask of the 16-bit lanes that are live at ``slot``."""
        lanes = 0
        for group in self.live_range.groups:
            at = bisect_right(group.segments, slot, key=lambda segment: segment[0]) - 1
            if at >= 0 and slot < group.segments[at][1]:
                lanes |= group.lanes
        return lanes


def assignment(problem: AllocationProblem, proposal: Proposal) -> Mapping[int, Placed]:
    """Virtual register number to its place.

    Raises:
        InputError: the proposal leaves a range without a register, or gives one of another size.
        UnsupportedError: it names a register that does not exist.
    """
    where = f"function {problem.function}, {problem.phase} phase, {proposal.allocator}"
    if len(proposal.registers) != len(problem.ranges):
        raise InputError(f"{len(proposal.registers)} registers proposed for {len(problem.ranges)} ranges", where=where)
    placed: dict[int, Placed] = {}
    for live_range, name in zip(problem.ranges, proposal.registers, strict=True):
        if not name:
            raise InputError(f"no register proposed for {live_range.name}", where=where)
        register = physical_register(name)
        if len(register.units) != live_range.lanes:
            raise InputError(
                f"${name} has {len(register.units)} 16-bit lanes, {live_range.name} has {live_range.lanes}", where=where
            )
        placed[int(live_range.name[1:])] = Placed(live_range, register)
    return placed
