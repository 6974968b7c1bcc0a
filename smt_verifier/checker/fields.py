"""The YAML header of a machine function: every line is one that LLVM's writer makes.

YAML can say one thing in many ways. Only the layout of YAMLTraits.cpp's writer is read, so that no reader of these
lines can understand them otherwise. The fields are those of MIRYamlMapping.h and SIMachineFunctionInfo.h
(``data/fields.txt``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from smt_verifier.checker import DATA
from smt_verifier.checker.model import Row, VirtualRegister
from smt_verifier.checker.outcome import Refused

_QUOTED = r"'(?:[^'\n]|'')*'"
_COUNT = "(?:0|[1-9][0-9]{0,18})"
_KINDS = {
    "bool": "true|false",
    "count": _COUNT,
    "integer": "0|-?[1-9][0-9]{0,18}",
    "quoted": _QUOTED,
    "text": rf"{_QUOTED}|[\w$.](?:[\w$. -]*[\w$.-])?|\"[^\"\\\n]*\"",
    "word": r"\w+",
    "register": r"'(?:\$\w+)?'",
    "physical": r"'\$\w+'",
    "virtual": rf"'(?:%{_COUNT})?'",
    "argument": rf"\{{ (?:reg: '\$\w+'|offset: {_COUNT})(?:, mask: {_COUNT})? \}}",
    "policy": "none|all|non-leaf|non-leaf-no-reserve|reserved",
    "object": "default|spill-slot|variable-sized",
    "place": "default|sgpr-spill|noalloc",
    "flags": r"\[ (?:WWM_REG)? \]",
    "wish": r"'(?:[%$]\w+)?'",
    "wishes": r"\[(?: '[%$]\w+',?)* \]",
    "none": r"\[\]",
    "list": r"\[\]",
    "map": r"\{\}",
}
"""Values by kind. A ``list`` and a ``map`` may also have lines of their own below."""
_ROWS = ("registers", "liveins", "stack", "fixedStack")
_ARGUMENTS = "machineFunctionInfo.argumentInfo"
_LINE = re.compile(r"( *)([A-Za-z][A-Za-z0-9_-]*):(?: +(\S.*))?\Z")
_ENTRY = re.compile(rf"([A-Za-z-]+): ({_QUOTED}|\"[^\"\n]*\"|\[[^][{{}}]*\]|[^][,'\"{{}}]+)(?:, |\Z)")
_ITEM = re.compile(rf" *- ({_QUOTED})")


@lru_cache(maxsize=1)
def known_fields() -> Mapping[str, Mapping[str, tuple[str, str]]]:
    """By section of the data, for each field its kind and what LLVM takes where it is absent (``-``: it must be there
    on both sides).
    """
    sections: dict[str, dict[str, tuple[str, str]]] = {}
    section: dict[str, tuple[str, str]] = {}
    for line in (DATA / "fields.txt").read_text(encoding="ascii").splitlines():
        if line.startswith("["):
            section = sections.setdefault(line.strip("[]"), {})
        elif not line.startswith("#"):
            name, kind, default = line.split("\t")
            section[name] = (kind, default)
    return sections


class Header(NamedTuple):
    """What a header says; see ``Function`` for its fields. ``name`` is resolved."""

    name: str
    fields: Mapping[str, str]
    registers: Mapping[int, VirtualRegister]
    liveins: tuple[tuple[str, int], ...]
    fixed_stack: Mapping[int, Row]
    stack: Mapping[int, Row]


def read_header(lines: list[str], first: int) -> Header:
    """Read the lines between ``---`` and ``body:``, of which the first has the number ``first``.

    Raises:
        Refused: a line that LLVM does not write, a field that is not known, or one that stands twice.
    """
    known = known_fields()["fields"]
    fields: dict[str, str] = {}
    rows: dict[str, list[Row]] = {key: [] for key in _ROWS}
    registers: list[VirtualRegister] = []
    path: list[str] = []
    at = 0
    while at < len(lines):
        where, line = f"line {first + at}", lines[at]
        at += 1
        if line.startswith("#"):
            continue
        match = _LINE.match(line)
        depth = len(match[1]) // 2 if match else 0
        if match is None or len(match[1]) % 2 or depth > len(path):
            raise Refused("header", f"not laid out as LLVM prints it: {line!r}", where)
        path = [*path[:depth], match[2]]
        key, value = ".".join(path), match[3] or ""
        if key not in known or key in fields:
            raise Refused("header", f"the field {key} " + ("stands twice" if key in fields else "is not known"), where)
        kind = known[key][0]
        if kind != "map" or value:
            path.pop()
        items = list(_items(lines, at, match[1])) if kind == "list" and not value else []
        at += sum(text.count("\n") + 1 for text in items)
        if kind == "list" and not value and not items:
            value = "[]"  # LLVM's YAML reader takes nothing for an empty list (13.1).
        if items and key == "registers":
            registers = [_register(text) for text in items]
        elif items and key in _ROWS:
            rows[key] = [_row(key, text) for text in items]
        elif items and all(map(_ITEM.fullmatch, items)):
            value = ", ".join(text.strip().removeprefix("- ") for text in items)
        elif not re.fullmatch(_KINDS[kind], value, re.ASCII) and (kind != "map" or value):
            raise Refused("header", f"{value!r} is no value of the field {key}", where)
        fields[key] = value
    return _header(fields, rows, registers, f"line {first}")


def _items(lines: list[str], at: int, indent: str) -> Iterator[str]:
    """The items of a list that begins at line ``at``; what goes on in the next lines has breaks in it."""
    begin, more = f"{indent}  - ", f"{indent}      "
    while at < len(lines) and lines[at].startswith(begin):
        end = at + 1
        while end < len(lines) and lines[end].startswith(more) and lines[end - 1].rstrip(" ").endswith((",", "[")):
            end += 1
        yield "\n".join(lines[at:end])
        at = end


def _row(key: str, item: str) -> Row:
    """The entries of a row of the list ``key``, in the order in which LLVM prints them."""
    known = known_fields()[key]
    text = " ".join(line.strip(" ") for line in item.split("\n"))
    entries: dict[str, str] = {}
    at, end = 4, len(text) - 2
    if text.startswith("- { ") and text.endswith(" }"):
        while (match := _ENTRY.match(text, at, end)) and match[1] in known:
            if match[1] in entries or not re.fullmatch(_KINDS[known[match[1]][0]], match[2], re.ASCII):
                break
            entries[match[1]] = match[2]
            at = match.end()
    expected = [name for name, (_, need) in known.items() if name in entries or need == "required"]
    if at != end or list(entries) != expected:
        raise Refused("header", f"not a row of {key}: {text!r}")
    return entries


def unquoted(text: str) -> str:
    """A YAML scalar without its quotes; one with escapes is not read."""
    return text[1:-1].replace("''", "'") if text[:1] == "'" else text.strip('"')


def _header(
    fields: dict[str, str], rows: Mapping[str, list[Row]], registers: list[VirtualRegister], where: str
) -> Header:
    if "name" not in fields:
        raise Refused("header", "the function has no name", where)
    known = known_fields()["fields"]
    plain = {
        key: value for key, value in fields.items() if key not in _ROWS and known[key][0] not in ("map", "argument")
    }
    arguments = {key.rpartition(".")[2]: value for key, value in fields.items() if known[key][0] == "argument"}
    if arguments:
        plain[_ARGUMENTS] = ", ".join(f"{key}: {value}" for key, value in arguments.items())
    by_number = {register.number: register for register in registers}
    if len(by_number) != len(registers):
        raise Refused("header", "two rows of a list have one number", where)
    liveins = tuple((r["reg"][2:-1], int(r.get("virtual-reg", "''")[2:-1] or -1)) for r in rows["liveins"])
    objects = (_numbered(rows[key], where) for key in ("fixedStack", "stack"))
    return Header(unquoted(fields["name"]), plain, by_number, liveins, *objects)


def _numbered(rows: list[Row], where: str) -> Mapping[int, Row]:
    """Rows by their number, which is taken out of them."""
    table = {int(row["id"]): {key: value for key, value in row.items() if key != "id"} for row in rows}
    if len(table) != len(rows):
        raise Refused("header", "two rows of a list have one number", where)
    return table


@lru_cache(maxsize=1 << 14)
def _register(item: str) -> VirtualRegister:
    """What a row of the list of registers says."""
    row = _row("registers", item)
    flags = tuple(row.get("flags", "[ ]").strip("[] ").split())
    return VirtualRegister(int(row["id"]), row["class"], row.get("preferred-register", "''")[1:-1], flags)
