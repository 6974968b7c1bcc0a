"""Trap of Triton's interface: the lowering of scalar spills runs again over text in which it is done.

LLVM 24's SILowerSGPRSpills takes saves to lanes of vector registers and reloads from them for scalar spills
(``SIInstrInfo::isSGPRSpill``), asks for their stack slots, and crashes. It looks for spills where the function has
stack objects and its header says ``hasSpilledSGPRs``. Nothing else reads that field. So it is taken back where all
scalar spills are lowered.
"""

from __future__ import annotations

import re

_FUNCTION = re.compile(r"^name: +(?P<name>[^\n]+)\n.*?^body: [^\n]*\n.*?(?=^\.\.\.)", re.MULTILINE | re.DOTALL)
_LOWERED = re.compile(r"\bSI_(?:SPILL_S32_TO_VGPR|RESTORE_S32_FROM_VGPR)\b")
_TO_LOWER = re.compile(r"\bSI_SPILL_S\d+_(?:SAVE|RESTORE)\b")
_FIELD = re.compile(r"^(  hasSpilledSGPRs: )(true|false)$", re.MULTILINE)


def with_lowered_spills(mir: str) -> frozenset[str]:
    """The functions of a text that are said to have scalar spills, and have lowered ones only."""
    return frozenset(
        function["name"]
        for function in _FUNCTION.finditer(mir)
        if (header := _FIELD.search(function[0])) is not None
        and header[2] == "true"
        and _LOWERED.search(function[0])
        and not _TO_LOWER.search(function[0])
    )


def with_spill_field(mir: str, functions: frozenset[str], value: bool) -> str:
    """The text with this value of ``hasSpilledSGPRs`` in the headers of these functions."""

    def mended(function: re.Match[str]) -> str:
        return _FIELD.sub(rf"\g<1>{str(value).lower()}", function[0]) if function["name"] in functions else function[0]

    return _FUNCTION.sub(mended, mir) if functions else mir
