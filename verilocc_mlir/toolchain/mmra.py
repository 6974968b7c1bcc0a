"""Trap: LLVM 22 prints memory-model relaxation annotations but does not parse them.

LLVM prints ``ATOMIC_FENCE 5, 3, mmra !4``; LLVM 24 parses that, LLVM 22 does not. An annotation only allows LLVM to
order *less* than the fence or access says (LLVM's MemoryModelRelaxationAnnotations), so leaving it off is conservative.
It costs: a fence of the LDS alone then waits for memory too, and on RDNA drops what the first cache holds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_MMRA = re.compile(r",? mmra !\d+(?=\s|,|$)", re.MULTILINE)
_READ_FROM = 24
_LEFT_OUT = re.compile(
    r"\s+(?:\.|(?:s_wait\w*|s_delay_alu|s_nop|s_clause|global_(?:inv|wb)|buffer_(?:gl[01]_inv|inv|wbl2|wbinvl1\w*)"
    r"|s_sendmsg sendmsg\(MSG_DEALLOC_VGPRS\))(?=\s|$))"
)
"""Directives, and what LLVM inserts behind allocation for fences, waits and hazards, which changes no register."""


def reads_mmra(version: Sequence[int]) -> bool:
    """Whether LLVM of that version parses the annotations that it prints."""
    return version[0] >= _READ_FROM


def strip_mmra(mir: str) -> str:
    """The text without ``mmra !N`` on instructions; the IR module before the first function is not changed."""
    if "mmra !" not in mir:
        return mir
    start = mir.find("\n---\n")
    return mir[: max(start, 0)] + _MMRA.sub("", mir[max(start, 0) :])


def loses_mmra(ir: str, version: Sequence[int]) -> bool:
    """Whether fences or accesses of the IR have annotations that go through text to LLVM of that version unread."""
    return ", !mmra !" in ir and not reads_mmra(version)


def same_but_waits(first: str, second: str) -> bool:
    """Whether two assembly texts are the same instructions in the same order, but for waits and what goes with them."""
    return _without_waits(first) == _without_waits(second)


def _without_waits(assembly: str) -> list[str]:
    lines = (line.partition(";")[0].rstrip() for line in assembly.splitlines())
    return [line for line in lines if line and not _LEFT_OUT.match(line)]
