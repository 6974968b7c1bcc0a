"""Every line of a certificate changed, emptied, missing, doubled, swapped, or another function's.

A changed certificate of a right pair may still be a proof: then what it shows is so. It is no certificate at all where
its form is broken (``BROKEN``). With a *wrong* text no certificate whatever may be accepted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache

from campaign import moves
from campaign.subject import Mutant, Subject

_NUMBER = re.compile(r"\d+")
RIGHT = "the texts are right, whatever shows it"


def _number(line: str, which: int, change: Callable[[int], int]) -> str:
    found = list(_NUMBER.finditer(line))
    if len(found) <= which:
        return line
    match = found[which]
    return line[: match.start()] + str(change(int(match[0]))) + line[match.end() :]


def _changes(line: str) -> Iterator[tuple[str, str | None]]:
    """The column, and what becomes of a line; None: it is gone."""
    yield "missing", None
    yield "doubled", line + "\n" + line
    for which, name in enumerate(("first", "second", "third", "fourth", "fifth", "sixth")):
        yield f"{name} number + 1", _number(line, which, lambda n: n + 1)
        yield f"{name} number - 1", _number(line, which, lambda n: max(0, n - 1))
        yield f"{name} number + 2", _number(line, which, lambda n: n + 2)
        yield f"{name} number 0", _number(line, which, lambda n: 0 * n)
        yield f"{name} number large", _number(line, which, lambda n: n + 100000)
    words = line.split(" ")
    if len(words) > 1:
        yield "last word gone", " ".join(words[:-1])
        yield "last word doubled", " ".join([*words, words[-1]])
        yield "words swapped", " ".join([words[0], *words[:0:-1]])
    if len(words) > 2 and words[1] != words[2]:
        yield "name and place swapped", " ".join([words[0], words[2], words[1], *words[3:]])
        yield "name for place", " ".join([words[0], words[1], words[1], *words[3:]])
        yield "place for name", " ".join([words[0], words[2], words[2], *words[3:]])
    for column, old, new in (
        ("T becomes O", " T ", " O "),
        ("O becomes T", " O ", " T "),
        ("T becomes P", " T ", " P "),
        ("P becomes T", " P ", " T "),
        ("off becomes on", " off", " on"),
        ("on becomes off", " on", " off"),
        ("+ becomes -", "+", "-"),
        ("- becomes +", "-", "+"),
        ("= becomes -", "=", "-"),
        ("= becomes +", "=", "+"),
        ("unit becomes register", "$", "%"),
        ("register becomes unit", "%", "$"),
        ("unit becomes entry", " $", " ^"),
        ("cell becomes register", "&", ""),
        ("in wave becomes in 0", "in wave", "in 0"),
        ("in 0 becomes in wave", "in 0", "in wave"),
        ("h becomes u", "h ", "u "),
        ("u becomes d", "u ", "d "),
        ("d becomes u", "d ", "u "),
        ("! becomes @", "!", "@"),
        ("@ becomes !", "@", "!"),
        ("slot becomes register", "#", "%"),
    ):
        yield column, line.replace(old, new, 1)


BROKEN: dict[str, Callable[[str], str]] = {
    "emptied": lambda line: "",
    "blank behind it": lambda line: line + " ",
    "blank before it": lambda line: " " + line,
    "two blanks": lambda line: line.replace(" ", "  ", 1) if " " in line else line + "  ",
    "carriage return": lambda line: line + "\r",
    "tab": lambda line: line.replace(" ", "\t", 1) if " " in line else line + "\t",
    "capitals": lambda line: line[:1].swapcase() + line[1:],
    "a word more": lambda line: line + " 0x1",
    "a comment": lambda line: line + " # so",
    "leading zero": lambda line: (
        _NUMBER.sub(lambda m: "0" + m[0], line, count=1) if _NUMBER.search(line) else line + "0"
    ),
    "a sign": lambda line: _NUMBER.sub(lambda m: "--" + m[0], line, count=1) if _NUMBER.search(line) else line + "-",
    "not ASCII": lambda line: line + "\u00e9",
    "other digits": lambda line: _NUMBER.sub("\u0663", line, count=1) if _NUMBER.search(line) else line + "\u0663",
    "unknown keyword": lambda line: "x" + line,
    "very large number": lambda line: _NUMBER.sub("9" * 30, line, count=1) if _NUMBER.search(line) else line + "9" * 30,
}
"""Changes that leave no line of a certificate."""


def changed(certificate: str, other: str) -> Iterator[tuple[str, str, bool]]:
    """The column, the changed certificate, and whether its form is broken; ``other``: another function's."""
    lines = certificate.split("\n")[:-1]
    others: dict[str, list[str]] = {}
    for line in other.split("\n")[:-1]:
        others.setdefault(line.split(" ")[0], []).append(line)
    for at, line in enumerate(lines):
        keyword = line.split(" ")[0]
        rows: list[tuple[str, str | None, bool]] = [(c, new, False) for c, new in _changes(line)]
        rows += [(c, make(line), True) for c, make in BROKEN.items()]
        rows += [("another function's", new, False) for new in others.get(keyword, ())[:3]]
        for column, new, broken in rows:
            if new != line:
                yield (
                    f"{keyword}: {column}",
                    "\n".join([*lines[:at], *([] if new is None else [new]), *lines[at + 1 :], ""]),
                    broken,
                )
        if at + 1 < len(lines) and lines[at + 1] != line:
            swapped = [*lines[:at], lines[at + 1], line, *lines[at + 2 :], ""]
            yield f"{keyword}: swapped with the next", "\n".join(swapped), False
        yield f"{keyword}: all behind it gone", "\n".join([*lines[: at + 1], ""]), False
    yield "whole: no line feed at its end", certificate.rstrip("\n"), True
    yield "whole: something behind it", certificate + "end\n", True
    yield "whole: twice", certificate * 2, True
    yield "whole: empty", "\n", True
    if other != certificate:
        yield "whole: another function's", other, False


@lru_cache(maxsize=1)
def rows() -> list[str]:
    """Every other row of the moves; they have every kind of line between them."""
    return moves.rows()[::2]


def mutants(subject: Subject, certificate: str, other: str, wrong: list[Mutant]) -> Iterator[Mutant]:
    """Changed certificates of a right pair, and with each of some wrong texts.

    Args:
        other: a certificate of another function.
        wrong: mutants of the text that must be refused.
    """
    own = list(changed(certificate, other))
    for column, text, broken in own:
        yield Mutant(column, subject.after, column, "" if broken else RIGHT, text)
    for mutant in wrong:
        for column, text, _ in own:
            yield Mutant(f"{column}, wrong text", mutant.after, f"{mutant.what}; {column}", "", text)
