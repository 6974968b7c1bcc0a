"""The cost of a complete placement: lost waves first, then saves and copies, then registers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from verilocc_mlir.allocators.cells import CellMap
from verilocc_mlir.allocators.items import fixed_start, lane_offset
from verilocc_mlir.problem.model import AllocationProblem, Occupancy, Proposal, Relation
from verilocc_mlir.target.occupancy import extra_sgprs, waves_by_sgprs
from verilocc_mlir.target.registers import physical_register
from verilocc_mlir.target.targets import target


def align_up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


def file_total(vgprs: int, agprs: int, occupancy: Occupancy) -> int:
    """Registers of the file a wave takes: with a unified file, AGPRs start at a multiple of four (GCNSubtarget.cpp)."""
    if not occupancy.unified:
        return max(vgprs, agprs)
    return align_up(vgprs, 4) + agprs if agprs else vgprs


def vector_waves(total: int, occupancy: Occupancy) -> int:
    """Waves a SIMD holds when each takes ``total`` registers (AMDGPUBaseInfo.cpp, getNumWavesPerEUWithNumVGPRs)."""
    allocated = align_up(max(total, 1), occupancy.granule)
    return min(occupancy.max_waves, max(occupancy.file // allocated, 1))


def scalar_waves(problem: AllocationProblem, count: int) -> int:
    """Waves that ``count`` numbered SGPRs leave room for; VCC and FLAT_SCRATCH are taken to be in use."""
    machine = target(problem.target)
    return waves_by_sgprs(machine, count + extra_sgprs(machine, vcc=True, flat_scratch=True))


SAVE_AND_RESTORE = 2.0
"""Estimated executions that a callee-saved register costs when it is used."""


class Cost(NamedTuple):
    """Smaller is better, first field first.

    Attributes:
        lost_waves: waves fewer than the most a SIMD holds.
        saves_and_copies: estimated executions of the copies left in the code and of the saves and restores of
            callee-saved registers, plus the weights of the machine's preferences that are not met.
        registers: 32-bit registers of the files counted, AGPRs after aligned VGPRs where they share a file.
    """

    lost_waves: int
    saves_and_copies: float
    registers: int


class CellRelation(NamedTuple):
    """A ``Relation`` in cells. With ``modulus`` 0, ``b`` must be at ``distance`` from ``a``; else its distance must
    differ from ``distance`` modulo ``modulus``."""

    a: int
    b: int
    distance: int
    modulus: int

    def holds(self, a: int, b: int) -> bool:
        apart = b - a - self.distance
        return apart % self.modulus != 0 if self.modulus else apart == 0


def cell_relation(relation: Relation, cells: CellMap) -> CellRelation:
    """A relation of registers as one of cells; both ranges start at whole registers."""
    distance = (relation.a_lane - relation.b_lane) * cells.halves // 2
    return CellRelation(relation.a, relation.b, distance, relation.modulus * cells.halves)


class CostModel:
    """Costs of complete assignments of one problem."""

    def __init__(self, problem: AllocationProblem, cells: CellMap) -> None:
        self._problem = problem
        self._cells = cells
        self._spans = [r.lanes if cells.halves == 2 else r.width for r in problem.ranges]
        self.pairs = [
            (a.a, a.b, lane_offset(a.a_lane - a.b_lane, cells.halves), a.weight) for a in problem.affinities if a.b >= 0
        ]
        """Copies between two ranges: the ranges, how far the second must start from the first for the copy to vanish
        (None: it cannot), and the weight."""
        self.fixed = [
            (a.a, goal, a.weight) for a in problem.affinities if a.b < 0 and (goal := fixed_start(cells, a)) is not None
        ]
        """Copies from or to a fixed register: the range, where it must start for the copy to vanish, and the weight."""
        self.preferences = tuple(
            (tuple(cell_relation(r, cells) for r in p.relations), p.weight) for p in problem.preferences
        )
        """Relations that must all hold, and what it costs if they do not."""

    def of(self, starts: Sequence[int], *, pairs: bool = True) -> Cost:
        """The cost if range *i* starts at cell ``starts[i]``.

        Args:
            pairs: count operations that cannot issue as one, too; else chains of matrix operations alone.
        """
        cells = self._cells
        saved_cells: set[int] = set()
        if cells.expensive:
            for span, start in zip(self._spans, starts, strict=True):
                saved_cells.update(cells.expensive.intersection(range(start, start + span)))
        copies_left: float = sum(
            w for a, b, distance, w in self.pairs if distance is None or starts[b] != starts[a] + distance
        )
        copies_left += sum(w for a, goal, w in self.fixed if starts[a] != goal)
        for relations, weight in self.preferences:
            if (pairs or not relations[0].modulus) and not all(r.holds(starts[r.a], starts[r.b]) for r in relations):
                copies_left += weight
        copies = copies_left + SAVE_AND_RESTORE * len(saved_cells) / cells.halves
        total = self.registers(self.highest(starts))
        return Cost(self.lost_waves(total), copies, total)

    def highest(self, starts: Sequence[int]) -> dict[str, int]:
        """One past the highest register of each file that is in use."""
        cells = self._cells
        highest = {"vgpr": 0, "agpr": 0, "sgpr": 0}
        for span, start in zip(self._spans, starts, strict=True):
            bank, number = cells.register_of(start + span - 1)
            if number + 1 > highest[bank] and start < cells.stop[bank]:
                highest[bank] = number + 1
        return highest

    def registers(self, highest: Mapping[str, int]) -> int:
        """Registers of the phase's file that a wave takes, from one past the highest register of each file."""
        if self._problem.phase == "sgpr":
            return highest["sgpr"]
        return file_total(highest["vgpr"], highest["agpr"], self._problem.occupancy)

    def lost_waves(self, registers: int) -> int:
        """Waves fewer than the most a SIMD holds, with ``registers`` of the phase's file."""
        occupancy = self._problem.occupancy
        if self._problem.phase == "sgpr":
            return occupancy.max_waves - min(scalar_waves(self._problem, registers), occupancy.max_waves)
        return occupancy.max_waves - vector_waves(registers, occupancy)


