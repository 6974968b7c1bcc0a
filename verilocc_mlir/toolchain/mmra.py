"""Trap: LLVM prints memory-model relaxation annotations but does not parse them.

LLVM prints ``ATOMIC_FENCE 5, 3, mmra !4``, but its parser does not know ``mmra``. An annotation only allows LLVM to
order *less* than the fence or access says (LLVM's MemoryModelRelaxationAnnotations), so leaving it off is conservative.
"""

from __future__ import annotations

import re

_MMRA = re.compile(r",? mmra !\d+(?=\s|,|$)", re.MULTILINE)


def strip_mmra(mir: str) -> str:
    """The text without ``mmra !N`` on instructions; the IR module before the first function is not changed."""
    if "mmra !" not in mir:
        return mir
    start = mir.find("\n---\n")
    return mir[: max(start, 0)] + _MMRA.sub("", mir[max(start, 0) :])
