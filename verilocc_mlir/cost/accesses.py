"""Accesses to LDS and memory that take longer than their bytes say, for the addresses that the lanes of a wave want.

The first wave of a work-group stands for all. Where the size of a work-group is not known, nothing takes longer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from verilocc_mlir.cost.assembly import Function
from verilocc_mlir.cost.conflicts import bank_conflicts, banks
from verilocc_mlir.cost.flow import Flow
from verilocc_mlir.cost.instructions import Instruction, Kind
from verilocc_mlir.cost.lanes import Lanes, State, known_lanes, loaded_from, step, work_item_ids
from verilocc_mlir.cost.rates import Figure, Origin, Source
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


# Loads of neighbours: CDNA serves four lanes a cycle, and sixteen where each four lanes want neighbouring elements.
#
# A CU serves a load by quads of lanes, one a cycle. Of loads of up to 32 bits it serves four quads in a cycle, if the
# lanes of each want the same element or four in a row. RDNA serves all loads of 32 bits alike.
#
# Sources: sebbbi/perftest, results of GCN 2 to 5 and of Navi (loads of 8 to 32 bits, the same for all lanes and linear:
# four times as fast as random ones; on Navi all alike); "Understanding Memory Coalescing on GCN" (GPUOpen): 4 cycles a
# wave under specific cases, else 16. That CDNA does as GCN is borne out by dedispersion on MI250X, where lanes that
# load every second to fourth byte take 16 cycles (docs/results/ruler.md). The quads come from there too.


_QUADS = Figure(4, Source(Origin.MEASURED, "by others: sebbbi/perftest, GCN 2 to 5; MI250X agrees"))
FIGURES = {"quads of lanes that CDNA serves together, where they load neighbours": _QUADS}
_QUAD = 4
_BYTES = {1: ("byte", "u8", "i8"), 2: ("short", "u16", "i16", "b16"), 4: ("dword", "b32")}
_HALF = 1 << 31


def scattered(instruction: Instruction, state: State, lanes: int, active: int) -> float:
    """How many times as long a load takes as one of neighbours; 1 where the addresses are not known.

    Args:
        active: lanes that load, from the first on.
    """
    size = _element(instruction.base)
    address = loaded_from(instruction, state, lanes) if size else None
    return coalescing_slowdown(address, size, active) if address is not None else 1.0


def _element(base: str) -> int:
    """Bytes that a lane loads; 0 if more than four, or if it is no load."""
    return next((size for size, ends in _BYTES.items() if "_load_" in base and base.endswith(ends)), 0)


def coalescing_slowdown(address: Lanes, size: int, active: int) -> float:
    """How many times as long a load of ``size`` bytes a lane takes as one of neighbours.

    Args:
        address: of each lane, in bytes. Lanes of several groups are taken to want neighbours.
        active: lanes that load, from the first on.
    """
    groups = address.groups or (0,) * len(address.values)
    quads = [range(first, min(first + _QUAD, active)) for first in range(0, active, _QUAD)]
    far = 0
    for quad in quads:
        wanted: dict[int, list[int]] = {}
        for lane in quad:
            wanted.setdefault(groups[lane], []).append(address.values[lane])
        far += any(_distance(min(of), max(of)) >= _QUAD * size for of in wanted.values())
    return 1 + (_QUADS.value - 1) * far / len(quads)


def _distance(low: int, high: int) -> int:
    """Between two numbers of 32 bits, of which the greater may be below 0."""
    return min(high - low, 2 * _HALF - high + low)
