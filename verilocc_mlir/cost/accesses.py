"""Accesses to LDS and memory that take longer than their bytes say, for the addresses that the lanes of a wave want.

The first wave of a work-group stands for all. Where the size of a work-group is not known, nothing takes longer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from verilocc_mlir.cost.assembly import Function
from verilocc_mlir.cost.coalescing import scattered
from verilocc_mlir.cost.conflicts import bank_conflicts, banks
from verilocc_mlir.cost.flow import Flow
from verilocc_mlir.cost.instructions import Kind
from verilocc_mlir.cost.lanes import known_lanes, step, work_item_ids
from verilocc_mlir.target.targets import Target


def slower_accesses(function: Function, flow: Flow, target: Target) -> Sequence[Mapping[int, float]]:
    """How many times as long each access takes, by the position of its block and its own there.

    Accesses without conflicts, and those whose addresses are not known, are left out.
    """
    found: list[dict[int, float]] = [{} for _ in function.blocks]
    extents = function.figures.extents
    kinds = (Kind.LDS, Kind.VMEM) if target.wave_size == 64 else (Kind.LDS,)
    if extents is None or not any(i.kind in kinds for i in function.instructions):
        return found
    lanes = target.wave_size
    before = known_lanes(function, flow, {0: work_item_ids(extents, lanes)}, lanes)
    if before is None:
        return found
    active = min(lanes, extents[0] * extents[1] * extents[2])
    for number, block in enumerate(function.blocks):
        state = dict(before[number])
        for place, instruction in enumerate(block.instructions):
            times = 1.0
            if instruction.kind is Kind.LDS:
                times = bank_conflicts(instruction, state, lanes, active, banks(target))
            elif instruction.kind in kinds:
                times = scattered(instruction, state, lanes, active)
            if times > 1:
                found[number][place] = times
            step(instruction, state, lanes)
    return found
