"""Which units a live range may use, and who holds which when: the lanes of the placed live ranges as rectangles (units
x slots), filed by unit.

The non-interference lemma
--------------------------
File every rectangle under each unit it covers, and sort each unit's file by start. If in every file each rectangle ends
no later than the next one starts, then no two rectangles of a file overlap: starts ascend, rectangles are not empty, so
``end_k <= start_(k+1) < end_(k+1) <= start_(k+2) …`` and by induction ``end_k <= start_m`` for every ``m > k``. Two
rectangles that overlap share a unit, so they would be in one file; hence all are pairwise disjoint. It takes one
obligation for each pair of *neighbours*, n log n instead of n squared.

Fixed occupations of a unit are merged (they may overlap each other: an argument and a call's clobber) and take part in
its file as intervals. Neighbours of one live range need no obligation: its lane groups have no lane in common and the
segments of a group are disjoint, which ``wellformed`` has checked, and each lane is filed under one unit only.

What the lemma needs of this module is that each rectangle is filed under all of its units: ``filed`` is counted against
the lanes and segments of the problem.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from msgspec import Struct

from verilocc_mlir.problem.model import AllocationProblem, BankBudget, LiveRange, Segment
from verilocc_mlir.target.classes import RegisterClass, members, register_class
from verilocc_mlir.target.registers import (
    AGPR_BASE,
    NULL_REGISTERS,
    SGPR_BASE,
    TTMP_BASE,
    VGPR_BASE,
    Bank,
    lane_list,
    physical_register,
)

# Which units a live range may use, from the problem and the target's register classes.


BANKS: dict[str, tuple[int, int]] = {
    "vgpr": (VGPR_BASE, AGPR_BASE),
    "agpr": (AGPR_BASE, SGPR_BASE),
    "sgpr": (SGPR_BASE, TTMP_BASE),
}
"""Units ``[first, end)`` of each bank a budget can be given for."""

Interval = tuple[int, int]
"""Units ``[first, end)``; a register lies in it when all of its units do."""


def merged(intervals: list[Interval]) -> tuple[Interval, ...]:
    """The same set as sorted, disjoint, non-adjacent intervals."""
    result: list[Interval] = []
    for first, end in sorted(intervals):
        if result and first <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((first, end))
    return tuple(result)


class ClassPlaces(Struct, frozen=True):
    """Where members of a class lie, of some banks and below a register number.

    Together with the alignment, which is a rule of its own, exact: an interval holds every aligned place from the first
    member of a run to the last, and each special register is an interval.
    """

    intervals: tuple[Interval, ...]
    alignment: int


@cache
def class_places(name: str, banks: tuple[str, ...], limit: int) -> ClassPlaces:
    """The places of a live range of a class; ``limit``: the register number that it allows, 0 for any."""
    cls = register_class(name)
    alignment = max((cls.alignment(Bank(bank)) for bank in banks if bank in BANKS), default=1)
    return ClassPlaces(_class_intervals(cls, banks, limit), alignment)


def _class_intervals(cls: RegisterClass, banks: tuple[str, ...], limit: int) -> tuple[Interval, ...]:
    result: list[Interval] = []
    for bank, (base, end) in BANKS.items():
        if bank in banks:
            last = base + 2 * limit if limit else end
            result += [(first, min(stop, last)) for first, stop in _runs(cls, Bank(bank), base)]
    if "special" in banks:
        units = [physical_register(special).units for special in sorted(cls.specials - NULL_REGISTERS)]
        result += [(u[0], u[-1] + 1) for u in units if len(u) == cls.lanes]
    return tuple(result)


def _runs(cls: RegisterClass, bank: Bank, base: int) -> list[Interval]:
    """The units of a class's members in a numbered file, one interval for each run of members a step apart."""
    if cls.half:
        high = cls.half == "hi16"
        return [(base + 2 * number + high, base + 2 * number + high + 1) for number in members(cls, bank)]
    step = cls.alignment(bank)
    runs: list[list[int]] = []
    for number in members(cls, bank):
        if runs and number == runs[-1][1] + step:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return [(base + 2 * first, base + 2 * (last + cls.width)) for first, last in runs]


def bank_top(budget: BankBudget) -> int:
    """First unit past the highest allocatable register of a bank."""
    return BANKS[budget.bank][0] + 2 * (max(budget.registers, default=-1) + 1)


def allocatable(problem: AllocationProblem) -> tuple[Interval, ...]:
    """Units that may be handed out at all: the budgets' registers and the special ones allowed."""
    result: list[Interval] = []
    for budget in problem.budgets:
        base = BANKS[budget.bank][0]
        result += [(base + 2 * number, base + 2 * number + 2) for number in budget.registers]
    for name in problem.special:
        units = physical_register(name).units
        result += [(unit, unit + 1) for unit in units]
    return merged(result)


def alignment(live: LiveRange) -> int:
    """The number of the first 32-bit register is a multiple of this power of two: what class and problem demand."""
    return max(live.align, class_places(live.register_class, live.banks, live.limit).alignment)


