"""The first stage: for each copy that could vanish, heaviest first, whether its ends are placed as one."""

from __future__ import annotations

from collections.abc import Iterator

from verilocc_mlir.allocators.coalesce import join_items
from verilocc_mlir.allocators.items import Item
from verilocc_model.encoding.questions import Question
from verilocc_model.encoding.table import Table
from verilocc_model.encoding.vocabulary import APART, JOIN


class Joining:
    """Which ranges are one item, by the answers so far.

    Args:
        table: the problem.
        mask: refuse words other than ``join`` and ``apart``; without, they mean the latter.
    """

    def __init__(self, table: Table, *, mask: bool) -> None:
        self._table = table
        self._mask = mask
        self._item_of: list[Item] = list(table.singles)
        self._offset_of = [0] * len(table.singles)
        self.copy = 0
        """The copy asked about, as an index of ``table.copies``."""
        # For each answer, the copy, and of each range that it joined, the item and offset before.
        self._answered: list[tuple[int, list[tuple[int, Item, int]]]] = []
        self._skip()

    @property
    def done(self) -> bool:
        """Whether no copy is left that could vanish."""
        return self.copy >= len(self._table.copies)

    @property
    def items(self) -> list[Item]:
        """What is to be placed, each item once."""
        return list(dict.fromkeys(self._item_of))

    def question(self) -> Question:
        """About the copy at hand."""
        t = self._table
        affinity, _ = t.copies[self.copy]
        a, b = t.problem.ranges[affinity.a], t.problem.ranges[affinity.b]
        first, second = self._item_of[affinity.a], self._item_of[affinity.b]
        facts = (
            t.features.copy(affinity.weight, a, b),
            t.features.item_shape(first),
            t.features.item_life(first),
            t.features.item_life(second),
            t.features.slack(first if first.area > second.area else second, t.registers_for(a.banks, t.room.top)),
        )
        return Question("joining", facts, JOIN)

    def options(self) -> Iterator[str]:
        """Words that answer the question."""
        return iter((JOIN, APART))

    def answer(self, word: str) -> bool:
        """Take an answer; False where the mask forbids it."""
        if word not in (JOIN, APART) and self._mask:
            return False
        changed: list[tuple[int, Item, int]] = []
        self._answered.append((self.copy, changed))
        if word == JOIN:
            joined = self._joined()
            if joined is None:
                raise AssertionError("a copy was asked about that cannot vanish")
            for member, offset in joined.members:
                changed.append((member, self._item_of[member], self._offset_of[member]))
                self._item_of[member], self._offset_of[member] = joined, offset
        self.copy += 1
        self._skip()
        return True

    def mark(self) -> int:
        """Answers so far."""
        return len(self._answered)

    def rewind(self, mark: int) -> None:
        """Take back all answers but the first ``mark``."""
        while len(self._answered) > mark:
            self.copy, changed = self._answered.pop()
            for member, item, offset in changed:
                self._item_of[member], self._offset_of[member] = item, offset

    def _joined(self) -> Item | None:
        """The item that the copy at hand would make; None where it cannot be."""
        affinity, distance = self._table.copies[self.copy]
        first, second = self._item_of[affinity.a], self._item_of[affinity.b]
        if first is second:
            return None
        shift = self._offset_of[affinity.a] + distance - self._offset_of[affinity.b]
        joined = join_items(first, second, shift)
        return joined if joined is not None and self._table.candidates.of(joined) else None

    def _skip(self) -> None:
        """On to the next copy that could vanish."""
        while not self.done and self._joined() is None:
            self.copy += 1
