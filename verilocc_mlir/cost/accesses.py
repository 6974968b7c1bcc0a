"""Accesses to LDS and memory that take longer than their bytes say, for the addresses that the lanes of a wave want.

The first wave of a work-group stands for all. Where the size of a work-group is not known, nothing takes longer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from verilocc_mlir.cost.assembly import Function
from verilocc_mlir.cost.flow import Flow
from verilocc_mlir.cost.instructions import Instruction, Kind
from verilocc_mlir.cost.lanes import Lanes, State, known_lanes, loaded_from, step, value_of, work_item_ids
from verilocc_mlir.cost.memory import dwords
from verilocc_mlir.cost.rates import Figure, Origin, Source
from verilocc_mlir.target.targets import SpeedModel, Target

# Bank conflicts of LDS, where the code says which address each lane of a wave accesses.
#
# LDS serves one word of each bank a cycle. Lanes that want different words of one bank wait for each other; lanes that
# want the same word do not. The first wave of a work-group stands for all.
#
# Sources: the ISA manuals' chapters on LDS (32 banks of 4 bytes; 64 on gfx950); that bank conflicts serialise was
# measured (MI308X: 4 cycles a ``ds_read_b32`` without, 16 with a fourfold one, 64 with a full one).


_BANKS = Figure(32, Source(Origin.LLVM, "the ISA manuals: 32 banks of 4 bytes a CU"))
_BANKS_CDNA4 = Figure(64, Source(Origin.LLVM, "the CDNA 4 ISA manual: 64 banks of 4 bytes a CU"))
_NO_ADDRESS = ("ds_bpermute", "ds_permute", "ds_swizzle", "ds_nop", "ds_gws", "ds_barrier", "ds_consume", "ds_append")


def banks(target: Target) -> int:
    """Banks of the LDS of a CU."""
    return int((_BANKS_CDNA4 if target.speed_model is SpeedModel.CDNA4 else _BANKS).value)


def bank_conflicts(instruction: Instruction, state: State, lanes: int, active: int, banks: int) -> float:
    """How many times as long an LDS access takes; 1 without conflicts, and where the addresses are not known.

    Args:
        active: lanes that access, from the first on.
    """
    place = 0 if instruction.is_store else 1
    if instruction.base.startswith(_NO_ADDRESS) or "addtid" in instruction.base or place >= len(instruction.operands):
        return 1.0
    address = value_of(instruction.operands[place].split(" ")[0], state, lanes)
    if address is None or not address.is_shifted:
        return 1.0
    two = "read2" in instruction.base or "write2" in instruction.base or "2addr" in instruction.base
    words = dwords(instruction.base)
    return slowdown(address, words // 2 if two else words, active, banks)


def slowdown(address: Lanes, words: int, active: int, banks: int) -> float:
    """How many times as long an access of ``words`` 32-bit words a lane takes as one without conflicts.

    As many lanes are served together as their words fill the banks; that they are neighbours is assumed.

    Args:
        address: of each lane, in bytes.
        active: lanes that access, from the first on.
    """
    together = max(banks // words, 1)
    cycles = least = 0
    for first in range(0, active, together):
        wanted: dict[int, set[int]] = {}
        for at in address.values[first : min(first + together, active)]:
            for word in range(at // 4, at // 4 + words):
                wanted.setdefault(word % banks, set()).add(word)
        cycles += max(map(len, wanted.values()))
        least += 1
    return cycles / least


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
FIGURES = {
    "banks of LDS": _BANKS,
    "banks of LDS, gfx950": _BANKS_CDNA4,
    "quads of lanes that CDNA serves together, where they load neighbours": _QUADS,
}
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
