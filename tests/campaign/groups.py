"""Shapes of operands: what the tables' thousands of shapes have in common.

Two shapes are one where their operands have the same kinds, ties and early clobbers, in classes of the same files and
of one, half or several registers; where they have the same implicit registers; and where both access memory or neither
does. Operands of one kind behind each other count once.
"""

from __future__ import annotations

import re
from functools import lru_cache

from campaign.shapes import all_shapes, opcodes_by_shape
from smt_verifier.checker.tables import Opcode, tables

_CLASS = re.compile(r"(av|vreg|vgpr|vs|areg|agpr|sreg|sgpr)_(\d+)")
_SAME = {"vgpr": "vreg", "agpr": "areg", "sgpr": "sreg"}


def _family(cls: str) -> str:
    match = _CLASS.match(cls)
    if match is None:
        return cls
    return _SAME.get(match[1], match[1]) + {"16": "16", "32": "32"}.get(match[2], "+")


def _key(opcode: Opcode) -> tuple[object, ...]:
    rows: list[object] = []
    for row in opcode.operands:
        kind: object = row.kind, row.tied_to >= 0, row.early_clobber, _family(row.classes[0])
        if row.kind in ("immediate", "any") and not row.classes[0] and row.tied_to < 0:
            kind = "immediate"
        if not rows or rows[-1] != kind:
            rows.append(kind)
    memory = not opcode.traits.isdisjoint(("may-load", "may-store"))
    return min(opcode.definitions, 2), tuple(rows), opcode.implicit_uses, opcode.implicit_definitions, memory


@lru_cache(maxsize=1)
def groups() -> tuple[tuple[int, ...], ...]:
    """Numbers of the tables' shapes, those together that are one shape of operands."""
    found: dict[tuple[object, ...], list[int]] = {}
    for shape in all_shapes():
        opcode = tables().opcode(opcodes_by_shape()[shape][0])
        assert opcode is not None
        found.setdefault(_key(opcode), []).append(shape)
    return tuple(map(tuple, found.values()))
