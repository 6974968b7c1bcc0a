"""What is placed: one live range, or several that copies join, at fixed distances from each other."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from verilocc_mlir.allocators.cells import CellMap, Timeline, runs
from verilocc_mlir.problem.model import CHAIN, Affinity, AllocationProblem, LiveRange

Candidates = tuple[int, ...]
"""Cells at which an item may start, cheapest first."""


@dataclass(frozen=True, eq=False)
class Item:
    """Live ranges placed together.

    Attributes:
        members: ``(range id, first cell relative to the item's)``; the first member has offset 0.
        cells: ``(offset, mask of the timeline)`` for every cell that is ever live, by offset.
        start: first bit of the timeline at which any part is live.
        area: cells times bits of the timeline held: how much room it takes.
        width: widest member in cells, for ordering.
        reach: one past the last cell that a member covers, live or not, relative to the item's start.
    """

    members: tuple[tuple[int, int], ...]
    cells: tuple[tuple[int, int], ...]
    start: int
    area: int
    width: int
    reach: int

    @property
    def live(self) -> int:
        """Mask of the timeline at which any cell is live."""
        live = 0
        for _, mask in self.cells:
            live |= mask
        return live

    @cached_property
    def stretches(self) -> tuple[list[tuple[int, int]], ...]:
        """When each of ``cells`` is live, as intervals of the timeline's bits."""
        # Cells of a tuple are mostly live at the same times.
        intervals = {mask: runs(mask) for mask in {mask for _, mask in self.cells}}
        return tuple([intervals[mask] for _, mask in self.cells])


def single_items(problem: AllocationProblem, timeline: Timeline, cells: CellMap) -> list[Item]:
    return [_single(r, timeline, cells.halves) for r in problem.ranges]


def _single(live_range: LiveRange, timeline: Timeline, halves: int) -> Item:
    masks: dict[int, int] = {}
    for group in live_range.groups:
        mask = timeline.mask(group.segments)
        lanes = group.lanes
        while lanes:
            low = lanes & -lanes
            lanes ^= low
            cell = (low.bit_length() - 1) * halves // 2
            masks[cell] = masks.get(cell, 0) | mask
    width = live_range.lanes if halves == 2 else live_range.width
    return make_item(((live_range.id, 0),), masks, width, width)


def make_item(members: tuple[tuple[int, int], ...], masks: dict[int, int], width: int, reach: int) -> Item:
    """An item from the mask of each cell it holds; see ``Item`` for the rest."""
    cells = tuple(sorted((offset, mask) for offset, mask in masks.items() if mask))
    start = min(((m & -m).bit_length() - 1 for _, m in cells), default=0)
    return Item(members, cells, start, sum(m.bit_count() for _, m in cells), width, reach)


class CandidateTable:
    """Where each live range may start, by its banks, width, alignment and limit; shared between ranges of one shape."""

    def __init__(self, problem: AllocationProblem, cells: CellMap) -> None:
        self._cells = cells
        self._cache: dict[tuple[tuple[str, ...], int, int, int, int], Candidates] = {}
        self.by_range: list[Candidates] = [self._of(r) for r in problem.ranges]
        self._sets: dict[Candidates, frozenset[int]] = {c: frozenset(c) for c in self._cache.values()}
        self._of_joined: dict[Item, Candidates] = {}

    def of(self, item: Item) -> Candidates:
        """Cells at which the whole item may start; the same object for items of one shape, and for one item."""
        (first, _), *others = item.members
        if not others:
            return self.by_range[first]
        candidates = self._of_joined.get(item)
        if candidates is None:
            candidates = self.by_range[first]
            for member, offset in others:
                allowed = self._sets[self.by_range[member]]
                candidates = tuple(c for c in candidates if c + offset in allowed)
            self._of_joined[item] = candidates
        return candidates

    def allows(self, range_id: int, start: int) -> bool:
        return start in self._sets[self.by_range[range_id]]

    def _of(self, live_range: LiveRange) -> Candidates:
        key = (live_range.banks, live_range.width, live_range.lanes, live_range.align, live_range.limit)
        candidates = self._cache.get(key)
        if candidates is None:
            candidates = self._cache[key] = self._enumerate(live_range)
        return candidates

    def _enumerate(self, live_range: LiveRange) -> Candidates:
        cells = self._cells
        halves = cells.halves
        span = live_range.lanes if halves == 2 else live_range.width
        # A 16-bit range may sit in either half; low halves are tried first, as LLVM's order has it.
        shifts = (0, 1) if live_range.lanes % 2 else (0,)
        cheap: list[int] = []
        dear: list[int] = []
        for bank in ("vgpr", "agpr", "sgpr"):
            if bank not in live_range.banks:
                continue
            count = (cells.stop[bank] - cells.base[bank]) // halves
            top = min(count, live_range.limit) if live_range.limit else count
            for shift in shifts:
                for number in range(0, top - live_range.width + 1, live_range.align):
                    start = cells.base[bank] + number * halves + shift
                    covered = range(start, start + span)
                    if all(c in cells.allocatable for c in covered):
                        (dear if any(c in cells.expensive for c in covered) else cheap).append(start)
        specials: list[int] = []
        if "special" in live_range.banks:
            specials = [start for start, _, width in cells.specials if width == live_range.width]
        return (*cheap, *specials, *dear)


# Joining live ranges that copies connect, so that they are placed as one and the copies vanish.


def coalesce(problem: AllocationProblem, singles: list[Item], table: CandidateTable, cells: CellMap) -> list[Item]:
    """Items in which ranges that a copy connects are joined, heaviest copies first, if they never interfere.

    A matrix operation whose addend could be in the registers of its result counts as a light copy (``Preference``).

    Args:
        singles: one item for each live range, by id.
        table: where ranges may start.
    """
    item_of = list(singles)
    # Offset of each range in its item.
    offset_of = [0] * len(singles)
    joints = [a for a in problem.affinities if a.b >= 0 and a.a != a.b]
    joints += [
        Affinity(r.a, r.a_lane, r.b, r.b_lane, problem.ranges[r.a].lanes, p.weight, p.slot)
        for p in problem.preferences
        for r in p.relations
        if p.kind == CHAIN
    ]
    for affinity in sorted(joints, key=lambda a: (-a.weight, a.slot, a.a, a.b)):
        distance = lane_offset(affinity.a_lane - affinity.b_lane, cells.halves)
        first, second = item_of[affinity.a], item_of[affinity.b]
        if first is second or distance is None:
            continue
        # Where the second item starts, counted from the first one's start.
        shift = offset_of[affinity.a] + distance - offset_of[affinity.b]
        joined = join_items(first, second, shift)
        if joined is None or not table.of(joined):
            continue
        for member, offset in joined.members:
            item_of[member] = joined
            offset_of[member] = offset
    return list(dict.fromkeys(item_of))


def meet(first: Item, second: Item, distance: int) -> bool:
    """Whether ``second``, placed ``distance`` cells above ``first``, would hold one of its cells at the same time."""
    first_cells = dict(first.cells)
    return any(first_cells.get(offset + distance, 0) & mask for offset, mask in second.cells)


def lane_offset(lanes: int, halves: int) -> int | None:
    """A distance in 16-bit lanes as cells; None where cells are too coarse for it."""
    scaled = lanes * halves
    return scaled // 2 if scaled % 2 == 0 else None


def fixed_start(cells: CellMap, affinity: Affinity) -> int | None:
    """Cell at which range ``affinity.a`` must start for its copy from or to a fixed register to vanish; None: none."""
    target = cells.cells_of(affinity.fixed)
    distance = lane_offset(affinity.b_lane - affinity.a_lane, cells.halves)
    if not target or distance is None or target[0] + distance < 0:
        return None
    return target[0] + distance


def join_items(first: Item, second: Item, shift: int) -> Item | None:
    """The two items as one, with the second ``shift`` cells after the first; None if they interfere in some cell."""
    joined = dict(first.cells)
    for offset, mask in second.cells:
        mask_there = joined.get(offset + shift, 0)
        if mask_there & mask:
            return None
        joined[offset + shift] = mask_there | mask
    members = first.members + tuple((member, offset + shift) for member, offset in second.members)
    return make_item(members, joined, max(first.width, second.width), max(first.reach, second.reach + shift))
