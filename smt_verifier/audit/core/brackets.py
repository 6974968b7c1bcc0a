"""Whole-wave brackets: moves that LLVM wraps in ``S_OR_SAVEEXEC -1`` … ``$exec = S_MOV``, folded into whole-wave moves.

SILowerWWMCopies and the spilling of whole-wave registers make EXEC all threads for a moment, with the old EXEC kept in
the register set aside for that (``sgprForEXECCopy`` in ``machineFunctionInfo``). What stands between moves the lanes of
all threads and nothing else changes but SCC and that register, so the bracket is read as ``WWM_COPY`` or
``SI_SPILL_WWM_*``, behind definitions of these two that leave them undefined. Nothing may read them: then undefined is
what they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from smt_verifier.audit.core.opcodes import facts
from verilocc_mlir.mir.header import header_field
from verilocc_mlir.mir.model import BasicBlock, Instruction, MachineFunction
from verilocc_mlir.mir.operands import register_operand
from verilocc_mlir.target.registers import Bank, physical_register


class _Marks(NamedTuple):
    """The opcodes that open and close brackets, EXEC, and the register that keeps it."""

    opens: str
    closes: str
    exec: str
    kept: str


def without_brackets(function: MachineFunction, wave_size: int) -> MachineFunction:
    """The function with its brackets folded, if nothing else uses the register that keeps EXEC; else as it is.

    Args:
        wave_size: 32 or 64; all of EXEC is saved and restored, by instructions of that width.
    """
    whole = "exec" if wave_size == 64 else "exec_lo"
    kept = scratch_register(function, "sgprForEXECCopy")
    marks = _Marks(f"S_OR_SAVEEXEC_B{wave_size}", f"S_MOV_B{wave_size}", whole, kept)
    if not kept or marks.opens not in function.opcodes or not _keeps_exec_alone(function, marks):
        return function
    with_scc = {b.number for b in function.blocks if any(r.reg == "scc" for r in b.liveins)}
    return replace(function, blocks=tuple(_folded(b, marks, with_scc) for b in function.blocks))


def scratch_register(function: MachineFunction, name: str) -> str:
    """A register that ``machineFunctionInfo`` names, without ``$``; empty where none is set aside."""
    return (header_field(function, name) or "").strip("'\"").removeprefix("$")


def _keeps_exec_alone(function: MachineFunction, marks: _Marks) -> bool:
    units = set(physical_register(marks.kept).units)
    return not any(
        op.is_reg and op.phys and not units.isdisjoint(physical_register(op.phys).units)
        for block in function.blocks
        for i in block.instructions
        if not (_opens(i, marks) or _closes(i, marks))
        for op in i.all_operands
    )


def _opens(instruction: Instruction, marks: _Marks) -> bool:
    return (
        instruction.opcode == marks.opens
        and [op.phys for op in instruction.defs] == [marks.kept]
        and instruction.operands[0].text == "-1"
    )


def _closes(instruction: Instruction, marks: _Marks) -> bool:
    return (
        instruction.opcode == marks.closes
        and [op.phys for op in instruction.defs] == [marks.exec]
        and [op.phys for op in instruction.operands] == [marks.kept]
        and not instruction.operands[0].undef
    )


def _folded(block: BasicBlock, marks: _Marks, with_scc: set[int]) -> BasicBlock:
    instructions = block.instructions
    scc_leaves = any(number in with_scc for number, _ in block.successors)
    result: list[Instruction] = []
    at = 0
    while at < len(instructions):
        end = _end_of_bracket(instructions, at, marks)
        if end < 0 or _reads_scc(instructions[end + 1 :], at_the_end=scc_leaves):
            result.append(instructions[at])
            at += 1
            continue
        result += [_undefined(instructions[at], name) for name in ("scc", marks.kept)]
        result += [w for i in instructions[at + 1 : end] if (w := _whole_wave(i)) is not None]
        at = end + 1
    return replace(block, instructions=tuple(result))


def _end_of_bracket(instructions: Sequence[Instruction], at: int, marks: _Marks) -> int:
    """Where the bracket that opens at a place closes; -1 where none does."""
    if not _opens(instructions[at], marks):
        return -1
    end = at + 1
    while end < len(instructions) and _whole_wave(instructions[end]) is not None:
        end += 1
    return end if end < len(instructions) and _closes(instructions[end], marks) else -1


def _reads_scc(following: Sequence[Instruction], *, at_the_end: bool) -> bool:
    """Whether SCC is read before it is written again; ``at_the_end``: behind the block too."""
    for instruction in following:
        mentioned = [op for op in instruction.all_operands if op.phys == "scc"]
        if mentioned:
            return any(op.is_use for op in mentioned)
    return at_the_end


def _undefined(opening: Instruction, name: str) -> Instruction:
    definition = register_operand(phys=name, is_def=True)
    return replace(opening, opcode="IMPLICIT_DEF", defs=(definition,), operands=(), flags=())


def _whole_wave(instruction: Instruction) -> Instruction | None:
    """The whole-wave form of a move of vector registers."""
    if instruction.opcode == "COPY":
        named = (op.phys for op in instruction.all_operands if op.is_reg and op.phys and not op.implicit)
        if any(physical_register(name).bank not in (Bank.VGPR, Bank.AGPR) for name in named):
            return None
        return replace(instruction, opcode="WWM_COPY")
    kind = facts(instruction.opcode).spill
    if kind is None or kind[0] == "S":
        return None
    if kind[0].startswith("WWM"):
        return instruction
    return replace(instruction, opcode=instruction.opcode.replace("SI_SPILL_", "SI_SPILL_WWM_"))
