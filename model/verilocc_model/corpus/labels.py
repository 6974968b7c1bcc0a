"""Labels: proved allocations by several teachers, ranked by cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from smt_verifier.outcome import Outcome
from smt_verifier.prove import prove
from verilocc_mlir.allocators import AllocationFailure, allocator
from verilocc_mlir.allocators.cost import file_total
from verilocc_mlir.allocators.deterministic import DeterministicAllocator
from verilocc_mlir.allocators.improve import Improving
from verilocc_mlir.allocators.measure import measure
from verilocc_mlir.allocators.registry import DEFAULT_SECONDS
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.problem.model import AllocationProblem, Proposal
from verilocc_mlir.toolchain.staged import StagedCompiler
from verilocc_model.corpus import greedy
from verilocc_model.corpus.greedy import NotExpressible, greedy_proposal
from verilocc_model.corpus.problems import Stated

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
        return lambda stated: replace(moves.allocate(stated.problem), allocator=label_name)
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
