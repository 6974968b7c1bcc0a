"""Shapes of operands: what the tables' thousands of shapes have in common.

Two shapes are one where their operands have the same kinds, ties and early clobbers, in classes of the same files and
of one, half or several registers; runs of immediates count once; and where they have the same implicit registers and
the same of those traits that a checker asks for.
"""

from __future__ import annotations

import re
from functools import lru_cache

from campaign.shapes import all_shapes, opcodes_by_shape
from smt_verifier.checker.tables import Opcode, tables

_ASKED = frozenset(
    [
        "vector",
        "call",
        "return",
        "returns",
        "terminator",
        "branch",
        "barrier",
        "pure",
        "pure-exec",
        "scalar-load",
        "plain-load",
        "copy",
        "wwm-copy",
        "no-code",
        "cmpx",
        "compare",
        "compare-equal",
        "mask-move",
        "lane-save",
        "lane-restore",
        "packed-f32",
        "mixed",
        "wide-mad",
        "setreg",
        "first-bit",
        "may-leave-old",
        "bracket-open",
        "bracket-close",
        "frame-adjust",
        "variadic",
        "may-load",
        "may-store",
        "reach",
        "lane-operand",
        "blend",
        "mask",
        "save",
        "test",
        "spill",
        "either",
        "file",
        "canon",
    ]
)
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
        kind = row.kind, row.tied_to, row.early_clobber, _family(row.classes[0])
        if not (rows and row.kind in ("immediate", "any") and rows[-1] == kind):
            rows.append(kind)
    traits = frozenset(trait.partition("=")[0] for trait in opcode.traits) & _ASKED
    return opcode.definitions, tuple(rows), opcode.implicit_uses, opcode.implicit_definitions, traits


@lru_cache(maxsize=1)
def groups() -> tuple[tuple[int, ...], ...]:
    """Numbers of the tables' shapes, those together that are one shape of operands."""
    found: dict[tuple[object, ...], list[int]] = {}
    for shape in all_shapes():
        opcode = tables().opcode(opcodes_by_shape()[shape][0])
        assert opcode is not None
        found.setdefault(_key(opcode), []).append(shape)
    return tuple(map(tuple, found.values()))
