"""The first stage: whether the ends of a copy that could vanish, or of a chain, become one item; heaviest first."""

from __future__ import annotations

from collections.abc import Iterator

from verilocc_mlir.allocators.items import Item, join_items
from verilocc_model.encoding.table import Table
from verilocc_model.encoding.vocabulary import APART, CHAIN, JOIN, Question


class Joining:
    """Which ranges are one item after the answers so far.

    Args:
        mask: refuse words other than ``join`` and ``apart``; without the mask they mean ``apart``.
    """

    def __init__(self, table: Table, *, mask: bool) -> None:
        self._table = table
        self._mask = mask
        self._item_of: list[Item] = list(table.singles)
        self._offset_of = [0] * len(table.singles)
        self.joint = 0
        """The pair that is asked about, as an index of ``table.joints``."""
        # For each answer, the joint, and for each range that it joined, the item and offset before.
        self._answered: list[tuple[int, list[tuple[int, Item, int]]]] = []
        self._skip()

    @property
    def done(self) -> bool:
        return self.joint >= len(self._table.joints)

    @property
    def items(self) -> list[Item]:
        return list(dict.fromkeys(self._item_of))

    def question(self) -> Question:
        t = self._table
        joint = t.joints[self.joint]
        a, b = t.problem.ranges[joint.a], t.problem.ranges[joint.b]
        first, second = self._item_of[joint.a], self._item_of[joint.b]
        facts = (
            *((CHAIN,) if joint.chain else ()),
            t.features.copy(joint.weight, a, b),
            t.features.item_shape(first),
            t.features.item_life(first),
            t.features.item_life(second),
            t.features.slack(first if first.area > second.area else second, t.registers_for(a.banks, t.room.top)),
        )
        return Question("joining", facts, JOIN)

    def options(self) -> Iterator[str]:
        return iter((JOIN, APART))

    def answer(self, word: str) -> bool:
        """Take an answer; False where the mask forbids it."""
        if word not in (JOIN, APART) and self._mask:
            return False
        changed: list[tuple[int, Item, int]] = []
        self._answered.append((self.joint, changed))
        if word == JOIN:
            joined = self._joined()
            if joined is None:
                raise AssertionError("the ranges asked about cannot be joined")
            for member, offset in joined.members:
                changed.append((member, self._item_of[member], self._offset_of[member]))
                self._item_of[member], self._offset_of[member] = joined, offset
        self.joint += 1
        self._skip()
        return True

    def mark(self) -> int:
        return len(self._answered)

    def rewind(self, mark: int) -> None:
        while len(self._answered) > mark:
            self.joint, changed = self._answered.pop()
            for member, item, offset in changed:
                self._item_of[member], self._offset_of[member] = item, offset

    def _joined(self) -> Item | None:
        """The item that the current pair would make; None where it cannot be joined."""
        joint = self._table.joints[self.joint]
        first, second = self._item_of[joint.a], self._item_of[joint.b]
        if first is second:
            return None
        shift = self._offset_of[joint.a] + joint.distance - self._offset_of[joint.b]
        joined = join_items(first, second, shift)
        return joined if joined is not None and self._table.candidates.of(joined) else None

    def _skip(self) -> None:
        """Go on to the next pair that can be joined."""
        while not self.done and self._joined() is None:
            self.joint += 1
