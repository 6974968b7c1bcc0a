"""One form for all problems that differ only in the names of registers and the order of blocks.

Blocks are laid out anew: the entry first, then each block after those that define what it reads, deeper loops first.
Ties are broken by the blocks' contents, refined a few times over the live ranges that connect the blocks (colour
refinement after Weisfeiler and Leman). Live ranges are numbered by their first definition in that layout. Blocks or
ranges that no refinement tells apart look alike to an allocator, and keep their order.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from msgspec.structs import astuple, replace

from verilocc_mlir.problem.model import Affinity, AllocationProblem, LaneGroup, LiveRange, Preference, Segment

_ROUNDS = 3


@dataclass(frozen=True)
class Canonical:
    """A problem in canonical form; ``original[k]`` is the id of its range *k* in the original problem."""

    problem: AllocationProblem
    original: tuple[int, ...]

    def restored(self, registers: Iterable[str]) -> tuple[str, ...]:
        """Registers by canonical id as registers by original id."""
        result = [""] * len(self.original)
        for old, register in zip(self.original, registers, strict=True):
            result[old] = register
        return tuple(result)

    def permuted(self, registers: tuple[str, ...]) -> tuple[str, ...]:
        """Registers by original id as registers by canonical id."""
        return tuple(registers[old] for old in self.original)


def canonical(problem: AllocationProblem) -> Canonical:
    layout = _Layout(problem)
    labels, signatures = _colours(problem, layout)
    layout_after = layout.reordered(_block_order(problem, layout, labels))
    blocks = tuple(layout_after.start[b] for b in layout_after.order)
    depths = tuple(problem.block_depths[b] for b in layout_after.order)

    def first_slot(live_range: LiveRange) -> int:
        slots = [layout_after.slot(p.slot) for p in live_range.points]
        defined = [layout_after.slot(p.slot) for p in live_range.points if p.kind != "use"]
        return min(defined or slots, default=0)

    order = sorted(problem.ranges, key=lambda r: (first_slot(r), signatures[r.id], r.id))
    new = {r.id: k for k, r in enumerate(order)}
    ranges = tuple(_moved_range(r, new[r.id], layout_after) for r in order)
    affinities = sorted(
        (_moved_affinity(a, new, layout_after) for a in problem.affinities),
        key=lambda f: (f.slot, f.a, f.a_lane, f.b, f.b_lane),
    )
    fixed = sorted(
        (replace(f, segments=layout_after.segments(f.segments)) for f in problem.fixed),
        key=lambda f: (f.units, f.segments, f.reason),
    )
    preferences = sorted(
        (_moved_preference(p, new, layout_after) for p in problem.preferences),
        key=lambda p: (p.slot, p.kind, [astuple(r) for r in p.relations]),
    )
    return Canonical(
        replace(
            problem,
            block_starts=blocks,
            block_depths=depths,
            ranges=ranges,
            affinities=tuple(affinities),
            fixed=tuple(fixed),
            preferences=tuple(preferences),
        ),
        tuple(r.id for r in order),
    )


class _Layout:
    """Where each block lies, and segments as pieces of blocks."""

    def __init__(self, problem: AllocationProblem) -> None:
        self.starts = problem.block_starts
        self.stops = (*problem.block_starts[1:], problem.slots)
        self.order = tuple(range(len(self.starts)))
        self.start = dict(enumerate(self.starts))

    def block(self, slot: int) -> int:
        return max(bisect_right(self.starts, slot) - 1, 0)

    def pieces(self, segments: Iterable[Segment]) -> list[tuple[int, int, int]]:
        """``(block, first, end)`` with offsets from the block's start, for each block that a segment touches."""
        result: list[tuple[int, int, int]] = []
        for first, end in segments:
            number = self.block(first)
            while first < end:
                stop = min(end, self.stops[number]) if number + 1 < len(self.starts) else end
                if stop > first:
                    result.append((number, first - self.starts[number], stop - self.starts[number]))
                first = stop
                number += 1
        return result

    def reordered(self, order: list[int]) -> _Layout:
        """The same blocks laid out in another order."""
        reordered_layout = _Layout.__new__(_Layout)
        reordered_layout.starts, reordered_layout.stops, reordered_layout.order = self.starts, self.stops, tuple(order)
        reordered_layout.start = {}
        position = 0
        for number in order:
            reordered_layout.start[number] = position
            position += self.stops[number] - self.starts[number]
        return reordered_layout

    def slot(self, slot: int) -> int:
        number = self.block(slot)
        return self.start[number] + slot - self.starts[number]

    def segments(self, segments: Iterable[Segment]) -> tuple[Segment, ...]:
        """Old segments in this layout, sorted and joined where they touch."""
        moved = sorted((self.start[b] + first, self.start[b] + end) for b, first, end in self.pieces(segments))
        joined: list[Segment] = []
        for first, end in moved:
            if joined and joined[-1][1] >= first:
                joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
            else:
                joined.append((first, end))
        return tuple(joined)


def _digest(value: object) -> str:
    return hashlib.blake2b(repr(value).encode(), digest_size=12).hexdigest()


