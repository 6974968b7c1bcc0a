"""Spill code as LLVM writes it: operands, memory operand and slot of every spill pseudo-instruction after the phase.

SIInstrInfo::storeRegToStackSlot and loadRegFromStackSlot make them. Later passes believe the memory operand: its flags
go to the loads and stores that SIRegisterInfo::buildSpillLoadStore makes, and an invariant load may be moved above the
store that it reads.
"""

from __future__ import annotations

from collections.abc import Iterator

from smt_verifier.checker.model import Function, Instruction, Kind, Operand
from smt_verifier.checker.outcome import Refused
from smt_verifier.checker.tables import Tables

_EXEC = ("$exec", frozenset({"implicit"}))


def check_spills(before: Function, after: Function, tables: Tables) -> None:
    """All spill code of ``after`` is as LLVM writes it, and its slots are for nothing else.

    Args:
        after: stack objects numbered as in ``before``.

    Raises:
        Refused: an instruction, or its slot, is not so.
    """
    vectors = {n for i, kind in _spills(after, tables) if kind[0] != "S" for n in _objects(i)}
    otherwise = {n for f in (before, after) for i in _others(f, tables) for n in _objects(i)}
    pointer = after.fields.get("machineFunctionInfo.stackPtrOffsetReg", "''").strip("'")
    for instruction, (kind, bits, way) in _spills(after, tables):
        number = next(_objects(instruction), -1)
        row = after.stack.get(number, {})
        place = row.get("stack-id", "default")
        where = f"line {instruction.line}"
        if row.get("type") != "spill-slot" or number in otherwise:
            raise Refused("spill-slot", f"stack object {number} is not a slot for spills alone", where)
        if place != "default" and not (kind == "S" and place == "sgpr-spill"):
            raise Refused("spill-slot", f"stack object {number} is in {place}, where it does not go", where)
        if kind == "S" and number in vectors:
            raise Refused("spill-slot", f"stack object {number} holds scalars and vectors", where)
        offset = next((op.number for op in instruction.operands if op.kind is Kind.IMMEDIATE), 0)
        memory = _memory(way == "save", int(bits), number, offset, int(row.get("alignment", "1")))
        if [m.text for m in instruction.memory] != [memory]:
            raise Refused("spill-slot", f"the memory operand should be ({memory})", where)
        stack_pointer = (pointer, frozenset[str]())
        rest = (_EXEC, (pointer, _EXEC[1])) if kind == "S" else (stack_pointer, (str(offset), frozenset[str]()), _EXEC)
        further = instruction.operands[2 + len(rest) :]
        given = [(op.text, op.flags) for op in instruction.operands[1 : 2 + len(rest)]]
        # The rewriter adds implicit operands for the tuple of a part; what they define is lost.
        if (
            given != [(f"%stack.{number}", frozenset[str]()), *rest]
            or not all(op.is_implicit and op.is_register for op in further)
            or not _is_moved(instruction.operands[0], way, instruction.definitions)
        ):
            raise Refused("spill-slot", f"the operands of {instruction.opcode} are not as LLVM writes them", where)


def _is_moved(register: Operand, way: str, definitions: int) -> bool:
    """Whether the first operand of spill code is the register that is saved, or reloaded."""
    return register.is_register and not register.is_implicit and definitions == (way == "restore")


def _spills(function: Function, tables: Tables) -> Iterator[tuple[Instruction, list[str]]]:
    """Spill code with the kind, bits and way that LLVM's tables give it."""
    for block in function.blocks:
        for instruction in block.instructions:
            opcode = tables.opcode(instruction.opcode)
            if opcode is not None and opcode.value("spill"):
                yield instruction, opcode.value("spill").split(",")


def _others(function: Function, tables: Tables) -> Iterator[Instruction]:
    """All that is neither spill code nor for debugging."""
    for block in function.blocks:
        for instruction in block.instructions:
            opcode = tables.opcode(instruction.opcode)
            if opcode is None or not ("debug" in opcode.traits or opcode.value("spill")):
                yield instruction


def _objects(instruction: Instruction) -> Iterator[int]:
    """Stack objects that an instruction names, in operands or as memory that it accesses."""
    yield from (op.number for op in instruction.operands if op.kind is Kind.FRAME_INDEX)
    yield from (m.stack_object for m in instruction.memory if m.stack_object >= 0)


def _memory(save: bool, bits: int, number: int, offset: int, alignment: int) -> str:
    """The memory operand of a spill, as MachineMemOperand::print writes it; no flag, no alias information. Alignments
    are in bytes.
    """
    own = min(alignment, offset & -offset) if offset else alignment
    place = f"%stack.{number}" + (f" + {offset}" if offset else "")
    align = (f", align {own}" if 8 * own != bits else "") + (f", basealign {alignment}" if own != alignment else "")
    return f"{'store' if save else 'load'} (s{bits}) {'into' if save else 'from'} {place}{align}, addrspace 5"
