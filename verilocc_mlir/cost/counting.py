"""What is counted in the final code: copies, spills, pairs, bank conflicts. One function for each rule. How
often blocks are executed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

from verilocc_mlir.analysis.cfg import ControlFlow, LoopForest, find_loops, flow_graph
from verilocc_mlir.cost import instructions
from verilocc_mlir.cost.assembly import Function
from verilocc_mlir.cost.instructions import Instruction, Kind, halves, is_vgpr, split_operands, units
from verilocc_mlir.cost.memory import at_fixed_place, dwords, is_scratch, scratch_resource
from verilocc_mlir.cost.rates import Figure, Origin, Source
from verilocc_mlir.target.targets import Target

# Control flow of final machine code: edges, loops, and how often each block runs.


_TRIPS = Figure(10, Source(Origin.ASSUMED, "iterations where neither the IR nor the code says how many"))
FIGURES = {"iterations of a loop": _TRIPS}
DEFAULT_TRIPS = int(_TRIPS.value)
"""Iterations of a loop whose count is not known."""


class Flow(Struct, frozen=True):
    """Edges and loops of a function, blocks by position."""

    cfg: ControlFlow
    loops: LoopForest


def control_flow(function: Function) -> Flow:
    """Edges from branches and from falling through. Loops with one header are merged; irreducible ones are included."""
    position = {block.label: k for k, block in enumerate(function.blocks) if block.label}
    successors: list[tuple[int, ...]] = []
    for k, block in enumerate(function.blocks):
        goals = [position[label] for label in block.targets if label in position]
        if block.falls_through and k + 1 < len(function.blocks):
            goals.append(k + 1)
        successors.append(tuple(dict.fromkeys(goals)))
    cfg = flow_graph(tuple(successors), (len(block.instructions) for block in function.blocks))
    return Flow(cfg, find_loops(cfg))


def executions(flow: Flow, trips: Mapping[int, int]) -> list[float]:
    """How often each block runs: the product of the trips of the loops around it; 0 where no path leads to it.

    A branch inside a loop body counts as going both ways, so all blocks of the body run in each iteration.

    Args:
        trips: iterations of a loop by its index in ``flow.loops``; the others have ``DEFAULT_TRIPS``.
    """
    total: list[float] = []
    for k, loop in enumerate(flow.loops.loops):
        outside = total[loop.parent] if loop.parent >= 0 else 1.0
        total.append(outside * trips.get(k, DEFAULT_TRIPS))
    counts = [0.0] * len(flow.cfg.successors)
    for block in flow.cfg.order:
        innermost = flow.loops.innermost[block]
        counts[block] = total[innermost] if innermost >= 0 else 1.0
    return counts


_VECTOR_COPY = ("v_mov_b32", "v_mov_b64", "v_mov_b16")
_ACCUMULATOR_COPY = ("v_accvgpr_read_b32", "v_accvgpr_write_b32", "v_accvgpr_mov_b32")
_SCALAR_COPY = ("s_mov_b32", "s_mov_b64")
_CONTROL = {instructions.EXEC, instructions.EXEC + 1, instructions.M0}
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
        if previous is not None and fit(previous, instruction) and banks_clash(previous, instruction, target):
            blocked += 1
            previous = None
        else:
            previous = instruction
    return blocked


# Dual issue on RDNA (VOPD): which two instructions can become one, and which registers they may name.
#
# Source: GCNVOPDUtils.cpp (checkVOPDRegConstraints) and AMDGPUBaseInfo.cpp (VOPD::InstInfo::hasInvalidOperand,
# VOPD_VGPR_BANK_MASKS 1, 3, 3, 1 for destination, src0, src1 and src2).


_EITHER = (
    "fmac_f32", "fmaak_f32", "fmamk_f32", "mul_f32", "add_f32", "sub_f32", "subrev_f32", "mul_dx9_zero_f32",
    "mul_legacy_f32", "mov_b32", "cndmask_b32", "max_f32", "min_f32", "max_num_f32", "min_num_f32",
)  # fmt: skip
_SECOND = ("add_nc_u32", "lshlrev_b32", "and_b32")
_BANKS = (2, 4, 4, 2)


def _is_one_of(instruction: Instruction, names: tuple[str, ...]) -> bool:
    return (
        instruction.base.removeprefix("v_") in names and instruction.mnemonic.endswith("_e32")
    ) or instruction.base in ("v_fmaak_f32", "v_fmamk_f32")


def banks_clash(first: Instruction, second: Instruction, target: Target) -> bool:
    """Whether destinations of one parity, or sources of one bank, keep the pair from becoming one instruction.

    Only gfx1250 allows one register as the same source of both. Two ``v_mov_b32`` of gfx12 read their sources through
    different ports.
    """
    moves = target.major >= 12 and first.base == second.base == "v_mov_b32"
    for place, (a, b) in enumerate(zip(_components(first), _components(second), strict=True)):
        if a is None or b is None or (place and moves):
            continue
        if place and a == b and target.vopd_same_source:
            continue
        if a % _BANKS[place] == b % _BANKS[place]:
            return True
    return False


def _components(instruction: Instruction) -> tuple[int | None, ...]:
    """VGPRs of the destination, src0, src1 and src2; None where there is none."""
    names = [_vgpr(operand) for operand in instruction.operands]
    base = instruction.base
    if base == "v_fmac_f32":
        # The addend is the destination.
        return (names[0], names[1], names[2], names[0])
    if base == "v_fmamk_f32":
        return (names[0], names[1], names[3], None)
    if base == "v_fmaak_f32":
        return (names[0], names[1], names[2], None)
    return (names[0], names[1], names[2] if len(names) > 2 else None, None)


def _vgpr(operand: str) -> int | None:
    numbers = units(re.sub(r"[-|]", "", operand))
    return numbers[0] if numbers and is_vgpr(numbers[0]) else None


def fit(first: Instruction, second: Instruction) -> bool:
    """Whether two neighbours can become one instruction, banks apart.

    Both opcodes have a Y form and one has an X form (VOPDInstructions.td, VOPDY_Opcodes and VOPDX_Opcodes; encodings of
    64 bits have none). The second neither reads nor writes what the first writes. There are at most one literal and two
    scalar sources.
    """
    pair = (first, second)
    if not all(_is_one_of(i, _EITHER + _SECOND) for i in pair) or not any(_is_one_of(i, _EITHER) for i in pair):
        return False
    if not set(first.defs).isdisjoint((*second.uses, *second.defs)):
        return False
    sources = [o for i in pair for o in i.operands[1:]]
    literals = {o for o in sources if not units(o) and not _inline(o)}
    scalars = {o for o in sources if units(o) and not is_vgpr(units(o)[0])}
    return len(literals) <= 1 and len(literals) + len(scalars) <= 2


def _inline(operand: str) -> bool:
    """Whether a constant needs no literal: integers from -16 to 64, and nine floating-point values."""
    if operand in ("0.5", "-0.5", "1.0", "-1.0", "2.0", "-2.0", "4.0", "-4.0", "0.15915494"):
        return True
    try:
        return -16 <= int(operand, 0) <= 64
    except ValueError:
        return False
