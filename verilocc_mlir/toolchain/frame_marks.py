"""What LLVM notes for debuggers at the head of a function that may unwind: where the caller's frame is.

``CFI_INSTRUCTION`` makes a directive and no code. Our parser and the checkers do not read all of its forms, and the
order of a block does not touch its head, so these lines are taken out of a text and put back where they stood.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_HEAD = r"(\nbody: +\|\n  bb\.0[^\n]*:\n(?:    (?:successors|liveins): [^\n]*\n)*(?: *\n)?)"
_MARKS = r"((?:    frame-setup CFI_INSTRUCTION [^\n]*\n)*)"


def without_frame_marks(mir: str) -> tuple[str, tuple[str, ...]]:
    """The text without them, and those of each function in order. Any others stay."""
    marks = tuple(found[2] for found in re.finditer(_HEAD + _MARKS, mir))
    return re.sub(_HEAD + _MARKS, r"\1", mir), marks


def with_frame_marks(mir: str, marks: Sequence[str]) -> str:
    """The text with them at the head of its functions."""
    left = iter(marks)
    return re.sub(_HEAD, lambda head: head[1] + next(left), mir)
