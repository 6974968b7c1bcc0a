"""Placing all items under a ceiling: one pass in a fixed order, then evicting what stands in the way of the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from verilocc_mlir.allocators.bounds import Ceiling
from verilocc_mlir.allocators.cells import CellMap
from verilocc_mlir.allocators.hints import Hints
from verilocc_mlir.allocators.items import Candidates, CandidateTable, Item
from verilocc_mlir.allocators.packing import Packing, below

Order = Callable[[Item], tuple[int, ...]]
"""Sort key: items are placed in ascending order of it."""


def by_start(item: Item) -> tuple[int, ...]:
    """In program order, wide ones first: optimal for straight-line code and registers of one width."""
    return (item.start, -item.width, -item.area, item.members[0][0])


def by_area(item: Item) -> tuple[int, ...]:
    """What takes most room first; the small ones fill the gaps."""
    return (-item.area, item.start, item.members[0][0])


def by_width(item: Item) -> tuple[int, ...]:
    """Wide tuples first, in program order, so that they find unbroken room."""
    return (-item.width, item.start, -item.area, item.members[0][0])


@dataclass(frozen=True)
class Strategy:
    """One way of placing.

    Attributes:
        order: which items are placed first.
        coalesced: place ranges joined by copies as one.
        narrow_down: fill single registers from the ceiling downwards, which leaves the low end to tuples.
        snug: put tuples at multiples of their size first, so that the room between them fits tuples again.
    """

    order: Order
    coalesced: bool
    narrow_down: bool = False
    snug: bool = False


class Placement:
    """A packing under one ceiling, with what is not placed yet."""

    def __init__(
        self,
        items: Iterable[Item],
        fixed: list[int],
        table: CandidateTable,
        hints: Hints,
        cells: CellMap,
        ceiling: Ceiling,
    ) -> None:
        self.packing = Packing(fixed)
        self.starts: list[int] = [-1] * len(table.by_range)
        self.waiting: list[Item] = list(items)
        self._fixed = fixed
        self._table = table
        self._hints = hints
        self._cells = cells
        self.ceiling = ceiling
        self._cache: dict[tuple[Candidates, int, bool, int], Candidates] = {}
        self._sets: dict[Candidates, frozenset[int]] = {}

    def candidates(self, item: Item, *, down: bool = False, multiple: int = 1) -> Candidates:
        """Where the item may start under the ceiling; ``multiple``: registers whose multiples come first."""
        every = self._table.of(item)
        key = (every, item.reach, down, multiple)
        starts = self._cache.get(key)
        if starts is None:
            starts = below(every, self._cells, self.ceiling, item.reach)
            if down:
                # VCC stays the last resort unless something hints at it.
                numbered = self._cells.stop["sgpr"]
                starts = (*(c for c in starts[::-1] if c < numbered), *(c for c in starts if c >= numbered))
            if multiple > 1:
                grid = multiple * self._cells.halves
                base = self._cells.base
                ahead = {c for c in starts if not (c - base[self._cells.register_of(c)[0]]) % grid}
                starts = (*(c for c in starts if c in ahead), *(c for c in starts if c not in ahead))
            self._cache[key] = starts
            self._sets[starts] = frozenset(starts)
        return starts

    def run(self, strategy: Strategy) -> int:
        """Place the items that fit, in the strategy's order; returns the area of those left over."""
        unplaced: list[Item] = []
        for item in sorted(self.waiting, key=strategy.order):
            width = item.width // self._cells.halves
            down = strategy.narrow_down and width <= 1
            multiple = 1 << (width - 1).bit_length() if strategy.snug and width > 1 else 1
            if not self.place(item, self.candidates(item, down=down, multiple=multiple)):
                unplaced.append(item)
        self.waiting = unplaced
        return sum(item.area for item in unplaced)

    def place(self, item: Item, candidates: Candidates) -> bool:
        allowed = self._sets[candidates]
        start = -1
        for preferred in self._hints.starts(item, self.starts):
            if preferred in allowed and self.packing.fits(item, preferred):
                start = preferred
                break
        else:
            start = self.packing.first_fit(item, candidates)
        if start < 0:
            return False
        self.put(item, start)
        return True

    def put(self, item: Item, start: int) -> None:
        """Place an item at a start known to be free."""
        self.packing.place(item, start)
        for member, offset in item.members:
            self.starts[member] = start + offset

    def lift(self, item: Item) -> int:
        """Take an item out again; returns where it was."""
        for member, _ in item.members:
            self.starts[member] = -1
        return self.packing.remove(item)

    def repair(self, split: Callable[[Item], list[Item]], steps: int) -> bool:
        """Make room for waiting items by evicting others, which wait in turn.

        Each step places the largest waiting item where it evicts the least area. Items evicted before count for more,
        so that the search does not run in circles. Joined ranges that do not fit are taken apart.

        Args:
            split: the parts of a joined item; the item itself where it is single.
            steps: evictions allowed.

        Returns:
            Whether everything is placed.
        """
        evicted: dict[int, int] = {}
        waiting = self.waiting
        while waiting:
            waiting.sort(key=by_area, reverse=True)
            item = waiting.pop()
            candidates = self.candidates(item)
            if self.place(item, candidates):
                continue
            parts = split(item)
            if len(parts) > 1:
                waiting.extend(parts)
                continue
            if steps <= 0 or not candidates:
                waiting.append(item)
                return False
            steps -= 1
            start = self._cheapest(item, candidates, evicted)
            if start < 0:
                waiting.append(item)
                return False
            for conflicting in self.packing.conflicts(item, start):
                self.lift(conflicting)
                evicted[conflicting.members[0][0]] = evicted.get(conflicting.members[0][0], 0) + 1
                waiting.extend(split(conflicting))
            self.put(item, start)
        return True

    def _cheapest(self, item: Item, candidates: Candidates, evicted: dict[int, int]) -> int:
        """The start at which putting the item evicts least, -1 where fixed occupations leave none."""
        first, stop = min(candidates), max(candidates) + item.reach
        fixed, occupied = self._fixed[first:stop], self.packing.occupied[first:stop]
        # Lanes of a tuple are mostly live at the same times: each cell is looked at once for them.
        taken = {
            mask: [-1 if f & mask else (o & mask).bit_count() for f, o in zip(fixed, occupied, strict=True)]
            for mask in {mask for _, mask in item.cells}
        }
        cells = [(offset - first, taken[mask]) for offset, mask in item.cells]
        rough: list[tuple[int, int]] = []
        for start in candidates:
            overlap = 0
            for offset, areas in cells:
                area = areas[start + offset]
                if area < 0:
                    break
                overlap += area
            else:
                rough.append((overlap, start))
        rough.sort()
        best = -1
        least = 0
        for _, start in rough[:12]:
            price = sum(
                o.area * (1 + evicted.get(o.members[0][0], 0)) ** 2 for o in self.packing.conflicts(item, start)
            )
            if best < 0 or price < least:
                best, least = start, price
        return best
