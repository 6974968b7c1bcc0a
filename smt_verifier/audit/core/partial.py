"""Lanes of an operand that an instruction does not read, or that only a part of its result depends on.

Instructions are uninterpreted functions of what they read. These are the few of which it is known that they read less
than their operands.
"""

from __future__ import annotations

import re
from functools import lru_cache

from verilocc_mlir.mir.model import Instruction, OperandKind

_PACKED_F32 = re.compile(r"V_PK_(?:ADD|MUL|FMA)_F32(?:_gfx12)?\Z")
"""``D.lo = f(S[op_sel])``, ``D.hi = f(S[op_sel_hi])`` for each source (CDNA 3 ISA, VOP3P; SISrcMods in SIDefines.h:
OP_SEL_0 is bit 2 of the modifiers before a source, OP_SEL_1 bit 3)."""

_MIXED = re.compile(r"V_(?:FMA|MAD)_MIX(?:_F32|(?:LO|HI)_F16)\Z")
"""Each source is 32 bits wide, or where op_sel_hi is set (OP_SEL_1) 16 bits: the high ones where op_sel is (OP_SEL_0),
else the low ones (RDNA 3 ISA, V_FMA_MIX_F32; Vega ISA, V_MAD_MIX_F32; VOP3PInstructions.td, VOP3P_Mix_Profile). The
modifiers stand before each of the three sources; what is tied to a result of 16 bits is read whole."""
_MIXED_SOURCES = (1, 3, 5)

_WIDE_MAD = re.compile(r"V_MAD_[UI]64_[UI]32(?:_gfx11)?_e64\Z")
"""``D = S0 * S1 + S2`` in 64 bits: no carry runs down, so the low half of D does not depend on the high half of S2."""
_ADDEND = 2
"""Number of S2 among the operands right of the opcode."""
_CLAMP = 3
"""Number of the bit that saturates the result, by which its low half depends on all of S2."""


@lru_cache(maxsize=None)
def is_packed(opcode: str) -> bool:
    """Whether ``is_read`` has something to say of an opcode."""
    return bool(_PACKED_F32.match(opcode) or _MIXED.match(opcode))


def is_read(instruction: Instruction, number: int, lane: int, lanes: int, *, vector: bool) -> bool:
    """Whether lane ``lane`` of the ``lanes`` of an operand is read; ``number`` is its place in ``operands``.

    ``vector``: it is in a vector register. Of a scalar pair the low half always is: gfx1250 takes it for both.
    """
    if not is_packed(instruction.opcode) or number == 0 or instruction.operands[number].implicit:
        return True
    modifiers = instruction.operands[number - 1]
    if modifiers.kind is not OperandKind.IMMEDIATE:
        return True
    bits = int(modifiers.text.split()[0])
    if _MIXED.match(instruction.opcode):
        # Where lanes are 32 bits wide there is one, and it is read.
        return not vector or number not in _MIXED_SOURCES or lanes != 2 or not bits & 8 or lane == bool(bits & 4)
    if not vector and 2 * lane < lanes:
        return True
    return (2 * lane >= lanes) in (bool(bits & 4), bool(bits & 8))


@lru_cache(maxsize=None)
def is_wide_mad(opcode: str) -> bool:
    """Whether ``addend_of_high_half`` has something to say of an opcode."""
    return bool(_WIDE_MAD.match(opcode))


def addend_of_high_half(instruction: Instruction) -> int:
    """Number in ``operands`` of the operand whose upper half only the upper half of the result depends on; -1: none.

    The carry out depends on it too. Where the text says that it is dead, or where it goes nowhere, it counts as two
    values that need not agree (``execute.py``), so that a later read of it is no proof: the flag is not believed.
    """
    if not is_wide_mad(instruction.opcode) or len(instruction.defs) != 2:
        return -1
    carry = instruction.defs[1]
    if not carry.dead and not carry.phys.startswith("sgpr_null"):
        return -1
    return _ADDEND if instruction.operands[_CLAMP].text == "0" else -1
