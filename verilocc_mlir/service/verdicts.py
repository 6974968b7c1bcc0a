"""Verdicts and obligations as messages of proto/verilocc/v1."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from smt_verifier.audit import FunctionAudit
from smt_verifier.audit.wording import render
from smt_verifier.outcome import Outcome
from smt_verifier.prove import ProofResult
from smt_verifier.smt import Obligation, Verdict, to_smtlib
from verilocc.v1 import verdict_pb2
from verilocc_mlir.remote.wire import OUTCOMES

MAX_FINDINGS = 64
_STATUS = {Outcome.PROVED: "unsat", Outcome.REFUTED: "sat"}


def verdict_of_proof(proof: ProofResult, obligations: Iterable[verdict_pb2.Obligation]) -> verdict_pb2.Verdict:
    findings = [
        verdict_pb2.Finding(
            rule=v.rule, outcome=verdict_pb2.OUTCOME_REFUTED, message=v.message, registers=v.names, free=v.free
        )
        for v in proof.violations[:MAX_FINDINGS]
    ]
    outcome = OUTCOMES[proof.outcome]
    if proof.reason:
        findings.append(verdict_pb2.Finding(rule="prove", outcome=outcome, message=proof.reason))
    return verdict_pb2.Verdict(outcome=outcome, checked=proof.obligations, findings=findings, obligations=obligations)


def verdict_of_audit(audit: FunctionAudit, obligations: Iterable[verdict_pb2.Obligation]) -> verdict_pb2.Verdict:
    messages = [
        verdict_pb2.Finding(
            rule=f.rule,
            outcome=OUTCOMES[f.outcome],
            message=render(f).partition(": ")[2],
            line_before=f.pre_line,
            line_after=f.post_line,
            fault=str(f.fault),
        )
        for f in audit.findings[:MAX_FINDINGS]
    ]
    return verdict_pb2.Verdict(
        outcome=OUTCOMES[audit.outcome],
        checked=audit.obligations,
        findings=messages,
        obligations=obligations,
        literal_goals=audit.goals.literal,
        decided_goals=audit.goals.decided,
    )


def obligation_messages(asked: Iterable[tuple[Obligation, Verdict]]) -> list[verdict_pb2.Obligation]:
    """Digests of what a solver was asked; the text hashed is the one that ``verilocc audit --smt-dir`` writes."""
    return [
        verdict_pb2.Obligation(
            name=obligation.name,
            sha256=hashlib.sha256(to_smtlib(obligation, _STATUS.get(verdict.outcome, "unknown")).encode()).digest(),
            logic=obligation.logic,
            goals=len(obligation.goals),
            outcome=OUTCOMES[verdict.outcome],
        )
        for obligation, verdict in asked
    ]
