"""Traps of Triton's interface to LLVM that are seen, refused or mended in the text of machine IR."""

from __future__ import annotations

import re
from collections.abc import Set
from itertools import zip_longest

from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.toolchain.mir_repairs import function_headers

# Trap of Triton's interface: functions that are called cannot be resumed.
#
# All of allocation runs again over a text that is further on. In a kernel it finds nothing to do. But in a function
# that saves registers for its caller, lowering SGPR spills saves them again and overwrites the saved values.


def refuse_called_functions(mir: str, *, where: str = "") -> None:
    """Refuse machine IR with a function that is no kernel.

    Raises:
        UnsupportedError: it has such a function; the message names it.
    """
    for name, header in function_headers(mir):
        if "isEntryFunction: true" not in " ".join(header.split()):
            raise UnsupportedError(
                f"{name} is called, not a kernel: Triton's LLVM cannot resume it",
                where=where,
                hint="use an llc (--toolchain=llc), or have it inlined: Triton's LLVM inlines what is not noinline",
            )


# Trap of Triton's interface: every function that is not ``noinline`` is marked ``alwaysinline``, intrinsics too.
#
# With that mark Triton has all calls inlined before code is generated. When LLVM reads a text, it gives intrinsics
# their own attributes again, so the IR module before a phase would differ from the one after it. Machine IR no longer
# needs the mark.

_ATTRIBUTES = re.compile(r"^ *(?:attributes #\d+ = \{|; Function Attrs:)[^\n]*", re.MULTILINE)
_INLINE_MARK = re.compile(r"\balwaysinline (?!\})")
"""The mark, if it is not the only attribute: LLVM cannot read an empty list, and keeps the mark on other functions."""


def without_marks(mir: str) -> str:
    """The text without the mark in its IR module."""
    end = mir.find("\n---\nname:")
    module = mir[: max(end, 0)]
    return _ATTRIBUTES.sub(lambda line: _INLINE_MARK.sub("", line[0]), module) + mir[len(module) :]


# Trap of Triton's interface: the lowering of scalar spills runs again over text in which it is done.
#
# LLVM 24's SILowerSGPRSpills takes saves to lanes of vector registers and reloads from them for scalar spills
# (``SIInstrInfo::isSGPRSpill``), asks for their stack slots, and crashes. It looks for spills where the function has
# stack objects and its header says ``hasSpilledSGPRs``. Nothing else reads that field. So it is taken back where all
# scalar spills are lowered.

_WITH_NAME = re.compile(r"^name: +(?P<name>[^\n]+)\n.*?^body: [^\n]*\n.*?(?=^\.\.\.)", re.MULTILINE | re.DOTALL)
_LOWERED = re.compile(r"\bSI_(?:SPILL_S32_TO_VGPR|RESTORE_S32_FROM_VGPR)\b")
_TO_LOWER = re.compile(r"\bSI_SPILL_S\d+_(?:SAVE|RESTORE)\b")
_SPILLED = re.compile(r"^(  hasSpilledSGPRs: )(true|false)$", re.MULTILINE)


def with_lowered_spills(mir: str) -> frozenset[str]:
    """The functions of a text that are said to have scalar spills, and have lowered ones only."""
    return frozenset(
        function["name"]
        for function in _WITH_NAME.finditer(mir)
        if (header := _SPILLED.search(function[0])) is not None
        and header[2] == "true"
        and _LOWERED.search(function[0])
        and not _TO_LOWER.search(function[0])
    )


def with_spill_field(mir: str, functions: frozenset[str], value: bool) -> str:
    """The text with this value of ``hasSpilledSGPRs`` in the headers of these functions."""

    def mended(function: re.Match[str]) -> str:
        return (
            _SPILLED.sub(rf"\g<1>{str(value).lower()}", function[0]) if function["name"] in functions else function[0]
        )

    return _WITH_NAME.sub(mended, mir) if functions else mir


# Trap of Triton's interface: passes that ran before run again over every text that is resumed.
#
# Most of them find nothing to do. One does (``SI Whole Quad Mode`` makes a plain copy of a ``V_SET_INACTIVE_B32`` that
# it has lowered before) and would change what has been proved. So LLVM also prints the text when it is back where the
# text stood. Both texts must be the same, block for block, instruction for instruction.

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
