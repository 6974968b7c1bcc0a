"""One proof case: a problem, a proposal, and where the proposal puts each live range."""

from __future__ import annotations

from dataclasses import dataclass

from smt_verifier.prove.facts import Interval, allocatable, class_places, unit_mask
from smt_verifier.prove.occupancy import Occupancy
from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.problem.model import AllocationProblem, LiveRange, Proposal
from verilocc_mlir.target.registers import SPECIAL_BASE, PhysicalRegister, physical_register

NOWHERE = 0xFFFF
"""First unit written for a register without storage; no register has it."""


@dataclass(frozen=True)
class Case:
    """Attributes:
    problem, proposal: as given, found well-formed.
    registers: what each proposed name denotes; None where there is no name or it denotes nothing.
    located: ids of the ranges whose register has as many units as the range has lanes; only of these can be said
        where each lane is, so the rules about places speak of these (the others violate a rule of their own).
    occupancy: who holds which unit when, over ``located``.
    allocatable: units that may be handed out at all.
    """

    problem: AllocationProblem
    proposal: Proposal
    registers: tuple[PhysicalRegister | None, ...]
    located: tuple[int, ...]
    occupancy: Occupancy
    allocatable: tuple[Interval, ...]

    def first_unit(self, range_id: int) -> int:
        register = self.registers[range_id]
        return register.units[0] if register and register.units else NOWHERE

    def located_ranges(self) -> tuple[LiveRange, ...]:
        return tuple(self.problem.ranges[range_id] for range_id in self.located)

    def is_legal(self, live: LiveRange, unit: int) -> bool:
        """Whether the live range may start at a unit, as far as everything but occupation goes (for messages only)."""
        end = unit + live.lanes
        of_class = class_places(live.register_class, live.banks, live.limit).intervals
        return (unit >= SPECIAL_BASE or unit & unit_mask(live) == 0) and all(
            any(first <= unit and end <= last for first, last in intervals)
            for intervals in (of_class, self.allocatable)
        )


def build_case(problem: AllocationProblem, proposal: Proposal) -> Case:
    """Look up the proposed registers and lay out who holds what."""
    registers = tuple(_lookup(name) for name in proposal.registers)
    located = tuple(
        live.id
        for live, register in zip(problem.ranges, registers, strict=True)
        if register is not None and len(register.units) == live.lanes and _contiguous(register.units)
    )
    units = {range_id: register.units[0] for range_id in located if (register := registers[range_id]) is not None}
    return Case(problem, proposal, registers, located, Occupancy(problem, units), allocatable(problem))


def _lookup(name: str) -> PhysicalRegister | None:
    if not name:
        return None
    try:
        return physical_register(name)
    except VeriloccError:
        return None


def _contiguous(units: tuple[int, ...]) -> bool:
    return units[-1] - units[0] == len(units) - 1
