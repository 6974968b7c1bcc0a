"""One allocation of one function in one phase: build, allocate, prove, rewrite. The audit comes after, on the text."""

from __future__ import annotations

from dataclasses import dataclass

from smt_verifier.audit import FunctionAudit
from smt_verifier.outcome import Outcome
from smt_verifier.prove import ProofResult, prove
from verilocc_mlir.allocators import AllocationFailure, Allocator
from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.mir.model import MachineFunction, MirFile
from verilocc_mlir.pipeline.clock import Clock
from verilocc_mlir.problem.build import Phase, build_problem
from verilocc_mlir.report.model import Attempt, Finding, Verdict
from verilocc_mlir.rewrite import rewrite_function
from verilocc_mlir.target.targets import Target

_FINDINGS_KEPT = 20


@dataclass(frozen=True)
class Candidate:
    """An attempt, and the function with its registers where it got that far."""

    attempt: Attempt
    function: MachineFunction | None


def try_allocator(
    allocator: Allocator,
    file: MirFile,
    function: MachineFunction,
    target: Target,
    phase: Phase,
    clock: Clock,
    solver_seconds: float,
) -> Candidate:
    """Let ``allocator`` place the phase's registers of ``function``, and prove that before it is written into the MIR.

    Errors that mean "not by this allocator" end the attempt with their reason; all others are raised.
    """
    step = "build"
    proof: Verdict | None = None
    try:
        with clock.measure(step):
            problem = build_problem(file, function, target, phase)
        step = "allocate"
        with clock.measure(step):
            proposal = allocator.allocate(problem)
        step = "prove"
        with clock.measure(step):
            proof = proof_verdict(prove(problem, proposal, timeout_s=solver_seconds))
        if proof.outcome is not Outcome.PROVED:
            return Candidate(Attempt(allocator.name, step, _first(proof), proof), None)
        step = "rewrite"
        with clock.measure(step):
            rewritten = rewrite_function(file, function, problem, proposal, target)
    except (AllocationFailure, UnsupportedError) as error:
        return Candidate(Attempt(allocator.name, step, error.what, proof), None)
    return Candidate(Attempt(allocator.name, "audit", proof=proof), rewritten)


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
    return Attempt(attempt.allocator, "audit", reason, attempt.proof, verdict)


def _first(verdict: Verdict) -> str:
    """Why a verdict is not PROVED, in a line."""
    if not verdict.findings:
        return f"{verdict.outcome}, without a finding"
    first = verdict.findings[0]
    line = first.message.splitlines()[0] if first.message else ""
    return f"{first.outcome} by {first.rule}: {line}"
