"""Which cells are occupied at which times, and the search for free ones."""

from __future__ import annotations

from collections.abc import Iterable

from verilocc_mlir.allocators.cells import CellMap
from verilocc_mlir.allocators.items import Candidates, Item
from verilocc_mlir.allocators.timeline import Timeline
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


class Packing:
    """A partial placement of items, over a given occupation of the cells by others."""

    def __init__(self, occupied: Iterable[int]) -> None:
        self.occupied: list[int] = list(occupied)
        self.placed: dict[Item, int] = {}
        self.residents: list[dict[Item, int]] = [{} for _ in self.occupied]

    def fits(self, item: Item, start: int) -> bool:
        """Whether the item's cells are free from cell ``start`` on whenever they are live."""
        occupied = self.occupied
        return not any(occupied[start + offset] & mask for offset, mask in item.cells)

    def first_fit(self, item: Item, candidates: Iterable[int]) -> int:
        """The first of ``candidates`` at which the item fits; -1 where it fits nowhere."""
        occupied = self.occupied
        cells = item.cells
        if len(cells) == 1:
            offset, mask = cells[0]
            for start in candidates:
                if not occupied[start + offset] & mask:
                    return start
            return -1
        for start in candidates:
            for offset, mask in cells:
                if occupied[start + offset] & mask:
                    break
            else:
                return start
        return -1

    def place(self, item: Item, start: int) -> None:
        self.placed[item] = start
        for offset, mask in item.cells:
            self.occupied[start + offset] |= mask
            self.residents[start + offset][item] = mask

    def remove(self, item: Item) -> int:
        """Free the item's cells again; returns where it was."""
        start = self.placed.pop(item)
        for offset, mask in item.cells:
            # Nothing else holds these bits: placement requires it.
            self.occupied[start + offset] &= ~mask
            del self.residents[start + offset][item]
        return start

    def conflicts(self, item: Item, start: int) -> list[Item]:
        """Placed items that stand in the way at ``start``, in the order in which they were placed."""
        conflicting: dict[Item, None] = {}
        for offset, mask in item.cells:
            if self.occupied[start + offset] & mask:
                for resident, resident_mask in self.residents[start + offset].items():
                    if resident_mask & mask:
                        conflicting[resident] = None
        return list(conflicting)


def below(candidates: Candidates, cells: CellMap, ceiling: dict[str, int], reach: int) -> Candidates:
    """Those of ``candidates`` whose next ``reach`` cells stay under the ``ceiling`` (in registers) of their file."""
    limits = [
        (cells.base[bank], cells.stop[bank], cells.base[bank] + registers * cells.halves)
        for bank, registers in ceiling.items()
    ]
    return tuple(
        c for c in candidates if not any(base <= c < stop and c + reach > limit for base, stop, limit in limits)
    )
