"""The parts that a live range falls into, and the places for copies between them.

A copy can stand between two instructions of a block wherever the value is live and EXEC has every thread that reads the
value later. What lies between two such places is a part, over block boundaries where none is between. All of a part is
in one register.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate

from msgspec import Struct

from verilocc_mlir.allocators.cells import runs
from verilocc_mlir.allocators.items import Item
from verilocc_mlir.analysis.execution import ExecMasks
from verilocc_mlir.spilling.gaps import Gap, RegisterGaps
from verilocc_mlir.spilling.ground import Ground

Union = dict[object, object]


class Cut(Struct, frozen=True):
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


class Parts(Struct, frozen=True):
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
    needed = ground.masks_of_reads.get(gap)
    if needed is None:
        needed = ground.masks_of_reads[gap] = _masks_of_reads(gap, masks)
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


# Registers for the parts of one live range, so that few copies are executed.


_DEPTH = 3
"""Parts of parts: how often what does not fit in one register is divided again."""

_TRIED = 2
"""Registers tried for the greater part of a range."""


_Unbroken = tuple[list[int], list[int], list[int], list[int]]
"""When parts start, in order, and those that started before each; the same for when they stop."""


class Links:
    """The parts of one range, their times and the cuts between them. Sets of parts are integers with a bit for each."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.times = _union(parts.times)
        """When any part is live."""
        self._up_to = [0, *accumulate(times.bit_count() for times in parts.times)]
        between: dict[tuple[int, int], float] = {}
        for cut in parts.cuts:
            ends = (cut.left, cut.right) if cut.left < cut.right else (cut.right, cut.left)
            between[ends] = between.get(ends, 0) + cut.weight
        alike: dict[tuple[int, float], list[int]] = {}
        for (low, high), weight in between.items():
            alike.setdefault((high - low, weight), []).append(low)
        # Most parts follow one another in straight code: the cuts between them differ in their places alone.
        self._cuts = [(distance, weight, _bits(lows)) for (distance, weight), lows in alike.items()]

    def area(self, parts: int) -> int:
        return sum([self._up_to[stop] - self._up_to[start] for start, stop in runs(parts)])

    def inside(self, parts: int) -> list[tuple[int, float, int]]:
        """The cuts between two of ``parts``: the distance, the weight, and the lower part of each with this weight."""
        cuts = [(distance, weight, lows & parts & (parts >> distance)) for distance, weight, lows in self._cuts]
        return [cut for cut in cuts if cut[2]]

    @staticmethod
    def weight(inside: list[tuple[int, float, int]], some: int) -> float:
        """Of the cuts that have one end in ``some``, among those that ``inside`` gives of parts that hold these."""
        return sum([((some ^ (some >> distance)) & lows).bit_count() * weight for distance, weight, lows in inside])

    def groups(self, parts: int) -> list[int]:
        """The parts that cuts connect with one another, in the order of their first parts."""
        inside = self.inside(parts)
        chained = 0
        for distance, _, lows in inside:
            if distance == 1:
                chained |= lows
        # What is not chained to the part before it starts a stretch, what is not to the part after it ends one.
        firsts = [*_numbers(parts & ~(chained << 1))]
        stretches = [(2 << last) - (1 << first) for first, last in zip(firsts, _numbers(parts & ~chained), strict=True)]
        union: Union = {number: number for number in range(len(stretches))}
        for distance, _, lows in inside:
            if distance != 1:
                for low in _numbers(lows):
                    join(union, bisect_right(firsts, low) - 1, bisect_right(firsts, low + distance) - 1)
        groups: dict[object, int] = {}
        for number, stretch in enumerate(stretches):
            node = root(union, number)
            groups[node] = groups.get(node, 0) | stretch
        return [*groups.values()]

    def blocked(self, taken: int) -> int:
        """The parts that are live at some of the times ``taken``."""
        broken, (starts, started, stops, stopped) = self._stretches
        blocked = 0
        for start, stop in runs(taken):
            blocked |= started[bisect_left(starts, stop)] & ~stopped[bisect_right(stops, start)]
        for part in broken:
            if self.parts.times[part] & taken:
                blocked |= 1 << part
        return blocked

    @cached_property
    def _stretches(self) -> tuple[list[int], _Unbroken]:
        """The parts that are live in several stretches of time: those that several blocks share. When the others start
        and stop.
        """
        live = [runs(times) for times in self.parts.times]
        broken = [part for part, stretches in enumerate(live) if len(stretches) > 1]
        rows = [(*stretches[0], 1 << part) for part, stretches in enumerate(live) if len(stretches) == 1]
        ends: list[list[int]] = []
        for end in (0, 1):
            ordered = sorted((row[end], row[2]) for row in rows)
            ends += [at for at, _ in ordered], [*accumulate((bit for _, bit in ordered), int.__or__, initial=0)]
        return broken, (ends[0], ends[1], ends[2], ends[3])


