"""One mutant before the audit and the oracle."""

from __future__ import annotations

from dataclasses import dataclass

from oracle import Answer, Oracle

from mutants.subject import Edit, Mutation, Subject, read_again
from smt_verifier.audit import audit_function
from smt_verifier.outcome import Outcome
from smt_verifier.smt import Solver, Z3Solver

RUNS_ON_PROVED = 40
RUNS_ON_REFUTED = 3


@dataclass(frozen=True)
class Judgement:
    """What both said.

    Attributes:
        outcome: the audit's.
        rules: rules it named.
        message: its first finding.
        answer: the oracle's.
        visits: how often the oracle's runs entered a block that the edit changed.
        fault: ``""``, ``"false proof"``, ``"false refutation"`` or ``"wrong rule"``.
    """

    outcome: Outcome
    rules: frozenset[str]
    message: str
    answer: Answer
    visits: int
    fault: str


class Judge:
    """Judges the edits of one subject; ``solver`` runs in this process where none is given."""

    def __init__(self, subject: Subject, solver: Solver | None = None) -> None:
        self.subject = subject
        self.solver = solver or Z3Solver()
        self.oracle = Oracle(subject.pre, subject.target.wave_size)

    def unchanged(self, runs: int = 12) -> Judgement:
        """LLVM's own allocation."""
        return self._judge(Edit(self.subject.post, ""), None, runs, runs)

    def mutant(self, mutation: Mutation, edit: Edit, seed: int = 0, refuted_runs: int = RUNS_ON_REFUTED) -> Judgement:
        """One edit, as the text that it prints. Its runs start from ``seed``.

        Raises:
            VeriloccError: the text cannot be read.
        """
        return self._judge(edit, mutation, RUNS_ON_PROVED, refuted_runs, seed)

    def _judge(self, edit: Edit, mutation: Mutation | None, proved: int, refuted: int, seed: int = 0) -> Judgement:
        subject = self.subject
        post, pre, oracle = edit.function, subject.pre, self.oracle
        if mutation is not None:
            post = read_again(post, "")
        if edit.pre is not None:
            pre = read_again(edit.pre, "")
            oracle = Oracle(pre, subject.target.wave_size)
        audited = audit_function(subject.file, pre, post, subject.target, solver=self.solver)
        rules = frozenset(f.rule for f in audited.findings)
        runs = refuted if audited.outcome is Outcome.REFUTED else proved
        answer = oracle.compare(post, runs, seed) if runs else Answer(False)
        fault = ""
        if audited.outcome is Outcome.PROVED and answer.differs:
            fault = "false proof"
        elif audited.outcome is Outcome.REFUTED:
            if mutation is None or mutation.equivalent:
                fault = "false refutation"
            elif not rules & mutation.rules:
                fault = "wrong rule"
        message = audited.findings[0].render() if audited.findings else ""
        visits = sum(answer.visits[b] for b in edit.touched)
        return Judgement(audited.outcome, rules, message, answer, visits, fault)
