"""Placing all items under a ceiling: one pass in a fixed order, then evicting what stands in the way of the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import accumulate
from operator import sub

from msgspec import Struct

from verilocc_mlir.allocators.bounds import Ceiling
from verilocc_mlir.allocators.cells import CellMap
from verilocc_mlir.allocators.items import Candidates, CandidateTable, Item
from verilocc_mlir.allocators.packing import Packing, below, fitting
from verilocc_mlir.allocators.tables import Hints

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


class Strategy(Struct, frozen=True):
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


_NEVER = 1 << 60
"""More than any overlap."""

_CLOSELY = 12
"""Starts that are looked at closely: those with the least overlap."""

_PATIENCE_OF_ALL = 30_000
"""Evictions in vain that all ranges together are worth: with few of them, one costs little."""


class Starts(Struct, frozen=True, eq=False):
    """Cells at which an item may start, in the order in which they are tried, and as a set."""

    order: Candidates
    cells: frozenset[int]


KnownStarts = dict[tuple[int, int, bool, int], Starts]
"""Starts under one ceiling, by what ``Placement.candidates`` is asked for."""


class Placement:
    """A packing under one ceiling, with what is not placed yet.

    Args:
        known: starts under this ceiling that were looked for before; it grows. None: none were.
    """

    def __init__(
        self,
        items: Iterable[Item],
        fixed: list[int],
        table: CandidateTable,
        hints: Hints,
        cells: CellMap,
        ceiling: Ceiling,
        known: KnownStarts | None = None,
    ) -> None:
        self.packing = Packing(fixed)
        self.starts: list[int] = [-1] * len(table.by_range)
        self.waiting: list[Item] = list(items)
        self._fixed = fixed
        self._table = table
        self._hints = hints
        self._cells = cells
        self.ceiling = ceiling
        self._known = {} if known is None else known
        self._open: dict[Item, Candidates] = {}
        """Starts at which nothing fixed is in the way."""
        self._columns: dict[tuple[int, int, int], tuple[list[int], list[int]]] = {}
        """By mask and range of cells: what they held when last counted, and how much of that is in the mask."""

    def candidates(self, item: Item, *, down: bool = False, multiple: int = 1) -> Starts:
        """Where the item may start under the ceiling; ``multiple``: registers whose multiples come first."""
        every = self._table.of(item)
        # The table keeps what it returns: an identity is one's own.
        key = (id(every), item.reach, down, multiple)
        starts = self._known.get(key)
        if starts is None:
            order = self._ordered(every, item.reach, down, multiple)
            starts = self._known[key] = Starts(order, frozenset(order))
        return starts

    def _ordered(self, every: Candidates, reach: int, down: bool, multiple: int) -> Candidates:
        starts = below(every, self._cells, self.ceiling, reach)
        if down:
            # VCC stays the last resort unless something hints at it.
            numbered = self._cells.stop["sgpr"]
            starts = (*(c for c in starts[::-1] if c < numbered), *(c for c in starts if c >= numbered))
        if multiple > 1:
            grid = multiple * self._cells.halves
            base = self._cells.base
            ahead = {c for c in starts if not (c - base[self._cells.register_of(c)[0]]) % grid}
            starts = (*(c for c in starts if c in ahead), *(c for c in starts if c not in ahead))
        return starts

    def run(self, strategy: Strategy, enough: int | None = None) -> int:
        """Place the items that fit, in the strategy's order; returns the area of those left over.

        Args:
            enough: stop once so much is left over: the placement is no use then.
        """
        missing = 0
        unplaced: list[Item] = []
        for item in sorted(self.waiting, key=strategy.order):
            width = item.width // self._cells.halves
            down = strategy.narrow_down and width <= 1
            multiple = 1 << (width - 1).bit_length() if strategy.snug and width > 1 else 1
            if not self.place(item, self.candidates(item, down=down, multiple=multiple)):
                unplaced.append(item)
                missing += item.area
                if enough is not None and missing >= enough:
                    break
        self.waiting = unplaced
        return missing

    def place(self, item: Item, candidates: Starts) -> bool:
        """Put an item where a hint or the order says; whether there was room."""
        preferred = [start for start in self._hints.starts(item, self.starts) if start in candidates.cells]
        start = self.packing.first_fit(item, preferred) if preferred else -1
        if start < 0:
            start = self.packing.first_fit(item, candidates.order)
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

    def repair(self, split: Callable[[Item], list[Item]], steps: int, patience: int) -> bool:
        """Make room for waiting items by evicting others, which wait in turn.

        Each step places the largest waiting item where it evicts the least area. Items evicted before count for more,
        so that the search does not run in circles. Joined ranges that do not fit are taken apart. It is given up where
        many evictions in a row leave no less room missing than was missing before.

        Args:
            split: the parts of a joined item; the item itself where it is single.
            steps: evictions allowed.
            patience: evictions in vain allowed in a row; more where there are few ranges.

        Returns:
            Whether everything is placed.
        """
        evicted: dict[int, int] = {}
        waiting = self.waiting
        least, in_vain = _NEVER, 0
        patience = max(patience, _PATIENCE_OF_ALL // len(self.starts))
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
            missing = item.area + sum(other.area for other in waiting)
            least, in_vain = (missing, 0) if missing < least else (least, in_vain + 1)
            if steps <= 0 or in_vain > patience or not candidates.order:
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

    def _cheapest(self, item: Item, candidates: Starts, evicted: dict[int, int]) -> int:
        """The start at which putting the item evicts least, -1 where fixed occupations leave none."""
        best = -1
        least = 0
        for overlap, start in sorted(self.overlaps(item, candidates.order))[:_CLOSELY]:
            if best >= 0 and overlap >= least:
                break  # What is evicted is at least as large as the overlap.
            price = self._price(item, start, evicted, least if best >= 0 else _NEVER)
            if best < 0 or price < least:
                best, least = start, price
        return best

    def _price(self, item: Item, start: int, evicted: dict[int, int], most: int) -> int:
        """What is evicted at a start, those evicted before counted for more; where it is ``most`` or more, some of it
        that is as much.
        """
        price = 0
        counted: set[int] = set()
        for other in self.packing.in_the_way(item, start):
            number = other.members[0][0]
            if number not in counted:
                counted.add(number)
                price += other.area * (1 + evicted.get(number, 0)) ** 2
                if price >= most:
                    break
        return price

    def overlaps(self, item: Item, starts: Candidates) -> list[tuple[int, int]]:
        """How much of a single range's room is taken at each start, and the start; none that something fixed bars."""
        first, last = min(starts), max(starts)
        # Lanes of a tuple are mostly live at the same times: each cell is looked at once for them.
        offsets: dict[int, list[int]] = {}
        for offset, mask in item.cells:
            offsets.setdefault(mask, []).append(offset)
        columns: list[Iterable[int]] = []
        count = last + 1 - first
        for mask, of in offsets.items():
            taken = self._column(mask, first, last + item.reach)
            ends = [offset + 1 for offset in of if offset + 1 not in of]
            begins = [offset for offset in of if offset - 1 not in of]
            # Neighbours are counted at once: each but the last of them is followed by the next.
            up_to = [0, *accumulate(taken)] if len(begins) < len(of) else []
            for begin, end in zip(begins, ends, strict=True):
                if end - begin == 1:
                    columns.append(taken[begin : begin + count])
                else:
                    columns.append(map(sub, up_to[end : end + count], up_to[begin : begin + count]))
        overlaps = [*map(sum, zip(*columns, strict=True))]
        return [(overlaps[start - first], start) for start in self._open_starts(item, starts)]

    def _column(self, mask: int, first: int, stop: int) -> list[int]:
        """How much of the mask is taken in each of these cells."""
        occupied = self.packing.occupied[first:stop]
        key = mask, first, stop
        known = self._columns.get(key)
        if known is None:
            taken = [(there & mask).bit_count() for there in occupied]
        else:
            # The same items come again and again, and most cells still hold what they held.
            taken = [
                count if there is before else (there & mask).bit_count()
                for there, before, count in zip(occupied, *known, strict=True)
            ]
        self._columns[key] = occupied, taken
        return taken

    def _open_starts(self, item: Item, starts: Candidates) -> Candidates:
        """Those of ``starts`` that nothing fixed bars; an item has the same starts each time, under this ceiling."""
        if item not in self._open:
            self._open[item] = tuple(fitting(self._fixed, item, starts))
        return self._open[item]
