"""Bank conflicts of LDS, where the code says which address each lane of a wave accesses.

LDS serves one word of each bank a cycle. Lanes that want different words of one bank wait for each other; lanes that
want the same word do not. The first wave of a work-group stands for all.

Sources: the ISA manuals' chapters on LDS (32 banks of 4 bytes; 64 on gfx950); that bank conflicts serialise was
measured (MI308X: 4 cycles a ``ds_read_b32`` without, 16 with a fourfold one, 64 with a full one).
"""

from __future__ import annotations

from verilocc_mlir.cost.instructions import Instruction
from verilocc_mlir.cost.lanes import Lanes, State, value_of
from verilocc_mlir.cost.memory import dwords
from verilocc_mlir.cost.rates import Figure, Origin, Source
from verilocc_mlir.target.targets import SpeedModel, Target

_BANKS = Figure(32, Source(Origin.LLVM, "the ISA manuals: 32 banks of 4 bytes a CU"))
_BANKS_CDNA4 = Figure(64, Source(Origin.LLVM, "the CDNA 4 ISA manual: 64 banks of 4 bytes a CU"))
FIGURES = {"banks of LDS": _BANKS, "banks of LDS, gfx950": _BANKS_CDNA4}
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
