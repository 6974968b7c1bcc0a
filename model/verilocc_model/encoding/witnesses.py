"""*Witnesses*: complete assignments found without a model, by first fit and repair; and how a witness makes way."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from verilocc_mlir.allocators.cost import Cost
from verilocc_mlir.allocators.items import Item, join_items
from verilocc_mlir.allocators.search import Placement, Strategy, by_area, by_start, by_width
from verilocc_model.encoding.table import Table
from verilocc_model.encoding.vocabulary import APART, CHAIN, JOIN, Question

# The first stage: whether the ends of a copy that could vanish, or of a chain, become one item; heaviest first.


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


STRATEGIES = (
    Strategy(by_start, coalesced=True),
    Strategy(by_area, coalesced=True),
    Strategy(by_width, coalesced=True),
)
"""The orders ``order0``, ``order1`` …"""

REPAIR_STEPS = 400
DISPLACED = 24
"""Most items that one answer may displace from the witness."""


@dataclass
class Prospects:
    """What is known of each order of placing before a plan is made. It depends on which copies are joined.

    Attributes:
        plain: the smallest grant, as an index, with which first fit goes through; -1: none.
        repaired: the draft's grant, with repair; -1: none.
        order: the order whose witness is cheapest; None: not known yet; -1: no order has a witness.
    """

    plain: dict[int, int] = field(default_factory=dict)
    repaired: dict[int, int] = field(default_factory=dict)
    order: int | None = None

    def forget(self) -> None:
        """Drop everything: other copies are joined now."""
        self.plain.clear()
        self.repaired.clear()
        self.order = None


class Witnesses:
    """Witnesses for plans, each searched for once. Orders, grants and shares are the numbers in their words.

    Args:
        joining: says which ranges are placed as one.
        prospects: keeps the results about orders.
    """

    def __init__(self, table: Table, joining: Joining, prospects: Prospects) -> None:
        self._table = table
        self._joining = joining
        self._prospects = prospects
        self._witnesses: dict[tuple[int, int, int], Placement] = {}
        self._failed: set[tuple[int, int, int, int]] = set()

    def forget(self) -> None:
        """Drop everything: other copies are joined now."""
        self._witnesses.clear()
        self._failed.clear()
        self._prospects.forget()

    def of(self, order: int, grant: int, share: int, steps: int = REPAIR_STEPS) -> Placement | None:
        """The witness for a plan; None where none is found with ``steps`` of repair."""
        key = (order, grant, share)
        witness = self._witnesses.get(key)
        if witness is not None:
            return witness
        if (*key, steps) in self._failed:
            return None
        self._failed.add((*key, steps))
        t = self._table
        ceiling = t.shares(t.grants[grant])[share]
        placement = Placement(self._joining.items, t.fixed, t.candidates, t.hints, t.cells, ceiling)
        placement.run(STRATEGIES[order])
        if placement.waiting and not (steps and placement.repair(t.parts, steps, patience=steps)):
            return None
        self._witnesses[key] = placement
        return placement

    def reached(self, order: int, grant: int, steps: int = REPAIR_STEPS) -> bool:
        """Whether there is a witness for some share of a grant."""
        shares = self._table.shares(self._table.grants[grant])
        return any(self.of(order, grant, k, steps) is not None for k in range(len(shares)))

    def plain(self, order: int) -> int:
        """The smallest grant, as an index, with which first fit in an order goes through; -1: none."""
        index = self._prospects.plain.get(order)
        if index is None:
            low, high, last = 0, 0, len(self._table.grants) - 1
            # It is usually near the lower bound: double the steps first, then bisect.
            while not self.reached(order, high, steps=0):
                low = high + 1
                if low > last:
                    break
                high = min(2 * high + 1, last)
            while low < high:
                middle = (low + high) // 2
                if self.reached(order, middle, steps=0):
                    high = middle
                else:
                    low = middle + 1
            index = self._prospects.plain[order] = low if low <= last else -1
        return index

    def repaired(self, order: int) -> int:
        """The smallest grant at a step of ``Table.steps`` that has a witness. If first fit alone goes through with
        less,
        a smaller grant that leaves no more copies."""
        index = self._prospects.repaired.get(order)
        if index is None:
            level = next((k for k in self._table.steps if self.reached(order, k)), -1)
            plain = self.plain(order)
            index = level
            if level >= 0 and 0 <= plain < level:
                index = self._without_copies(order, plain)
            self._prospects.repaired[order] = index
        return index

    def _without_copies(self, order: int, grant: int) -> int:
        """The smallest grant from ``grant`` on that leaves no more copies than the largest one in as many waves."""
        ample = next(k for k in self._table.steps if k >= grant)
        goal = self._copies(order, ample)
        low, high = grant, ample
        while low < high:
            middle = (low + high) // 2
            if self._copies(order, middle) <= goal:
                high = middle
            else:
                low = middle + 1
        return low

    def _copies(self, order: int, grant: int) -> float:
        """The lowest cost in copies of the witnesses for a grant."""
        return min((cost.saves_and_copies for cost, _ in self._costs(order, grant)), default=math.inf)

    def _costs(self, order: int, grant: int, steps: int = REPAIR_STEPS) -> Iterator[tuple[Cost, int]]:
        """The costs of the witnesses for a grant, each with its share."""
        for share in range(len(self._table.shares(self._table.grants[grant]))):
            witness = self.of(order, grant, share, steps)
            if witness is not None:
                yield self._table.cost.of(witness.starts), share

    def best_share(self, order: int, grant: int, steps: int = REPAIR_STEPS) -> int:
        """The share whose witness is cheapest; -1: no share has one."""
        return min(self._costs(order, grant, steps), default=(None, -1))[1]

    def best_order(self) -> int:
        """The order whose witness is cheapest; -1: no order has one."""
        if self._prospects.order is None:
            best: tuple[Cost, int] | None = None
            for order in range(len(STRATEGIES)):
                grant = self.repaired(order)
                if grant < 0:
                    continue
                cheapest = min(self._costs(order, grant))
                if best is None or cheapest[0] < best[0]:
                    best = cheapest[0], order
            self._prospects.order = best[1] if best is not None else -1
        return self._prospects.order


def make_way(witness: Placement, item: Item, start: int, table: Table) -> tuple[list[Item], list[Item]] | None:
    """Put an item at ``start`` in a witness, and the items in its way elsewhere.

    Returns:
        The items displaced, and the items that were placed for them: the same, or their parts. None if they find no
        other places; then nothing has moved.
    """
    packing = witness.packing
    origin = witness.lift(item)
    conflicting = packing.conflicts(item, start)
    if len(conflicting) > DISPLACED:
        witness.put(item, origin)
        return None
    homes = [(obstacle, witness.lift(obstacle)) for obstacle in conflicting]
    witness.put(item, start)
    placed: list[Item] = []
    for obstacle, _ in sorted(homes, key=lambda pair: by_area(pair[0])):
        if not _settle(witness, obstacle, placed, table):
            for settled in placed:
                witness.lift(settled)
            witness.lift(item)
            for evicted, home in homes:
                witness.put(evicted, home)
            witness.put(item, origin)
            return None
    return conflicting, placed


def _settle(witness: Placement, item: Item, placed: list[Item], table: Table) -> bool:
    """Put a displaced item, or each of its parts, where there is room, and add it to ``placed``."""
    if witness.place(item, witness.candidates(item)):
        placed.append(item)
        return True
    parts = table.parts(item)
    return len(parts) > 1 and all(_settle(witness, part, placed, table) for part in parts)
