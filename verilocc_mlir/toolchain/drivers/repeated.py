"""Trap of Triton's way in: passes that ran once run again over every text that is resumed.

Most find nothing to do. One that does (``SI Whole Quad Mode`` makes a plain copy of a ``V_SET_INACTIVE_B32`` that it
has lowered before) would change what has been proved. So the text is also asked for as it is when LLVM is back where it
was, and must be the same there: block for block, instruction for instruction.
"""

from __future__ import annotations

import re
from itertools import zip_longest

_FUNCTION = re.compile(r"^name: .*?^body: [^\n]*\n.*?(?=^\.\.\.)", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"^(?:  bb\.\d+.*:|    (?!liveins:| *;).*\S.*)$", re.MULTILINE)
_SAID_ANEW = re.compile(r"\b(?:killed|dead|renamable) |(?<=\d)\(0x[0-9a-f]+\)")
"""Flags of operands that LLVM finds out for itself each time, and how probable a successor is."""
_VIRTUAL = re.compile(r"%(\d+)\b")
_BLOCK = re.compile(r"(?:^  |%)bb\.(\d+)\b")


def first_difference(given: str, again: str) -> tuple[str, str] | None:
    """The first place where the code of two machine IR texts differs, as each has it; None where it does not.

    Virtual registers are numbered anew whenever a text is read, and blocks sometimes.
    """
    for ours, theirs in zip_longest(_code(given), _code(again), fillvalue=""):
        if ours != theirs:
            return ours.strip(), theirs.strip()
    return None


def _code(mir: str) -> list[str]:
    """Functions, blocks and instructions without what LLVM finds out for itself."""
    lines: list[str] = []
    for function in _FUNCTION.findall(mir):
        name, _, body = function.partition("\nbody: ")
        lines.append(name.partition("\n")[0])
        registers: dict[str, str] = {}
        blocks: dict[str, str] = {}
        for line in _CODE.findall(body):
            plain = _SAID_ANEW.sub("", line).partition(" ::")[0]
            plain = _VIRTUAL.sub(lambda match, seen=registers: seen.setdefault(match[1], f"%v{len(seen)}"), plain)
            lines.append(_BLOCK.sub(lambda match, seen=blocks: seen.setdefault(match[1], f"%b{len(seen)}"), plain))
    return lines
