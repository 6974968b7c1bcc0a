"""Trap: LLVM does not parse wave32 machine IR as it prints it.

The instruction tables name the implicit operand ``$vcc``. For wave32 LLVM replaces it in memory by ``$vcc_lo``
(SIInstrInfo::fixImplicitOperands), prints that, and then refuses it ("missing implicit register operand 'implicit
$vcc'"). On parsing it makes the same replacement again (GCNSubtarget::mirFileLoaded). So a text that names ``$vcc``
gives back exactly the instruction that was printed. Inline assembly has no entry in the tables: there ``$vcc`` stays
``$vcc``, another operand, and ``$vcc_lo`` is read as it is printed. The mended text is for llc's parser only.
Everything else in this project reads the text as printed, in which ``$vcc_hi`` is rightly free.
"""

from __future__ import annotations

import re

# It begins with plain text, which is looked for quickly.
_IMPLICIT_VCC_LO = re.compile(
    r"(implicit(?<=\bimplicit)(?:-def)?(?: (?:dead|killed|undef|renamable|internal|early-clobber))*) \$vcc_lo\b"
)


def is_wave32(cpu: str, mattr: str = "", text: str = "") -> bool:
    """Whether functions of ``text`` run with 32 lanes: on gfx10 and later, unless ``+wavefrontsize64`` is given.

    The version in the names of gfx9 and older has three characters ("gfx90a", "gfx942", "gfx803").
    """
    if "+wavefrontsize64" in mattr or "+wavefrontsize64" in text:
        return False
    match = re.fullmatch(r"gfx(\d+)[0-9a-f]{2}|gfx(\d+)-\d*-?generic", cpu)
    return match is not None and int(match[1] or match[2]) >= 10


def mend_implicit_vcc(mir: str) -> str:
    """``implicit $vcc_lo`` as ``implicit $vcc`` (also ``implicit-def``), for a wave32 text that llc is to parse."""
    if "$vcc_lo" not in mir:
        return mir
    if "INLINEASM" not in mir:
        return _IMPLICIT_VCC_LO.sub(r"\1 $vcc", mir)
    return "\n".join(
        line if "INLINEASM" in line or "$vcc_lo" not in line else _IMPLICIT_VCC_LO.sub(r"\1 $vcc", line)
        for line in mir.split("\n")
    )
