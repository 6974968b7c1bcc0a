"""The YAML part of a machine function: rows that matter, read from LLVM's fixed layout; the rest stays verbatim."""

from __future__ import annotations

import re
import sys

from verilocc_mlir.errors import InputError
from verilocc_mlir.mir.model import (
    FunctionLiveIn,
    MachineFunction,
    StackObject,
    VirtualRegister,
)

_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)")
_LETTERS = {"0": "\0", "a": "\a", "b": "\b", "t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r", "e": "\x1b"}
_NAME = re.compile(r"name: +(.+?) *\Z")
_REGISTER_ROW = re.compile(
    r"  - \{ id: ([0-9]{1,9}), class: ([A-Za-z0-9_]+)(?:,\s+preferred-register: '([^']*)')?"
    r"(?:,\s+flags: \[([^\]]*)\])? *\}"
)
_LIVEIN_ROW = re.compile(r"  - \{ reg: '\$([A-Za-z0-9_]+)'(?:,\s+virtual-reg: '(?:%([0-9]{1,9}))?')? \}")
_STACK_ID = re.compile(r"\bid: ([0-9]{1,9})")
_STACK_SIZE = re.compile(r"\bsize: ([0-9]{1,19})")
_STACK_ALIGN = re.compile(r"\balignment: ([0-9]{1,19})")
_STACK_TYPE = re.compile(r"\btype: ([a-z-]+)")


def _unescape(match: re.Match[str]) -> str:
    """One escape of a double-quoted YAML scalar."""
    text = match[1]
    if len(text) == 1:
        return _LETTERS.get(text, text)
    code = int(text[1:], 16)
    return chr(code) if code <= sys.maxunicode else "\N{REPLACEMENT CHARACTER}"


def function_name(header: tuple[str, ...], *, where: str) -> str:
    """The function's name, YAML quotes removed.

    Raises:
        InputError: there is no ``name:`` line.
    """
    for line in header:
        if match := _NAME.match(line):
            name = match[1]
            if name.startswith("'") and name.endswith("'") and len(name) > 1:
                return name[1:-1].replace("''", "'")
            if name.startswith('"') and name.endswith('"') and len(name) > 1:
                return _ESCAPE.sub(_unescape, name[1:-1])
            return name
    raise InputError("machine function without a name", where=where)


def section(header: tuple[str, ...], key: str) -> tuple[str, ...]:
    """Lines that belong to a top-level key such as ``registers``, the key's own line left out."""
    prefix = f"{key}:"
    inside = False
    found: list[str] = []
    for line in header:
        if inside:
            if not line.startswith(" "):
                break
            found.append(line)
        elif line.startswith(prefix):
            inside = True
    return tuple(found)


def rows(header: tuple[str, ...], key: str) -> tuple[str, ...]:
    """Rows ``  - { … }`` of a section; LLVM's YAML writer breaks long ones over several lines, which stay joined by
    breaks.
    """
    found: list[str] = []
    current: list[str] = []
    for line in section(header, key):
        current.append(line)
        if line.rstrip().endswith("}"):
            found.append("\n".join(current))
            current = []
    return tuple(found)


def virtual_registers(header: tuple[str, ...]) -> dict[int, VirtualRegister]:
    """Rows of ``registers:`` by number. ``_`` (no class yet) is kept as the class name."""
    table: dict[int, VirtualRegister] = {}
    for row in rows(header, "registers"):
        if match := _REGISTER_ROW.match(row):
            flags = tuple(f.strip() for f in (match[4] or "").split(",") if f.strip())
            number = int(match[1])
            table[number] = VirtualRegister(number, match[2], match[3] or "", flags)
    return table


def function_liveins(header: tuple[str, ...]) -> tuple[FunctionLiveIn, ...]:
    """Rows of the function's ``liveins:``."""
    matches = (_LIVEIN_ROW.match(row) for row in rows(header, "liveins"))
    return tuple(FunctionLiveIn(m[1], int(m[2]) if m[2] else -1) for m in matches if m)


def stack_objects(header: tuple[str, ...], key: str) -> dict[int, StackObject]:
    """Rows of ``stack:`` or ``fixedStack:`` by number. Sizes in bytes; 0 where LLVM prints none (variable-sized)."""
    table: dict[int, StackObject] = {}
    for row in rows(header, key):
        number, size = _STACK_ID.search(row), _STACK_SIZE.search(row)
        align, kind = _STACK_ALIGN.search(row), _STACK_TYPE.search(row)
        if number:
            table[int(number[1])] = StackObject(
                int(number[1]),
                int(size[1]) if size else 0,
                int(align[1]) if align else 1,
                kind[1] if kind else "default",
                row,
            )
    return table


def header_field(function: MachineFunction, key: str) -> str | None:
    """Value of a scalar field of the header, ``machineFunctionInfo`` included, quotes removed; None where absent.

    ``header_field(f, "frameOffsetReg")`` gives ``"$sgpr33"``. The first line with that key counts.
    """
    for line in function.header_lines:
        stripped = line.strip()
        if stripped.startswith(key) and stripped[len(key) : len(key) + 1] == ":":
            value = stripped[len(key) + 1 :].strip()
            return value[1:-1] if len(value) > 1 and value[0] == value[-1] == "'" else value
    return None
