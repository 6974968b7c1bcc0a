"""The regeneration loop on one problem: propose, prove, feed counterexamples back, at most N times; then the next
allocator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from smt_verifier.outcome import Outcome
from smt_verifier.prove import ProofResult
from verilocc_mlir.allocators import AllocationFailure, Allocator, Counterexample, Refutation, Regenerating, Remote
from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.pipeline.clock import Clock
from verilocc_mlir.problem.model import AllocationProblem, Proposal

DEFAULT_ATTEMPTS = 4
"""Proposals of one allocator, if it can try again."""


@dataclass(frozen=True)
class Proposed:
    """One attempt.

    Attributes:
        allocator: its name.
        version: its version.
        proposal: what it proposed; None if it did not.
        proof: the proof's answer; None if there was nothing to prove.
        reason: why there is no proposal, or ``""``.
        cause: ``AllocationFailure.reason`` of it, or ``""``.
        server: the address of the server that was asked, ``""`` for an allocator of this process.
    """

    allocator: str
    version: str
    proposal: Proposal | None
    proof: ProofResult | None
    reason: str = ""
    cause: str = ""
    server: str = ""

    @property
    def proved(self) -> bool:
        """Whether the proposal may be used."""
        return self.proof is not None and self.proof.outcome is Outcome.PROVED


def proposals(
    allocators: Sequence[Allocator],
    problem: AllocationProblem,
    prove: Callable[[Proposal], ProofResult],
    clock: Clock,
    *,
    attempts: int = DEFAULT_ATTEMPTS,
) -> Iterator[Proposed]:
    """Attempts in order, made when they are asked for: the caller stops at the first that satisfies it.

    Args:
        allocators: the one wanted first, then what to fall back to.
        problem: the question.
        prove: checks a proposal.
        clock: takes the CPU time, as ``allocate`` and ``prove``.
        attempts: proposals of each allocator that can try again; others are asked once, they would answer the same.
    """
    for allocator in allocators:
        refuted: tuple[Refutation, ...] = ()
        server = allocator.address if isinstance(allocator, Remote) else ""
        for _ in range(attempts if isinstance(allocator, Regenerating) else 1):
            try:
                with clock.measure("allocate"):
                    proposal = _propose(allocator, problem, refuted)
            except (AllocationFailure, UnsupportedError) as error:
                cause = error.reason if isinstance(error, AllocationFailure) else ""
                yield Proposed(allocator.name, allocator.version, None, None, error.what, cause, server)
                break
            with clock.measure("prove"):
                proof = prove(proposal)
            yield Proposed(allocator.name, allocator.version, proposal, proof, server=server)
            refuted = (*refuted, Refutation(proposal, _counterexamples(proof)))


def _propose(allocator: Allocator, problem: AllocationProblem, refuted: tuple[Refutation, ...]) -> Proposal:
    if refuted and isinstance(allocator, Regenerating):
        return allocator.regenerate(problem, refuted)
    return allocator.allocate(problem)


def _counterexamples(proof: ProofResult) -> tuple[Counterexample, ...]:
    return tuple(
        Counterexample(v.rule, v.ranges, v.slot, v.lanes, v.registers, v.free) for v in proof.core or proof.violations
    )
