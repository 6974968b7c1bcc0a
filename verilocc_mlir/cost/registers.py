"""Registers in the text of an operand, as numbers. The files' numbers do not overlap."""

from __future__ import annotations

import re
from functools import lru_cache

AGPR = 2048
SGPR = 4096
TTMP = 4300
VCC = 4400
EXEC = 4410
SCC = 4420
M0 = 4421
_OTHER = 4430

_FILES = {"v": 0, "a": AGPR, "s": SGPR, "ttmp": TTMP}
_SPECIAL: dict[str, tuple[int, ...]] = {
    "vcc": (VCC, VCC + 1),
    "vcc_lo": (VCC,),
    "vcc_hi": (VCC + 1,),
    "exec": (EXEC, EXEC + 1),
    "exec_lo": (EXEC,),
    "exec_hi": (EXEC + 1,),
    "scc": (SCC,),
    "m0": (M0,),
    "flat_scratch": (_OTHER, _OTHER + 1),
    "flat_scratch_lo": (_OTHER,),
    "flat_scratch_hi": (_OTHER + 1,),
    "xnack_mask": (_OTHER + 2, _OTHER + 3),
    "xnack_mask_lo": (_OTHER + 2,),
    "xnack_mask_hi": (_OTHER + 3,),
}
# gfx1250 encodes the low eight bits of a VGPR's number. LLVM prints the number in a comment: v[0:1] /*v[256:257]*/.
_REGISTER = re.compile(
    r"(?:[va](?:\d+|\[\d+(?::\d+)?\])(?:\.[lh])?\s*/\*(?P<high>[va][^*]*)\*/)"
    r"|(?<![\w.])(?:(?P<file>ttmp|[vas])(?:(?P<one>\d+)|\[(?P<low>\d+)(?::(?P<top>\d+))?\])(?:\.[lh])?"
    r"|(?P<special>vcc_lo|vcc_hi|vcc|exec_lo|exec_hi|exec|scc|m0|flat_scratch_lo|flat_scratch_hi|flat_scratch"
    r"|xnack_mask_lo|xnack_mask_hi|xnack_mask))(?!\w)"
)


@lru_cache(maxsize=1 << 16)
def units(operand: str) -> tuple[int, ...]:
    """Numbers of the 32-bit registers that ``operand`` names, lowest first; none for immediates and labels.

    A half (``v3.l``) counts as its register, a list (``[s4, s5]``) as all of its registers.
    """
    numbers: list[int] = []
    for match in _REGISTER.finditer(operand):
        if match["high"]:
            numbers += units(match["high"])
        elif match["special"]:
            numbers += _SPECIAL[match["special"]]
        else:
            base = _FILES[match["file"]]
            low = int(match["one"] or match["low"])
            top = int(match["top"]) if match["top"] else low
            numbers += range(base + low, base + top + 1)
    return tuple(numbers)


def is_vgpr(unit: int) -> bool:
    """Whether the number is that of a VGPR, not of an AGPR."""
    return unit < AGPR


def is_vector(unit: int) -> bool:
    return unit < SGPR
