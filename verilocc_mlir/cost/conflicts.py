"""Bank conflicts of LDS, where the code says which address each lane of a wave accesses.

LDS serves one word of each bank a cycle. Lanes that want different words of one bank wait for each other; lanes that
want the same word do not. The first wave of a work-group stands for all.

Sources: the ISA manuals' chapters on LDS (32 banks of 4 bytes; 64 on gfx950); that bank conflicts serialise was
measured (MI308X: 4 cycles a ``ds_read_b32`` without, 16 with a fourfold one, 64 with a full one).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from verilocc_mlir.cost.assembly import Function
from verilocc_mlir.cost.flow import Flow
from verilocc_mlir.cost.instructions import Instruction, Kind
from verilocc_mlir.cost.lanes import Lanes, State, known_lanes, step, value_of, work_item_ids
from verilocc_mlir.cost.memory import dwords
from verilocc_mlir.cost.sources import Figure, Origin, Source
from verilocc_mlir.target.targets import SpeedModel, Target

_BANKS = Figure(32, Source(Origin.LLVM, "the ISA manuals: 32 banks of 4 bytes a CU"))
_BANKS_CDNA4 = Figure(64, Source(Origin.LLVM, "the CDNA 4 ISA manual: 64 banks of 4 bytes a CU"))
FIGURES = {"banks of LDS": _BANKS, "banks of LDS, gfx950": _BANKS_CDNA4}
_NO_ADDRESS = ("ds_bpermute", "ds_permute", "ds_swizzle", "ds_nop", "ds_gws", "ds_barrier", "ds_consume", "ds_append")


def bank_conflicts(function: Function, flow: Flow, target: Target) -> Sequence[Mapping[int, float]]:
    """How many times as long each LDS access takes, by the position of its block and its own there.

    Accesses without conflicts, and those whose addresses are not known, are left out.
    """
    nothing: list[dict[int, float]] = [{} for _ in function.blocks]
    extents = function.figures.extents
    if extents is None or not any(i.kind is Kind.LDS for i in function.instructions):
        return nothing
    lanes = target.wave_size
    before = known_lanes(function, flow, {0: work_item_ids(extents, lanes)}, lanes)
    if before is None:
        return nothing
    active = min(lanes, extents[0] * extents[1] * extents[2])
    banks = int((_BANKS_CDNA4 if target.speed_model is SpeedModel.CDNA4 else _BANKS).value)
    for number, block in enumerate(function.blocks):
        state = dict(before[number])
        for place, instruction in enumerate(block.instructions):
            if instruction.kind is Kind.LDS:
                times = _times(instruction, state, lanes, active, banks)
                if times > 1:
                    nothing[number][place] = times
            step(instruction, state, lanes)
    return nothing


def _times(instruction: Instruction, state: State, lanes: int, active: int, banks: int) -> float:
    place = 0 if instruction.is_store else 1
    if instruction.base.startswith(_NO_ADDRESS) or "addtid" in instruction.base or place >= len(instruction.operands):
        return 1.0
    address = value_of(instruction.operands[place].split(" ")[0], state, lanes)
    if address is None:
        return 1.0
    two = "read2" in instruction.base or "write2" in instruction.base or "2addr" in instruction.base
    words = dwords(instruction.base)
    return slowdown(address, words // 2 if two else words, active, banks)


@lru_cache(maxsize=1 << 12)
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
