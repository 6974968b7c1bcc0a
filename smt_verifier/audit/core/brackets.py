"""Whole-wave brackets: moves that LLVM wraps in ``S_OR_SAVEEXEC -1`` … ``$exec = S_MOV``, folded into whole-wave moves.

SILowerWWMCopies and the spilling of whole-wave registers make EXEC all threads for a moment, with the old EXEC kept in
the register set aside for that (``sgprForEXECCopy`` in ``machineFunctionInfo``). What stands between moves the lanes of
all threads and nothing else changes but SCC, so the bracket is read as ``WWM_COPY`` or ``SI_SPILL_WWM_*``.
"""

from __future__ import annotations

import re
from dataclasses import replace

from smt_verifier.audit.core.semantics import EXEC_NAMES, spill
from verilocc_mlir.mir.header import header_field
from verilocc_mlir.mir.model import Instruction, MachineFunction

_OPEN = re.compile(r"S_OR_SAVEEXEC_B(?:32|64)\Z")
_CLOSE = re.compile(r"S_MOV_B(?:32|64)\Z")


def without_brackets(function: MachineFunction) -> MachineFunction:
    """The function with its brackets folded, if nothing else uses the register that keeps EXEC; else as it is."""
    if not any(map(_OPEN.match, function.opcodes)):
        return function
    exec_copy = scratch_register(function, "sgprForEXECCopy")
    if not exec_copy or not any(_has_bracket(b.instructions, exec_copy) for b in function.blocks):
        return function
    blocks = tuple(
        replace(b, instructions=tuple(_fold(b.instructions, exec_copy)))
        if _has_bracket(b.instructions, exec_copy)
        else b
        for b in function.blocks
    )
    return replace(function, blocks=blocks)


def scratch_register(function: MachineFunction, name: str) -> str:
    """A register that ``machineFunctionInfo`` names, without ``$``; empty where none is set aside."""
    return (header_field(function, name) or "").strip("'\"").removeprefix("$")


def _has_bracket(instructions: tuple[Instruction, ...], exec_copy: str) -> bool:
    return any(_opens(i, exec_copy) for i in instructions)


def _opens(instruction: Instruction, exec_copy: str) -> bool:
    return (
        instruction.opcode.startswith("S_OR_SAVEEXEC_")
        and bool(_OPEN.match(instruction.opcode))
        and bool(instruction.defs)
        and instruction.defs[0].phys == exec_copy
        and instruction.operands[0].text == "-1"
    )


def _closes(instruction: Instruction, exec_copy: str) -> bool:
    return (
        bool(_CLOSE.match(instruction.opcode))
        and bool(instruction.defs)
        and instruction.defs[0].phys in EXEC_NAMES
        and instruction.operands[0].phys == exec_copy
    )


def _fold(instructions: tuple[Instruction, ...], exec_copy: str) -> list[Instruction]:
    result: list[Instruction] = []
    at = 0
    while at < len(instructions):
        first = instructions[at]
        end = at + 1
        while _opens(first, exec_copy) and end < len(instructions) and _whole_wave(instructions[end]) is not None:
            end += 1
        if not _opens(first, exec_copy) or end == len(instructions) or not _closes(instructions[end], exec_copy):
            result.append(first)
            at += 1
            continue
        scc = tuple(op for op in first.operands if op.phys == "scc")
        result.append(replace(first, opcode="IMPLICIT_DEF", defs=(), operands=scc))
        result += [w for i in instructions[at + 1 : end] if (w := _whole_wave(i)) is not None]
        at = end + 1
    return result


def _whole_wave(instruction: Instruction) -> Instruction | None:
    """The whole-wave form of a move of vector registers."""
    if instruction.opcode == "COPY":
        return replace(instruction, opcode="WWM_COPY")
    kind = spill(instruction.opcode)
    if kind is None or kind[0] == "S":
        return None
    if kind[0].startswith("WWM"):
        return instruction
    return replace(instruction, opcode=instruction.opcode.replace("SI_SPILL_", "SI_SPILL_WWM_"))
