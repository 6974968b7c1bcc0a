"""Register pressure: how many registers of a file must hold something at once, and where it is most.

Counted from live ranges, so it is a lower bound on the registers any allocation without spilling needs; alignment and
tuple shape can add to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from verilocc_mlir.analysis.liveness import LaneSegments


@dataclass(frozen=True, slots=True)
class Pressure:
    """Peak pressure.

    Attributes:
        registers: most 32-bit registers of which some half is live at one slot.
        units: most 16-bit lanes live at one slot.
        slot: the first slot at which ``registers`` is reached; -1 where nothing is ever live.
    """

    registers: int
    units: int
    slot: int


def peak_pressure(ranges: Iterable[tuple[LaneSegments, ...]]) -> Pressure:
    """Peak pressure of the given live ranges, each the lane groups of one virtual register."""
    registers: dict[int, int] = {}
    units: dict[int, int] = {}
    for groups in ranges:
        for lanes, segments in _by_register(groups):
            _add(units, segments, lanes.bit_count())
            _add(registers, segments, _pairs(lanes).bit_count())
    most, slot = _sweep(registers)
    return Pressure(most, _sweep(units)[0], slot)


def _by_register(groups: tuple[LaneSegments, ...]) -> Iterable[LaneSegments]:
    """The groups, with those that share 32-bit registers cut into pieces of equal lanes at each slot."""
    if sum(_pairs(group.lanes).bit_count() for group in groups) == _pairs(_union(groups)).bit_count():
        return groups
    changes: dict[int, int] = {}
    for lanes, segments in groups:
        for start, stop in segments:
            # Groups of one register have disjoint lanes, so adding and subtracting masks sets and clears bits.
            changes[start] = changes.get(start, 0) + lanes
            changes[stop] = changes.get(stop, 0) - lanes
    pieces: list[LaneSegments] = []
    live = 0
    slots = sorted(changes)
    for start, stop in pairwise(slots):
        live += changes[start]
        if live:
            pieces.append(LaneSegments(live, ((start, stop),)))
    return pieces


def _union(groups: tuple[LaneSegments, ...]) -> int:
    lanes = 0
    for group in groups:
        lanes |= group.lanes
    return lanes


def _pairs(lanes: int) -> int:
    """One bit (the even one) for each 32-bit register with a lane in the mask."""
    even = (1 << 2 * ((lanes.bit_length() + 1) // 2)) // 3
    return (lanes | lanes >> 1) & even


def _add(changes: dict[int, int], segments: Iterable[tuple[int, int]], amount: int) -> None:
    for start, stop in segments:
        changes[start] = changes.get(start, 0) + amount
        changes[stop] = changes.get(stop, 0) - amount


def _sweep(changes: dict[int, int]) -> tuple[int, int]:
    """Highest running total and the first slot at which it is reached."""
    best, where, total = 0, -1, 0
    for slot in sorted(changes):
        total += changes[slot]
        if total > best:
            best, where = total, slot
    return best, where
