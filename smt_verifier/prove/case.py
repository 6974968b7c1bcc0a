"""One proof case, a problem, a proposal, and where the proposal puts each live range; and what is answered."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from smt_verifier.outcome import Outcome
from smt_verifier.prove.occupancy import Interval, Occupancy, allocatable, class_places, unit_mask
from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.problem.model import AllocationProblem, LiveRange, Proposal, Segment
from verilocc_mlir.target.registers import SPECIAL_BASE, PhysicalRegister, physical_register

NOWHERE = 0xFFFF
"""First unit written for a register without storage; no register has it."""


class Case(Struct, frozen=True):
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


def without(case: Case, moved: Iterable[int]) -> Case:
    """The case in which some live ranges are nowhere; every other one stays."""
    removed = set(moved)
    located = tuple(i for i in case.located if i not in removed)
    units = {i: case.first_unit(i) for i in located}
    return replace(case, located=located, occupancy=Occupancy(case.problem, units))


def _lookup(name: str) -> PhysicalRegister | None:
    if not name:
        return None
    try:
        return physical_register(name)
    except VeriloccError:
        return None


def _contiguous(units: tuple[int, ...]) -> bool:
    return units[-1] - units[0] == len(units) - 1


# What ``prove`` answers: an outcome, and for a refutation each violated constraint with what a next attempt needs.


class Violation(Struct, frozen=True):
    """One violated constraint.

    Attributes:
        rule: the constraint's stable name: ``interference``, ``alignment`` …
        ranges: ids of the live ranges involved; two for ``interference``, the one cheaper to move (lower weight) first;
            none where the proposal as a whole is at fault.
        names: their names in the MIR, for people.
        slot: first program point at which the rule is broken, -1 where it is broken everywhere.
        lanes: for each of ``ranges``, the mask of 16-bit lanes involved.
        registers: for each of ``ranges``, the register proposed.
        segments: for each of ``ranges``, the slot intervals during which the lanes involved are kept.
        free: registers that ``ranges[0]`` could have had for its whole life, everything else staying where it was
            proposed; the first few in ascending order.
    """

    rule: str
    ranges: tuple[int, ...]
    names: tuple[str, ...]
    slot: int
    lanes: tuple[int, ...]
    registers: tuple[str, ...]
    segments: tuple[tuple[Segment, ...], ...]
    message: str
    free: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Stable and unique in a result: the rule and the ids of its live ranges, ``interference/3-7``."""
        return f"{self.rule}/{'-'.join(str(i) for i in sorted(self.ranges))}"


class ProofResult(Struct, frozen=True):
    """The answer of ``prove``.

    Attributes:
        outcome: PROVED, REFUTED, UNKNOWN (time-out, resource limit) or INVALID (not a problem, or not an answer to it).
        obligations: named constraints that were asked; 0 where the input was INVALID.
        violations: for REFUTED, by rule and program point; at most ``MAX_VIOLATIONS``.
        truncated: there were more violations than are listed.
        reason: why, for UNKNOWN and INVALID.
    """

    outcome: Outcome
    obligations: int
    violations: tuple[Violation, ...] = ()
    truncated: bool = False
    reason: str = ""

    @property
    def core(self) -> tuple[Violation, ...]:
        """The violations that no other one implies: minimal unsatisfiable sets of placements.

        A violation says that the placements of its live ranges cannot stand together. Where one of them cannot stand
        even alone, it must move whatever else is done, and a pair with it says nothing more.
        """
        alone = {violation.ranges[0] for violation in self.violations if len(violation.ranges) == 1}
        return tuple(v for v in self.violations if len(v.ranges) == 1 or alone.isdisjoint(v.ranges))


MAX_VIOLATIONS = 512
"""More than a reader or a model can use; a proposal that puts everything into one register has millions."""
