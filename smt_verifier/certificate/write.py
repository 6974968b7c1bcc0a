"""Certificates as text (specification 15)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from smt_verifier.checker.certificate import LANES, Certificate, Claims, Entry, Key, following, write_key


def write_certificate(certificate: Certificate, grain: int) -> str:
    """The text of a certificate; ``grain`` is 2 where lanes are 32 bits wide, else 1."""
    lines = ["verilocc-certificate 2", f"function {certificate.function}"]
    for number, block in enumerate(certificate.blocks):
        lines.append(f"block {number}")
        if block.entry is not None:
            lines += _entry(block.entry, grain)
        lines.append(" ".join(["steps", *(f"{count}{kind}" for kind, count in block.steps)]))
        lines += [f"repeat {at} {b} {i}" for at, (b, i) in sorted(block.repeats.items())]
        lines += [f"split {at}" for at in sorted(block.splits)]
    return "\n".join([*lines, "end"]) + "\n"


def _entry(entry: Entry, grain: int) -> Iterator[str]:
    yield "entry"
    for number, cls in enumerate(entry.classes):
        yield f"class {number} {cls.kind} {'on' if cls.active else 'off'}"
    by_mask: dict[int, list[tuple[int, Key]]] = {}
    for key, (mask, part) in entry.masks.items():
        by_mask.setdefault(mask, []).append((part, key))
    for mask, parts in sorted(by_mask.items()):
        ordered = sorted(parts, key=lambda p: p[0])
        if isinstance(ordered[0][1], int):
            yield f"mask {mask} {write_key(ordered[0][1])} {len(ordered)}"
        else:
            yield from (f"mask {mask} {write_key(key)} 1" for _, key in ordered)
    for number, cls in enumerate(entry.classes):
        if cls.within | cls.without:
            yield " ".join([f"member {number}", *_members(cls.within, cls.without)])
    if entry.nonempty:
        yield " ".join(["nonempty", *map(str, sorted(entry.nonempty))])
    if entry.beside:
        yield " ".join(["beside", *map(str, sorted(entry.beside))])
    if entry.some:
        yield "some"
    yield "in wave"
    yield from _claims(entry.scalars, grain)
    yield from _of_classes([cls.claims for cls in entry.classes], grain)


def _of_classes(claims: list[Claims], grain: int) -> Iterator[str]:
    """What several classes claim alike stands once."""
    owners: dict[tuple[str, Key, Key | None], list[int]] = {}
    for number, of_class in enumerate(claims):
        for name, place in (pair for row in of_class.rows for pair in row):
            owners.setdefault(("h", name, place), []).append(number)
        for name in of_class.undefined:
            owners.setdefault(("u", name, None), []).append(number)
        for name in of_class.doubtful:
            owners.setdefault(("d", name, None), []).append(number)
    by_owners: dict[tuple[int, ...], Claims] = {}
    for (kind, name, place), numbers in owners.items():
        of_owners = by_owners.setdefault(tuple(numbers), Claims())
        if place is not None:
            of_owners.rows.append([(name, place)])
        else:
            (of_owners.undefined if kind == "u" else of_owners.doubtful).append(name)
    for numbers, of_owners in sorted(by_owners.items()):
        yield " ".join(["in", *spans(numbers)])
        yield from _claims(of_owners, grain)


def spans(numbers: Iterable[int]) -> Iterator[str]:
    """Ascending numbers, those that follow each other as ``FIRST-LAST``."""
    first = last = -1
    for number in (*numbers, -1):
        if number == last + 1 and last >= 0:
            last = number
            continue
        if last >= 0:
            yield str(first) if first == last else f"{first}-{last}"
        first = last = number


def _members(within: int, without: int) -> Iterator[str]:
    """The masks that a class is in (``+``) and out of, in order."""
    masks = [mask for mask in range((within | without).bit_length()) if (within | without) >> mask & 1]
    for inside, ordered in groupby(masks, key=lambda mask: within >> mask & 1):
        yield from (f"{'+' if inside else '-'}{span}" for span in spans(ordered))


def _claims(claims: Claims, grain: int) -> Iterator[str]:
    pairs = sorted((pair for row in claims.rows for pair in row), key=lambda pair: (order(pair[0]), order(pair[1])))
    yield from _lines("h", [(name, place) for name, place in pairs], grain)
    for kind, names in (("u", claims.undefined), ("d", claims.doubtful)):
        yield from _lines(kind, [(name,) for name in sorted(names, key=order)], grain)


def order(key: Key) -> tuple[bool, str | int, object]:
    """A key to sort names and places by."""
    return (
        (False, key, ())
        if isinstance(key, int)
        else (True, key[0], key[1:] if key[0] != "&" else (*order(key[1]), *key[2:]))
    )


def _lines(kind: str, rows: list[tuple[Key, ...]], grain: int) -> Iterator[str]:
    """Rows of names, or of names and places, with runs of lanes in one line."""
    waiting = set(rows)
    for first in rows:
        count = 0
        row = first
        while row in waiting and count < LANES:
            waiting.remove(row)
            count += 1
            if any(isinstance(key, tuple) and key[0] == "&" for key in first):
                break
            row = tuple(following(key, count, grain) for key in first)
        if count:
            yield " ".join([kind, *map(write_key, first), str(count)])
