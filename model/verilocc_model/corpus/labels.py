"""Labels: proved allocations by several teachers, ranked by cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from smt_verifier.outcome import Outcome
from smt_verifier.prove import prove
from verilocc_mlir.allocators import AllocationFailure, allocator
from verilocc_mlir.allocators.bounds import Demand, demands
from verilocc_mlir.allocators.cells import Timeline, cell_map
from verilocc_mlir.allocators.cost import file_total, measure
from verilocc_mlir.allocators.deterministic import DeterministicAllocator
from verilocc_mlir.allocators.improve import Improving
from verilocc_mlir.allocators.items import single_items
from verilocc_mlir.allocators.packing import fixed_occupation
from verilocc_mlir.allocators.registry import DEFAULT_SECONDS
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
from verilocc_model.corpus import greedy
from verilocc_model.corpus.greedy import NotExpressible, greedy_proposal

# The allocation problems of one kernel, made by the pipeline's own steps.
#
# As in a compilation, the SGPR phase is allocated before the VGPR problem is stated: by the deterministic allocator if
# its answer is proved, else by LLVM. LLVM runs the whole-wave phase between them, as in the pipeline.


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
    return print_mir(structs.replace(stated.file, functions=(rewritten,)))


def _default_answer(problem: AllocationProblem, seconds: float) -> Proposal | None:
    try:
        proposal = allocator(DEFAULT_ALLOCATOR).allocate(problem)
    except AllocationFailure:
        return None
    proved = prove(problem, proposal, timeout_s=seconds).outcome is Outcome.PROVED
    return proposal if proved else None


DEFAULT_TEACHERS = (greedy.NAME, "deterministic")
IMPROVED = "improved"
"""The deterministic allocator followed by local moves, as with ``-O=best``."""


@dataclass(frozen=True)
class Label:
    """A proved allocation of a problem.

    Attributes:
        allocator: the allocator that made it, with its version: ``deterministic/1``.
        waves: waves per SIMD that the phase's registers allow.
        copies: estimated executions of the copies that stay.
        total: 32-bit registers of the phase's files, AGPRs after aligned VGPRs where they share a file.
        rank: 0 for the best label of its problem; equal costs share a rank.
    """

    allocator: str
    registers: tuple[str, ...]
    waves: int
    copies: float
    total: int
    rank: int = 0

    @property
    def cost(self) -> tuple[int, float, int]:
        """Smaller is better: waves, then copies, then registers (as ``allocators.cost.Cost``)."""
        return -self.waves, self.copies, self.total


@dataclass(frozen=True)
class Refused:
    """A teacher without a label: ``stage`` is ``allocate``, ``express`` or ``prove``, ``reason`` says why."""

    allocator: str
    stage: str
    reason: str


Teacher = Callable[[Stated], Proposal]
"""Raises AllocationFailure or NotExpressible where it has no answer."""


def teacher(name: str, compiler: StagedCompiler) -> Teacher:
    """A teacher by name: ``llvm-greedy``, ``IMPROVED``, or an allocator of ``verilocc_mlir.allocators``.

    Raises:
        InputError: there is no allocator of that name.
    """
    if name == greedy.NAME:
        version = ".".join(map(str, compiler.toolchain.version))

        def llvm(stated: Stated) -> Proposal:
            after = parse_mir(compiler.llvm_allocate(stated.text, stated.phase), stated.file.path)
            return greedy_proposal(stated.problem, stated.function, after.functions[0], version)

        return llvm
    if name == IMPROVED:
        moves = improving()
        # The label has this name even where no move was found.
        label_name = f"{moves.name}/{moves.version}"
        return lambda stated: structs.replace(moves.allocate(stated.problem), allocator=label_name)
    # Registers that are spread say nothing about where ranges fit.
    chosen = DeterministicAllocator(packed=True) if name == DeterministicAllocator.name else allocator(name)
    return lambda stated: chosen.allocate(stated.problem)


def improving(seconds: float = DEFAULT_SECONDS) -> Improving:
    """The allocator called ``IMPROVED``; its moves take at most ``seconds``."""
    return Improving(DeterministicAllocator(packed=True), seconds, packed=True)


def admit(problem: AllocationProblem, proposal: Proposal, *, timeout_s: float) -> Label | Refused:
    """A proposal as a label, if it is PROVED. Labels are made here only."""
    proof = prove(problem, proposal, timeout_s=timeout_s)
    if proof.outcome is not Outcome.PROVED:
        reason = proof.violations[0].message if proof.violations else proof.reason
        return Refused(proposal.allocator, "prove", f"{proof.outcome}: {reason}")
    measured = measure(problem, proposal)
    total = measured.sgprs if problem.phase == "sgpr" else file_total(measured.vgprs, measured.agprs, problem.occupancy)
    return Label(proposal.allocator, proposal.registers, measured.waves, measured.copies, total)


def teach(
    stated: Stated, teachers: Sequence[tuple[str, Teacher]], *, timeout_s: float
) -> tuple[tuple[Label, ...], tuple[Refused, ...]]:
    """All labels of a problem, best first, and the teachers without one."""
    labels: list[Label] = []
    refused: list[Refused] = []
    for name, answer in teachers:
        try:
            one = admit(stated.problem, answer(stated), timeout_s=timeout_s)
        except AllocationFailure as failure:
            one = Refused(name, "allocate", failure.reason)
        except NotExpressible as reason:
            one = Refused(name, "express", str(reason))
        if isinstance(one, Label):
            labels.append(one)
        else:
            refused.append(replace(one, allocator=name))
    return ranked(labels), tuple(refused)


def ranked(labels: Sequence[Label]) -> tuple[Label, ...]:
    costs = sorted({label.cost for label in labels})
    ordered = sorted(labels, key=lambda label: (label.cost, label.allocator))
    return tuple(replace(label, rank=costs.index(label.cost)) for label in ordered)