# What an assignment costs, as far as it can be said of the assignment alone.


class Measured(Struct, frozen=True):
    """Registers and copies of one phase.

    Attributes:
        sgprs, vgprs, agprs: 32-bit registers of the file, up to the highest one used.
        waves: waves per SIMD that this phase's registers allow.
        copies: estimated executions of the copies that stay.
    """

    sgprs: int
    vgprs: int
    agprs: int
    waves: int
    copies: float


def measure(problem: AllocationProblem, proposal: Proposal) -> Measured:
    """The cost of a proposal that answers ``problem``: every range with a register that exists, or none."""
    registers = [physical_register(name) if name else None for name in proposal.registers]
    highest = {"sgpr": 0, "vgpr": 0, "agpr": 0}
    for register in registers:
        if register is not None and register.bank.value in highest:
            bank = register.bank.value
            highest[bank] = max(highest[bank], register.first + -(-len(register.units) // 2))
    copies = 0.0
    for affinity in problem.affinities:
        source = registers[affinity.a]
        partner = registers[affinity.b] if affinity.b >= 0 else physical_register(affinity.fixed)
        if source is None or partner is None or source.units[0] + affinity.a_lane != partner.units[0] + affinity.b_lane:
            copies += affinity.weight
    if problem.phase == "sgpr":
        waves = min(scalar_waves(problem, highest["sgpr"]), problem.occupancy.max_waves)
    else:
        waves = vector_waves(file_total(highest["vgpr"], highest["agpr"], problem.occupancy), problem.occupancy)
    return Measured(highest["sgpr"], highest["vgpr"], highest["agpr"], waves, copies)
