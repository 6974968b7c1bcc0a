"""The YAML part of a function after allocation."""

from __future__ import annotations

import re
from collections.abc import Collection

from verilocc_mlir.mir.header import rows

_ROW_ID = re.compile(r"\{ id: (\d+),")
_PREFERRED = re.compile(r"preferred-register: '%(\d+)'")
_VIRTUAL = re.compile(r"virtual-reg: '%(\d+)'")


def rewrite_header(header: tuple[str, ...], placed: Collection[int], *, last: bool) -> tuple[str, ...]:
    """Header lines without the ``placed`` virtual registers; without any, ``noVRegs`` set, where ``last``.

    Raises nothing: rows it does not know stay as they are.
    """
    placed_names = _PlacedRegisters(placed, every=last)
    lines: list[str] = []
    registers = rows(header, "registers")
    inside = False
    for line in header:
        if inside and line.startswith(" "):
            continue
        inside = False
        if line.startswith("registers:"):
            remaining = [placed_names.drop_hint(row) for row in registers if not placed_names.row(row)]
            lines += ["registers:", *remaining] if remaining else ["registers:       []"]
            inside = True
        elif line.startswith("noVRegs:") and last:
            lines.append("noVRegs:         true")
        else:
            lines.append(placed_names.drop_livein(line))
    return tuple("\n".join(lines).split("\n"))


class _PlacedRegisters:
    """The virtual registers that no longer exist."""

    def __init__(self, placed: Collection[int], *, every: bool) -> None:
        self._placed = placed
        self._every = every

    def has(self, number: str) -> bool:
        return self._every or int(number) in self._placed

    def row(self, row: str) -> bool:
        match = _ROW_ID.search(row)
        return match is not None and self.has(match[1])

    def drop_hint(self, row: str) -> str:
        return _PREFERRED.sub(lambda m: "preferred-register: ''" if self.has(m[1]) else m[0], row)

    def drop_livein(self, line: str) -> str:
        return _VIRTUAL.sub(lambda m: "virtual-reg: ''" if self.has(m[1]) else m[0], line)
