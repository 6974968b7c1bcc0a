"""The certificate: what a search found, as lines of text, read strictly (specification 15).

Nothing in it is believed. It says which instructions to compare, and what to claim at the entry of each block; the
checker shows both.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from smt_verifier.checker.outcome import Refused

Key = int | tuple[str, int, int, int]
"""A name or a place (specification 3.2, 3.3): see ``lanes.py``."""

SLOT = 1 << 44
VIRTUAL = 1 << 20
LANES = 128
"""Lanes that one virtual register or slot may have."""
MOST_CLASSES = 256
MOST_CLAIMS, MOST_CLAIMS_OF_ALL = 2_000_000, 24_000_000
"""Claims at the entry of one block, and of all blocks: more than of any text that is followed (15)."""
_ONCE = ("entry", "nonempty", "beside", "some", "steps")
_ORDER = ("entry", "class", "mask", "member", "nonempty", "beside", "some", "in", "steps", "repeat split")
"""The lines of a block in the order in which they stand; those behind ``in`` that it speaks of are its own."""
_RANKS = {word: rank for rank, words in enumerate(_ORDER) for word in words.split()}
_NUMBER = r"(0|[1-9][0-9]{0,8})"
_IS_NUMBER = re.compile(_NUMBER).fullmatch
_KEY = re.compile(
    rf"(?:%{_NUMBER}\.{_NUMBER}|\${_NUMBER}|#{_NUMBER}\.{_NUMBER}|\^{_NUMBER}|([@!]){_NUMBER}\.{_NUMBER}\.{_NUMBER}"
    rf"|&(%{_NUMBER}\.{_NUMBER}|\${_NUMBER}|#{_NUMBER}\.{_NUMBER}):{_NUMBER}(\.1)?)\Z"
)


class Claims:
    """What is claimed of the scalars, or of one class of threads, at a block's entry.

    Attributes:
        rows: of ``(name, place)``: the place holds the name's value, or the name is undefined. Classes share rows.
        undefined: names that are undefined.
        doubtful: further names that may be undefined.
    """

    def __init__(self) -> None:
        self.rows: list[list[tuple[Key, Key]]] = []
        self.undefined: list[Key] = []
        self.doubtful: list[Key] = []


class ClassClaims:
    """A class of threads that is claimed: its kind (``T``, ``O``, ``P``), whether it is active, and the masks in which
    it is and is not, one bit each.
    """

    def __init__(self, kind: str, active: bool, within: int = 0, without: int = 0) -> None:
        self.kind, self.active, self.within, self.without = kind, active, within, without
        self.claims = Claims()


class Entry:
    """All that is claimed at a block's entry; ``masks`` says of which mask a name is which part. Masks are numbered in
    the order in which they are named first.
    """

    def __init__(self) -> None:
        self.classes: list[ClassClaims] = []
        self.scalars = Claims()
        self.masks: dict[Key, tuple[int, int]] = {}
        self.nonempty: set[int] = set()
        self.beside: set[int] = set()
        self.some = False


class BlockCertificate:
    """One block: runs of steps ``(kind, count)`` with kind ``=``, ``-`` or ``+``, repeats by number, splits, claims."""

    def __init__(self, steps: list[tuple[str, int]]) -> None:
        self.steps = steps
        self.repeats: dict[int, tuple[int, int]] = {}
        self.splits: set[int] = set()
        self.entry: Entry | None = None


class Certificate:
    """Of one function."""

    def __init__(self, function: str, blocks: list[BlockCertificate]) -> None:
        self.function, self.blocks = function, blocks


def _refuse(number: int, line: str) -> Refused:
    return Refused("certificate", f"not a line that is understood here: {line!r}", f"line {number}")


def read_key(word: str) -> Key | None:
    """A name or place as it is written; None for anything else."""
    match = _KEY.match(word)
    if match is None:
        return None
    g = match.groups()
    if g[0] is not None:
        return _lane(VIRTUAL, g[0], g[1])
    if g[2] is not None:
        return int(g[2]) if int(g[2]) < VIRTUAL else None
    if g[3] is not None:
        return _lane(SLOT, g[3], g[4])
    if g[5] is not None:
        return ("^", int(g[5]), 0, 0)
    if g[6] is not None:
        return (g[6], int(g[7]), int(g[8]), int(g[9]))
    container = read_key(g[10])
    return ("&", container, int(g[16]), int(g[17] is not None)) if isinstance(container, int) else None


def _lane(base: int, number: str, lane: str) -> int | None:
    return base + int(number) * LANES + int(lane) if int(lane) < LANES else None


def write_key(key: Key) -> str:
    """A name or place as ``read_key`` reads it."""
    if isinstance(key, int):
        if key >= SLOT:
            return "#{}.{}".format(*divmod(key - SLOT, LANES))
        return "%{}.{}".format(*divmod(key - VIRTUAL, LANES)) if key >= VIRTUAL else f"${key}"
    kind, a, b, c = key
    if kind == "^":
        return f"^{a}"
    if kind == "&":
        return f"&{write_key(a)}:{b}{'.1' if c else ''}"
    return f"{kind}{a}.{b}.{c}"


def following(key: Key, steps: int, grain: int) -> Key:
    """The name or place ``steps`` lanes up."""
    if isinstance(key, int):
        return key + steps * grain
    kind, a, b, c = key
    return (kind, a + steps * grain, b, c) if kind == "^" else (kind, a, b, c + steps)


def read_certificate(text: str, grain: int) -> Certificate:
    """Read a certificate; ``grain`` is 2 where lanes are 32 bits wide, else 1.

    Raises:
        Refused: it is not of the form that the specification gives.
    """
    return _Reader(text, grain).read()


class _Reader:
    def __init__(self, text: str, grain: int) -> None:
        if not text.isascii() or not text.endswith("\n"):
            raise Refused("certificate", "not ASCII lines", "")
        self._lines = text[:-1].split("\n")
        self._grain = grain
        self._number = 0
        self._claims = self._claims_of_all = 0
        self._masks: dict[int, int] = {}
        """The number of each mask by that in the text, for this entry."""
        self._up_to: dict[int, int] = {}
        """Of each mask the bits of those whose number in the text is no greater; once no further one may be named."""
        self._parts: Counter[int] = Counter()
        """Parts of each mask that lines about this entry have named so far."""
        self._known: dict[tuple[str, str], list[Key]] = {}
        """What words and counts name."""

    def _bad(self) -> Refused:
        return _refuse(self._number, self._lines[self._number - 1])

    def _words(self) -> list[str]:
        """The words of the next line."""
        if self._number >= len(self._lines):
            raise Refused("certificate", "it ends before its end", f"line {self._number}")
        self._number += 1
        return self._lines[self._number - 1].split(" ")

    def _count(self, claims: int) -> None:
        self._claims += claims
        self._claims_of_all += claims
        if self._claims > MOST_CLAIMS or self._claims_of_all > MOST_CLAIMS_OF_ALL:
            raise Refused("certificate", "it claims more than is followed", f"line {self._number}")

    def _natural(self, word: str) -> int:
        if not _IS_NUMBER(word):
            raise self._bad()
        return int(word)

    def read(self) -> Certificate:
        if self._words() != ["verilocc-certificate", "2"]:
            raise self._bad()
        head = self._words()
        if head[0] != "function" or len(head) < 2:
            raise self._bad()
        certificate = Certificate(" ".join(head[1:]), [])
        words = self._words()
        while words != ["end"]:
            if words != ["block", str(len(certificate.blocks))]:
                raise self._bad()
            block = BlockCertificate([])
            certificate.blocks.append(block)
            words = self._block(block, len(certificate.blocks) - 1)
        if self._number != len(self._lines):
            raise Refused("certificate", "something follows its end", f"line {self._number + 1}")
        return certificate

    def _block(self, block: BlockCertificate, number: int) -> list[str]:
        """Fill in a block; returns the line behind it."""
        rank = -1
        parts: list[Claims] = []
        while True:
            words = self._words()
            if words[0] in ("end", "block"):
                if rank < _RANKS["steps"] and (number == 0 or block.entry is not None):
                    raise self._bad()
                return words
            own = _RANKS.get(words[0], _RANKS["in"])
            if own < rank or (own == rank and words[0] in _ONCE):
                raise self._bad()
            rank = own
            match words:
                case ["steps", *runs]:
                    block.steps = list(self._runs(runs))
                case ["repeat", instruction, of_block, original]:
                    repeat = self._natural(instruction)
                    if repeat in block.repeats:
                        raise self._bad()
                    block.repeats[repeat] = (self._natural(of_block), self._natural(original))
                case ["split", instruction]:
                    split = self._natural(instruction)
                    if split in block.splits:
                        raise self._bad()
                    block.splits.add(split)
                case ["entry"]:
                    block.entry = Entry()
                    self._masks, self._up_to = {}, {}
                    self._parts.clear()
                    self._claims = 0
                    parts = []
                case _ if block.entry is not None:
                    parts = self._claim(words, block.entry, parts)
                case _:
                    raise self._bad()

    def _runs(self, runs: list[str]) -> Iterator[tuple[str, int]]:
        for run in runs:
            if run[-1:] not in ("=", "-", "+") or run == f"0{run[-1:]}":
                raise self._bad()
            yield run[-1], self._natural(run[:-1])

    def _claim(self, words: list[str], entry: Entry, parts: list[Claims]) -> list[Claims]:
        """Read one line about an entry; returns the parts that the next lines speak of."""
        match words:
            case ["class", number, ("T" | "O" | "P") as kind, ("on" | "off") as state]:
                if self._natural(number) != len(entry.classes) or len(entry.classes) == MOST_CLASSES:
                    raise self._bad()
                entry.classes.append(ClassClaims(kind, state == "on"))
            case ["mask", mask, name, count]:
                number = self._masks.setdefault(self._natural(mask), len(self._masks))
                for key in self._keys(name, count):
                    if key in entry.masks:
                        raise self._bad()
                    entry.masks[key] = (number, self._parts[number])
                    self._parts[number] += 1
            case ["member", number, *masks]:
                cls = self._class(number, entry)
                if cls.within | cls.without:
                    raise self._bad()
                for span in masks:
                    bits = self._bits(span[1:])
                    if span[:1] not in ("+", "-") or bits & (cls.within | cls.without):
                        raise self._bad()
                    if span[0] == "+":
                        cls.within |= bits
                    else:
                        cls.without |= bits
                self._count((cls.within | cls.without).bit_count())
            case ["nonempty", *masks]:
                entry.nonempty.update(map(self._mask, masks))
            case ["beside", *masks]:
                entry.beside.update(map(self._mask, masks))
            case ["some"]:
                entry.some = True
            case ["in", "wave"]:
                return [entry.scalars]
            case ["in", *spans] if spans:
                return list(self._classes(spans, entry))
            case ["h", name, place, count] if parts:
                pairs = list(zip(self._keys(name, count), self._keys(place, count), strict=True))
                self._count(len(pairs) * len(parts))
                for part in parts:
                    part.rows.append(pairs)
            case [("u" | "d") as kind, name, count] if parts:
                keys = self._keys(name, count)
                self._count(len(keys) * len(parts))
                for part in parts:
                    (part.undefined if kind == "u" else part.doubtful).extend(keys)
            case _:
                raise self._bad()
        return parts

    def _class(self, number: str, entry: Entry) -> ClassClaims:
        index = self._natural(number)
        if index >= len(entry.classes):
            raise self._bad()
        return entry.classes[index]

    def _mask(self, word: str) -> int:
        """The mask that a word names, which some line says who holds."""
        mask = self._masks.get(self._natural(word))
        if mask is None:
            raise self._bad()
        return mask

    def _span(self, word: str) -> tuple[int, int]:
        """The first and the last of the numbers that a word names: one, or those up to a greater one."""
        first, dash, last = word.partition("-")
        at, end = self._natural(first), self._natural(last if dash else first)
        if dash and end <= at:
            raise self._bad()
        return at, end

    def _bits(self, word: str) -> int:
        """The masks that a word names, as bits; all are known."""
        if not self._up_to:
            bits = 0
            for number, mask in sorted(self._masks.items()):
                self._up_to[number] = bits = bits | 1 << mask
        at, end = self._span(word)
        if at not in self._up_to or end not in self._up_to:
            raise self._bad()
        named = (self._up_to[end] & ~self._up_to[at]) | 1 << self._masks[at]
        if named.bit_count() != end - at + 1:
            raise self._bad()
        return named

    def _classes(self, spans: list[str], entry: Entry) -> Iterator[Claims]:
        for first, last in map(self._span, spans):
            if last >= len(entry.classes):
                raise self._bad()
            for number in range(first, last + 1):
                yield entry.classes[number].claims

    def _keys(self, word: str, count: str) -> list[Key]:
        known = self._known.get((word, count))
        if known is None:
            key, steps = read_key(word), self._natural(count)
            if key is None or not 0 < steps <= LANES:
                raise self._bad()
            known = self._known[word, count] = [following(key, step, self._grain) for step in range(steps)]
        return known