def unit_mask(live: LiveRange) -> int:
    """Bits of the first unit's number that must be zero; a 16-bit range may start at either half.

    The numbers of all banks start at a multiple of 2048 units.
    """
    return 2 * alignment(live) - 1 if live.lanes > 1 else 0


class Rectangle(NamedTuple):
    """Lanes ``[low, high)`` of live range ``owner``, held during ``[start, end)``; lane ``low`` is in ``unit``."""

    start: int
    end: int
    owner: int
    low: int
    high: int
    unit: int


class Overlap(NamedTuple):
    """Two live ranges in each other's way: their lanes that meet and the first slot at which they do."""

    first: int
    second: int
    first_lanes: int
    second_lanes: int
    slot: int


class FixedPair(NamedTuple):
    """A rectangle (by index) next to a fixed occupation of the units ``[first, last)`` during ``[start, end)``."""

    rectangle: int
    start: int
    end: int
    first: int
    last: int


def lane_runs(mask: int) -> tuple[Interval, ...]:
    """Maximal runs ``[low, high)`` of set bits."""
    return merged([(k, k + 1) for k in lane_list(mask)])


class Occupancy:
    """The files of all units.

    Args:
        units: for each placed live range, the unit of its lane 0.
    """

    def __init__(self, problem: AllocationProblem, units: Mapping[int, int]) -> None:
        self._problem = problem
        rectangles: list[Rectangle] = []
        runs_of: dict[int, tuple[Interval, ...]] = {}
        for range_id, unit in units.items():
            for group in problem.ranges[range_id].groups:
                runs = runs_of.get(group.lanes)
                if runs is None:
                    runs = runs_of[group.lanes] = lane_runs(group.lanes)
                for low, high in runs:
                    for start, end in group.segments:
                        rectangles.append(Rectangle(start, end, range_id, low, high, unit + low))
        rectangles.sort()
        self.rectangles: tuple[Rectangle, ...] = tuple(rectangles)
        files: dict[int, list[int]] = {}
        for index, rectangle in enumerate(rectangles):
            unit = rectangle.unit
            for covered in range(unit, unit + rectangle.high - rectangle.low):
                if covered in files:
                    files[covered].append(index)
                else:
                    files[covered] = [index]
        self._files = files
        self._holders_cache: dict[tuple[int, int, int], tuple[frozenset[int], bool]] = {}
        self._busy_cache: dict[tuple[int, int], tuple[Segment, ...]] = {}
        self._fixed = _fixed_segments(problem)
        self.neighbours = self._neighbours()
        """Neighbours in the files, each pair once: two live ranges (indices into ``rectangles``), and a live range with
        a fixed occupation.
        """

    @property
    def filed(self) -> int:
        return sum(len(file) for file in self._files.values())

    def _neighbours(self) -> tuple[list[tuple[int, int]], list[FixedPair]]:
        rectangles = self.rectangles
        pairs: dict[tuple[int, int], None] = {}
        beside: dict[tuple[int, int, int], list[int]] = {}
        for unit in sorted(self._files):
            file = self._files[unit]
            fixed = self._fixed.get(unit)
            if fixed is None:
                pairs.update(dict.fromkeys(pairwise(file)))
                continue
            mixed = [(rectangles[i].start, rectangles[i].end, i) for i in file]
            mixed += [(start, end, -1) for start, end in fixed]
            mixed.sort()
            for left, right in pairwise(mixed):
                if left[2] >= 0 and right[2] >= 0:
                    pairs[left[2], right[2]] = None
                elif left[2] >= 0 or right[2] >= 0:
                    lanes_entry, fixed_entry = (left, right) if left[2] >= 0 else (right, left)
                    beside.setdefault((lanes_entry[2], fixed_entry[0], fixed_entry[1]), []).append(unit)
        between = [(a, b) for a, b in pairs if rectangles[a].owner != rectangles[b].owner]
        with_fixed = [
            FixedPair(index, start, end, first, last)
            for (index, start, end), units in beside.items()
            for first, last in merged([(unit, unit + 1) for unit in units])
        ]
        return between, with_fixed

    def overlaps(self, most: int) -> list[Overlap]:
        """Live ranges in each other's way, each pair once, at most ``most`` of them; for messages."""
        pairs: dict[tuple[int, int], None] = {}
        for unit in sorted(self._files):
            active: list[Rectangle] = []
            for index in self._files[unit]:
                new = self.rectangles[index]
                active = [old for old in active if old.end > new.start]
                for old in active:
                    if old.owner != new.owner:
                        pairs[min(old.owner, new.owner), max(old.owner, new.owner)] = None
                        if len(pairs) == most:
                            return self._overlapping(pairs)
                active.append(new)
        return self._overlapping(pairs)

    def _overlapping(self, pairs: Iterable[tuple[int, int]]) -> list[Overlap]:
        of_owner = self.of_owner()
        return [self._overlap(first, second, of_owner) for first, second in pairs]

    def _overlap(self, first: int, second: int, of_owner: Mapping[int, list[Rectangle]]) -> Overlap:
        """All lanes of two live ranges that meet."""
        lanes = [0, 0]
        slot = self._problem.slots
        for a in of_owner[first]:
            for b in of_owner[second]:
                low, high = max(a.unit, b.unit), min(a.unit + a.high - a.low, b.unit + b.high - b.low)
                if low < high and a.start < b.end and b.start < a.end:
                    run = (1 << high - low) - 1
                    lanes[0] |= run << a.low + low - a.unit
                    lanes[1] |= run << b.low + low - b.unit
                    slot = min(slot, max(a.start, b.start))
        return Overlap(first, second, lanes[0], lanes[1], slot)

    def of_owner(self) -> dict[int, list[Rectangle]]:
        """Rectangles of each placed live range that is ever live."""
        result: dict[int, list[Rectangle]] = {}
        for rectangle in self.rectangles:
            result.setdefault(rectangle.owner, []).append(rectangle)
        return result

    def fixed_overlaps(self) -> Iterator[tuple[int, int, int]]:
        """``(live range, lanes, first slot)`` for each live range that sits in a fixed occupation."""
        lanes_and_slot: dict[int, tuple[int, int]] = {}
        for unit, fixed in sorted(self._fixed.items()):
            starts = [start for start, _ in fixed]
            for index in self._files.get(unit, ()):
                rectangle = self.rectangles[index]
                k = max(0, bisect_left(starts, rectangle.start) - 1)
                while k < len(fixed) and fixed[k][1] <= rectangle.start:
                    k += 1
                if k < len(fixed) and fixed[k][0] < rectangle.end:
                    lanes, slot = lanes_and_slot.get(rectangle.owner, (0, rectangle.end))
                    lane = 1 << (rectangle.low + unit - rectangle.unit)
                    lanes_and_slot[rectangle.owner] = (lanes | lane, min(slot, max(fixed[k][0], rectangle.start)))
        return ((owner, lanes, slot) for owner, (lanes, slot) in sorted(lanes_and_slot.items()))

    def is_free(self, range_id: int, unit: int) -> bool:
        """Whether the live range could start at ``unit`` for its whole life, everything else staying where it is."""
        for group in self._problem.ranges[range_id].groups:
            for lane in lane_list(group.lanes):
                busy = self._busy_segments(unit + lane, range_id)
                if busy and any(meets(busy, segment) for segment in group.segments):
                    return False
        return True

    def holders(self, range_id: int, unit: int) -> tuple[frozenset[int], bool]:
        """Who is in the way of the live range at ``unit``: other live ranges, and whether something fixed is."""
        owners: set[int] = set()
        fixed = False
        for number, group in enumerate(self._problem.ranges[range_id].groups):
            for lane in lane_list(group.lanes):
                unit_holders = self._holders(range_id, number, unit + lane)
                owners |= unit_holders[0]
                fixed = fixed or unit_holders[1]
        return frozenset(owners - {range_id}), fixed

    def _holders(self, range_id: int, number: int, unit: int) -> tuple[frozenset[int], bool]:
        """``holders`` of one unit, for one lane group of the range."""
        key = (range_id, number, unit)
        if key not in self._holders_cache:
            segments = self._problem.ranges[range_id].groups[number].segments
            file = (self.rectangles[index] for index in self._files.get(unit, ()))
            owners = frozenset(r.owner for r in file if meets(segments, (r.start, r.end)))
            fixed = any(meets(segments, held) for held in self._fixed.get(unit, ()))
            self._holders_cache[key] = owners, fixed
        return self._holders_cache[key]

    def _busy_segments(self, unit: int, but: int) -> tuple[Segment, ...]:
        """When the unit is held by anything but the live range ``but``."""
        if not any(self.rectangles[index].owner == but for index in self._files.get(unit, ())):
            but = -1
        key = (unit, but)
        if key not in self._busy_cache:
            file = [self.rectangles[index] for index in self._files.get(unit, ())]
            segments = [(r.start, r.end) for r in file if r.owner != but]
            self._busy_cache[key] = merged([*segments, *self._fixed.get(unit, ())])
        return self._busy_cache[key]


def _fixed_segments(problem: AllocationProblem) -> dict[int, tuple[Segment, ...]]:
    """Fixed occupations of each unit, merged."""
    result: dict[int, list[Segment]] = {}
    for occupation in problem.fixed:
        for unit in occupation.units:
            result.setdefault(unit, []).extend(occupation.segments)
    return {unit: merged(segments) for unit, segments in result.items()}


def meets(segments: tuple[Segment, ...], segment: Segment) -> bool:
    """Whether a segment overlaps one of sorted, disjoint ones."""
    k = bisect_left(segments, (segment[1], 0)) - 1
    return k >= 0 and segments[k][1] > segment[0]