def _colours(problem: AllocationProblem, layout: _Layout) -> tuple[list[str], list[str]]:
    """A label for each block and a signature for each range, equal only for those with like surroundings."""
    count = len(layout.starts)
    where = layout.block
    offsets = layout.starts
    shapes = [
        (r.banks, r.width, r.lanes, r.align, r.limit, r.register_class, "" if r.hint.startswith("%") else r.hint)
        for r in problem.ranges
    ]
    # For each range, what it does in each block: points and liveness, both with offsets from the block's start.
    within: list[list[tuple[int, str]]] = []
    for live_range in problem.ranges:
        deeds: dict[int, list[object]] = {}
        for p in live_range.points:
            b = where(p.slot)
            deeds.setdefault(b, []).append((p.slot - offsets[b], p.lanes, p.kind, p.family))
        for group in live_range.groups:
            for b, first, end in layout.pieces(group.segments):
                deeds.setdefault(b, []).append((first, end, group.lanes))
        within.append([(b, _digest(deed)) for b, deed in sorted(deeds.items())])
    occupied: list[list[object]] = [[] for _ in range(count)]
    for fixed in problem.fixed:
        for b, first, end in layout.pieces(fixed.segments):
            occupied[b].append((fixed.units, first, end))
    labels = [
        _digest((b == 0, layout.stops[b] - layout.starts[b], problem.block_depths[b], sorted(occupied[b], key=repr)))
        for b in range(count)
    ]
    signatures = [_digest(shape) for shape in shapes]
    for _ in range(_ROUNDS):
        ranges_there: list[list[object]] = [[] for _ in range(count)]
        partners: list[list[object]] = [[] for _ in problem.ranges]
        for a in problem.affinities:
            lanes = (a.a_lane, a.b_lane, a.lanes, a.weight)
            partners[a.a].append(("a", *lanes, signatures[a.b] if a.b >= 0 else a.fixed))
            if a.b >= 0:
                partners[a.b].append(("b", *lanes, signatures[a.a]))
        for p in problem.preferences:
            for r in p.relations:
                key = (p.kind, p.weight, r.a_lane, r.b_lane, r.modulus)
                partners[r.a].append(("first", *key, signatures[r.b]))
                partners[r.b].append(("second", *key, signatures[r.a]))
        for r, deeds_of in enumerate(within):
            for b, deed in deeds_of:
                ranges_there[b].append((signatures[r], deed))
        new = [
            _digest((signatures[r], sorted((labels[b], deed) for b, deed in within[r]), sorted(partners[r], key=repr)))
            for r in range(len(problem.ranges))
        ]
        labels = [_digest((labels[b], sorted(ranges_there[b], key=repr))) for b in range(count)]
        signatures = new
    return labels, signatures


def _block_order(problem: AllocationProblem, layout: _Layout, labels: list[str]) -> list[int]:
    """The entry, then always a block all of whose inputs are defined, the deepest first."""
    count = len(layout.starts)
    waits: list[set[int]] = [set() for _ in range(count)]
    for live_range in problem.ranges:
        defined = {layout.block(p.slot) for p in live_range.points if p.kind != "use"}
        if len(defined) != 1:
            # With several definitions, as around a loop, the order of reads and writes says nothing.
            continue
        (home,) = defined
        for group in live_range.groups:
            for b, _, _ in layout.pieces(group.segments):
                if b != home:
                    waits[b].add(home)
    followers: list[list[int]] = [[] for _ in range(count)]
    missing = [len(w) for w in waits]
    for b, before in enumerate(waits):
        for a in before:
            followers[a].append(b)
    order: list[int] = []
    remaining = set(range(count))

    def rank(b: int) -> tuple[bool, int, int, str, int]:
        return (b != 0, missing[b], -problem.block_depths[b], labels[b], b)

    while remaining:
        # A cycle of waits (irreducible or partly defined) is broken where least is missing.
        chosen = min(remaining, key=rank)
        remaining.remove(chosen)
        order.append(chosen)
        for b in followers[chosen]:
            missing[b] -= 1
    return order


def _moved_range(live_range: LiveRange, number: int, layout: _Layout) -> LiveRange:
    groups = tuple(
        sorted(
            (LaneGroup(g.lanes, layout.segments(g.segments)) for g in live_range.groups),
            key=lambda g: (g.lanes, g.segments),
        )
    )
    points = tuple(
        sorted((replace(p, slot=layout.slot(p.slot)) for p in live_range.points), key=lambda p: (p.slot, p.kind))
    )
    return replace(live_range, id=number, groups=groups, points=points)


def _moved_affinity(affinity: Affinity, new: dict[int, int], layout: _Layout) -> Affinity:
    slot = layout.slot(affinity.slot) if affinity.weight else 0
    if affinity.b < 0:
        return replace(affinity, a=new[affinity.a], slot=slot)
    a, b = new[affinity.a], new[affinity.b]
    if affinity.weight or a < b:
        return replace(affinity, a=a, b=b, slot=slot)
    # A mere hint has no direction.
    return replace(affinity, a=b, b=a, a_lane=affinity.b_lane, b_lane=affinity.a_lane, slot=slot)


def _moved_preference(preference: Preference, new: dict[int, int], layout: _Layout) -> Preference:
    relations = sorted((replace(r, a=new[r.a], b=new[r.b]) for r in preference.relations), key=astuple)
    return replace(preference, relations=tuple(relations), slot=layout.slot(preference.slot))
