"""The words of inline assembly, which say what each of its operands is (LLVM's InlineAsm.h, Flag)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from smt_verifier.checker.model import File, Function, Instruction, Kind
from smt_verifier.checker.outcome import Refused

_CLOBBER = 4
_EARLY = (3, _CLOBBER)
"""Early-clobber results, and clobbers: the assembly may write these before it has read all."""
_USE = 1
_FIRST = 2
"""Operands before the words: the text and its flags."""
_ESCAPES = (("\\0A", "\n"), ("\\09", "\t"), ("\\22", '"'))
_PLAIN = re.compile(r"(?:[^\\$.]|(?<=\w)\.|(?<![\w.])\$(?:\d+|\{\d+(?::\w)?\})(?![\w.]))*\Z", re.ASCII)
"""No escape but these, no directive, and operands stand apart from words."""
_MODULE = re.compile(r"^module asm", re.MULTILINE)


class AsmOperand(NamedTuple):
    """An operand of inline assembly: its number, whether it is written early, whether it is a result nobody asks for,
    and the operand it is tied to, or -1.
    """

    number: int
    early_clobber: bool
    clobber: bool
    tied: int


def is_obscure(file: File) -> bool:
    """Whether some assembly of a file may be other than its texts show: letters are escaped, or operands put into
    words, or there are directives (a macro is known in the whole file) (5.4).
    """
    code = [i for f in file.functions for b in f.blocks for i in b.instructions]
    texts = [i.operands[0].text for i in code if i.operands and i.operands[0].kind is Kind.ASM_STRING]
    return bool([text for text in texts if not _is_plain(text)] or (texts and _MODULE.search(file.module)))


def _is_plain(text: str) -> bool:
    for escape, character in _ESCAPES:
        text = text.replace(escape, character)
    return _PLAIN.match(text) is not None


def counts_accesses(function: Function, *, obscure: bool) -> bool:
    """Whether a function waits for accesses to memory, or may: until at most so many are under way (S_WAITCNT,
    S_WAIT_LOADCNT). With one less behind it, or in another order, an access is not done then.
    """
    code = [i for block in function.blocks for i in block.instructions]
    texts = [i.operands[0].text for i in code if i.operands and i.operands[0].kind is Kind.ASM_STRING]
    return any(i.opcode.startswith("S_WAIT") for i in code) or any(obscure or "wait" in t.lower() for t in texts)


def asm_operands(instruction: Instruction) -> Iterator[AsmOperand]:
    """The operands, as the words before them say.

    Raises:
        Refused: the words do not describe the operands.
    """
    rows = instruction.operands[instruction.definitions :]
    if instruction.definitions or len(rows) < _FIRST or rows[0].kind is not Kind.ASM_STRING:
        raise Refused("well-formed", "inline assembly without its text", f"line {instruction.line}")
    groups: list[int] = []
    number = _FIRST
    while number < len(rows) and rows[number].kind in (Kind.IMMEDIATE, Kind.ASM_FLAG):
        early, clobber, count, group = _word(instruction, number)
        if number + count >= len(rows) or group >= len(groups):
            raise Refused("well-formed", "words of inline assembly that fit no operands", f"line {instruction.line}")
        groups.append(number + 1)
        for k in range(count):
            yield AsmOperand(number + 1 + k, early, clobber, groups[group] + k if group >= 0 else -1)
        number += count + 1


def _word(instruction: Instruction, number: int) -> tuple[bool, bool, int, int]:
    """Whether early-clobber, whether a clobber, how many operands follow, and the group they are tied to (-1: none)."""
    word = instruction.operands[number]
    if word.kind is Kind.IMMEDIATE:
        kind = word.number & 7
        group = word.number >> 16 & 0x7FFF if word.number >> 31 & 1 and kind == _USE else -1
        return kind in _EARLY, kind == _CLOBBER, word.number >> 3 & 0x1FFF, group
    head, _, group = word.text.partition(" tiedto:$")
    ends = (Kind.ASM_FLAG, Kind.OTHER)
    behind = instruction.operands[number + 1 :]
    clobber = head == "clobber"
    stop = (n for n, o in enumerate(behind) if o.kind in ends or (o.is_implicit and not clobber))
    count, tied = next(stop, len(behind)), int(group.split(" ")[0]) if group else -1
    return clobber or head.startswith("regdef-ec"), clobber, count, tied
