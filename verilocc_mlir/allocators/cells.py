"""The register files as one array of *cells*, and the positions in it that a live range may take.

A cell is a 32-bit register, or a 16-bit half of one where the problem has live ranges that need the halves told apart.
Files follow one another in the array: ``vgpr``, ``agpr``, ``sgpr``, then the special registers handed out (VCC).
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from verilocc_mlir.problem.model import AllocationProblem, LiveRange, Segment
from verilocc_mlir.target.registers import BANK_BASE, Bank, physical_register, tuple_name

_FILES = ("vgpr", "agpr", "sgpr")

_FILE_ALIGN = 8
"""A file's first cell is a multiple of this. So the cell alone gives a register's bank (its number modulo 4), with one
cell for a register or two."""


class CellMap(Struct, frozen=True):
    """Where each file lies in the cell array.

    Attributes:
        halves: cells per 32-bit register, 1 or 2.
        base: first cell of each file.
        stop: one past the last allocatable cell of each file.
        size: cells in the array.
        allocatable: cells of registers that the problem's budgets list.
        expensive: cells of registers that cost a save and a restore.
        specials: first cell of each special register that may be handed out, with its name and its width in registers.
        special_units: cell of each 16-bit unit of the special registers.
    """

    halves: int
    base: dict[str, int]
    stop: dict[str, int]
    size: int
    allocatable: frozenset[int]
    expensive: frozenset[int]
    specials: tuple[tuple[int, str, int], ...]
    special_units: dict[int, int]

    def register_of(self, cell: int) -> tuple[str, int]:
        """File and number of the register that ``cell`` is part of."""
        for bank in reversed(_FILES):
            if cell >= self.base[bank]:
                return bank, (cell - self.base[bank]) // self.halves
        raise ValueError(f"negative cell {cell}")

    def name(self, cell: int, live_range: LiveRange) -> str:
        """MIR name without ``$`` of the register of the range's shape that starts at ``cell``."""
        for start, name, width in self.specials:
            if cell == start and width == live_range.width:
                return name
        bank, number = self.register_of(cell)
        name = tuple_name(Bank(bank), number, live_range.width)
        if live_range.lanes % 2:
            return name + ("_hi16" if (cell - self.base[bank]) % 2 else "_lo16")
        return name

    def cells_of(self, register: str) -> tuple[int, ...]:
        """Cells of a physical register by name; empty where it is not one that may be handed out."""
        return self.cells_of_units(physical_register(register).units)

    def cells_of_units(self, units: tuple[int, ...]) -> tuple[int, ...]:
        """Cells that 16-bit ``units`` (target/registers.py) touch, each once."""
        cells: dict[int, None] = {}
        for unit in units:
            cell = self._cell_of_unit(unit)
            if cell is not None:
                cells[cell] = None
        return tuple(cells)

    def _cell_of_unit(self, unit: int) -> int | None:
        for bank in _FILES:
            offset = (unit - BANK_BASE[Bank(bank)]) * self.halves // 2
            if unit >= BANK_BASE[Bank(bank)] and self.base[bank] + offset < self.stop[bank]:
                return self.base[bank] + offset
        return self.special_units.get(unit)


def cell_map(problem: AllocationProblem) -> CellMap:
    halves = 2 if _needs_halves(problem) else 1
    budgets = {b.bank: b for b in problem.budgets}
    base: dict[str, int] = {}
    stop: dict[str, int] = {}
    allocatable: set[int] = set()
    expensive: set[int] = set()
    size = 0
    for bank in _FILES:
        size = -(-size // _FILE_ALIGN) * _FILE_ALIGN
        base[bank] = size
        budget = budgets.get(bank)
        count = 1 + max(budget.registers) if budget and budget.registers else 0
        if budget:
            allocatable.update(size + n * halves + h for n in budget.registers for h in range(halves))
            expensive.update(size + n * halves + h for n in budget.expensive for h in range(halves))
        size += count * halves
        stop[bank] = size
    # Special registers alias (VCC is VCC_LO and VCC_HI): cells go by their units.
    units = sorted({u for name in problem.special for u in physical_register(name).units})
    special_units = {unit: size + k * halves // 2 for k, unit in enumerate(units)}
    specials = tuple(
        (special_units[register_units[0]], name, len(register_units) // 2)
        for name in problem.special
        if (register_units := physical_register(name).units)
    )
    size += len(units) * halves // 2
    return CellMap(halves, base, stop, size, frozenset(allocatable), frozenset(expensive), specials, special_units)


def _needs_halves(problem: AllocationProblem) -> bool:
    for live_range in problem.ranges:
        if live_range.lanes % 2:
            return True
        for group in live_range.groups:
            even = (1 << live_range.lanes) // 3
            if (group.lanes & even) != (group.lanes >> 1 & even):
                return True
    return False


# Sets of slots as integers, one bit for each stretch of slots that no live range starts or ends in.


class Timeline:
    """Maps segments to bit masks; two sets of segments overlap if and only if their masks share a bit.

    Bit *k* stands for the slots from the *k*-th distinct segment boundary up to the next one.
    """

    def __init__(self, problem: AllocationProblem) -> None:
        boundaries: set[int] = set()
        for live_range in problem.ranges:
            for group in live_range.groups:
                for segment in group.segments:
                    boundaries.update(segment)
        for fixed in problem.fixed:
            for segment in fixed.segments:
                boundaries.update(segment)
        self.boundaries: tuple[int, ...] = tuple(sorted(boundaries))
        self._rank = {slot: k for k, slot in enumerate(self.boundaries)}

    def mask(self, segments: Iterable[Segment]) -> int:
        """The bits that sorted, disjoint ``segments`` cover."""
        rank = self._rank
        bits = 0
        for start, stop in segments:
            low = rank[start]
            bits |= ((1 << (rank[stop] - low)) - 1) << low
        return bits

    def slot(self, bit: int) -> int:
        """First slot that ``bit`` stands for."""
        return self.boundaries[bit]


def runs(mask: int) -> list[tuple[int, int]]:
    """Half-open intervals of the ones of ``mask``."""
    position = (mask & -mask).bit_length() - 1
    mask >>= max(position, 0)
    if not mask & (mask + 1):
        return [(position, position + mask.bit_length())] if mask else []
    if mask.bit_length() > _LONG:
        return _long_runs(mask, position)
    intervals: list[tuple[int, int]] = []
    while mask:
        zeros = (mask & -mask).bit_length() - 1
        mask >>= zeros
        ones = (~mask & (mask + 1)).bit_length() - 1
        mask >>= ones
        intervals.append((position + zeros, position + zeros + ones))
        position += zeros + ones
    return intervals


_LONG = 2048
"""Bits: shifting more of them once for each run takes longer than to search their digits."""


def _long_runs(mask: int, position: int) -> list[tuple[int, int]]:
    """``runs`` in linear time; ``position``: of the first bit."""
    intervals: list[tuple[int, int]] = []
    digits = f"{mask:b}"[::-1]
    start = digits.find("1")
    while start >= 0:
        stop = digits.find("0", start)
        if stop < 0:
            stop = len(digits)
        intervals.append((position + start, position + stop))
        start = digits.find("1", stop)
    return intervals


def add_ones(change: list[int], mask: int, times: int = 1) -> None:
    """Add ``times`` at every bit of ``mask``, where ``change`` has the differences between neighbouring bits."""
    for start, stop in runs(mask):
        change[start] += times
        change[stop] -= times
