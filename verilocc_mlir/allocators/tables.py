"""What every search over one problem needs, computed once: time, cells, items, candidates, copies, costs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from verilocc_mlir.allocators.cells import CellMap, cell_map
from verilocc_mlir.allocators.coalesce import coalesce
from verilocc_mlir.allocators.cost import CostModel
from verilocc_mlir.allocators.hints import Hints
from verilocc_mlir.allocators.items import CandidateTable, Item, single_items
from verilocc_mlir.allocators.packing import fixed_occupation
from verilocc_mlir.allocators.reuse import Reuse
from verilocc_mlir.allocators.timeline import Timeline
from verilocc_mlir.errors import InputError
from verilocc_mlir.problem.model import PROBLEM_VERSION, AllocationProblem, Proposal


class Tables:
    """Tables of one problem. ``starts`` are always first cells, by range id."""

    def __init__(self, problem: AllocationProblem) -> None:
        self.problem = problem
        self.timeline = Timeline(problem)
        self.cells: CellMap = cell_map(problem)
        self.singles: list[Item] = single_items(problem, self.timeline, self.cells)
        self.fixed: list[int] = fixed_occupation(problem, self.timeline, self.cells)
        self.candidates = CandidateTable(problem, self.cells)
        self.cost = CostModel(problem, self.cells)
        self.hints = Hints(problem, self.cells, self.cost)

    @cached_property
    def reuse(self) -> Reuse:
        """False dependencies."""
        return Reuse(self.problem, self.timeline)

    @cached_property
    def joined(self) -> list[Item]:
        """Items in which ranges are joined that a copy or a chain of matrix operations connects."""
        return coalesce(self.problem, self.singles, self.candidates, self.cells)

    def proposal(self, starts: Sequence[int], allocator: str) -> Proposal:
        """The proposal that puts the ranges at ``starts``."""
        names = (self.cells.name(start, r) for start, r in zip(starts, self.problem.ranges, strict=True))
        return Proposal(PROBLEM_VERSION, allocator, tuple(names))

    def starts(self, proposal: Proposal) -> list[int]:
        """Where a proposal puts each range.

        Raises:
            InputError: it leaves a range out, or puts it where the range may not start.
        """
        ranges = self.problem.ranges
        if len(proposal.registers) != len(ranges):
            raise InputError(f"{len(proposal.registers)} registers for {len(ranges)} ranges", where="proposal")
        starts: list[int] = []
        for live_range, name in zip(ranges, proposal.registers, strict=True):
            cells = self.cells.cells_of(name) if name else ()
            if not cells or not self.candidates.allows(live_range.id, cells[0]):
                raise InputError(
                    f"{live_range.name} cannot be in {f'${name}' if name else 'no register'}", where="proposal"
                )
            starts.append(cells[0])
        return starts
