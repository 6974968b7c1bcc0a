"""The items placed so far, and the places that are left for others."""

from __future__ import annotations

from collections.abc import Iterator

from verilocc_mlir.allocators.bounds import Ceiling
from verilocc_mlir.allocators.items import Candidates, Item
from verilocc_mlir.allocators.packing import Packing, below
from verilocc_model.encoding.places import place_of, place_word
from verilocc_model.encoding.table import Table
from verilocc_model.encoding.vocabulary import FIRST, HINT, MEETS, POINTERS, TIGHT, TOP


class Decided:
    """Places taken under a ceiling, and the words for free places.

    Attributes:
        starts: by range, the cell that it starts at; -1: none.
        placed: where the items start that were placed as the mask allows.
    """

    def __init__(self, table: Table, ceiling: Ceiling) -> None:
        self._table = table
        self._ceiling = ceiling
        self._packing = Packing(table.fixed)
        self._every: dict[Item, Candidates] = {}
        self._limited: dict[tuple[Candidates, int], tuple[Candidates, frozenset[int]]] = {}
        self.starts: list[int] = [-1] * len(table.singles)
        self.placed = self._packing.placed

    def place(self, item: Item, start: int) -> None:
        self._packing.place(item, start)
        for member, offset in item.members:
            self.starts[member] = start + offset

    def place_wrong(self, item: Item, start: int) -> None:
        """Note an answer that the mask would forbid: the registers that it names, even if they are taken."""
        t = self._table
        is_register = start >= 0 and all(t.candidates.allows(m, start + offset) for m, offset in item.members)
        for member, offset in item.members:
            self.starts[member] = start + offset if is_register and start + offset < t.cells.size else -1

    def take_back(self, item: Item) -> None:
        """Undo ``place`` or ``place_wrong``."""
        if item in self.placed:
            self._packing.remove(item)
        for member, _ in item.members:
            self.starts[member] = -1

    def allows(self, item: Item, start: int) -> bool:
        """Whether the item may go there: class, alignment, ceiling, and free while it lives."""
        return start in self._candidates(item)[1] and self._packing.fits(item, start)

    def free(self, item: Item) -> Iterator[int]:
        """Cells where the item may go, cheapest first."""
        return (start for start in self._candidates(item)[0] if self._packing.fits(item, start))

    def _candidates(self, item: Item) -> tuple[Candidates, frozenset[int]]:
        """Where the item may start under the ceiling, as a list and as a set."""
        every = self._every.get(item)
        if every is None:
            every = self._every[item] = self._table.candidates.of(item)
        key = (every, item.reach)
        candidates = self._limited.get(key)
        if candidates is None:
            inside = below(every, self._table.cells, self._ceiling, item.reach)
            candidates = self._limited[key] = (inside, frozenset(inside))
        return candidates

    # --- pointers -------------------------------------------------------------------------------------------------

    def hint(self, item: Item) -> int:
        """The place at which a copy vanishes; -1 where there is none, as for every pointer."""
        _, allowed = self._candidates(item)
        preferred = self._table.hints.starts(item, self.starts)
        return next((s for s in preferred if s in allowed and self._packing.fits(item, s)), -1)

    def first(self, item: Item) -> int:
        """The cheapest free place."""
        return self._packing.first_fit(item, self._candidates(item)[0])

    def plain(self, item: Item) -> int:
        """The hint, or else first fit."""
        hint = self.hint(item)
        return hint if hint >= 0 else self.first(item)

    def meets(self, item: Item, plain: int) -> int:
        """The cheapest free place that meets more of the copies' and preferences' weight than the place ``plain``."""
        if plain < 0:
            return -1
        demands = self._table.wishes.of(item, self.starts)
        return demands.better(plain, self._candidates(item)[0], lambda start: self._packing.fits(item, start))

    def top(self, item: Item) -> int:
        """The last free place in a numbered file."""
        numbered = self._table.cells.stop["sgpr"]
        return self._packing.first_fit(item, (c for c in reversed(self._candidates(item)[0]) if c < numbered))

    def tight(self, item: Item) -> int:
        """The free place with the smallest gaps in time before and after the item."""
        best, least = -1, -1
        occupied = self._packing.occupied
        for start in self.free(item):
            gaps = 0
            for offset, mask in item.cells:
                times = occupied[start + offset]
                low, high = (mask & -mask).bit_length() - 1, mask.bit_length()
                gaps += low - (times & ((1 << low) - 1)).bit_length()
                after = times >> high
                gaps += (after & -after).bit_length() - 1 if after else len(self._table.timeline.boundaries) - high
            if best < 0 or gaps < least:
                best, least = start, gaps
        return best

    # --- words ----------------------------------------------------------------------------------------------------

    def number_of(self, item: Item, start: int) -> str:
        """A cell as a number within its file."""
        return place_word(self._table.cells, item, start)

    def word_of(self, item: Item, start: int) -> str:
        """The word that puts the item at a cell: a pointer if one leads there, else a number."""
        for pointer in POINTERS:
            if start == self._pointed(item, pointer):
                return pointer
        return self.number_of(item, start)

    def cell_of(self, item: Item, word: str) -> int:
        """The cell that a word names for an item, -1 where it names none."""
        if word in POINTERS:
            return self._pointed(item, word)
        return place_of(self._table.cells, self._table.problem.ranges[item.members[0][0]].banks, word)

    def _pointed(self, item: Item, pointer: str) -> int:
        if pointer == MEETS:
            return self.meets(item, self.plain(item))
        return {HINT: self.hint, FIRST: self.first, TOP: self.top, TIGHT: self.tight}[pointer](item)
