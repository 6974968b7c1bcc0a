"""Where positions are counted from: the cell array as it is, or a unified file with AGPRs right behind the VGPRs."""

from __future__ import annotations

from dataclasses import dataclass

from verilocc_mlir.allocators.bounds import Ceiling
from verilocc_mlir.allocators.exact.instants import Instants
from verilocc_mlir.allocators.items import Item
from verilocc_mlir.allocators.tables import Tables

SPLIT = 4
"""AGPRs of a unified file start at a multiple of this (GCNSubtarget.cpp, getTotalNumVGPRs)."""


@dataclass(frozen=True)
class Room:
    """Cells in which a range may start, by file: ``vgpr``, ``agpr``, ``sgpr``, ``special``. Files without any are left
    out."""

    starts: dict[str, tuple[int, ...]]


class Layout:
    """A problem's ranges and files as the models see them.

    Attributes:
        unified: VGPRs and AGPRs come out of one file, and some range may be in an AGPR.
        grain: cells by which a range's start moves: its alignment, by range id.
    """

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.instants = Instants(tables)
        cells = tables.cells
        self.rooms = [self._room(r.id) for r in tables.problem.ranges]
        self.grain = [1 if r.lanes % 2 else r.align * cells.halves for r in tables.problem.ranges]
        self.items: list[Item] = tables.singles
        self.unified = tables.problem.occupancy.unified and any("agpr" in room.starts for room in self.rooms)

    def _room(self, number: int) -> Room:
        starts_of: dict[str, list[int]] = {}
        for start in self.tables.table.by_range[number]:
            starts_of.setdefault(self.file_of(start), []).append(start)
        return Room({file: tuple(sorted(starts)) for file, starts in starts_of.items()})

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
        """Registers past which a total cannot grow."""
        halves = self.tables.cells.halves
        sizes = [self.size(file) // halves for file in self.files]
        return -(-sizes[0] // SPLIT) * SPLIT + sum(sizes[1:]) if self.unified else max(sizes, default=0)

    def ceiling(self, total: int) -> Ceiling:
        """The ceiling that ``total`` registers are, where the files are counted apart."""
        return dict.fromkeys(self.files, total)
