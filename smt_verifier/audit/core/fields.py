"""The YAML header of a machine function as fields, read from the fixed layout that LLVM prints; all else is refused.

The layout is that of llvm/include/llvm/CodeGen/MIRYamlMapping.h and SIMachineFunctionInfo.h as YAMLTraits.cpp writes
it: ``key: value`` by indentation, lists of ``- { key: value, … }`` rows, long rows over several lines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from verilocc_mlir.errors import InputError
from verilocc_mlir.mir.model import MachineFunction

_LINE = re.compile(r"( *)([A-Za-z][A-Za-z0-9_-]*):(?: +(\S.*))?\Z")
_QUOTED = r"'(?:[^']|'')*'|\"(?:\\.|[^\"\\])*\""
_STRINGS = re.compile(_QUOTED)
_ENTRY = re.compile(rf"([A-Za-z]+(?:-[a-z]+)*): *({_QUOTED}|\[[^]\[{{}}]*\]|[^,'\"\[\]{{}}]*?) *(, *|\Z)")
_NOT_PLAIN = re.compile(r"[&*!|>?%@`#]")
_COMMENT_OR_TAB = re.compile(r" #|\t")


def header_fields(lines: tuple[str, ...], first_line: int) -> Mapping[str, str]:
    """Values of the header by path, such as ``frameInfo.maxAlignment``; a list is one value, its lines joined.

    Args:
        lines: from ``---`` to ``body:``, as ``MachineFunction.header_lines`` has them.
        first_line: number of the first, for messages.

    Raises:
        InputError: a line that is not of LLVM's layout, or a field that occurs twice.
    """
    fields: dict[str, list[str]] = {}
    outer: set[str] = set()  # what has fields in it
    path: list[str] = []
    list_indent = -1
    for number, line in enumerate(lines[1:], first_line + 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        indent = len(line) - len(line.lstrip(" "))
        value = fields[".".join(path)] if path else []
        item = text.startswith("- ")
        if (list_indent >= 0 and indent >= list_indent + (not item)) or _is_open(value):
            value.append(text)
        elif path and item and not value and indent == 2 * len(path):
            list_indent = indent
            value.append(text)
        else:
            list_indent = -1
            match = _LINE.match(line)
            depth = indent // 2
            inner = depth == len(path) > 0
            if match is None or indent % 2 or depth > len(path) or (inner and value):
                raise InputError(f"the header has a line of another form than LLVM's: {text!r}", where=f"line {number}")
            if inner:
                outer.add(parent := ".".join(path))
                del fields[parent]
            path = [*path[:depth], match[2]]
            key = ".".join(path)
            if key in fields or key in outer:
                raise InputError(f"the header has {key} twice", where=f"line {number}")
            fields[key] = [match[3].strip()] if match[3] else []
        if ("#" in text or "\t" in text) and _COMMENT_OR_TAB.search(_STRINGS.sub("''", text)):
            raise InputError(f"the header has a line of another form than LLVM's: {text!r}", where=f"line {number}")
    unreadable = next((k for k, v in fields.items() if v and _NOT_PLAIN.match(v[0]) and k != "body"), None)
    if unreadable:
        raise InputError(f"the header has {unreadable} in another form than LLVM's: {fields[unreadable][0]!r}")
    return {key: " ".join(value) for key, value in fields.items()}


def fields_of(function: MachineFunction) -> Mapping[str, str]:
    return header_fields(function.header_lines, function.first_line)


def row_fields(row: str) -> Mapping[str, str]:
    """Entries of a row ``- { key: value, … }``, quotes kept.

    Raises:
        InputError: a row of another form, or a key that occurs twice.
    """
    text = " ".join(part.strip() for part in row.split("\n")).removeprefix("- ")
    if not (text.startswith("{ ") and text.endswith(" }")):
        raise InputError(f"the header has a row of another form than LLVM's: {text!r}")
    entries: dict[str, str] = {}
    at, end = 2, len(text) - 2
    while at < end:
        match = _ENTRY.match(text, at, end)
        if match is None or match[1] in entries:
            raise InputError(f"the header has a row of another form than LLVM's: {text!r}")
        entries[match[1]] = match[2]
        at = match.end()
    return entries


def unquoted(value: str) -> str:
    """A scalar without its quotes and without ``$``."""
    return value[1:-1].removeprefix("$") if value[:1] == value[-1:] == "'" else value.removeprefix("$")


def _is_open(value: list[str]) -> bool:
    """Whether a value in brackets goes on in the next line."""
    if not value or value[0][0] not in "{[":
        return False
    plain = _STRINGS.sub("", " ".join(value))
    return sum(map(plain.count, "{[")) > sum(map(plain.count, "}]"))
