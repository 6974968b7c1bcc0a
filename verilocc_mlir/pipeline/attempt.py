"""Attempts at one function in one phase: build, allocate, prove, rewrite. The audit comes after, on the text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from smt_verifier.audit import FunctionAudit
from smt_verifier.outcome import Outcome
from smt_verifier.prove import ProofResult, prove
from smt_verifier.smt import Solver
from verilocc_mlir.allocators import Allocator
from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.mir.model import MachineFunction, MirFile
from verilocc_mlir.pipeline.clock import Clock
from verilocc_mlir.pipeline.regenerate import DEFAULT_ATTEMPTS, Proposed, proposals
from verilocc_mlir.problem.build import Phase, build_problem
from verilocc_mlir.problem.model import AllocationProblem, Proposal
from verilocc_mlir.report.model import Attempt, Finding, Verdict
from verilocc_mlir.rewrite import rewrite_function
from verilocc_mlir.target.targets import Target

_FINDINGS_KEPT = 20


@dataclass(frozen=True)
class Candidate:
    """What became of one function: all attempts in order, and the last one's result where it got that far.

    Attributes:
        attempts: as they are reported.
        proposed: the same as they were made; one fewer if the problem could not be built.
        problem: the question, None if it could not be built.
        function: the function with its registers, None if no attempt was proved and rewritten.
    """

    attempts: tuple[Attempt, ...]
    proposed: tuple[Proposed, ...] = ()
    problem: AllocationProblem | None = None
    function: MachineFunction | None = None


@dataclass(frozen=True)
class AttemptLimits:
    """``solver_seconds`` for one question to ``solver`` (None: the default one); ``attempts`` of an allocator that can
    try again.
    """

    solver_seconds: float
    attempts: int = DEFAULT_ATTEMPTS
    solver: Solver | None = None


def try_allocators(
    allocators: Sequence[Allocator],
    file: MirFile,
    function: MachineFunction,
    target: Target,
    phase: Phase,
    clock: Clock,
    limits: AttemptLimits,
) -> Candidate:
    """Let the allocators place the phase's registers of ``function``, until a proposal is proved and rewritten.

    Errors that mean "not by this allocator" end an attempt with their reason; all others are raised.
    """
    try:
        with clock.measure("build"):
            problem = build_problem(file, function, target, phase)
    except UnsupportedError as error:
        return Candidate((Attempt(allocators[0].name, "build", error.what),))

    def check(proposal: Proposal) -> ProofResult:
        return prove(problem, proposal, timeout_s=limits.solver_seconds, solver=limits.solver)

    attempts: list[Attempt] = []
    made: list[Proposed] = []
    for proposed in proposals(allocators, problem, check, clock, attempts=limits.attempts):
        made.append(proposed)
        whose = Attempt(proposed.allocator, "", server=proposed.server, version=proposed.version)
        proof = proof_verdict(proposed.proof) if proposed.proof is not None else None
        if proposed.proposal is None or proof is None:
            attempts.append(replace(whose, ended="allocate", reason=proposed.reason, cause=proposed.cause))
            continue
        if not proposed.proved:
            attempts.append(replace(whose, ended="prove", reason=_first(proof), proof=proof))
            continue
        try:
            with clock.measure("rewrite"):
                rewritten = rewrite_function(file, function, problem, proposed.proposal, target)
        except UnsupportedError as error:
            attempts.append(replace(whose, ended="rewrite", reason=error.what, proof=proof))
            continue
        attempts.append(replace(whose, ended="audit", proof=proof))
        return Candidate(tuple(attempts), tuple(made), problem, rewritten)
    return Candidate(tuple(attempts), tuple(made), problem)


def proof_verdict(result: ProofResult) -> Verdict:
    """``prove``'s answer in the report's form."""
    findings = [Finding(v.rule, Outcome.REFUTED, v.message) for v in result.violations[:_FINDINGS_KEPT]]
    if result.reason:
        findings.append(Finding("prove", result.outcome, result.reason))
    return Verdict(result.outcome, result.obligations, tuple(findings))


def audit_verdict(result: FunctionAudit) -> Verdict:
    """``audit``'s answer in the report's form."""
    findings = tuple(
        Finding(f.rule, f.outcome, f.render().partition(": ")[2]) for f in result.findings[:_FINDINGS_KEPT]
    )
    return Verdict(result.outcome, result.obligations, findings)


def audited(attempt: Attempt, verdict: Verdict) -> Attempt:
    """The attempt with the verdict on its text."""
    reason = "" if verdict.outcome is Outcome.PROVED else _first(verdict)
    return replace(attempt, ended="audit", reason=reason, audit=verdict)


def _first(verdict: Verdict) -> str:
    """Why a verdict is not PROVED, in a line."""
    if not verdict.findings:
        return f"{verdict.outcome}, without a finding"
    first = verdict.findings[0]
    line = first.message.splitlines()[0] if first.message else ""
    return f"{first.outcome} by {first.rule}: {line}"
