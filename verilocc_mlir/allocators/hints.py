"""Preferred starts of an item: beside the ranges it is copied to or from, in argument registers, at LLVM's hints."""

from __future__ import annotations

from verilocc_mlir.allocators.cells import CellMap
from verilocc_mlir.allocators.cost import CostModel
from verilocc_mlir.allocators.items import Item
from verilocc_mlir.problem.model import AllocationProblem


class Hints:
    """Preferred starts, weighed by the copies that they remove."""

    def __init__(self, problem: AllocationProblem, cells: CellMap, cost: CostModel) -> None:
        count = len(problem.ranges)
        # Per range: (other range, its start minus ours, weight), and (cell, weight).
        self._partners: list[list[tuple[int, int, float]]] = [[] for _ in range(count)]
        self._cells: list[list[tuple[int, float]]] = [[] for _ in range(count)]
        for a, goal, weight in cost.fixed:
            self._cells[a].append((goal, weight))
        for a, b, distance, weight in cost.pairs:
            if distance is not None and a != b:
                self._partners[a].append((b, distance, weight))
                self._partners[b].append((a, -distance, weight))
        for live_range in problem.ranges:
            if live_range.hint and (target := cells.cells_of(live_range.hint)):
                # A hinted register shortens an encoding; a removed copy of the same block is worth more.
                self._cells[live_range.id].append((target[0], 0.5))

    def starts(self, item: Item, placed: list[int]) -> list[int]:
        """Preferred starts of ``item``, best first; ``placed`` has each range's start, -1 where it has none yet."""
        weights: dict[int, float] = {}
        for member, offset in item.members:
            for partner, distance, weight in self._partners[member]:
                if placed[partner] >= 0:
                    start = placed[partner] - distance - offset
                    weights[start] = weights.get(start, 0.0) + weight
            for cell, weight in self._cells[member]:
                weights[cell - offset] = weights.get(cell - offset, 0.0) + weight
        if len(weights) < 2:
            return list(weights)
        return sorted(weights, key=lambda start: (-weights[start], start))
