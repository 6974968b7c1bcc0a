"""What spilling and splitting must know of a function: where its registers are accessed, and where code may go."""

from __future__ import annotations

from dataclasses import dataclass, replace

from verilocc_mlir.analysis.cfg import ControlFlow, control_flow
from verilocc_mlir.analysis.execution import exec_masks, is_terminator
from verilocc_mlir.analysis.lanes import virtual_classes
from verilocc_mlir.mir.model import Instruction, MachineFunction
from verilocc_mlir.problem.build import frequency, lane_groups, phase_waiting
from verilocc_mlir.problem.model import AllocationProblem, LiveRange
from verilocc_mlir.spilling.constants import constants
from verilocc_mlir.spilling.gaps import RegisterGaps, register_gaps
from verilocc_mlir.spilling.plan import Costs, insertion_places
from verilocc_mlir.target.classes import RegisterClass
from verilocc_mlir.target.targets import Target


@dataclass(frozen=True)
class Ground:
    """One phase of one function.

    Attributes:
        problem: the phase's, in which what waits is live throughout.
        members: the ranges of the problem by virtual register.
        gaps: of the registers beside which code can be put.
        constants: moves of constants by register and part.
        weights: estimated executions of blocks, ascending.
        even: tuples start at even registers.
        waiting: registers whose lanes in inactive threads are needed where no code of the threads reads them.
    """

    function: MachineFunction
    problem: AllocationProblem
    members: dict[int, LiveRange]
    cfg: ControlFlow
    classes: dict[int, RegisterClass]
    gaps: dict[int, RegisterGaps]
    constants: dict[tuple[int, int], Instruction]
    costs: Costs
    weights: tuple[float, ...]
    even: bool
    waiting: frozenset[int]


def ground(function: MachineFunction, problem: AllocationProblem, target: Target) -> Ground:
    """Args: function: the one that ``problem`` was built from."""
    members = {int(r.name[1:]): r for r in problem.ranges}
    cfg = control_flow(function)
    classes = virtual_classes(function)
    scalar = problem.phase == "sgpr"
    barred = _barred(function)
    waits = phase_waiting(function, cfg, classes, members.__contains__, problem.phase)
    barred |= waits.fixed
    if waits.longer:
        ranges = tuple(
            replace(r, groups=lane_groups(waits.throughout, int(r.name[1:]))) if int(r.name[1:]) in waits.longer else r
            for r in problem.ranges
        )
        problem = replace(problem, ranges=ranges)
    known = constants(function, {v: classes[v] for v in members})
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
    return Ground(function, problem, members, cfg, classes, gaps, known, costs, weights, target.align2, unsplit)


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
