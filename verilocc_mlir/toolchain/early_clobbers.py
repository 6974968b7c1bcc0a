"""Trap: LLVM 22 lets two conversions of gfx950 overwrite their own sources.

``v_cvt_scalef32_2xpk16_{fp6,bf6}_f32`` write their result before they have read everything. LLVM's tables say so since
pull request 188809 only. The text is given the ``early-clobber`` that newer LLVMs print; then LLVM 22 heeds it too.
"""

from __future__ import annotations

import re

_NAME = "V_CVT_SCALEF32_2XPK16_"
_WITHOUT = re.compile(rf"^( +)(?! |early-clobber )([^=\n]* = (?:[a-z]+ )*{_NAME}\w+_F32_e64 )", re.MULTILINE)


def state_early_clobbers(mir: str) -> str:
    """Machine IR with ``early-clobber`` where LLVM 22 leaves it out."""
    return _WITHOUT.sub(r"\1early-clobber \2", mir) if _NAME in mir else mir
