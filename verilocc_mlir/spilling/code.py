"""Spill code as LLVM writes it: pseudo-instructions, stack slots, constants computed anew.

``SI_SPILL_*`` (SIInstructions.td) are what SIInstrInfo::storeRegToStackSlot and loadRegFromStackSlot insert; LLVM
lowers them after allocation: vector registers to scratch memory or free accumulators, scalars to lanes of vector
registers (SILowerSGPRSpills.cpp, SIRegisterInfo::eliminateFrameIndex).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from verilocc_mlir.mir.model import Instruction, MachineFunction, Operand, OperandKind, StackObject
from verilocc_mlir.mir.operands import parse_operand, register_operand
from verilocc_mlir.target.classes import RegisterClass
from verilocc_mlir.target.registers import Bank

_SIZES = (32, 16, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1)
"""Tuples, in 32-bit registers, that spill pseudo-instructions exist for."""

_EXEC = parse_operand("implicit $exec", is_def=False)


@dataclass(frozen=True, slots=True)
class Slot:
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


def copy(to: tuple[int, str], source: tuple[int, str]) -> Instruction:
    """Copy between parts of two virtual registers, each ``(number, subregister index)``."""
    return Instruction(
        "COPY",
        (register_operand(vreg=to[0], sub=to[1], is_def=True),),
        (register_operand(vreg=source[0], sub=source[1]),),
    )


def constant(template: Instruction, vreg: int, part: int, width: int) -> Instruction:
    """``template``, a move of a constant, into one part of another register."""
    target = register_operand(vreg=vreg, sub=subregister(part, 1, width), is_def=True)
    return Instruction(template.opcode, (target,), template.operands)


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
