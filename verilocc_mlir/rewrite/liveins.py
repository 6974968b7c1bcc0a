"""Block live-ins after allocation: lane masks where only part of a tuple is live."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from verilocc_mlir.mir.model import LiveIn
from verilocc_mlir.problem.model import AllocationProblem
from verilocc_mlir.rewrite.assignment import Placed
from verilocc_mlir.target.lanes import full_lanes, llvm_lane_mask


def new_liveins(problem: AllocationProblem, places: Iterable[Placed]) -> list[list[LiveIn]]:
    """For each block in layout order, the placed registers that are live at its start, in the order of their ranges."""
    starts = problem.block_starts
    liveins: list[list[LiveIn]] = [[] for _ in starts]
    for place in places:
        masks: dict[int, int] = {}
        for group in place.live_range.groups:
            for begin, end in group.segments:
                for block in range(bisect_left(starts, begin), len(starts)):
                    if starts[block] >= end:
                        break
                    masks[block] = masks.get(block, 0) | group.lanes
        full = full_lanes(16 * place.live_range.lanes)
        for block, mask in masks.items():
            liveins[block].append(LiveIn(place.register.name, -1 if mask == full else llvm_lane_mask(mask)))
    return liveins


def merge_liveins(old: tuple[LiveIn, ...], new: list[LiveIn]) -> tuple[LiveIn, ...]:
    """Live-ins a block had, then the new ones it lacks."""
    masks = {live.reg: live.mask for live in old}
    for live in new:
        old_mask = masks.get(live.reg, 0)
        masks[live.reg] = -1 if old_mask < 0 or live.mask < 0 else old_mask | live.mask
    return tuple(LiveIn(reg, mask) for reg, mask in masks.items())
