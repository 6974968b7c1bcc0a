"""The allocation problems of one kernel, made by the pipeline's own steps.

As in a compilation, the SGPR phase is allocated before the VGPR problem is stated: by the deterministic allocator if
its answer is proved, else by LLVM. LLVM runs the whole-wave phase between them, as in the pipeline.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from smt_verifier.outcome import Outcome
from smt_verifier.prove import prove
from verilocc_mlir.allocators import AllocationFailure, allocator
from verilocc_mlir.allocators.bounds import Demand, demands
from verilocc_mlir.allocators.cells import cell_map
from verilocc_mlir.allocators.items import single_items
from verilocc_mlir.allocators.packing import fixed_occupation
from verilocc_mlir.allocators.timeline import Timeline
from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.mir.model import MachineFunction, MirFile
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.mir.printer import print_mir
from verilocc_mlir.pipeline.settings import DEFAULT_ALLOCATOR
from verilocc_mlir.problem.build import build_problem
from verilocc_mlir.problem.model import AllocationProblem, Phase, Proposal
from verilocc_mlir.rewrite import rewrite_function
from verilocc_mlir.target.targets import Target, target
from verilocc_mlir.toolchain.staged import LlvmPhase, StagedCompiler

_PHASES: tuple[tuple[Phase, LlvmPhase], ...] = (("sgpr", LlvmPhase.SGPR), ("vgpr", LlvmPhase.VGPR))


@dataclass(frozen=True)
class Stated:
    """One phase of one function.

    Attributes:
        text: MIR as it enters the phase.
        file: the same, parsed; it has one function.
        problem: its allocation problem.
    """

    text: str
    file: MirFile
    problem: AllocationProblem

    @property
    def function(self) -> MachineFunction:
        return self.file.functions[0]

    @property
    def phase(self) -> LlvmPhase:
        """The phase as ``StagedCompiler`` takes it."""
        return {str(name): phase for name, phase in _PHASES}[self.problem.phase]


def stated_problems(
    ir: str, compiler: StagedCompiler, *, most_instructions: int, solver_seconds: float
) -> Iterator[Stated]:
    """The SGPR and the VGPR problem of the one function of ``ir``; phases with nothing to place are left out.

    Args:
        compiler: for the kernel's target.

    Raises:
        UnsupportedError: not one function, one of more than ``most_instructions``, or the pipeline cannot state it.
        InputError, ToolchainError: as the pipeline.
    """
    machine = target(compiler.options.cpu)
    text = compiler.to_pre_ra(ir)
    for name, phase in _PHASES:
        file = parse_mir(text, compiler.options.input_name)
        if len(file.functions) != 1:
            raise UnsupportedError(f"{len(file.functions)} functions, not one")
        (function,) = file.functions
        if function.instruction_count > most_instructions:
            raise UnsupportedError(f"{function.instruction_count} instructions, more than {most_instructions}")
        stated = Stated(text, file, build_problem(file, function, machine, name))
        if stated.problem.ranges:
            yield stated
        if phase is LlvmPhase.SGPR:
            text = compiler.resume(
                _allocated(stated, machine, compiler, solver_seconds), done=phase, until=LlvmPhase.VGPR
            )


def problem_demands(problem: AllocationProblem) -> tuple[Demand, ...]:
    """The registers of each set of files that the ranges need at once, and how many there are."""
    timeline, cells = Timeline(problem), cell_map(problem)
    singles = single_items(problem, timeline, cells)
    return demands(problem, timeline, cells, singles, fixed_occupation(problem, timeline, cells))


def _allocated(stated: Stated, machine: Target, compiler: StagedCompiler, seconds: float) -> str:
    """The text after the SGPR phase."""
    proposal = _default_answer(stated.problem, seconds) if stated.problem.ranges else None
    if proposal is None:
        return compiler.llvm_allocate(stated.text, stated.phase)
    rewritten = rewrite_function(stated.file, stated.function, stated.problem, proposal, machine)
    return print_mir(replace(stated.file, functions=(rewritten,)))


def _default_answer(problem: AllocationProblem, seconds: float) -> Proposal | None:
    try:
        proposal = allocator(DEFAULT_ALLOCATOR).allocate(problem)
    except AllocationFailure:
        return None
    proved = prove(problem, proposal, timeout_s=seconds).outcome is Outcome.PROVED
    return proposal if proved else None
