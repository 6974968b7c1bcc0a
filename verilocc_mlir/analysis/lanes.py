"""Which lanes of which virtual register each instruction reads, writes and leaves undefined.

An *atom* is a largest set of 16-bit lanes of one virtual register that every operand of the function touches together
or not at all. Liveness is computed atom by atom: exact for lanes, and no dearer than whole registers where nobody names
subregisters.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from verilocc_mlir.analysis.cfg import ControlFlow
from verilocc_mlir.errors import InputError
from verilocc_mlir.mir.model import Instruction, MachineFunction, Operand
from verilocc_mlir.target.classes import RegisterClass, register_class
from verilocc_mlir.target.registers import full_lanes, subregister_lanes

Atoms = tuple[int, ...]
"""Ascending atom numbers."""


class Access(Struct, frozen=True):
    """What one instruction does, in atoms. The order of events is: reads, early writes, undefines and hints, writes.

    Attributes:
        index: number of the instruction in the function.
        reads: read with a value (``undef`` uses are not here).
        early: written by early-clobber definitions.
        writes: written by ordinary definitions.
        undefines: left without a value by ``undef %r.sub = …``: the other lanes of the register.
        implicit: written by ``IMPLICIT_DEF``: any value.
    """

    index: int
    reads: Atoms
    early: Atoms
    writes: Atoms
    undefines: Atoms
    implicit: Atoms


class LaneAccesses(Struct, frozen=True):
    """Every access to a chosen set of virtual registers.

    Attributes:
        owner: virtual register of each atom.
        lanes: lane mask of each atom in its register.
        atoms: atoms of each virtual register, ascending.
        blocks: for each block, its accesses in order (instructions that touch none of the registers are left out).
    """

    owner: tuple[int, ...]
    lanes: tuple[int, ...]
    atoms: dict[int, Atoms]
    blocks: tuple[tuple[Access, ...], ...]


def virtual_classes(function: MachineFunction) -> dict[int, RegisterClass]:
    """Register class of each virtual register, from the table and from operands that carry one.

    Only registers that some instruction names are listed, in the order in which operands first name them.

    Raises:
        InputError: no class anywhere, or the class of an operand contradicts the table.
        UnsupportedError: a class that is not AMDGPU's (a generic register, for example).
    """
    class_names: dict[int, str] = {}
    table = function.registers
    seen_operands: set[int] = set()
    for block in function.blocks:
        for instruction in block.instructions:
            for operand in instruction.all_operands:
                vreg = operand.vreg
                # The parser shares operands of equal text, so most are dismissed by identity.
                if vreg < 0 or id(operand) in seen_operands:
                    continue
                seen_operands.add(id(operand))
                class_name = class_names.get(vreg) or (table[vreg].cls if vreg in table else "")
                if operand.cls and class_name and operand.cls != class_name:
                    raise InputError(
                        f"%{vreg} is of class {class_name} and of class {operand.cls}",
                        where=_where(function, instruction),
                    )
                class_names[vreg] = class_name or operand.cls
    for vreg, name in class_names.items():
        if not name:
            raise InputError(f"%{vreg} has no register class", where=f"function {function.name}")
    return {vreg: register_class(name) for vreg, name in class_names.items()}


def is_debug(instruction: Instruction) -> bool:
    """A debug instruction (``DBG_VALUE``, ``DBG_INSTR_REF`` …): its operands keep nothing alive."""
    return instruction.opcode.startswith("DBG_")


def lane_mask(operand: Operand, cls: RegisterClass) -> int:
    """Lanes of its virtual register that the operand names.

    Raises:
        InputError: the subregister lies outside the register.
    """
    full = full_lanes(cls.bits)
    if not operand.sub:
        return full
    mask = subregister_lanes(operand.sub)
    if mask & ~full:
        raise InputError(f"{operand.text} is outside of class {cls.name}")
    return mask


def lane_accesses(
    function: MachineFunction, cfg: ControlFlow, classes: dict[int, RegisterClass], chosen: Callable[[int], bool]
) -> LaneAccesses:
    """Collect accesses to the virtual registers for which ``chosen`` is true.

    Raises:
        InputError: a subregister outside of its register.
    """
    masks: dict[int, dict[int, None]] = {}
    resolved: dict[int, tuple[int, int] | None] = {}
    for block in function.blocks:
        for instruction in block.instructions:
            for operand in instruction.all_operands:
                if operand.vreg < 0 or id(operand) in resolved:
                    continue
                if not chosen(operand.vreg):
                    resolved[id(operand)] = None
                    continue
                mask = lane_mask(operand, classes[operand.vreg])
                masks.setdefault(operand.vreg, {})[mask] = None
                resolved[id(operand)] = (operand.vreg, mask)
    owner: list[int] = []
    lanes: list[int] = []
    atoms: dict[int, Atoms] = {}
    atoms_of: dict[tuple[int, int], Atoms] = {}
    for vreg, register_masks in masks.items():
        parts = _refine(full_lanes(classes[vreg].bits), register_masks)
        base = len(owner)
        owner += [vreg] * len(parts)
        lanes += parts
        atoms[vreg] = tuple(range(base, base + len(parts)))
        for mask in register_masks:
            atoms_of[vreg, mask] = tuple(base + k for k, part in enumerate(parts) if part & mask)
    by_operand = {key: None if value is None else (value[0], atoms_of[value]) for key, value in resolved.items()}
    blocks = tuple(
        tuple(_block_accesses(block.instructions, start, by_operand, atoms))
        for block, start in zip(function.blocks, cfg.first, strict=False)
    )
    return LaneAccesses(tuple(owner), tuple(lanes), atoms, blocks)


def _refine(full: int, masks: dict[int, None]) -> list[int]:
    """The coarsest partition of ``full`` in which every mask is a union of parts, ordered by lowest lane."""
    parts = [full]
    for mask in masks:
        if mask != full:
            parts = [piece for part in parts for piece in (part & mask, part & ~mask) if piece]
    return sorted(parts, key=lambda part: part & -part)


def _block_accesses(
    instructions: tuple[Instruction, ...],
    start: int,
    by_operand: dict[int, tuple[int, Atoms] | None],
    atoms: dict[int, Atoms],
) -> list[Access]:
    accesses: list[Access] = []
    for index, instruction in enumerate(instructions, start):
        # A BUNDLE header repeats its members' operands; the members are accounted for one by one.
        if instruction.opcode == "BUNDLE" or is_debug(instruction):
            continue
        reads: Atoms = ()
        early: Atoms = ()
        writes: Atoms = ()
        undefines: Atoms = ()
        implicit: Atoms = ()
        for operand in instruction.all_operands:
            if operand.vreg < 0 or (at := by_operand[id(operand)]) is None:
                continue
            vreg, touched = at
            if not operand.is_def:
                if not operand.undef:
                    reads += touched
                continue
            if operand.undef and operand.sub:
                undefines += tuple(a for a in atoms[vreg] if a not in touched)
            if instruction.opcode == "IMPLICIT_DEF":
                implicit += touched
            elif operand.early_clobber:
                early += touched
            else:
                writes += touched
        if reads or early or writes or undefines or implicit:
            accesses.append(Access(index, reads, early, writes, undefines, implicit))
    return accesses


def _where(function: MachineFunction, instruction: Instruction) -> str:
    return f"function {function.name}, line {instruction.line}"
