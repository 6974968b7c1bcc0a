"""Stack objects: LLVM numbers them anew, in the order they are listed, whenever it reads a text.

Fixed objects correspond by everything but their number. Of the others, those of the text before come first in both
texts, in the same order; what the allocator added gets numbers that the text before does not use.
"""

from __future__ import annotations

from collections.abc import Mapping

from smt_verifier.checker.model import Function, Row
from smt_verifier.checker.outcome import Refused

_ADDED = {
    "name": ("''",),
    "type": ("spill-slot",),
    "offset": ("0",),
    "alignment": ("2", "4"),
    "stack-id": ("default", "sgpr-spill"),
    "callee-saved-register": ("''",),
    "callee-saved-restored": ("true",),
    "debug-info-variable": ("''",),
    "debug-info-expression": ("''",),
    "debug-info-location": ("''",),
}
"""What LLVM prints of a slot that MachineFrameInfo::CreateSpillStackObject makes; besides these it has a size.
Registers are spilled at an alignment of 4 bytes, halves at one of 2 (SIRegisterInfo.td).
"""
_GREATEST_SLOT = 128
"""Bytes of the widest tuple of registers."""


def object_numbers(before: Function, after: Function) -> Mapping[int, int]:
    """For each object of ``stack`` after, its number before; added ones get numbers that are free before.

    Raises:
        Refused: an object is gone or changed, or one was added that is no slot for spills as LLVM makes them.
    """
    kept = all(after.stack.get(number) == row for number, row in before.stack.items())
    old = list(before.stack)
    same = dict(zip(old if kept else after.stack, old, strict=False))
    free = 1 + max(before.stack, default=-1)
    added = (number for number in after.stack if number not in same)
    numbers = same | {number: number if kept else free + n for n, number in enumerate(added)}
    if len(same) != len(old) or any(before.stack[same[n]] != after.stack[n] for n in same):
        raise Refused("object", "a stack object is gone, or changed")
    for number, row in after.stack.items():
        if number not in same and not _is_slot(row):
            raise Refused("object", f"stack object {number} was added and is not a slot for spills as LLVM makes them")
    return numbers


def fixed_numbers(before: Function, after: Function) -> Mapping[int, int]:
    """For each fixed object after, the number of one before of which the same is said.

    Raises:
        Refused: they are not the same objects.
    """
    waiting = dict(before.fixed_stack)
    numbers: dict[int, int] = {}
    for number, row in after.fixed_stack.items():
        found = next((n for n, other in waiting.items() if other == row), None)
        if found is None:
            raise Refused("object", f"the fixed stack object {number} was not there before")
        numbers[number] = found
        del waiting[found]
    if waiting:
        raise Refused("object", f"the fixed stack object {min(waiting)} is gone")
    return numbers


def _is_slot(row: Row) -> bool:
    size, alignment = int(row.get("size", "0")), int(row.get("alignment", "1"))
    return (
        {"type", "alignment", "size"} <= row.keys() <= {"size", *_ADDED}
        and all(row.get(key, values[0]) in values for key, values in _ADDED.items())
        and 0 < size <= _GREATEST_SLOT
        and size % alignment == 0
    )
