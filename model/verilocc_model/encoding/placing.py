"""The last stage: a register for each item, in the order of the plan."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from verilocc_mlir.allocators.bounds import Ceiling
from verilocc_mlir.allocators.items import Item
from verilocc_mlir.allocators.search import Placement, Strategy
from verilocc_model.encoding.decided import Decided
from verilocc_model.encoding.questions import Question
from verilocc_model.encoding.table import Table
from verilocc_model.encoding.vocabulary import FIRST, HINT, MEETS_AT, NONE, POINTERS
from verilocc_model.encoding.witnesses import make_way


@dataclass(frozen=True)
class Advice:
    """The results of earlier refutations for one range: cells that it cannot have, and cells that it could have had."""

    refuted: tuple[int, ...] = ()
    free: tuple[int, ...] = ()


class Placing:
    """The items in a queue, and the answers so far.

    Args:
        ceiling: registers of each file that may be used.
        witness: a complete assignment to look ahead with; it is changed. None: nothing looks ahead.
        mask: refuse places that are not free, and with a witness those that leave no complete assignment.
        alone: do not name places that meet more than the plain ones. Where nothing looks ahead, they may leave too few
            registers.
        advice: what the refutations of earlier proposals say, by range id.
    """

    def __init__(
        self,
        table: Table,
        items: list[Item],
        strategy: Strategy,
        ceiling: Ceiling,
        witness: Placement | None,
        *,
        mask: bool,
        alone: bool,
        advice: Mapping[int, Advice],
    ) -> None:
        self._table = table
        self._strategy = strategy
        self._ceiling = ceiling
        self._witness = witness
        self._mask = mask
        self._alone = alone
        self._advice = advice
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
            yield self._decided.number_of(item, start)

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
            advice = self._advice.get(member)
            if advice is not None:
                for cell in advice.refuted[:2]:
                    facts += ["refuted", decided.number_of(item, cell - offset)]
                for cell in advice.free[:2]:
                    facts += ["free", decided.number_of(item, cell - offset)]
        hint = decided.hint(item)
        if hint >= 0:
            facts += ["hint", decided.number_of(item, hint)]
        first = decided.first(item)
        facts += ["first", decided.number_of(item, first) if first >= 0 else NONE]
        if not self._alone and (meets := decided.meets(item, hint if hint >= 0 else first)) >= 0:
            facts += [MEETS_AT, decided.number_of(item, meets)]
        if self._witness is None:
            draft = HINT if hint >= 0 else FIRST if first >= 0 else ""
        else:
            start = self._witness.packing.placed[item]
            draft = HINT if start == hint else FIRST if start == first else decided.number_of(item, start)
        return Question("placing", tuple(facts), draft)

    def answer(self, word: str) -> bool:
        """Take an answer. False where the mask forbids it; nothing changes then."""
        item = self.current()
        start = self._decided.cell_of(item, word)
        if not self._decided.allows(item, start):
            if self._mask:
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
