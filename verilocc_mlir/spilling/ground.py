"""What spilling and splitting must know of a function: where its registers are accessed, and where code may go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from verilocc_mlir.analysis.cfg import ControlFlow, control_flow
from verilocc_mlir.analysis.execution import exec_masks, is_terminator
from verilocc_mlir.analysis.lanes import virtual_classes
from verilocc_mlir.analysis.waiting import Waiting
from verilocc_mlir.mir.model import Instruction, MachineFunction, Operand, OperandKind
from verilocc_mlir.problem.build import frequency, lane_groups, phase_waiting
from verilocc_mlir.problem.model import AllocationProblem, LiveRange
from verilocc_mlir.spilling.gaps import Gap, RegisterGaps, ones, parts_of, register_gaps
from verilocc_mlir.spilling.plan import Costs, insertion_places
from verilocc_mlir.target.classes import RegisterClass
from verilocc_mlir.target.registers import full_lanes, subregister_lanes
from verilocc_mlir.target.targets import Target

Writers = Mapping[tuple[int, int], Sequence[tuple[int, Instruction]]]
"""The instructions that write each part of a register, with their numbers."""


@dataclass(frozen=True)
class Ground:
    """One phase of one function.

    Attributes:
        problem: the phase's, in which what waits is live throughout.
        members: the ranges of the problem by virtual register.
        gaps: of the registers beside which code can be put.
        writers: what writes each part of the phase's registers.
        constants: moves of constants by register and part.
        weights: estimated executions of blocks, ascending.
        even: tuples start at even registers.
        waiting: registers whose lanes in inactive threads are needed where no code of the threads reads them.
        masks_of_reads: EXEC of what reads behind a gap, of the gaps that were asked for (``splitting/parts.py``).
    """

    function: MachineFunction
    problem: AllocationProblem
    members: dict[int, LiveRange]
    cfg: ControlFlow
    classes: dict[int, RegisterClass]
    gaps: dict[int, RegisterGaps]
    writers: Writers
    constants: dict[tuple[int, int], Instruction]
    costs: Costs
    weights: tuple[float, ...]
    even: bool
    waiting: frozenset[int]
    masks_of_reads: dict[Gap, set[int]] = field(default_factory=dict["Gap", set[int]], repr=False, compare=False)


def ground(
    function: MachineFunction, problem: AllocationProblem, target: Target, waits: Waiting | None = None
) -> Ground:
    """
    Args:
        function: the one that ``problem`` was built from.
        waits: the liveness that it was built with (``build_with_liveness``); None: it is made here.
    """
    members = {int(r.name[1:]): r for r in problem.ranges}
    cfg = control_flow(function)
    classes = virtual_classes(function)
    scalar = problem.phase == "sgpr"
    barred = _barred(function)
    waits = waits or phase_waiting(function, cfg, classes, members.__contains__, problem.phase)
    barred |= waits.fixed
    if waits.longer:
        ranges = tuple(
            replace(r, groups=lane_groups(waits.throughout, int(r.name[1:]))) if int(r.name[1:]) in waits.longer else r
            for r in problem.ranges
        )
        problem = replace(problem, ranges=ranges)
    of_members = {v: classes[v] for v in members}
    writers_of = writers(function, of_members)
    known = constants(writers_of, of_members)
    constant: dict[int, int] = {}
    for vreg, part in known:
        constant[vreg] = constant.get(vreg, 0) | 1 << part
    costs = Costs(
        lambda block: frequency(problem.block_depths[block]),
        None if scalar else exec_masks(function, cfg),
        insertion_places(function, cfg.first, vectors=not scalar),
        lambda vreg: constant.get(vreg, 0),
    )
    gaps = register_gaps(
        waits.throughout, cfg, lambda v: v in members and v not in barred and classes[v].bits % 32 == 0, waits.keeps
    )
    weights = tuple(sorted({frequency(depth) for depth in problem.block_depths}))
    unsplit = waits.longer | waits.fixed
    return Ground(
        function, problem, members, cfg, classes, gaps, writers_of, known, costs, weights, target.align2, unsplit
    )


def _barred(function: MachineFunction) -> set[int]:
    """Registers that spill code cannot be put beside: named in a bundle or after a terminator, or defined by one."""
    barred: set[int] = set()
    for block in function.blocks:
        after_terminator = False
        for instruction in block.instructions:
            is_last = is_terminator(instruction)
            if instruction.bundled or instruction.opens_bundle or after_terminator:
                barred.update(op.vreg for op in instruction.all_operands if op.vreg >= 0)
            elif is_last:
                barred.update(op.vreg for op in instruction.all_operands if op.vreg >= 0 and op.is_def)
            after_terminator |= is_last
    return barred


# Registers that hold a constant: one instruction makes it again, instead of a store and a load.
#
# A part of a register counts if only one instruction of the function writes it, and that instruction moves an immediate
# or copies a part that counts. An undefined value (``IMPLICIT_DEF``) may be anything, so it may be that constant too.


_MOVES = frozenset({"V_MOV_B32_e32", "AV_MOV_B32_IMM_PSEUDO", "S_MOV_B32", "S_MOVK_I32"})
_DEPTH = 4
"""Copies followed from a constant."""


def writers(function: MachineFunction, classes: Mapping[int, RegisterClass]) -> Writers:
    """The writers of the registers of which classes are given, ``IMPLICIT_DEF`` aside."""
    result: dict[tuple[int, int], list[tuple[int, Instruction]]] = {}
    for index, instruction in enumerate(i for block in function.blocks for i in block.instructions):
        if instruction.opcode != "IMPLICIT_DEF":
            for operand in instruction.all_operands:
                if operand.is_def and operand.vreg in classes:
                    for part in _parts(operand, classes):
                        result.setdefault((operand.vreg, part), []).append((index, instruction))
    return result


def constants(writers_of: Writers, classes: Mapping[int, RegisterClass]) -> dict[tuple[int, int], Instruction]:
    """For each register and part that holds a constant, the instruction that makes it."""
    makers: dict[tuple[int, int], Instruction] = {}
    copies: dict[tuple[int, int], tuple[int, int]] = {}
    for key, writers_of_part in writers_of.items():
        if len(writers_of_part) != 1:
            continue
        _, instruction = writers_of_part[0]
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
