"""Registers that hold a constant: one instruction makes it again, instead of a store and a load.

A part of a register counts if only one instruction of the function writes it, and that instruction moves an immediate
or copies a part that counts. An undefined value (``IMPLICIT_DEF``) may be anything, so it may be that constant too.
"""

from __future__ import annotations

from collections.abc import Mapping

from verilocc_mlir.mir.model import Instruction, MachineFunction, Operand, OperandKind
from verilocc_mlir.spilling.gaps import ones, parts_of
from verilocc_mlir.target.classes import RegisterClass
from verilocc_mlir.target.lanes import full_lanes, subregister_lanes

_MOVES = frozenset({"V_MOV_B32_e32", "AV_MOV_B32_IMM_PSEUDO", "S_MOV_B32", "S_MOVK_I32"})
_DEPTH = 4
"""Copies followed from a constant."""


def constants(function: MachineFunction, classes: Mapping[int, RegisterClass]) -> dict[tuple[int, int], Instruction]:
    """For each register and part that holds a constant, the instruction that makes it."""
    writers_of: dict[tuple[int, int], list[Instruction]] = {}
    for block in function.blocks:
        for instruction in block.instructions:
            for operand in instruction.all_operands:
                if operand.is_def and operand.vreg in classes and instruction.opcode != "IMPLICIT_DEF":
                    for part in _parts(operand, classes):
                        writers_of.setdefault((operand.vreg, part), []).append(instruction)
    makers: dict[tuple[int, int], Instruction] = {}
    copies: dict[tuple[int, int], tuple[int, int]] = {}
    for key, writers in writers_of.items():
        if len(writers) != 1:
            continue
        instruction = writers[0]
        if _moves_constant(instruction):
            makers[key] = instruction
        elif instruction.opcode == "COPY" and instruction.operands[0].vreg in classes:
            source = instruction.operands[0]
            target, read = _parts(instruction.defs[0], classes), _parts(source, classes)
            if not source.undef and len(target) == len(read):
                copies[key] = source.vreg, read[target.index(key[1])]
    for _ in range(_DEPTH):
        for key, source in copies.items():
            if source in makers and _may_write(classes[source[0]], classes[key[0]]):
                makers[key] = makers[source]
    return makers


def _may_write(source: RegisterClass, copied_to: RegisterClass) -> bool:
    """Whether an instruction that writes ``source`` may write ``copied_to``: a V_MOV_B32_e32 cannot write an AGPR."""
    return (source.is_scalar and copied_to.is_scalar) or copied_to.banks <= source.banks


def _moves_constant(instruction: Instruction) -> bool:
    explicit = [op for op in instruction.operands if not op.implicit]
    return (
        instruction.opcode in _MOVES
        and len(explicit) == 1
        and explicit[0].kind is OperandKind.IMMEDIATE
        and not instruction.bundled
        and not instruction.tail
        and not instruction.defs[0].sub.endswith(("lo16", "hi16"))
    )


def _parts(operand: Operand, classes: Mapping[int, RegisterClass]) -> list[int]:
    cls = classes[operand.vreg]
    lanes = subregister_lanes(operand.sub) if operand.sub else full_lanes(cls.bits)
    return ones(parts_of(lanes))
