"""Which cells are occupied at which times, where ranges are in parts."""

from __future__ import annotations

from collections.abc import Iterable

from verilocc_mlir.allocators.items import Item
from verilocc_mlir.allocators.packing import fitting


class Places:
    """A partial placement of items, over a given occupation of the cells by others, which can be put back as it was.

    Two parts of one range may hold a cell at one time: where the one is copied to the other.
    """

    def __init__(self, occupied: Iterable[int]) -> None:
        self.occupied: list[int] = list(occupied)
        self.placed: dict[Item, int] = {}
        self.residents: list[dict[Item, int]] = [{} for _ in self.occupied]

    def fits(self, item: Item, start: int) -> bool:
        """Whether the item's cells are free from cell ``start`` on whenever they are live."""
        return self.first_fit(item, (start,)) >= 0

    def first_fit(self, item: Item, candidates: Iterable[int]) -> int:
        """The first of ``candidates`` at which the item fits; -1 where it fits nowhere."""
        return next(fitting(self.occupied, item, candidates), -1)

    def place(self, item: Item, start: int) -> None:
        self.placed[item] = start
        for offset, mask in item.cells:
            self.occupied[start + offset] |= mask
            self.residents[start + offset][item] = mask

    def remove(self, item: Item) -> int:
        """Free the item's cells again; returns where it was."""
        start = self.placed.pop(item)
        for offset, mask in item.cells:
            # Nothing else holds these bits but parts of the same range, which are removed with it.
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
