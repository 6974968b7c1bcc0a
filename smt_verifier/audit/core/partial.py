"""Lanes of an operand that are not read, and lanes of a result that not every lane of an operand reaches.

Instructions are uninterpreted functions of what they read. These are the few of which it is known that they read less.
"""

from __future__ import annotations

import re

from verilocc_mlir.mir.model import Instruction, OperandKind

_PACKED_F32 = re.compile(r"V_PK_(?:ADD|MUL|FMA)_F32(?:_gfx12)?\Z")
"""``D.lo = f(S[op_sel])``, ``D.hi = f(S[op_sel_hi])`` for each source (CDNA 3 ISA, VOP3P; SISrcMods in SIDefines.h:
OP_SEL_0 is bit 2 of the modifiers before a source, OP_SEL_1 bit 3)."""
_WIDE_MAD = re.compile(r"V_MAD_[UI]64_[UI]32(?:_gfx11)?_e64\Z")
"""``D = S0 * S1 + S2`` in 64 bits: no carry runs down, so the low half of D does not depend on the high half of S2."""
_ADDEND = 2
"""Number of S2 among the operands right of the opcode."""


def read_halves(instruction: Instruction, number: int) -> tuple[bool, bool]:
    """Whether the lower and the upper 32 bits of a 64-bit vector operand are read, by its number in ``operands``."""
    if number == 0 or not _PACKED_F32.match(instruction.opcode):
        return True, True
    modifiers = instruction.operands[number - 1]
    if modifiers.kind is not OperandKind.IMMEDIATE:
        return True, True
    bits = int(modifiers.text.split()[0])
    selected = {bool(bits & 4), bool(bits & 8)}
    return False in selected, True in selected


def addend_of_high_half(instruction: Instruction) -> int:
    """Number in ``operands`` of the operand whose upper half only the upper half of the result depends on; -1: none.

    The carry out depends on it too, so it must be dead.
    """
    if not _WIDE_MAD.match(instruction.opcode) or len(instruction.defs) != 2 or not instruction.defs[1].dead:
        return -1
    return _ADDEND
