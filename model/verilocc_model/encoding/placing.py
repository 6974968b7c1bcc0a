"""The last stage: a register for each item, in the order of the plan."""

from __future__ import annotations

import bisect
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from verilocc_mlir.allocators.bounds import Ceiling
from verilocc_mlir.allocators.cells import CellMap
from verilocc_mlir.allocators.items import Candidates, Item
from verilocc_mlir.allocators.packing import Packing, below
from verilocc_mlir.allocators.search import Placement, Strategy
from verilocc_model.encoding.table import Table
from verilocc_model.encoding.vocabulary import (
    AGPRS,
    ENDLESS,
    FIRST,
    HALVES,
    HINT,
    MEETS,
    MEETS_AT,
    NONE,
    POINTERS,
    SPECIALS,
    TIGHT,
    TOP,
    Question,
    number_word,
)
from verilocc_model.encoding.witnesses import make_way


@dataclass(frozen=True)
class Advice:
    """The results of earlier refutations for one range: cells that it cannot have, and cells that it could have had."""

    refuted: tuple[int, ...] = ()
    free: tuple[int, ...] = ()


@dataclass(frozen=True)
class Manner:
    """How an episode asks.

    Attributes:
        mask: refuse words that are no answer, and places that are not free; with a witness also those that leave no
            complete assignment.
        lookahead: keep a witness, and refuse a plan without one.
        alone: state no results of repair, and do not name places that meet more than the plain ones. Where nothing
            looks ahead, they may leave too few registers.
        advice: what the refutations of earlier proposals say, by range id.
        refuted: the grants, as indices, of earlier proposals that were refuted.
        sure: state the plan of ``Planning.sure_plan``, if there is one, instead of asking.
    """

    mask: bool
    lookahead: bool
    alone: bool
    advice: Mapping[int, Advice]
    refuted: tuple[int, ...]
    sure: bool


class Placing:
    """The items in a queue, and the answers so far.

    Args:
        ceiling: registers of each file that may be used.
        witness: a complete assignment to look ahead with; it is changed. None: nothing looks ahead.
    """

    def __init__(
        self,
        table: Table,
        items: list[Item],
        strategy: Strategy,
        ceiling: Ceiling,
        witness: Placement | None,
        manner: Manner,
    ) -> None:
        self._table = table
        self._strategy = strategy
        self._ceiling = ceiling
        self._witness = witness
        self._manner = manner
        # Repair may have taken joined items apart.
        self._queue = sorted(items if witness is None else witness.packing.placed, key=strategy.order)
        self._next = 0
        self._decided = Decided(table, ceiling)
        self._contradictions = 0

    @property
    def done(self) -> bool:
        return self._next >= len(self._queue)

    @property
    def starts(self) -> list[int]:
        """The cell that each range starts at; -1: none yet, or the answer named none."""
        return self._decided.starts

    def current(self) -> Item:
        return self._queue[self._next]

    def word_at(self, start: int) -> str:
        """The word that puts the current item at cell ``start``."""
        return self._decided.word_of(self.current(), start)

    def options(self) -> Iterator[str]:
        """Words that could answer the question: pointers, and the numbers of free places."""
        item = self.current()
        yield from POINTERS
        for start in self._decided.free(item):
            yield place_word(self._table.cells, item, start)

    def question(self) -> Question:
        t, decided, item = self._table, self._decided, self.current()
        banks = t.problem.ranges[item.members[0][0]].banks
        facts = [
            t.features.item_shape(item),
            t.features.item_life(item),
            t.features.role(item),
            t.features.slack(item, t.registers_for(banks, self._ceiling)),
        ]
        for member, offset in item.members:
            advice = self._manner.advice.get(member)
            if advice is not None:
                for cell in advice.refuted[:2]:
                    facts += ["refuted", place_word(t.cells, item, cell - offset)]
                for cell in advice.free[:2]:
                    facts += ["free", place_word(t.cells, item, cell - offset)]
        hint = decided.hint(item)
        if hint >= 0:
            facts += ["hint", place_word(t.cells, item, hint)]
        first = decided.first(item)
        facts += ["first", place_word(t.cells, item, first) if first >= 0 else NONE]
        if not self._manner.alone and (meets := decided.meets(item, hint if hint >= 0 else first)) >= 0:
            facts += [MEETS_AT, place_word(t.cells, item, meets)]
        if self._witness is None:
            draft = HINT if hint >= 0 else FIRST if first >= 0 else ""
        else:
            start = self._witness.packing.placed[item]
            draft = HINT if start == hint else FIRST if start == first else place_word(t.cells, item, start)
        return Question("placing", tuple(facts), draft)

    def answer(self, word: str) -> bool:
        """Take an answer. False where the mask forbids it; nothing changes then."""
        item = self.current()
        start = self._decided.cell_of(item, word)
        if not self._decided.allows(item, start):
            if self._manner.mask:
                return False
            self._decided.place_wrong(item, start)
            self._next += 1
            return True
        witness = self._witness
        contradicted = False
        if witness is not None and witness.packing.placed[item] != start:
            displaced = make_way(witness, item, start, self._table)
            if displaced is None:
                return False
            self._requeue(*displaced)
            contradicted = True
        self._decided.place(item, start)
        self._next += 1
        if contradicted:
            self._contradictions += 1
            if self._contradictions.bit_count() == 1:
                self._renew()
        return True

    def mark(self) -> int:
        return self._next

    def rewind(self, mark: int) -> None:
        """Take back all answers but the first ``mark``; none of these may have displaced anything."""
        while self._next > mark:
            self._next -= 1
            self._decided.take_back(self.current())

    def _requeue(self, displaced: list[Item], placed: list[Item]) -> None:
        """Put the parts of items that were taken apart into the queue."""
        split_items = [item for item in displaced if item not in placed]
        if not split_items:
            return
        queue = [i for i in self._queue[self._next :] if i not in split_items]
        for part in placed:
            if part not in displaced:
                bisect.insort(queue, part, key=self._strategy.order)
        # The current item stays first, wherever its key would put it.
        current = self.current()
        queue.remove(current)
        self._queue[self._next :] = [current, *queue]

    def _renew(self) -> None:
        """Take another witness, made by first fit from here on, if there is one.

        A scorer that contradicted the witness is likely to do so again. This is tried after 1, 2, 4 … contradictions.
        """
        t = self._table
        fresh = Placement(self._queue[self._next :], t.fixed, t.candidates, t.hints, t.cells, self._ceiling)
        for item, start in self._decided.placed.items():
            fresh.put(item, start)
        fresh.run(self._strategy)
        if not fresh.waiting:
            self._witness = fresh


