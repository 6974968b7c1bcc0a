"""Matrix instructions: how long they hold their unit, and how far a use must be from them.

Passes are LLVM's (SISchedule.td, the HWXDL cycles of SIDPFullSpeedModel and SIDPGFX940FullSpeedModel), four cycles
each. Distances are LLVM's wait states (GCNHazardRecognizer.cpp, checkMAIHazards90A and checkMAIVALUHazards), the number
of instruction slots between the two. LLVM 22 fills them with s_nop; the tests compare the numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from verilocc_mlir.cost.rates import Figure, Origin, Source, sourced
from verilocc_mlir.target.targets import SpeedModel, Target

_MFMA = re.compile(
    r"v_(?P<sparse>s)?mfmac?_(?:scale_)?(?P<result>f32|f64|i32)_(?P<m>4|16|32)x\d+x(?P<k>\d+)_?(?P<blocks>\d+b)?_?(?P<source>\w+?)(?:_e64)?$"
)
_WMMA = re.compile(r"v_(?P<sparse>s?w)mma[c]?_(?:scale16_|scale_)?(?P<result>\w+?)_16x16x(?P<k>\d+)_(?P<source>\w+)$")
_HAZARDS = "GCNHazardRecognizer.cpp, checkMAIHazards90A and checkMAIVALUHazards"
_PASSES = Figure(4, Source(Origin.LLVM, "SISchedule.td, a pass is a slot"))
_BEFORE = Figure(2, Source(Origin.LLVM, "GCNHazardRecognizer.cpp, checkMAIHazards90A, LegacyVALUNotDotWritesVGPR"))
FIGURES = {"cycles of a pass": _PASSES, "wait states from VALU to MFMA": _BEFORE}
CYCLES_PER_PASS = _PASSES.value
VALU_BEFORE_MFMA = _BEFORE.value
"""Wait states between a VALU write and an MFMA that reads it."""


class Use(Enum):
    """What a later instruction does with a register that an MFMA writes (``OVERWRITE_C``: reads as its addend)."""

    ADDEND = "C"
    FACTOR = "A or B"
    VALU = "VALU read"
    MEMORY = "memory read"
    WRITE = "overwrite"
    OVERWRITE_C = "overwrite of C"


@dataclass(frozen=True, slots=True)
class Mfma:
    """One MFMA or SMFMAC.

    Attributes:
        passes: passes through the matrix unit, four cycles each.
        is_double: its operands are f64 (LLVM's DGEMM).
        is_xdl: it runs on the XDL unit: not f64 and, from gfx942 on, not f32 operands (LLVM's isXDL).
        is_small: a 4x4 form.
    """

    passes: int
    is_double: bool
    is_xdl: bool
    is_small: bool


@sourced(Origin.LLVM, "SISchedule.td, HWXDL cycles; tested against llvm-mca")
def mfma(mnemonic: str, modifiers: str, target: Target) -> Mfma | None:
    """The MFMA that ``mnemonic`` is, or None.

    On gfx950 the f8f6f4 forms take twice as long where an operand is 8 bits wide (``cbsz`` or ``blgp`` below 2).
    """
    match = _MFMA.match(mnemonic)
    if match is None:
        return None
    rows, source = int(match["m"]), match["source"]
    if source == "f64":
        return Mfma(4 if rows == 4 else 16 if target.speed_model is SpeedModel.CDNA4 else 8, True, False, rows == 4)
    if rows == 4:
        passes = 2
    elif target.speed_model is SpeedModel.CDNA2:
        passes = rows // 2
    else:
        wide = source == "f32" or match["blocks"] is not None
        if source == "f8f6f4":
            formats = [int(n) for n in re.findall(r"(?:cbsz|blgp):(\d+)", modifiers)]
            wide = len(formats) < 2 or min(formats) < 2
        passes = rows // 2 if wide else rows // 4
    is_xdl = target.speed_model is SpeedModel.CDNA2 or source != "f32"
    return Mfma(passes, False, is_xdl, rows == 4)


@sourced(Origin.LLVM, f"{_HAZARDS}; tested against the s_nops of llc")
def wait_states(first: Mfma, use: Use, target: Target, *, same: bool = False, then: Mfma | None = None) -> int:
    """Instruction slots that must lie between ``first`` and a use of its result.

    Args:
        first: the MFMA that wrote the register, or that reads it as its addend (``Use.OVERWRITE_C``).
        use: what the later instruction does with it.
        target: one with MFMA.
        same: for ``Use.ADDEND``: the later addend is exactly the register tuple that ``first`` wrote.
        then: the later MFMA, for ``Use.ADDEND``.
    """
    if use is Use.OVERWRITE_C:
        return _overwrite_addend(first)
    if use is Use.ADDEND:
        assert then is not None
        return _addend(first, then, target, same)
    if first.is_double:
        return _double_read(first, use)
    return first.passes + _tail(first, target) + 2


@sourced(Origin.LLVM, _HAZARDS)
def _tail(first: Mfma, target: Target) -> int:
    """Wait states that XDL units need beyond those of gfx942's f32 unit: one; on gfx950 two, except for 4x4."""
    if not first.is_xdl:
        return 0
    return 2 if target.speed_model is SpeedModel.CDNA4 and first.passes != 2 else 1


@sourced(Origin.LLVM, _HAZARDS)
def _addend(first: Mfma, then: Mfma, target: Target, same: bool) -> int:
    if first.is_double:
        if not then.is_double and (target.speed_model is SpeedModel.CDNA2 or (not same and then.is_xdl)):
            return 0
        if same:
            return 4 if first.is_small and then.is_double and then.is_small else 0
        return 4 if first.is_small else first.passes + 1
    if same:
        return 2 if target.speed_model is not SpeedModel.CDNA2 and first.passes == 2 else 0
    if target.speed_model is SpeedModel.CDNA2:
        return first.passes + (1 if then.is_double else 0)
    if then.is_xdl and not first.is_xdl:
        return 0
    both_xdl = first.is_xdl and then.is_xdl
    return first.passes + (2 if both_xdl and target.speed_model is SpeedModel.CDNA4 else _tail(first, target))


@sourced(Origin.LLVM, _HAZARDS)
def _double_read(first: Mfma, use: Use) -> int:
    if first.is_small:
        return 9 if use is Use.MEMORY else 6
    if use is Use.MEMORY:
        return 18
    return 11 if use is Use.WRITE else first.passes + 3


@sourced(Origin.LLVM, _HAZARDS)
def _overwrite_addend(first: Mfma) -> int:
    if first.is_double or not first.is_xdl:
        return 0
    return first.passes - 1


def wmma_cycles(mnemonic: str, target: Target) -> int:
    """Cycles for which a WMMA or SWMMAC of one wave holds the matrix unit."""
    match = _WMMA.match(mnemonic)
    if match is None:
        return 0
    if target.speed_model is SpeedModel.GFX1250:
        return _wmma_gfx1250(match["source"])
    return _wmma_rdna(match, target)


@sourced(Origin.LLVM, "SISchedule.td, GFX1250SpeedModel, HWXDL cycles")
def _wmma_gfx1250(source: str) -> int:
    return 16 if source in ("iu8", "f32") else 8


@sourced(Origin.ASSUMED, "published peak rates: 512 and 1,024 f16 operations a cycle and CU of two SIMDs")
def _wmma_rdna(match: re.Match[str], target: Target) -> int:
    source, depth = match["source"], int(match["k"])
    if match["sparse"] == "sw":
        depth //= 2
    operations = 16 * 16 * depth * 2
    per_cycle = 256
    if target.major >= 12:
        per_cycle = 1024 if source in ("iu8", "fp8_fp8", "fp8_bf8", "bf8_fp8", "bf8_bf8") else 512
        per_cycle = 2048 if source == "iu4" else per_cycle
    elif source == "iu4":
        per_cycle = 512
    return operations // per_cycle
