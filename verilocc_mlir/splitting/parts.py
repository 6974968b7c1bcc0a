"""The parts that a live range falls into, and the places for copies between them.

A copy can stand between two instructions of a block wherever the value is live and EXEC has every thread that reads the
value later. What lies between two such places is a part, over block boundaries where none is between. All of a part is
in one register.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from verilocc_mlir.allocators.items import Item
from verilocc_mlir.analysis.execution import ExecMasks
from verilocc_mlir.spilling.gaps import Gap, RegisterGaps
from verilocc_mlir.spilling.ground import Ground

Union = dict[object, object]


@dataclass(frozen=True)
class Cut:
    """A place for a copy.

    Attributes:
        at: instruction before which the copy goes; ``bit``: of the timeline, in which the value is in both registers.
        weight: estimated executions of the copy, times its 32-bit registers.
        left, right: the parts before and after it.
        live: parts of the register, in the sense of ``gaps.py``, that it copies.
    """

    at: int
    block: int
    bit: int
    weight: float
    left: int
    right: int
    live: int


@dataclass(frozen=True)
class Parts:
    """A range in parts: the times of each, and the cuts between them. ``of_access``: the part each access is in."""

    times: tuple[int, ...]
    cuts: tuple[Cut, ...]
    of_access: Mapping[int, int]


def parts(register: RegisterGaps, item: Item, boundaries: Sequence[int], ground: Ground, limit: float) -> Parts | None:
    """The parts of a range, cut in blocks of at most ``limit`` estimated executions; None where nothing can be cut."""

    def bit(slot: int) -> int:
        # The first access reads nothing that is live, so its instruction begins before the first boundary.
        return max(bisect_right(boundaries, slot) - 1, 0)

    first = ground.cfg.first
    union: Union = {}
    times: dict[object, int] = {}
    places: list[tuple[int, int, int, object, object, Gap]] = []
    stretches: dict[Gap, tuple[object, object]] = {}
    for gap in register.gaps:
        low = bit(4 * gap.opens.index + 1) if gap.opens else bit(4 * first[gap.block])
        high = bit(4 * gap.closes.index + 2) if gap.closes else bit(4 * first[gap.block + 1] - 1)
        node: object = (gap.number, -1)
        opening = node
        union.setdefault(node, node)
        for at in _cuts(gap, ground, limit):
            here = bit(4 * at)
            if places and places[-1][5] is gap and places[-1][2] == here:
                continue
            following: object = (gap.number, at)
            union.setdefault(following, following)
            times[node] = times.get(node, 0) | _span(low, here)
            places.append((at, gap.block, here, node, following, gap))
            low, node = here, following
        times[node] = times.get(node, 0) | _span(low, high)
        stretches[gap] = opening, node
    if not places:
        return None
    for access in register.accesses:
        union.setdefault(access, access)
        times[access] = _span(bit(4 * access.index), bit(4 * access.index + 3))
        if access.before is not None:
            join(union, access, stretches[access.before][1])
        if access.after is not None:
            join(union, access, stretches[access.after][0])
    for gap in register.gaps:
        for successor in gap.successors:
            join(union, stretches[gap][1], stretches[successor][0])
    return _numbered(register, item, union, times, places, ground)


def _numbered(
    register: RegisterGaps,
    item: Item,
    union: Union,
    times: Mapping[object, int],
    places: Iterable[tuple[int, int, int, object, object, Gap]],
    ground: Ground,
) -> Parts:
    numbers: dict[object, int] = {}
    masks: list[int] = []
    for node, mask in times.items():
        part = numbers.setdefault(root(union, node), len(masks))
        if part == len(masks):
            masks.append(0)
        masks[part] |= mask & item.live
    cuts = [
        Cut(
            at, block, bit, ground.costs.weight(block) * gap.live.bit_count(),
            numbers[root(union, left)], numbers[root(union, right)], gap.live,
        )
        for at, block, bit, left, right, gap in places
    ]  # fmt: skip
    of_access = {a.index: numbers[root(union, a)] for a in register.accesses}
    return Parts(tuple(masks), tuple(c for c in cuts if c.left != c.right), of_access)


def _span(low: int, high: int) -> int:
    return ((1 << (high - low + 1)) - 1) << low if high >= low else 0


def root(union: Union, node: object) -> object:
    """The node that stands for all that are joined with this one."""
    while union[node] is not node:
        union[node] = union[union[node]]
        node = union[node]
    return node


def join(union: Union, a: object, b: object) -> None:
    """Count two nodes as one."""
    union[root(union, a)] = root(union, b)


def _cuts(gap: Gap, ground: Ground, limit: float) -> list[int]:
    """Instructions of a gap before which a copy may stand."""
    costs = ground.costs
    if costs.weight(gap.block) > limit:
        return []
    places = costs.places
    at = range(max(gap.first, places.start[gap.block]), min(gap.stop, places.end[gap.block]) + 1)
    masks = costs.masks
    if masks is None:
        return [*at]
    needed = _masks_of_reads(gap, masks)
    stop = places.first[gap.block + 1]

    def mask(index: int) -> int:
        return masks.before[index] if index < stop else masks.leaving[gap.block]

    return [index for index in at if all(masks.covers(mask(index), other) for other in needed)]


def _masks_of_reads(start: Gap, masks: ExecMasks) -> set[int]:
    """EXEC of every instruction that may read what is in the register in a gap, or a part of it."""
    needed: set[int] = set()
    visited = {start}
    work = [start]
    while work:
        gap = work.pop()
        following = list(gap.successors)
        if gap.closes is not None:
            if gap.closes.reads & gap.live:
                needed.add(masks.before[gap.closes.index])
            if gap.closes.after is not None and gap.closes.after.live & ~gap.closes.writes:
                following.append(gap.closes.after)
        for successor in following:
            if successor not in visited:
                visited.add(successor)
                work.append(successor)
    return needed
