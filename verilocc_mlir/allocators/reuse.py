"""What it costs to reuse a register soon: false dependencies, which tie the scheduler after allocation.

A value that starts in a register shortly after another one ended there may not be computed or loaded earlier, and the
other one may not be read later. LLVM's scheduler after allocation moves instructions within a block alone, so that only
reuse within a block counts.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from verilocc_mlir.allocators.items import Item
from verilocc_mlir.allocators.timeline import Timeline, runs
from verilocc_mlir.problem.model import AllocationProblem

SLOW = frozenset({"load", "lds", "smem", "mfma", "wmma"})
"""Families whose results take long, so that they are better started early."""

SLOW_WEIGHT = 4.0
"""Of a false dependency of theirs, where another one counts 1."""

HORIZON = 32
"""Instructions after which reuse costs nothing. 24, 64 and 400 give the same cycles within what kernels differ by."""

_HORIZON_SLOTS = 4 * HORIZON


class Window(NamedTuple):
    """A stretch of time beside an end of a value, in which no other value should hold the same cell.

    Attributes:
        offset: of the cell, relative to the item's.
        mask: of the timeline.
        slot: where the value starts, or ends.
        before: whether the stretch ends there; else it starts there.
        executions: estimated, of the block.
    """

    offset: int
    mask: int
    slot: int
    before: bool
    executions: float


class Reuse:
    """False dependencies of the placements of one problem."""

    def __init__(self, problem: AllocationProblem, timeline: Timeline) -> None:
        self._boundaries = timeline.boundaries
        self._blocks: list[tuple[int, int, float]] = []
        """First bit, last bit plus one and executions of each block."""
        bits = [bisect_left(self._boundaries, slot) for slot in problem.block_starts]
        for first, stop, depth in zip(bits, [*bits[1:], len(self._boundaries)], problem.block_depths, strict=False):
            self._blocks.append((first, stop, float(10 ** min(depth, 6))))
        self._firsts = [first for first, _, _ in self._blocks]
        self._slow = frozenset(
            point.slot // 4
            for live_range in problem.ranges
            for point in live_range.points
            if point.kind != "use" and point.family in SLOW
        )

    def windows(self, item: Item) -> list[Window]:
        """Where the neighbours of an item in time are looked for."""
        boundaries = self._boundaries
        result: list[Window] = []
        for offset, mask in item.cells:
            for start, stop in runs(mask):
                first, _, executions = self._block(start)
                low = max(first, bisect_left(boundaries, boundaries[start] - _HORIZON_SLOTS))
                if low < start:
                    result.append(Window(offset, (1 << start) - (1 << low), boundaries[start], True, executions))
                _, end, executions = self._block(stop - 1)
                high = min(end, bisect_right(boundaries, boundaries[stop] + _HORIZON_SLOTS)) if stop < end else stop
                if stop < high:
                    result.append(Window(offset, (1 << high) - (1 << stop), boundaries[stop], False, executions))
        return result

    def price(self, windows: Sequence[Window], start: int, occupied: Sequence[int], limit: float) -> float:
        """The false dependencies of an item at cell ``start``, where ``occupied`` has the others.

        An execution counts in full where one value follows another at once, and not at all at ``HORIZON`` instructions.
        Counting ends at ``limit``.
        """
        total = 0.0
        boundaries = self._boundaries
        for offset, mask, slot, before, executions in windows:
            others = occupied[start + offset] & mask
            if others:
                # One value ends, the other one starts: the nearest one ends before its bit, or starts at its bit.
                if before:
                    end, begin = boundaries[others.bit_length()], slot
                else:
                    end, begin = slot, boundaries[(others & -others).bit_length() - 1]
                weight = SLOW_WEIGHT if begin // 4 in self._slow else 1.0
                total += executions * weight * (1 - (begin - end) / _HORIZON_SLOTS)
                if total >= limit:
                    break
        return total

    def executions(self, item: Item) -> float:
        """How often the block runs that runs most of those in which some part of the item starts."""
        return max((self._block(start)[2] for _, mask in item.cells for start, _ in runs(mask)), default=0.0)

    def _block(self, bit: int) -> tuple[int, int, float]:
        # Empty blocks share their first bit with the next one, which is the one found.
        return self._blocks[bisect_right(self._firsts, bit) - 1]
