"""The places that copies and the machine's preferences want for an item, given the places of others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from verilocc_mlir.allocators.cost import CellRelation, CostModel
from verilocc_mlir.allocators.items import Item


class Rule(NamedTuple):
    """An item starts at ``place``; with a ``modulus``, it starts anywhere but at ``place`` modulo ``modulus``."""

    place: int
    modulus: int

    def holds(self, start: int) -> bool:
        """Whether an item at ``start`` keeps the rule."""
        apart = start - self.place
        return apart % self.modulus != 0 if self.modulus else apart == 0


class Demands:
    """What copies and preferences want of the start of one item.

    Args:
        places: starts at which copies vanish, with the weight of those copies.
        groups: rules that count only together, each group with its weight.
    """

    def __init__(self, places: Mapping[int, float], groups: Sequence[tuple[Sequence[Rule], float]]) -> None:
        self._places = places
        self._copies = sum(places.values())
        self._groups = groups

    def unmet(self, start: int) -> float:
        """The weight that is not met at ``start``."""
        weight_unmet = self._copies - self._places.get(start, 0.0)
        return weight_unmet + sum(weight for rules, weight in self._groups if not all(r.holds(start) for r in rules))

    def better(self, than: int, candidates: Iterable[int], fits: Callable[[int], bool]) -> int:
        """The first fitting candidate with the least unmet weight; -1 if that is not less than at ``than``."""
        best, least = -1, self.unmet(than)
        for start in candidates:
            if not least:
                break
            unmet = self.unmet(start)
            if unmet < least and fits(start):
                best, least = start, unmet
        return best


class Wishes:
    """The copies and preferences of each range; weights as in ``CostModel``.

    Args:
        count: number of ranges.
    """

    def __init__(self, count: int, cost: CostModel) -> None:
        # Per range: (other range, its start minus ours, weight), (cell, weight), and indices of preferences.
        self._partners: list[list[tuple[int, int, float]]] = [[] for _ in range(count)]
        self._cells: list[list[tuple[int, float]]] = [[] for _ in range(count)]
        self._preferences = cost.preferences
        self._preferring: list[list[int]] = [[] for _ in range(count)]
        for a, b, distance, weight in cost.pairs:
            if distance is not None and a != b and weight:
                self._partners[a].append((b, distance, weight))
                self._partners[b].append((a, -distance, weight))
        for a, goal, weight in cost.fixed:
            if weight:
                self._cells[a].append((goal, weight))
        for number, (relations, _) in enumerate(self._preferences):
            for member in {r.a for r in relations} | {r.b for r in relations}:
                self._preferring[member].append(number)

    def of(self, item: Item, starts: Sequence[int]) -> Demands:
        """What the ranges that have a place want of ``item``'s start.

        A preference that is already lost wants nothing. Of any other, all relations count that the item's place
        decides, so that the preference can still be met.

        Args:
            item: an item without a place.
            starts: each range's start; -1 where it has none yet.
        """
        offsets = dict(item.members)
        places: dict[int, float] = {}
        numbers: set[int] = set()
        for member, offset in item.members:
            for partner, distance, weight in self._partners[member]:
                if partner not in offsets and starts[partner] >= 0:
                    start = starts[partner] - distance - offset
                    places[start] = places.get(start, 0.0) + weight
            for cell, weight in self._cells[member]:
                places[cell - offset] = places.get(cell - offset, 0.0) + weight
            numbers.update(self._preferring[member])
        groups: list[tuple[Sequence[Rule], float]] = []
        for number in sorted(numbers):
            relations, weight = self._preferences[number]
            rules = _rules(relations, offsets, starts)
            if rules:
                groups.append((rules, weight))
        return Demands(places, groups)


def _rules(relations: Iterable[CellRelation], offsets: Mapping[int, int], starts: Sequence[int]) -> list[Rule]:
    """Relations as rules of an item's start; no rules if one relation cannot hold any more."""
    rules: list[Rule] = []
    for relation in relations:
        a, b, distance, modulus = relation
        if a in offsets and b in offsets:
            holds = relation.holds(offsets[a], offsets[b])
        elif a in offsets:
            holds = True
            if starts[b] >= 0:
                rules.append(Rule(starts[b] - distance - offsets[a], modulus))
        elif b in offsets:
            holds = True
            if starts[a] >= 0:
                rules.append(Rule(starts[a] + distance - offsets[b], modulus))
        else:
            holds = starts[a] < 0 or starts[b] < 0 or relation.holds(starts[a], starts[b])
        if not holds:
            return []
    return rules
