"""MFMA accumulators in VGPRs instead of AGPRs, so that copies between the files vanish.

Without ``"amdgpu-agpr-alloc"="0"`` LLVM selects the AGPR form of MFMA; values that other instructions compute with, or
that a loop carries, are then copied between the files, in every iteration. Each MFMA has a form with C and D in VGPRs
(``_vgprcd``, VOP3PInstructions.td) that computes the same; LLVM itself changes forms (AMDGPURewriteAGPRCopyMFMA.cpp).
The audit checks the form against the registers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec.structs import replace

from verilocc_mlir.mir.model import Instruction, MachineFunction, Operand, VirtualRegister
from verilocc_mlir.mir.operands import register_operand
from verilocc_mlir.target.classes import RegisterClass
from verilocc_mlir.target.registers import Bank

_AGPR_FORM = re.compile(r"(?P<name>V_MFMA_\w+?)(?<!_vgprcd)_e64\Z")
_ANY_BANK = re.compile(
    r"(?:GLOBAL|FLAT|BUFFER|SCRATCH)_(?:LOAD|STORE)_|DS_(?:READ|WRITE)_|COPY\Z|IMPLICIT_DEF\Z|KILL\Z"
)
"""Instructions whose data may be in either file: those with memory (AVLdSt operands, SIRegisterInfo.td), and moves."""

_CLASS = re.compile(r"(?:agpr_32|areg_)")


def in_vgprs(function: MachineFunction, classes: Mapping[int, RegisterClass]) -> MachineFunction | None:
    """The function with its accumulators in VGPRs wherever each instruction that names one allows it.

    Args:
        function: machine code before the VGPR phase.
        classes: of each virtual register.

    Returns:
        None where there is nothing to change.
    """
    movable = _movable(function, classes)
    if not movable:
        return None
    names = {v: _CLASS.sub(lambda m: "vgpr_32" if m[0] == "agpr_32" else "vreg_", classes[v].name) for v in movable}
    registers = dict(function.registers)
    for vreg, name in names.items():
        row = registers.get(vreg)
        registers[vreg] = replace(row, cls=name) if row is not None else VirtualRegister(vreg, name)
    blocks = tuple(
        replace(block, instructions=tuple(_changed(i, names) for i in block.instructions)) for block in function.blocks
    )
    return replace(function, blocks=blocks, registers=registers)


def _movable(function: MachineFunction, classes: Mapping[int, RegisterClass]) -> set[int]:
    """Registers of AGPR classes that every instruction would take as VGPRs; those of one MFMA move together."""
    movable = {v for v, cls in classes.items() if cls.banks == frozenset({Bank.AGPR}) and _CLASS.match(cls.name)}
    together: list[set[int]] = []
    for block in function.blocks:
        for instruction in block.instructions:
            touched = {op.vreg for op in instruction.all_operands if op.vreg in movable}
            if not touched:
                continue
            if instruction.bundled or instruction.opens_bundle:
                movable -= touched
            elif _AGPR_FORM.match(instruction.opcode):
                pair = {op.vreg for op in _accumulators(instruction) if op.vreg >= 0}
                # With one of C and D in a fixed register, or of a class that stays, the form must stay.
                if pair <= movable and not any(op.phys for op in _accumulators(instruction)):
                    together.append(pair)
                else:
                    movable -= pair
            elif not _ANY_BANK.match(instruction.opcode):
                movable -= touched
    changed = True
    while changed:
        changed = False
        for pair in together:
            if pair & movable and not pair <= movable:
                movable -= pair
                changed = True
    return movable


def _accumulators(instruction: Instruction) -> list[Operand]:
    """D, and C where it is a register."""
    explicit = [op for op in instruction.operands if not op.implicit]
    return [instruction.defs[0], *(op for op in explicit[2:3] if op.is_reg)]


def _changed(instruction: Instruction, names: Mapping[int, str]) -> Instruction:
    if not any(op.vreg in names for op in instruction.all_operands):
        return instruction
    opcode = instruction.opcode
    form = _AGPR_FORM.match(opcode)
    if form and instruction.defs[0].vreg in names:
        opcode = f"{form['name']}_vgprcd_e64"
    return replace(
        instruction,
        opcode=opcode,
        defs=tuple(_renamed(op, names) for op in instruction.defs),
        operands=tuple(_renamed(op, names) for op in instruction.operands),
    )


def _renamed(operand: Operand, names: Mapping[int, str]) -> Operand:
    if operand.vreg not in names or not operand.cls:
        return operand
    return register_operand(
        vreg=operand.vreg,
        sub=operand.sub,
        cls=names[operand.vreg],
        llt=operand.llt,
        tied=operand.tied,
        flags=operand.flags,
        is_def=operand.is_def,
    )
