"""Joining live ranges that copies connect, so that they are placed as one and the copies vanish."""

from __future__ import annotations

from verilocc_mlir.allocators.cells import CellMap
from verilocc_mlir.allocators.items import CandidateTable, Item, make_item
from verilocc_mlir.problem.model import CHAIN, Affinity, AllocationProblem


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
