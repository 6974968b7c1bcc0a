"""Dual issue on RDNA (VOPD): which two instructions can become one, and which registers they may name.

Source: GCNVOPDUtils.cpp (checkVOPDRegConstraints) and AMDGPUBaseInfo.cpp (VOPD::InstInfo::hasInvalidOperand,
VOPD_VGPR_BANK_MASKS 1, 3, 3, 1 for destination, src0, src1 and src2).
"""

from __future__ import annotations

import re

from verilocc_mlir.cost.instructions import Instruction
from verilocc_mlir.cost.registers import is_vgpr, units
from verilocc_mlir.target.targets import Target

_EITHER = (
    "fmac_f32", "fmaak_f32", "fmamk_f32", "mul_f32", "add_f32", "sub_f32", "subrev_f32", "mul_dx9_zero_f32",
    "mul_legacy_f32", "mov_b32", "cndmask_b32", "max_f32", "min_f32", "max_num_f32", "min_num_f32",
)  # fmt: skip
_SECOND = ("add_nc_u32", "lshlrev_b32", "and_b32")
_BANKS = (2, 4, 4, 2)


def _is_one_of(instruction: Instruction, names: tuple[str, ...]) -> bool:
    return (
        instruction.base.removeprefix("v_") in names and instruction.mnemonic.endswith("_e32")
    ) or instruction.base in ("v_fmaak_f32", "v_fmamk_f32")


def banks_clash(first: Instruction, second: Instruction, target: Target) -> bool:
    """Whether destinations of one parity, or sources of one bank, keep the pair from becoming one instruction.

    Only gfx1250 allows one register as the same source of both. Two ``v_mov_b32`` of gfx12 read their sources through
    different ports.
    """
    moves = target.major >= 12 and first.base == second.base == "v_mov_b32"
    for place, (a, b) in enumerate(zip(_components(first), _components(second), strict=True)):
        if a is None or b is None or (place and moves):
            continue
        if place and a == b and target.vopd_same_source:
            continue
        if a % _BANKS[place] == b % _BANKS[place]:
            return True
    return False


def _components(instruction: Instruction) -> tuple[int | None, ...]:
    """VGPRs of the destination, src0, src1 and src2; None where there is none."""
    names = [_vgpr(operand) for operand in instruction.operands]
    base = instruction.base
    if base == "v_fmac_f32":
        # The addend is the destination.
        return (names[0], names[1], names[2], names[0])
    if base == "v_fmamk_f32":
        return (names[0], names[1], names[3], None)
    if base == "v_fmaak_f32":
        return (names[0], names[1], names[2], None)
    return (names[0], names[1], names[2] if len(names) > 2 else None, None)


def _vgpr(operand: str) -> int | None:
    numbers = units(re.sub(r"[-|]", "", operand))
    return numbers[0] if numbers and is_vgpr(numbers[0]) else None


def fit(first: Instruction, second: Instruction) -> bool:
    """Whether two neighbours can become one instruction, banks apart.

    Both opcodes have a Y form and one has an X form (VOPDInstructions.td, VOPDY_Opcodes and VOPDX_Opcodes; encodings of
    64 bits have none). The second neither reads nor writes what the first writes. There are at most one literal and two
    scalar sources.
    """
    pair = (first, second)
    if not all(_is_one_of(i, _EITHER + _SECOND) for i in pair) or not any(_is_one_of(i, _EITHER) for i in pair):
        return False
    if not set(first.defs).isdisjoint((*second.uses, *second.defs)):
        return False
    sources = [o for i in pair for o in i.operands[1:]]
    literals = {o for o in sources if not units(o) and not _inline(o)}
    scalars = {o for o in sources if units(o) and not is_vgpr(units(o)[0])}
    return len(literals) <= 1 and len(literals) + len(scalars) <= 2


def _inline(operand: str) -> bool:
    """Whether a constant needs no literal: integers from -16 to 64, and nine floating-point values."""
    if operand in ("0.5", "-0.5", "1.0", "-1.0", "2.0", "-2.0", "4.0", "-4.0", "0.15915494"):
        return True
    try:
        return -16 <= int(operand, 0) <= 64
    except ValueError:
        return False
