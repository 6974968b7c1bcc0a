"""Source lines of machine instructions: ``debug-location !N`` followed through the IR module's metadata.

Source: LLVM's LangRef, "DILocation". A scope is a block or a subprogram, which names its file.
"""

from __future__ import annotations

import re

from verilocc_mlir.mir.model import Instruction, MachineFunction

_NODE = re.compile(r"(?:^|')\s*!(?P<number>\d+) = (?:distinct )?!(?P<kind>DI\w+)\((?P<fields>.*)\)", re.MULTILINE)
_AT = re.compile(r"debug-location (?:!(?P<number>\d+)|!DILocation\((?P<fields>[^)]*)\))")
_DEPTH = 64
"""Scopes and inlined calls followed."""


class SourceLines:
    """Where instructions of a function come from, as far as its module says.

    Args:
        preamble: the IR module of its file.
    """

    def __init__(self, preamble: str, function: MachineFunction) -> None:
        header = "\n".join(function.header_lines)
        # Most modules have none; a large one is then not searched line by line.
        text = f"{preamble}\n{header}" if "!DILocation(" in preamble or "!DILocation(" in header else ""
        self._nodes = {int(m["number"]): (m["kind"], m["fields"]) for m in _NODE.finditer(text)}

    def of(self, instruction: Instruction) -> str:
        """``file.py:12:5, inlined at file.py:40:1``; ``""`` where the text does not say."""
        match = _AT.search(instruction.tail)
        if match is None:
            return ""
        fields = match["fields"] or self._fields(int(match["number"]))
        places: list[str] = []
        for _ in range(_DEPTH):
            if not fields:
                break
            line, column = _value(fields, "line") or "0", _value(fields, "column")
            if line != "0":
                places.append(f"{self._file(fields)}:{line}{f':{column}' if column else ''}")
            fields = self._fields(_reference(fields, "inlinedAt"))
        return ", inlined at ".join(places)

    def _fields(self, number: int) -> str:
        return self._nodes.get(number, ("", ""))[1]

    def _file(self, fields: str) -> str:
        for _ in range(_DEPTH):
            file = self._fields(_reference(fields, "file"))
            if file:
                return _value(file, "filename").strip('"')
            fields = self._fields(_reference(fields, "scope"))
        return "?"


def _value(fields: str, name: str) -> str:
    match = re.search(rf'\b{name}: ("[^"]*"|[^,]+)', fields)
    return match[1] if match else ""


def _reference(fields: str, name: str) -> int:
    """The number of the node that a field refers to, -1 where there is none."""
    value = _value(fields, name)
    return int(value[1:]) if re.fullmatch(r"!\d+", value) else -1
