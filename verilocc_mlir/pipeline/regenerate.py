"""The regeneration loop on one problem: propose, prove, feed counterexamples back, at most N times; then the next
allocator.

An allocator may come from another package. An exception that it raises, or an answer of the wrong form, ends its
attempt with the reason. Lack of memory, interrupts and the end of the process are passed on.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from smt_verifier.outcome import Outcome
from smt_verifier.prove import ProofResult
from verilocc_mlir.allocators import (
    AllocationFailure,
    Allocator,
    Counterexample,
    ModelProposal,
    ModelUse,
    Partial,
    Reading,
    Refutation,
    Regenerating,
    Remote,
    ServedProposal,
    ServerAttempt,
)
from verilocc_mlir.crew.abandon import interruptible
from verilocc_mlir.errors import VeriloccError, is_out_of_memory
from verilocc_mlir.pipeline.clock import Clock
from verilocc_mlir.problem.model import AllocationProblem, Proposal

DEFAULT_ATTEMPTS = 4
"""Proposals of one allocator, if it can try again."""

DEFECTS = logging.getLogger("verilocc.allocators")
"""Has the traceback of each exception that an allocator must not raise."""

_DEFECT = "defect"


@dataclass(frozen=True)
class Proposed:
    """One attempt.

    Attributes:
        proposal: what it proposed; None if it did not.
        proof: the proof's answer; None if there was nothing to prove.
        reason: why there is no proposal, or ``""``.
        cause: ``AllocationFailure.reason`` of it, or ``""``.
        server: the address of the server that was asked, ``""`` for an allocator of this process.
        partial: ``AllocationFailure.partial`` of it.
        use: what a model of this process did for it; None without one.
        tries: of the server that was asked.
    """

    allocator: str
    version: str
    proposal: Proposal | None
    proof: ProofResult | None
    reason: str = ""
    cause: str = ""
    server: str = ""
    partial: Partial | None = None
    use: ModelUse | None = None
    tries: tuple[ServerAttempt, ...] = ()

    @property
    def proved(self) -> bool:
        return self.proof is not None and self.proof.outcome is Outcome.PROVED


def proposals(
    allocators: Sequence[Allocator],
    problem: AllocationProblem,
    prove: Callable[[Proposal], ProofResult],
    clock: Clock,
    *,
    attempts: int = DEFAULT_ATTEMPTS,
    text: Callable[[], str] | None = None,
) -> Iterator[Proposed]:
    """Attempts in order, made when they are asked for: the caller stops at the first that satisfies it.

    Args:
        allocators: the one wanted first, then what to fall back to.
        clock: takes the CPU time, as ``allocate`` and ``prove``.
        attempts: proposals of each allocator that can try again; others are asked once, they would answer the same.
        text: gives the machine IR of which ``problem`` is the problem, for allocators that read it; None: there is
            none.
    """
    for allocator in allocators:
        refuted: tuple[Refutation, ...] = ()
        server = allocator.address if isinstance(allocator, Remote) else ""
        for _ in range(attempts if isinstance(allocator, Regenerating) else 1):
            try:
                with clock.measure("allocate"), interruptible():
                    proposal = _propose(allocator, problem, refuted, text)
            except Exception as error:
                if is_out_of_memory(error):
                    raise
                reason, cause = _failure(allocator, error)
                failure = error if isinstance(error, AllocationFailure) else AllocationFailure("", reason="")
                yield Proposed(
                    allocator.name, allocator.version, None, None, reason, cause, server, failure.partial, failure.use,
                    failure.tries,
                )  # fmt: skip
                break
            with clock.measure("prove"):
                proof = prove(proposal)
            use = proposal.use if isinstance(proposal, ModelProposal) else None
            tries = proposal.tries if isinstance(proposal, ServedProposal) else ()
            yield Proposed(allocator.name, allocator.version, proposal, proof, server=server, use=use, tries=tries)
            refuted = (*refuted, refutation_of(problem, proposal, proof))


def _propose(
    allocator: Allocator,
    problem: AllocationProblem,
    refuted: tuple[Refutation, ...],
    text: Callable[[], str] | None,
) -> Proposal:
    if refuted and isinstance(allocator, Regenerating):
        return _checked(allocator.regenerate(problem, refuted))
    if text is not None and isinstance(allocator, Reading):
        return _checked(allocator.allocate_text(text(), problem))
    return _checked(allocator.allocate(problem))


def _checked(proposal: object) -> Proposal:
    """The proposal, if its fields are what they are said to be; how many registers there are, and which, is proved.

    Raises:
        AllocationFailure: they are not.
    """
    if not isinstance(proposal, Proposal):
        raise AllocationFailure(f"it gave no Proposal: {type(proposal).__name__}", reason=_DEFECT)
    if type(proposal.registers) is not tuple:
        raise AllocationFailure(f"its registers are no tuple: {type(proposal.registers).__name__}", reason=_DEFECT)
    kinds = {type(name).__name__ for name in proposal.registers} - {"str"}
    if kinds:
        raise AllocationFailure(f"its registers are no names: {', '.join(sorted(kinds))}", reason=_DEFECT)
    return proposal


def _failure(allocator: Allocator, error: Exception) -> tuple[str, str]:
    """The reason and the cause of an attempt that an exception ended."""
    if isinstance(error, AllocationFailure):
        return error.what, error.reason
    if isinstance(error, VeriloccError):
        return error.what, ""
    DEFECTS.error("allocator %s", allocator.name, exc_info=error)
    place = traceback.extract_tb(error.__traceback__)[-1]
    # Not in the exception's own words, which may be anything: they are in the log.
    return f"a defect of the allocator: {type(error).__name__} at {Path(place.filename).name}:{place.lineno}", _DEFECT


def refutation_of(problem: AllocationProblem, proposal: Proposal, proof: ProofResult) -> Refutation:
    """What an allocator is told of a proposal that is not proved: the verifier's violations, without those that others
    imply, and which live ranges must move.
    """
    counterexamples = tuple(
        Counterexample(v.rule, v.ranges, v.slot, v.lanes, v.registers, v.free) for v in proof.core or proof.violations
    )
    from smt_verifier.prove import diagnose

    moves = tuple(move.range_id for move in diagnose(problem, proposal, proof).moves)
    return Refutation(proposal, counterexamples, moves)
