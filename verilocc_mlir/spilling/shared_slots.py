"""One stack slot for several values that are never saved at the same time.

LLVM does so in a pass that needs what its own allocator knows (StackSlotColoring.cpp); in a text it finds nothing to
do. Smaller stacks of all waves leave more room in the caches that they share.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum

from verilocc_mlir.analysis.cfg import ControlFlow, control_flow
from verilocc_mlir.mir.model import Instruction, MachineFunction, StackObject
from verilocc_mlir.mir.operands import parse_operand

_SLOT = re.compile(r"%stack\.(\d+)(?!\d)")
_ROW = "row of slot "
_SPILL = re.compile(r"SI_SPILL_(?:V|A|AV)(\d+)_(SAVE|RESTORE)")


class _Access(Enum):
    WHOLE = "all of it is saved"
    PART = "a part is saved"
    READ = "it is loaded"


_Accesses = Sequence[tuple[int, _Access]]


def with_shared_slots(function: MachineFunction) -> MachineFunction:
    """The function with fewer slots for vector registers, or itself. Slots of one size alone are shared, and only those
    that nothing but whole spill instructions names.
    """
    slots = _slots(function)
    if len(slots) < 2:
        return function
    accesses = [[*_accesses(block.instructions, slots)] for block in function.blocks]
    places = _places(slots, _at_once(control_flow(function), accesses))
    kept = sorted(set(places.values()))
    numbers = sorted(slots)
    # LLVM numbers stack objects without gaps when it reads a text.
    if len(kept) == len(slots) or max(function.stack) != numbers[-1] or not _close(numbers[len(kept) :]):
        return function
    moved = dict(zip(kept, numbers, strict=False))
    names = {slot: moved[place] for slot, place in places.items()}
    rows = {moved[place]: _with_number(slots[place], moved[place]) for place in kept}
    blocks = tuple(
        replace(block, instructions=tuple(_renamed(i, names) for i in block.instructions)) for block in function.blocks
    )
    header = "\n".join(function.header_lines)
    for number in numbers:
        header = header.replace(slots[number].text + "\n", f"{_ROW}{number}\n", 1)
    for number in numbers:
        header = header.replace(f"{_ROW}{number}\n", rows[number].text + "\n" if number in rows else "", 1)
    others = {number: row for number, row in function.stack.items() if number not in slots}
    stack = dict(sorted({**others, **rows}.items()))
    return replace(function, blocks=blocks, header_lines=tuple(header.split("\n")), stack=stack)


def _close(numbers: Sequence[int]) -> bool:
    """Whether none is left out between them."""
    return numbers[-1] - numbers[0] == len(numbers) - 1


def _with_number(row: StackObject, number: int) -> StackObject:
    return replace(row, id=number, text=row.text.replace(f"{{ id: {row.id},", f"{{ id: {number},", 1))


def _slots(function: MachineFunction) -> dict[int, StackObject]:
    """The slots that may be shared."""
    rows = {
        number: row
        for number, row in function.stack.items()
        if row.type == "spill-slot" and "stack-id: default" in row.text and "callee-saved-register: ''" in row.text
    }
    if rows:
        named = [int(number) for line in function.header_lines for number in _SLOT.findall(line)]
        for instruction in (i for block in function.blocks for i in block.instructions):
            if not _SPILL.fullmatch(instruction.opcode):
                named += _of(instruction)
        rows = {number: row for number, row in rows.items() if number not in named}
    return rows


def _of(instruction: Instruction) -> list[int]:
    texts = (*(operand.text for operand in instruction.all_operands), *instruction.memory)
    return [int(number) for text in texts for number in _SLOT.findall(text)]


def _accesses(instructions: Sequence[Instruction], slots: Mapping[int, StackObject]) -> Iterator[tuple[int, _Access]]:
    for instruction in instructions:
        if spill := _SPILL.fullmatch(instruction.opcode):
            (slot,) = {*_of(instruction)}
            if slot in slots:
                whole = int(spill[1]) == 8 * slots[slot].size
                yield slot, (_Access.READ if spill[2] == "RESTORE" else _Access.WHOLE if whole else _Access.PART)


def _at_once(cfg: ControlFlow, accesses: Sequence[_Accesses]) -> dict[int, set[int]]:
    """Which slots hold something that is still to be loaded where each is saved. A thread's own way is one through the
    blocks too, and where it is not active it saves nothing: so this holds for each thread.
    """
    live_in: list[set[int]] = [set() for _ in accesses]
    changed = True
    while changed:
        changed = False
        for block in reversed(cfg.order):
            live = set[int]().union(*(live_in[successor] for successor in cfg.successors[block]))
            for slot, access in reversed(accesses[block]):
                if access is _Access.WHOLE:
                    live.discard(slot)
                elif access is _Access.READ:
                    live.add(slot)
            if live != live_in[block]:
                live_in[block], changed = live, True
    beside: dict[int, set[int]] = {}
    for block in cfg.order:
        live = set[int]().union(*(live_in[successor] for successor in cfg.successors[block]))
        for slot, access in reversed(accesses[block]):
            if access is _Access.READ:
                live.add(slot)
                continue
            for other in live - {slot}:
                beside.setdefault(slot, set()).add(other)
                beside.setdefault(other, set()).add(slot)
            if access is _Access.WHOLE:
                live.discard(slot)
    return beside


def _places(slots: Mapping[int, StackObject], beside: Mapping[int, set[int]]) -> dict[int, int]:
    """The slot that each goes to, in the order of their numbers, the first that is free of what stands beside it."""
    members: dict[int, set[int]] = {}
    result: dict[int, int] = {}
    for slot in sorted(slots):
        alike = (place for place in members if _form(slots[place]) == _form(slots[slot]))
        place = next((p for p in alike if not members[p] & beside.get(slot, set())), slot)
        members.setdefault(place, set()).add(slot)
        result[slot] = place
    return result


def _form(row: StackObject) -> tuple[int, int]:
    return row.size, row.alignment


def _renamed(instruction: Instruction, names: Mapping[int, int]) -> Instruction:
    if not _SPILL.fullmatch(instruction.opcode) or all(names.get(n, n) == n for n in _of(instruction)):
        return instruction

    def shared(text: str) -> str:
        return _SLOT.sub(lambda slot: f"%stack.{names.get(int(slot[1]), int(slot[1]))}", text)

    operands = tuple(
        parse_operand(shared(operand.text), is_def=False) if _SLOT.match(operand.text) else operand
        for operand in instruction.operands
    )
    return replace(instruction, operands=operands, memory=tuple(map(shared, instruction.memory)))
