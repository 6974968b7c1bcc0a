"""Which cells are occupied at which times, and the search for free ones."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

from verilocc_mlir.allocators.cells import CellMap, Timeline
from verilocc_mlir.allocators.items import Candidates, Item
from verilocc_mlir.problem.model import AllocationProblem


def fixed_occupation(problem: AllocationProblem, timeline: Timeline, cells: CellMap) -> list[int]:
    """For each cell, the mask of times at which something other than a live range of the problem holds it."""
    occupied = [0] * cells.size
    for fixed in problem.fixed:
        touched = cells.cells_of_units(fixed.units)
        if touched:
            mask = timeline.mask(fixed.segments)
            for cell in touched:
                occupied[cell] |= mask
    return occupied


def fitting(occupied: Sequence[int], item: Item, candidates: Iterable[int]) -> Iterator[int]:
    """Those of ``candidates`` from which on the item's cells are free whenever they are live.

    Args:
        occupied: for each cell, the mask of times at which it is held.
    """
    cells = item.cells
    if len(cells) == 1:
        offset, mask = cells[0]
        for start in candidates:
            if not occupied[start + offset] & mask:
                yield start
        return
    for start in candidates:
        for offset, mask in cells:
            if occupied[start + offset] & mask:
                break
        else:
            yield start


class Packing:
    """A partial placement of items, over a given occupation of the cells by others."""

    def __init__(self, occupied: Iterable[int]) -> None:
        self.occupied: list[int] = list(occupied)
        self.placed: dict[Item, int] = {}
        self._owners: list[_Owners] | None = None
        """Who holds a cell when; kept from the first question on: most placements are never asked."""

    def fits(self, item: Item, start: int) -> bool:
        """Whether the item's cells are free from cell ``start`` on whenever they are live."""
        return self.first_fit(item, (start,)) >= 0

    def first_fit(self, item: Item, candidates: Iterable[int]) -> int:
        """The first of ``candidates`` at which the item fits; -1 where it fits nowhere."""
        return next(self.fitting(item, candidates), -1)

    def fitting(self, item: Item, candidates: Iterable[int]) -> Iterator[int]:
        """Those of ``candidates`` at which the item fits."""
        return fitting(self.occupied, item, candidates)

    def place(self, item: Item, start: int) -> None:
        self.placed[item] = start
        for offset, mask in item.cells:
            self.occupied[start + offset] |= mask
        if self._owners is not None:
            self._own(item, start, self._owners)

    def remove(self, item: Item) -> int:
        """Free the item's cells again; returns where it was."""
        start = self.placed.pop(item)
        for offset, mask in item.cells:
            # Nothing else holds these bits: placement requires it.
            self.occupied[start + offset] ^= mask
        if self._owners is not None:
            for (offset, _), stretches in zip(item.cells, item.stretches, strict=True):
                self._owners[start + offset].remove(stretches)
        return start

    def conflicts(self, item: Item, start: int) -> list[Item]:
        """Placed items that stand in the way at ``start``: cell by cell, those of one in the order they were placed."""
        conflicting: dict[Item, None] = {}
        for offset, mask in item.cells:
            if both := self.occupied[start + offset] & mask:
                conflicting.update(dict.fromkeys(self._all_owners()[start + offset].of(both)))
        return list(conflicting)

    def in_the_way(self, item: Item, start: int) -> Iterator[Item]:
        """As ``conflicts``, in any order, and some more than once."""
        for offset, mask in item.cells:
            if both := self.occupied[start + offset] & mask:
                for _, other in self._all_owners()[start + offset].holding(both):
                    yield other

    def _all_owners(self) -> list[_Owners]:
        if self._owners is None:
            self._owners = [_Owners() for _ in self.occupied]
            for item, start in self.placed.items():
                self._own(item, start, self._owners)
        return self._owners

    @staticmethod
    def _own(item: Item, start: int, owners: list[_Owners]) -> None:
        for (offset, _), stretches in zip(item.cells, item.stretches, strict=True):
            owners[start + offset].add(item, stretches)


class _Owners:
    """The items that hold one cell, by the stretches of the timeline in which they do, which do not overlap."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._rows: list[tuple[int, int, Item]] = []
        """End of each stretch, when its item was placed, and the item."""
        self._placed = 0

    def add(self, item: Item, stretches: Iterable[tuple[int, int]]) -> None:
        self._placed += 1
        for start, stop in stretches:
            at = bisect_right(self._starts, start)
            self._starts.insert(at, start)
            self._rows.insert(at, (stop, self._placed, item))

    def remove(self, stretches: Iterable[tuple[int, int]]) -> None:
        for start, _ in stretches:
            at = bisect_left(self._starts, start)
            del self._starts[at], self._rows[at]

    def of(self, mask: int) -> list[Item]:
        """Those that hold the cell at some bit of ``mask``, in the order in which they were placed."""
        return [item for _, item in sorted(dict(self.holding(mask)).items())]

    def holding(self, mask: int) -> Iterator[tuple[int, Item]]:
        """The same in the order of the timeline, each for every stretch, with a number that grows with placing."""
        while mask:
            bit = (mask & -mask).bit_length() - 1
            at = bisect_right(self._starts, bit)
            stop, placed, item = self._rows[at - 1] if at else (0, 0, None)
            if bit < stop and item is not None:
                yield placed, item
            else:
                # Held by something that is not placed here, up to the next stretch at most.
                stop = self._starts[at] if at < len(self._starts) else mask.bit_length()
            mask = mask >> stop << stop


def below(candidates: Candidates, cells: CellMap, ceiling: dict[str, int], reach: int) -> Candidates:
    """Those of ``candidates`` whose next ``reach`` cells stay under the ``ceiling`` (in registers) of their file."""
    limits = [
        (cells.base[bank], cells.stop[bank], cells.base[bank] + registers * cells.halves)
        for bank, registers in ceiling.items()
    ]
    left = [*candidates]
    for base, stop, limit in limits:
        left = [c for c in left if c + reach <= limit or not base <= c < stop]
    return tuple(left)
