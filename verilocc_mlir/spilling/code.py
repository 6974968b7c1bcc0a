"""Spill code as LLVM writes it: pseudo-instructions, stack slots, constants computed anew.

``SI_SPILL_*`` (SIInstructions.td) are what SIInstrInfo::storeRegToStackSlot and loadRegFromStackSlot insert; LLVM
lowers them after allocation: vector registers to scratch memory or free accumulators, scalars to lanes of vector
registers (SILowerSGPRSpills.cpp, SIRegisterInfo::eliminateFrameIndex).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum

from msgspec import Struct
from msgspec.structs import replace

from verilocc_mlir.analysis.cfg import ControlFlow, control_flow
from verilocc_mlir.mir.model import Instruction, MachineFunction, Operand, OperandKind, StackObject
from verilocc_mlir.mir.operands import parse_operand, register_operand
from verilocc_mlir.target.classes import RegisterClass
from verilocc_mlir.target.registers import Bank

_SIZES = (32, 16, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1)
"""Tuples, in 32-bit registers, that spill pseudo-instructions exist for."""

_EXEC = parse_operand("implicit $exec", is_def=False)


class Slot(Struct, frozen=True):
    """A stack slot for the parts of a register from ``first`` on, ``size`` of them."""

    number: int
    first: int
    size: int


def kind_of(cls: RegisterClass) -> str:
    """Letters of the pseudo-instructions for a class: ``S``, ``V``, ``A`` or ``AV``."""
    if cls.is_scalar:
        return "S"
    return ("A" if Bank.AGPR in cls.banks else "") + ("V" if Bank.VGPR in cls.banks else "")


def runs(parts: int, cls: RegisterClass, *, even: bool) -> list[tuple[int, int]]:
    """The parts in a mask as pieces for which a tuple exists, each ``(first part, how many)``.

    Scalar pairs start at an even part and wider ones at a multiple of four, as they do in registers
    (SIRegisterInfo.td, SGPR_64, SGPR_96 and wider).

    Args:
        cls: of the whole register.
        even: tuples of vector registers start at an even part, because they do in registers (``_align2`` classes).
    """
    pieces: list[tuple[int, int]] = []
    part = 0
    while parts >> part:
        if not parts >> part & 1:
            part += 1
            continue
        length = 1
        while parts >> (part + length) & 1:
            length += 1
        size = next(s for s in _SIZES if s <= length and part % _alignment(s, cls, even) == 0)
        pieces.append((part, size))
        part += size
    return pieces


def _alignment(size: int, cls: RegisterClass, even: bool) -> int:
    if size == 1:
        return 1
    if cls.is_scalar:
        return 2 if size == 2 else 4
    return 2 if even else 1


def subregister(first: int, size: int, width: int) -> str:
    """Subregister index of ``size`` parts from ``first`` on in a register of ``width`` parts; ``""`` for all of it."""
    return "" if size == width else "_".join(f"sub{k}" for k in range(first, first + size))


def spill(
    vreg: int, cls: RegisterClass, first: int, size: int, slot: Slot, stack_pointer: str, *, save: bool
) -> Instruction:
    """Store or load ``size`` parts of a register from ``first`` on."""
    kind = kind_of(cls)
    operand = register_operand(vreg=vreg, sub=subregister(first, size, cls.width), is_def=not save)
    offset = 4 * (first - slot.first)
    place = parse_operand(f"%stack.{slot.number}", is_def=False)
    if kind == "S":
        address = (place, _EXEC, parse_operand(f"implicit ${stack_pointer}", is_def=False))
    else:
        immediate = Operand(str(offset), OperandKind.IMMEDIATE)
        address = (place, register_operand(phys=stack_pointer), immediate, _EXEC)
    access = "store" if save else "load"
    location = f"%stack.{slot.number}" + (f" + {offset}" if offset else "")
    align = ", align 4" if size > 1 else ""
    memory = f"{access} (s{32 * size}) {'into' if save else 'from'} {location}{align}, addrspace 5"
    return Instruction(
        f"SI_SPILL_{kind}{32 * size}_{'SAVE' if save else 'RESTORE'}",
        () if save else (operand,),
        (operand, *address) if save else address,
        memory=(memory,),
    )


def copy(to: tuple[int, str], source: tuple[int, str], *, undef: bool = False) -> Instruction:
    """Copy between parts of two virtual registers, each ``(number, subregister index)``.

    Args:
        undef: the other lanes of ``to`` hold nothing.
    """
    flags = ("undef",) if undef and to[1] else ()
    return Instruction(
        "COPY",
        (register_operand(vreg=to[0], sub=to[1], flags=flags, is_def=True),),
        (register_operand(vreg=source[0], sub=source[1]),),
    )


def again(makers: Sequence[Instruction], vreg: int, part: int, width: int) -> list[Instruction]:
    """What makes one part of a register, into one part of another register: each step reads the one before there."""
    name = subregister(part, 1, width)
    made = -1
    code: list[Instruction] = []
    for maker in makers:
        target, source = (register_operand(vreg=vreg, sub=name, is_def=is_def) for is_def in (True, False))
        operands = (source if operand.vreg == made >= 0 else operand for operand in maker.operands)
        code.append(Instruction(maker.opcode, (target,), tuple(operands), maker.flags))
        made = maker.defs[0].vreg
    return code


def with_slots(function: MachineFunction, slots: list[Slot], *, scalar: bool, marked: bool) -> MachineFunction:
    """The function with rows for new stack slots, as SIInstrInfo makes them.

    Args:
        marked: put in the mark that it spills. Without it, all goes to scratch memory: SILowerSGPRSpills.cpp does not
            put scalars into lanes, and SIFrameLowering.cpp does not put vectors into free accumulators.
    """
    if not slots:
        return function
    kind = "sgpr-spill" if scalar else "default"
    rows = {slot.number: StackObject(slot.number, 4 * slot.size, 4, "spill-slot", _row(slot, kind)) for slot in slots}
    mark = f"  hasSpilled{'SGPRs' if scalar else 'VGPRs'}:"
    has_mark = any(line.startswith(mark) for line in function.header_lines)
    header: list[str] = []
    inside = inserted = False
    for line in function.header_lines:
        if marked and line.startswith(mark):
            line = f"{mark} true"
        if inside and not line.startswith(" "):
            header += [text for row in rows.values() for text in row.text.split("\n")]
            inside, inserted = False, True
        if line.startswith("stack:"):
            inside, line = True, "stack:"
        if line.strip().startswith("maxAlignment:"):
            line = _aligned(line)
        header.append(line)
        if marked and line == "machineFunctionInfo:" and not has_mark:
            header.append(f"{mark} true")
    if not inserted:
        # LLVM always prints the section; a hand-written function may lack it.
        at = next(k for k, line in enumerate(header) if line.startswith("body:"))
        header[at:at] = ["stack:", *(text for row in rows.values() for text in row.text.split("\n"))]
    return replace(function, header_lines=tuple(header), stack={**function.stack, **rows})


def _row(slot: Slot, kind: str) -> str:
    return (
        f"  - {{ id: {slot.number}, name: '', type: spill-slot, offset: 0, size: {4 * slot.size}, alignment: 4, \n"
        f"      stack-id: {kind}, callee-saved-register: '', callee-saved-restored: true, \n"
        "      debug-info-variable: '', debug-info-expression: '', debug-info-location: '' }"
    )


def _aligned(line: str) -> str:
    name, _, value = line.partition(":")
    return f"{name}:{value}" if int(value) >= 4 else f"{name}:    4"


# One stack slot for several values that are never saved at the same time.
#
# LLVM does so in a pass that needs what its own allocator knows (StackSlotColoring.cpp); in a text it finds nothing to
# do. Smaller stacks of all waves leave more room in the caches that they share.


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
            beside.setdefault(slot, set()).update(live)
            if access is _Access.WHOLE:
                live.discard(slot)
    for slot, others in [(slot, others - {slot}) for slot, others in beside.items()]:
        beside[slot].discard(slot)
        for other in others:
            beside.setdefault(other, set()).add(slot)
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
