"""Damage to text inputs: lines and tokens moved, repeated, cut and replaced, and bytes that parsers stumble over."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

_TOKEN = re.compile(rb"[A-Za-z0-9_.]+|\s+|.", re.DOTALL)
_SPICE = (
    b"", b" ", b"  ", b"\n", b"\r\n", b"\t", b"\0", b"\xff", b"\xc3", b"---", b"...", b"---\n", b"{", b"}", b"(", b")",
    b"<", b">", b'"', b"'", b"\\", b"\\x", b"\\U00110000", b"\\ud800", b";", b" ; ", b", ", b" = ", b" :: (", b":",
    b"$",
    b"%", b"@", b"!", b"|", b"0", b"-1", b"1e999", b"NaN", b"0x", b"0xFFFFFFFFFFFFFFFFF", b"99999999999999999999",
    b"9" * 5000, b"1" + b"0" * 400, b"-0", b"\xd9\xa3", b"\xe2\x80\xa8", b"\xc2\x85", b"\x0b", b"\x1c", b"\xef\xbb\xbf",
    b"[" * 3000, b"(" * 3000, b" " * 3000, b"null", b"true", b"[]", b"{}", b"bb.", b"%bb.0", b"%stack.0", b"$noreg",
    b"$vgpr0", b"$vgpr0_vgpr2", b"$sgpr9999", b"$vcc", b"$exec", b"$scc", b"%0", b"%99999", b":vgpr_32", b":vreg_9999",
    b".sub0", b".sub99", b".lo16", b"(tied-def 0)", b"(tied-def 99)", b"(tied-def x)", b"implicit-def ", b"undef ",
    b"dead ",
    b"killed ", b"early-clobber ", b"renamable ", b"IMPLICIT_DEF", b"COPY", b"INLINEASM", b"BUNDLE", b"SI_CALL",
    b"SI_SPILL_V32_SAVE", b"successors:", b"liveins:", b"name:", b"body:", b"registers:", b"isSSA: true",
)  # fmt: skip

Edit = Callable[[bytes, bytes, random.Random], bytes]


def mutate(data: bytes, other: bytes, chance: random.Random, edits: int) -> bytes:
    """``data`` after some edits; pieces may come from ``other``."""
    for _ in range(edits):
        data = chance.choice(_EDITS)(data, other, chance)
    return data


def _lines(data: bytes, other: bytes, chance: random.Random) -> bytes:
    """One line removed, repeated, swapped with another, or taken from ``other``."""
    lines = data.split(b"\n")
    i, j = chance.randrange(len(lines)), chance.randrange(len(lines))
    kind = chance.randrange(4)
    if kind == 0:
        del lines[i]
    elif kind == 1:
        lines.insert(j, lines[i])
    elif kind == 2:
        lines[i], lines[j] = lines[j], lines[i]
    else:
        lines.insert(i, chance.choice(other.split(b"\n")))
    return b"\n".join(lines)


def _tokens(data: bytes, other: bytes, chance: random.Random) -> bytes:
    """One token of one line removed, repeated or replaced by another of either text."""
    lines = data.split(b"\n")
    i = chance.randrange(len(lines))
    tokens = _TOKEN.findall(lines[i])
    if tokens:
        k = chance.randrange(len(tokens))
        taken = _TOKEN.findall(chance.choice(chance.choice((lines, other.split(b"\n")))))
        choices = [b"", tokens[k] * 2, chance.choice(taken or [b""]), chance.choice(_SPICE)]
        tokens[k] = chance.choice(choices)
    lines[i] = b"".join(tokens)
    return b"\n".join(lines)


def _span(data: bytes, _other: bytes, chance: random.Random) -> bytes:
    """A span of bytes removed or repeated, or the rest cut off."""
    a, b = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    b = min(b, a + chance.choice((1, 10, 1000)))
    return chance.choice((data[:a] + data[b:], data[:b] + data[a:], data[:a]))


def _spice(data: bytes, _other: bytes, chance: random.Random) -> bytes:
    """Something unpleasant put in somewhere."""
    at = chance.randrange(len(data) + 1)
    return data[:at] + chance.choice(_SPICE) + data[at:]


def _byte(data: bytes, _other: bytes, chance: random.Random) -> bytes:
    """One bit turned over."""
    if not data:
        return data
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]


_EDITS: tuple[Edit, ...] = (_lines, _tokens, _tokens, _tokens, _span, _spice, _byte)
