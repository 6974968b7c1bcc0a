"""Damage to text inputs: lines and tokens moved, repeated, cut and replaced, and bytes that parsers stumble over."""

from __future__ import annotations

import random
import re

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


def mutate(data: bytes, other: bytes, chance: random.Random, edits: int) -> bytes:
    """``data`` after some edits; pieces may come from ``other``."""
    for _ in range(edits):
        edit = chance.choice((_line, _token, _token, _token, _bytes, _bytes, _bytes))
        data = edit(data, other, chance)
    return data


def _line(data: bytes, other: bytes, chance: random.Random) -> bytes:
    return b"\n".join(_pieces(data.split(b"\n"), other.split(b"\n"), chance))


def _token(data: bytes, other: bytes, chance: random.Random) -> bytes:
    lines = data.split(b"\n")
    at = chance.randrange(len(lines))
    taken = chance.choice(chance.choice((lines, other.split(b"\n"))))
    lines[at] = b"".join(_pieces(_TOKEN.findall(lines[at]) or [b""], _TOKEN.findall(taken) or [b""], chance))
    return b"\n".join(lines)


def _pieces(own: list[bytes], others: list[bytes], chance: random.Random) -> list[bytes]:
    """One removed, repeated elsewhere, swapped with another, or replaced."""
    i, j = chance.randrange(len(own)), chance.randrange(len(own))
    swapped = [own[{i: j, j: i}.get(k, k)] for k in range(len(own))]
    replaced = ([*own[:i], piece, *own[i + 1 :]] for piece in (chance.choice(others), chance.choice(_SPICE)))
    return chance.choice((own[:i] + own[i + 1 :], [*own[:j], own[i], *own[j:]], swapped, *replaced))


def _bytes(data: bytes, _other: bytes, chance: random.Random) -> bytes:
    """Some removed, repeated or put in, one bit turned over, or the rest cut off."""
    at = chance.randrange(len(data) + 1)
    end = at + chance.choice((1, 10, 1000))
    turned = bytes(byte ^ (1 << chance.randrange(8)) for byte in data[at : at + 1]) + data[at + 1 :]
    rests = b"", turned, data[end:], data[at:end] + data[at:], chance.choice(_SPICE) + data[at:]
    return data[:at] + chance.choice(rests)
