"""A problem's ranges and register files as the CP-SAT models see them."""

from __future__ import annotations

from dataclasses import dataclass

from verilocc_mlir.allocators.bounds import Ceiling
from verilocc_mlir.allocators.items import Item
from verilocc_mlir.allocators.tables import Tables
from verilocc_mlir.allocators.timeline import runs

SPLIT = 4
"""AGPRs of a unified file start at a multiple of this (GCNSubtarget.cpp, getTotalNumVGPRs)."""


class Layout:
    """A problem's ranges and files.

    Attributes:
        starts: for each range, by file (``vgpr``, ``agpr``, ``sgpr``, ``special``), the cells in which it may start;
            files without such a cell are left out.
        grain: alignment of each range's start, in cells.
        unified: VGPRs and AGPRs come out of one file, and some range may be in an AGPR.
    """

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.instants = Instants(tables)
        cells = tables.cells
        self.starts = [self._starts(r.id) for r in tables.problem.ranges]
        self.grain = [1 if r.lanes % 2 else r.align * cells.halves for r in tables.problem.ranges]
        self.items: list[Item] = tables.singles
        self.unified = tables.problem.occupancy.unified and any("agpr" in starts for starts in self.starts)

    def _starts(self, number: int) -> dict[str, tuple[int, ...]]:
        starts_of: dict[str, list[int]] = {}
        for start in self.tables.candidates.by_range[number]:
            starts_of.setdefault(self.file_of(start), []).append(start)
        return {file: tuple(sorted(starts)) for file, starts in starts_of.items()}

    def file_of(self, cell: int) -> str:
        """The file that a cell is in."""
        cells = self.tables.cells
        return "special" if cell >= cells.stop["sgpr"] else cells.register_of(cell)[0]

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(file for file in ("vgpr", "agpr", "sgpr") if self.size(file))

    def size(self, file: str) -> int:
        cells = self.tables.cells
        return cells.stop[file] - cells.base[file]

    @property
    def top(self) -> int:
        """The greatest register count that a placement can have."""
        halves = self.tables.cells.halves
        sizes = [self.size(file) // halves for file in self.files]
        return -(-sizes[0] // SPLIT) * SPLIT + sum(sizes[1:]) if self.unified else max(sizes, default=0)

    def ceiling(self, total: int) -> Ceiling:
        """The ceiling of ``total`` registers where the files are counted apart."""
        return dict.fromkeys(self.files, total)


# The instants that decide interference: those whose set of live cells is not contained in that of a neighbour.


@dataclass(frozen=True)
class Piece:
    """Neighbouring cells of a live range that are live at the same instants.

    Attributes:
        offset: first cell, relative to the range's.
        runs: half-open intervals of positions in the list of instants.
    """

    offset: int
    size: int
    runs: tuple[tuple[int, int], ...]


class Instants:
    """The instants of a problem, as bits of its timeline, ascending.

    A bit is left out if everything live there is also live at a neighbouring bit that is kept. Two cells are live
    together at some time if and only if they are live together at an instant.
    """

    def __init__(self, tables: Tables) -> None:
        live = _live_cells(tables)
        instants: list[int] = []
        for bit, cells in enumerate(live):
            while instants and not live[instants[-1]] & ~cells:
                instants.pop()
            if cells and not (instants and not cells & ~live[instants[-1]]):
                instants.append(bit)
        self.bits: tuple[int, ...] = tuple(instants)
        self.load: dict[int, int] = {bit: live[bit].bit_count() for bit in instants}
        """Cells held at each instant, by ranges and by what is fixed."""

    def tightest(self, cells: int) -> tuple[int, ...]:
        """Instants at which at least ``cells`` cells are held."""
        return tuple(bit for bit in self.bits if self.load[bit] >= cells)


def _live_cells(tables: Tables) -> list[int]:
    """For each bit of the timeline, what is held there, as a set in an integer: one bit for each cell of each range
    and for each fixed cell."""
    live = [0] * len(tables.timeline.boundaries)
    masks = [mask for item in tables.singles for _, mask in item.cells] + [mask for mask in tables.fixed if mask]
    for number, mask in enumerate(masks):
        for start, stop in runs(mask):
            for bit in range(start, stop):
                live[bit] |= 1 << number
    return live


def pieces(item: Item, instants: tuple[int, ...]) -> list[Piece]:
    """A range's rectangles at some instants, in the order of their offsets."""
    result: list[Piece] = []
    for offset, mask in item.cells:
        intervals = tuple(runs(at_instants(mask, instants)))
        if not intervals:
            continue
        last = result[-1] if result else None
        if last is not None and last.offset + last.size == offset and last.runs == intervals:
            result[-1] = Piece(last.offset, last.size + 1, intervals)
        else:
            result.append(Piece(offset, 1, intervals))
    return result


def at_instants(mask: int, instants: tuple[int, ...]) -> int:
    """A mask of the timeline as a mask over the list of instants."""
    return sum(1 << k for k, bit in enumerate(instants) if mask >> bit & 1)
