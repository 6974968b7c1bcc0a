"""Trap of Triton's way in: every function that is not ``noinline`` is marked ``alwaysinline``, intrinsics too.

That is how Triton has all calls inlined before code is made. LLVM gives intrinsics their own attributes again when it
reads the text, so the IR module before a phase would not be the one after it. When there is a text, the mark has done
its work.
"""

from __future__ import annotations

import re

_ATTRIBUTES = re.compile(r"^ *(?:attributes #\d+ = \{|; Function Attrs:)[^\n]*", re.MULTILINE)
_MARK = re.compile(r"\balwaysinline (?!\})")
"""Where it is not the only attribute: LLVM reads no empty list, and leaves the mark on what is no intrinsic."""


def without_marks(mir: str) -> str:
    """The text with the mark taken from the attributes in its IR module."""
    end = mir.find("\n---\nname:")
    module = mir[: max(end, 0)]
    return _ATTRIBUTES.sub(lambda line: _MARK.sub("", line[0]), module) + mir[len(module) :]
