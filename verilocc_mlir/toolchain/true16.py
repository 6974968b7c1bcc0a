"""Trap: LLVM 22 makes copies between registers of different widths where gfx11's 16-bit registers are in use.

With the feature ``real-true16`` (on by default for gfx11), a 16-bit element that is put into an otherwise undefined
vector of four or more becomes ``%1:vreg_64 = COPY %0:vgpr_32``. Such a copy has no meaning: LLVM's own expansion reads
no register (``V_MOV_B32_e32 $noreg``), and a plain llc crashes on it in the assembly printer. Without the feature LLVM
selects the same values in 32-bit registers.
"""

from __future__ import annotations

import re

WITHOUT_TRUE16 = "-real-true16"
"""The feature string that avoids them."""

_DEFINED = re.compile(r"%(\d+)(?:\.\w+)?:([a-z]\w+)")
_COPY = re.compile(r"^ *%\d+:[av]\w*reg_(\d+)\w*(?:\([^)]*\))? = COPY (?:killed )?%(\d+)(?=[ ,\n]|$)", re.MULTILINE)
_NARROW = re.compile(r"(?:vgpr|agpr|av)_(?:16|32)(?:_\w+)?")


def copies_between_widths(mir: str) -> bool:
    """Whether pre-RA machine IR copies a whole 32-bit vector register into a wider one."""
    copies = _COPY.findall(mir)
    if not copies:
        return False
    classes = dict(_DEFINED.findall(mir))
    return any(_NARROW.fullmatch(classes.get(source, "")) for _, source in copies)
