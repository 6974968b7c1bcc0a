"""Sets of slots as integers."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from verilocc_mlir.allocators.cells import runs


@pytest.mark.parametrize("bits", [1, 40, 2047, 2048, 2049, 6000])
def test_runs_are_the_intervals_of_the_ones(bits: int) -> None:
    """Short masks and long ones are read in two ways."""
    draw = random.Random(bits)
    for _ in range(20):
        mask = draw.getrandbits(bits) & draw.getrandbits(bits) | 1 << bits - 1
        intervals = runs(mask)
        assert sum((1 << stop) - (1 << start) for start, stop in intervals) == mask
        assert all(stop < start for (_, stop), (start, _) in pairwise(intervals))
    assert runs(0) == []
