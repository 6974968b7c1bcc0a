"""Trap of Triton's interface: every function that is not ``noinline`` is marked ``alwaysinline``, intrinsics too.

With that mark Triton has all calls inlined before code is generated. When LLVM reads a text, it gives intrinsics their
own attributes again, so the IR module before a phase would differ from the one after it. Machine IR no longer needs the
mark.
"""

from __future__ import annotations

import re

_ATTRIBUTES = re.compile(r"^ *(?:attributes #\d+ = \{|; Function Attrs:)[^\n]*", re.MULTILINE)
_MARK = re.compile(r"\balwaysinline (?!\})")
"""The mark, if it is not the only attribute: LLVM cannot read an empty list, and keeps the mark on other functions."""


def without_marks(mir: str) -> str:
    """The text without the mark in its IR module."""
    end = mir.find("\n---\nname:")
    module = mir[: max(end, 0)]
    return _ATTRIBUTES.sub(lambda line: _MARK.sub("", line[0]), module) + mir[len(module) :]
