"""Sets of slots as integers, one bit for each stretch of slots that no live range starts or ends in."""

from __future__ import annotations

from collections.abc import Iterable

from verilocc_mlir.problem.model import AllocationProblem, Segment


class Timeline:
    """Maps segments to bit masks; two sets of segments overlap if and only if their masks share a bit.

    Bit *k* stands for the slots from the *k*-th distinct segment boundary up to the next one.
    """

    def __init__(self, problem: AllocationProblem) -> None:
        boundaries: set[int] = set()
        for live_range in problem.ranges:
            for group in live_range.groups:
                for segment in group.segments:
                    boundaries.update(segment)
        for fixed in problem.fixed:
            for segment in fixed.segments:
                boundaries.update(segment)
        self.boundaries: tuple[int, ...] = tuple(sorted(boundaries))
        self._rank = {slot: k for k, slot in enumerate(self.boundaries)}

    def mask(self, segments: Iterable[Segment]) -> int:
        """The bits that sorted, disjoint ``segments`` cover."""
        rank = self._rank
        bits = 0
        for start, stop in segments:
            low = rank[start]
            bits |= ((1 << (rank[stop] - low)) - 1) << low
        return bits

    def slot(self, bit: int) -> int:
        """First slot that ``bit`` stands for."""
        return self.boundaries[bit]


def runs(mask: int) -> list[tuple[int, int]]:
    """Half-open intervals of the ones of ``mask``."""
    intervals: list[tuple[int, int]] = []
    position = 0
    while mask:
        zeros = (mask & -mask).bit_length() - 1
        mask >>= zeros
        ones = (~mask & (mask + 1)).bit_length() - 1
        mask >>= ones
        intervals.append((position + zeros, position + zeros + ones))
        position += zeros + ones
    return intervals


def add_ones(change: list[int], mask: int) -> None:
    """Add one at every bit of ``mask``, where ``change`` has the differences between neighbouring bits."""
    for start, stop in runs(mask):
        change[start] += 1
        change[stop] -= 1
