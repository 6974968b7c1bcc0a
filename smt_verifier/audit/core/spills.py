"""Spill code as LLVM writes it: operands, memory operand and slot of every spill pseudo-instruction after the phase.

SIInstrInfo::storeRegToStackSlot and loadRegFromStackSlot make them. Later passes believe the memory operand: its flags
go to the loads and stores that SIRegisterInfo::buildSpillLoadStore makes, and an invariant load may be moved above the
store that it reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from smt_verifier.audit.core.fields import frame_indices, row_fields
from smt_verifier.audit.core.opcodes import DEBUG, facts
from smt_verifier.audit.core.report import Finding
from smt_verifier.audit.core.semantics import SpillSlot, spill_slot
from smt_verifier.outcome import Outcome
from verilocc_mlir.mir.header import header_field
from verilocc_mlir.mir.model import Instruction, MachineFunction, StackObject
from verilocc_mlir.target.registers import SGPR_BASE, SPECIAL_BASE, physical_register


@dataclass(frozen=True, slots=True)
class _Slots:
    """What is known of the stack objects of both sides.

    Attributes:
        stack_pointer: register that vector slots are addressed with, without ``$``.
        otherwise: objects that instructions other than spill code name, on either side.
        vectors: slots that vector registers are spilled to.
        in_accumulators: LLVM may keep these in free accumulators instead of memory.
    """

    stack_pointer: str
    otherwise: frozenset[int]
    vectors: frozenset[int]
    in_accumulators: bool


def wrong_spills(pre: MachineFunction, post: MachineFunction, stack_pointer: str, *, has_agprs: bool) -> list[Finding]:
    """Findings of rule ``spill-slot`` about what a spill says; what it moves is ``alone.py``'s business."""
    if not any(facts(opcode).spill for opcode in post.opcodes):
        return []
    spills = [
        (at, instruction, slot)
        for at, block in enumerate(post.blocks)
        for instruction in block.instructions
        if (slot := spill_slot(instruction)) is not None
    ]
    otherwise = {
        number
        for function in (pre, post)
        for block in function.blocks
        for instruction in block.instructions
        if facts(instruction.opcode).spill is None and instruction.opcode not in DEBUG
        for kind, number in frame_indices(instruction)
        if kind == "stack"
    }
    vectors = frozenset(slot.number for _, _, slot in spills if slot.kind != "S")
    # The mark is set with the first spill of a vector, so a later phase may still set it.
    marked = header_field(post, "hasSpilledVGPRs") == "true" or post.has_virtual_registers
    slots = _Slots(stack_pointer, frozenset(otherwise), vectors, has_agprs and marked)
    return [
        Finding("spill-slot", Outcome.REFUTED, message, at, post_line=instruction.line, instruction=str(instruction))
        for at, instruction, slot in spills
        for message in _complaints(instruction, slot, post.stack.get(slot.number), slots)
    ]


def moving_addresses(functions: Iterable[MachineFunction], kept_units: frozenset[int]) -> frozenset[int]:
    """Units that slots for spills are addressed with and that something writes; mostly none.

    SIRegisterInfo::eliminateFrameIndex adds the offset to the stack pointer, or the frame pointer or base pointer; flat
    scratch and the descriptor add their own base. The stack pointer addresses no slot of an entry function
    (SIRegisterInfo::getFrameRegister), nor where an object has a variable size (SIFrameLowering::hasFP). Call frames
    are taken into account (PEI::replaceFrameIndices).

    Args:
        kept_units: what every callee leaves as it was, which those registers are part of.
    """
    functions = tuple(functions)
    if not any(any(facts(opcode).spill for opcode in function.opcodes) for function in functions):
        return frozenset()
    addressing = {u for u in kept_units if SGPR_BASE <= u < SPECIAL_BASE}.union(physical_register("flat_scr").units)
    for function in functions:
        is_entry = header_field(function, "isEntryFunction") == "true"
        if is_entry or any(row.type == "variable-sized" for row in function.stack.values()):
            stack_pointer = (header_field(function, "stackPtrOffsetReg") or "").removeprefix("$")
            addressing.difference_update(physical_register(stack_pointer).units if stack_pointer else ())
    written = {
        op.phys
        for function in functions
        for block in function.blocks
        for instruction in block.instructions
        if instruction.opcode not in _CALL_FRAMES
        for op in instruction.all_operands
        if op.is_def and op.is_reg and op.phys
    }
    return frozenset(addressing.intersection(u for name in written for u in physical_register(name).units))


_CALL_FRAMES = frozenset({"ADJCALLSTACKUP", "ADJCALLSTACKDOWN"})


def _complaints(instruction: Instruction, slot: SpillSlot, row: StackObject | None, slots: _Slots) -> Iterator[str]:
    if row is None or row.type != "spill-slot" or slot.number in slots.otherwise:
        yield f"stack object {slot.number} is not a slot for spills alone"
        return
    place = row_fields(row.text).get("stack-id", "default")
    if place != "default" and not (slot.kind == "S" and place == "sgpr-spill"):
        yield f"stack object {slot.number} is in {place}, where {instruction.opcode} does not go"
    if slot.kind == "S" and slot.number in slots.vectors:
        yield f"stack object {slot.number} holds scalars, which go to lanes, and vectors, which go to memory"
    if slot.kind != "S" and slot.offset and slots.in_accumulators:
        # SIRegisterInfo::spillVGPRtoAGPR counts accumulators from the first one, whatever the offset is.
        yield f"bytes {slot.offset} up of slot {slot.number} are moved alone, but may be in accumulators, by no offset"
    memory = memory_operand(slot, row.alignment)
    if instruction.memory != (memory,):
        yield f"the memory operand should be ({memory})"
    expected = (f"%stack.{slot.number}", *_addressing(slot, slots.stack_pointer))
    first, *operands = instruction.all_operands
    texts = tuple(op.text for op in operands[: len(expected)])
    # The rewriter adds implicit operands for the tuple of a part; what they define is lost (``alone.py``).
    further = all(op.implicit and op.is_reg for op in operands[len(expected) :])
    if texts != expected or not further or first.implicit or len(instruction.defs) == slot.is_save:
        yield f"the operands should be a register, {', '.join(expected)}"


def memory_operand(slot: SpillSlot, alignment: int) -> str:
    """The memory operand of a spill, as MachineMemOperand::print writes it; no flag, no alias information.

    Args:
        alignment: of the stack object, bytes.
    """
    offset = f" + {slot.offset}" if slot.offset else ""
    access_alignment = min(alignment, slot.offset & -slot.offset) if slot.offset else alignment
    align = f", align {access_alignment}" if 8 * access_alignment != slot.bits else ""
    base = f", basealign {alignment}" if access_alignment != alignment else ""
    way = ("store", "into") if slot.is_save else ("load", "from")
    return f"{way[0]} (s{slot.bits}) {way[1]} %stack.{slot.number}{offset}{align}{base}, addrspace 5"


def _addressing(slot: SpillSlot, stack_pointer: str) -> Iterable[str]:
    """Operands after the slot: scalars name the stack pointer implicitly, vectors have an offset as well."""
    if slot.kind == "S":
        return ("implicit $exec", f"implicit ${stack_pointer}")
    return (f"${stack_pointer}", str(slot.offset), "implicit $exec")