# The items placed so far, and the places that are left for others.


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

    def word_of(self, item: Item, start: int) -> str:
        """The word that puts the item at a cell: a pointer if one leads there, else a number."""
        for pointer in POINTERS:
            if start == self._pointed(item, pointer):
                return pointer
        return place_word(self._table.cells, item, start)

    def cell_of(self, item: Item, word: str) -> int:
        """The cell that a word names for an item, -1 where it names none."""
        if word in POINTERS:
            return self._pointed(item, word)
        return place_of(self._table.cells, self._table.problem.ranges[item.members[0][0]].banks, word)

    def _pointed(self, item: Item, pointer: str) -> int:
        if pointer == MEETS:
            return self.meets(item, self.plain(item))
        return {HINT: self.hint, FIRST: self.first, TOP: self.top, TIGHT: self.tight}[pointer](item)


# The words of cells: numbers within a file, as ``12``, ``a12``, ``12h``, ``x0``.


def place_word(cells: CellMap, item: Item, cell: int) -> str:
    """The word that puts an item at a cell; ``none`` if the cell does not exist."""
    for k, (start, _, width) in enumerate(cells.specials):
        if start == cell and width * cells.halves == item.reach:
            return f"x{min(k, SPECIALS - 1)}"
    if not 0 <= cell < cells.size:
        return NONE
    bank, number = cells.register_of(cell)
    if (cell - cells.base[bank]) % cells.halves:
        return f"{number}h" if number < HALVES else ENDLESS
    if bank == "agpr":
        return f"a{number}" if number < AGPRS else ENDLESS
    return number_word(number)


def place_of(cells: CellMap, banks: Collection[str], word: str) -> int:
    """The cell that a word names for an item that may be in the files ``banks``; -1 where it names none."""
    if word[:1] == "x" and word[1:].isdigit():
        number = int(word[1:])
        return cells.specials[number][0] if number < len(cells.specials) else -1
    if word[:1] == "a" and word[1:].isdigit():
        return _numbered(cells, "agpr", int(word[1:]), 0)
    bank = "sgpr" if "sgpr" in banks else "vgpr"
    if word.isdigit():
        return _numbered(cells, bank, int(word), 0)
    if word[:-1].isdigit() and word[-1:] == "h" and cells.halves == 2:
        return _numbered(cells, bank, int(word[:-1]), 1)
    return -1


def _numbered(cells: CellMap, bank: str, number: int, half: int) -> int:
    cell = cells.base[bank] + number * cells.halves + half
    return cell if cell < cells.stop[bank] else -1
