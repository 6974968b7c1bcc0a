"""A problem's ranges and register files as the CP-SAT models see them."""

from __future__ import annotations

from verilocc_mlir.allocators.bounds import Ceiling
from verilocc_mlir.allocators.exact.instants import Instants
from verilocc_mlir.allocators.items import Item
from verilocc_mlir.allocators.tables import Tables

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
