"""Trap of Triton's interface: passes that ran before run again over every text that is resumed.

Most of them find nothing to do. One does (``SI Whole Quad Mode`` makes a plain copy of a ``V_SET_INACTIVE_B32`` that it
has lowered before) and would change what has been proved. So LLVM also prints the text when it is back where the text
stood. Both texts must be the same, block for block, instruction for instruction.
"""

from __future__ import annotations

import re
from collections.abc import Set
from itertools import zip_longest

_FUNCTION = re.compile(r"^name: .*?^body: [^\n]*\n.*?(?=^\.\.\.)", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"^(?:  bb\.\d+.*:|    (?!liveins:| *;).*\S.*)$", re.MULTILINE)
_COMPUTED = re.compile(r"\b(?:killed|dead|renamable) |(?<=\d)\(0x[0-9a-f]+\)")
"""Flags of operands that LLVM computes anew each time, and the probabilities of successors."""
_LEFT_OUT = re.compile(r'^  define available_externally [^@\n]*@(?P<name>"[^"]+"|[\w.$-]+)\(', re.MULTILINE)
"""Functions that LLVM reads, leaves alone and does not print (``verifier.without_functions``)."""
_VIRTUAL = re.compile(r"%(\d+)\b")
_BLOCK = re.compile(r"(?:^  |%)bb\.(\d+)\b")


def first_difference(given: str, again: str) -> tuple[str, str] | None:
    """The first line in which the code of two machine IR texts differs, as each has it; None where it does not.

    Numbers of virtual registers and blocks do not count: LLVM may number them anew when it reads a text.
    """
    left_out = {match["name"].strip('"') for match in _LEFT_OUT.finditer(given)}
    for ours, theirs in zip_longest(_code(given, left_out), _code(again, left_out), fillvalue=""):
        if ours != theirs:
            return ours.strip(), theirs.strip()
    return None


def _code(mir: str, left_out: Set[str]) -> list[str]:
    """Functions, blocks and instructions without what LLVM computes anew; without the functions left out."""
    lines: list[str] = []
    for function in _FUNCTION.findall(mir):
        name, _, body = function.partition("\nbody: ")
        headline = name.partition("\n")[0]
        if headline.partition(":")[2].strip(" '\"") in left_out:
            continue
        lines.append(headline)
        registers: dict[str, str] = {}
        blocks: dict[str, str] = {}
        for line in _CODE.findall(body):
            plain = _COMPUTED.sub("", line).partition(" ::")[0]
            plain = _VIRTUAL.sub(lambda match, seen=registers: seen.setdefault(match[1], f"%v{len(seen)}"), plain)
            lines.append(_BLOCK.sub(lambda match, seen=blocks: seen.setdefault(match[1], f"%b{len(seen)}"), plain))
    return lines
