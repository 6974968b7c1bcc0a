"""What is counted in the final code: copies, spills, pairs, bank conflicts. One function for each rule."""

from __future__ import annotations

import re
from collections.abc import Iterable

from verilocc_mlir.cost import registers, vopd
from verilocc_mlir.cost.assembly import Function
from verilocc_mlir.cost.instructions import Instruction, Kind, halves, split_operands
from verilocc_mlir.cost.memory import at_fixed_place, dwords, is_scratch, scratch_resource
from verilocc_mlir.cost.registers import is_vgpr, units
from verilocc_mlir.target.targets import Target

_VECTOR_COPY = ("v_mov_b32", "v_mov_b64", "v_mov_b16")
_ACCUMULATOR_COPY = ("v_accvgpr_read_b32", "v_accvgpr_write_b32", "v_accvgpr_mov_b32")
_SCALAR_COPY = ("s_mov_b32", "s_mov_b64")
_CONTROL = {registers.EXEC, registers.EXEC + 1, registers.M0}
_ACROSS_LANES = re.compile(r"row_|quad_perm|dpp8|sdwa|_sel:|wave_|bound_ctrl")


def vector_copies(instruction: Instruction) -> int:
    """Copies of a register to a VGPR in this instruction: a ``v_mov`` of a VGPR or SGPR, each half of a ``v_dual_mov``.

    Constants and moves across lanes are not counted. A ``v_pk_mov_b32`` whose sources are one pair is a copy of 64 bits
    (SIInstrInfo::copyPhysReg on gfx90a).
    """
    if instruction.is_dual:
        pair = [half.partition(" ") for half in halves(instruction.text)]
        return sum(1 for name, _, rest in pair if name == "v_mov_b32" and _is_register(split_operands(rest)[1]))
    if instruction.base == "v_pk_mov_b32":
        return int(len(instruction.operands) > 2 and instruction.operands[1] == instruction.operands[2].split(" ")[0])
    return int(
        instruction.base in _VECTOR_COPY
        and len(instruction.operands) > 1
        and _is_register(instruction.operands[1])
        and not _ACROSS_LANES.search(instruction.modifiers)
        and not instruction.mnemonic.endswith(("dpp", "sdwa", "dpp8"))
    )


def accumulator_copies(instruction: Instruction) -> int:
    """Copies between VGPRs and AGPRs, and between AGPRs. A constant written to an AGPR is no copy."""
    return int(instruction.base in _ACCUMULATOR_COPY and _is_register(instruction.operands[1]))


def scalar_copies(instruction: Instruction) -> int:
    """``s_mov`` of a register. Moves of EXEC and M0 set something up and are not counted."""
    return int(
        instruction.base in _SCALAR_COPY
        and _is_register(instruction.operands[1])
        and _CONTROL.isdisjoint(instruction.defs)
        and _CONTROL.isdisjoint(instruction.uses)
    )


def _is_register(operand: str) -> bool:
    return bool(units(operand)) and operand[0] not in "-|"


class Scratch:
    """Which instructions of a function access its private memory, and which save or reload spilled registers.

    A scratch access at a fixed place of the frame is a spill to memory, unless the metadata says that no VGPR was
    spilled: then it belongs to a local array. An SGPR spill is a ``v_writelane`` with a constant lane, or a
    ``v_readlane`` with a constant lane of a VGPR that the function also writes so (SILowerSGPRSpills.cpp).
    """

    def __init__(self, function: Function, target: Target) -> None:
        self._has_scratch = function.figures.scratch_bytes != 0
        self._in_memory = function.figures.vgpr_spills != 0
        self._resource = scratch_resource(function.blocks, target)
        self._lanes = {
            i.defs[0] for i in function.instructions if i.base == "v_writelane_b32" and _constant(i.operands[-1])
        }

    def accesses(self, instruction: Instruction) -> int:
        """1 for a load from or store to private memory, of a spilled register or not."""
        return int(self._has_scratch and instruction.kind is Kind.VMEM and is_scratch(instruction, self._resource))

    def stores(self, instruction: Instruction) -> int:
        """32-bit registers saved to memory, as ``.vgpr_spill_count`` counts them."""
        return dwords(instruction.base) if instruction.is_store and self._memory(instruction) else 0

    def reloads(self, instruction: Instruction) -> int:
        """32-bit registers reloaded from memory."""
        return dwords(instruction.base) if not instruction.is_store and self._memory(instruction) else 0

    def lane_saves(self, instruction: Instruction) -> int:
        """1 for an SGPR saved to a VGPR lane."""
        return int(instruction.base == "v_writelane_b32" and _constant(instruction.operands[-1]))

    def lane_reloads(self, instruction: Instruction) -> int:
        """1 for an SGPR reloaded from a VGPR lane."""
        return int(
            instruction.base == "v_readlane_b32"
            and _constant(instruction.operands[-1])
            and units(instruction.operands[1])[0] in self._lanes
        )

    def _memory(self, instruction: Instruction) -> bool:
        return self._in_memory and bool(self.accesses(instruction)) and at_fixed_place(instruction)


def _constant(operand: str) -> bool:
    return not units(operand)


def bank_conflicts(instruction: Instruction, target: Target) -> int:
    """VALU sources beyond the first in one VGPR bank (register mod 4), on RDNA.

    Source: the removed GCNRegBankReassign.cpp. It is not validated that each costs a cycle, so they are shown but are
    part of no total.
    """
    if target.major < 10 or instruction.kind is not Kind.VALU or instruction.is_dual:
        return 0
    sources = {units(o)[0] for o in instruction.operands[1:] if units(o) and is_vgpr(units(o)[0])}
    return len(sources) - len({s % 4 for s in sources})


def pairs_blocked(code: Iterable[Instruction], target: Target) -> int:
    """Neighbours that only their registers keep from being one ``v_dual_*``; RDNA only."""
    if target.major < 11:
        return 0
    blocked = 0
    previous: Instruction | None = None
    for instruction in code:
        if instruction.kind is Kind.FREE:
            # LLVM inserts s_delay_alu between neighbours after it has made the pairs.
            continue
        if previous is not None and vopd.fit(previous, instruction) and vopd.banks_clash(previous, instruction, target):
            blocked += 1
            previous = None
        else:
            previous = instruction
    return blocked