class Cover:
    """A start for each part, so that few copies are executed.

    Weights are whole numbers, so that sums of them are exact in any order.

    Args:
        taken: for each start, the times of the range at which something else is there.
    """

    def __init__(self, links: Links, taken: Mapping[int, int]) -> None:
        self._links = links
        blocked = {there: links.blocked(there) for there in set(taken.values())}
        self._blocked = {start: blocked[there] for start, there in taken.items()}

    def run(self) -> dict[int, int] | None:
        cover = self._cover((1 << len(self._links.parts.times)) - 1, _DEPTH)
        return cover and {part: start for parts, start in cover[1] for part in _numbers(parts)}

    def _cover(self, wanted: int, depth: int) -> tuple[float, list[tuple[int, int]]] | None:
        """The weight of the copies among the parts ``wanted``, and sets of them with a start for each."""
        starts_of: dict[int, list[int]] = {}
        for start, blocked in self._blocked.items():
            missing = blocked & wanted
            if not missing:
                return 0.0, [(wanted, start)]
            starts_of.setdefault(missing, []).append(start)
        if not depth or not wanted & (wanted - 1):
            return None
        starts_of.pop(wanted, None)
        best: tuple[float, list[tuple[int, int]]] | None = None
        tried: set[int] = set()
        for price, _, start, missing in self._ranked(wanted, starts_of):
            if missing in tried or (best is not None and price >= best[0]):
                continue
            tried.add(missing)
            total, sets = price, [(wanted & ~missing, start)]
            for group in self._links.groups(missing):
                inner = self._cover(group, depth - 1)
                if inner is None:
                    break
                total += inner[0]
                sets += inner[1]
            else:
                if best is None or total < best[0]:
                    best = total, sets
        return best

    def _ranked(self, wanted: int, starts_of: Mapping[int, list[int]]) -> list[tuple[float, int, int, int]]:
        """The cheapest starts for most of ``wanted``: the weight of the cuts between that and what is missing at a
        start, how much is missing, the start, and what is missing.

        Args:
            starts_of: starts, by what is missing there.
        """
        inside = self._links.inside(wanted)
        priced = sorted((self._links.weight(inside, missing), missing) for missing in starts_of)
        ranked: list[tuple[float, int, int, int]] = []
        for price, missing in priced:
            if len(ranked) >= _TRIED and price > ranked[-1][0]:
                break  # Areas decide between equal prices only.
            area = self._links.area(missing)
            ranked += [(price, area, start, missing) for start in sorted(starts_of[missing])[:_TRIED]]
        return sorted(ranked)[:_TRIED]


def _union(sets: Iterable[int]) -> int:
    union = 0
    for members in sets:
        union |= members
    return union


def _bits(numbers: Iterable[int]) -> int:
    return _union(1 << number for number in numbers)


def _numbers(bits: int) -> Iterator[int]:
    """The numbers of the bits that are set."""
    for start, stop in runs(bits):
        yield from range(start, stop)
