"""One mutant before the audit and the oracle."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from oracle import Answer, Oracle
from oracle.statics import module_fault
from oracle.verifier import complaints

from mutants.arguments import BY_CONSTRUCTION, NEVER_RUN, RUNS, why_equivalent
from mutants.subject import Edit, Mutation, Subject, read_again
from smt_verifier.audit import audit
from smt_verifier.audit.wording import render
from smt_verifier.outcome import Outcome
from smt_verifier.smt import Solver, Z3Solver
from verilocc_mlir.mir.model import MirFile
from verilocc_mlir.mir.printer import print_function

RUNS_ON_PROVED = 16
RUNS_AS_EVIDENCE = 48
"""More runs of a proved mutant for which there is no argument but the runs."""
RUNS_ON_ARGUED = 6
"""Runs of a proved mutant for which there is an argument."""
RUNS_ON_REFUTED = 2
RUNS_ON_LLVM_REFUTED = 500
"""Runs of what LLVM made and the audit refutes, until one of them shows that LLVM is wrong."""
_OF_FLAGS = frozenset({"kill-flag", "dead-flag", "live-in"})
_NOTICES = frozenset({"Using an undefined physical register"})
"""What LLVM's verifier says of reads that do no harm: the runs tell where they do."""
LLVM_FAULT = "fault of LLVM"
"""LLVM's own allocation is refuted, and a run of the oracle tells it from the original."""


@dataclass(frozen=True)
class Judgement:
    """What both said.

    Attributes:
        outcome: the audit's.
        rules: rules it named.
        message: its first finding.
        answer: the oracle's.
        visits: how often the oracle's runs entered a block that the edit changed.
        reason: of a proved mutant: why it is none (``mutants.arguments``).
        fault: ``""``, ``"false proof"``, ``"false refutation"``, ``"wrong rule"`` or ``LLVM_FAULT``.
    """

    outcome: Outcome
    rules: frozenset[str]
    message: str
    answer: Answer
    visits: int
    reason: str
    fault: str


class Judge:
    """Judges the edits of one subject; ``solver`` runs in this process where none is given."""

    def __init__(self, subject: Subject, solver: Solver | None = None) -> None:
        self.subject = subject
        self.solver = solver or Z3Solver()
        self.oracle = Oracle(subject.pre, subject.target.wave_size, subject.available.reserved_units)

    @cached_property
    def _flags_tell(self) -> bool:
        """Whether runs that believe kill flags and live-ins tell anything of this subject.

        They do not where they contradict LLVM's own text: what a waiting thread keeps in a register that is dead for
        the wave counts as lost there.
        """
        return not self.oracle.compare(self.subject.post, RUNS_ON_PROVED, 3, flags=True).differs

    @cached_property
    def _complaints(self) -> frozenset[str]:
        """What LLVM's verifier says of LLVM's own text."""
        text = (self.subject.module or self.subject.file.preamble) + print_function(self.subject.post)
        return complaints(text, self.subject.target.name)

    def unchanged(self, runs: int = 12) -> Judgement:
        """LLVM's own allocation."""
        judged = self._judge(Edit(self.subject.post, ""), None, runs, runs)
        if judged.outcome is not Outcome.REFUTED:
            return judged
        answer = judged.answer
        if not answer.differs:
            answer = self.oracle.compare(self.subject.post, RUNS_ON_LLVM_REFUTED, 7)
        if not answer.differs and judged.rules <= _OF_FLAGS:
            # LLVM's own flags are at fault: a run that believes them shows it.
            answer = self.oracle.compare(self.subject.post, RUNS_ON_LLVM_REFUTED, 8, flags=True)
        if not answer.differs and (own := self._complaints - _NOTICES):
            answer = replace(answer, differs=True, where=f"LLVM's verifier of LLVM's own text: {sorted(own)[0]}")
        return replace(judged, answer=answer, fault=LLVM_FAULT if answer.differs else judged.fault)

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
            oracle = Oracle(pre, subject.target.wave_size, subject.available.reserved_units)
        before = subject.file.preamble
        module = subject.module if edit.preamble is None else edit.preamble
        after = before if module is None else module
        (audited,) = audit(
            MirFile(before, (pre,)), MirFile(after, (post,)), subject.target, solver=self.solver
        ).functions
        rules = frozenset(f.rule for f in audited.findings)
        reason = ""
        if audited.outcome is Outcome.PROVED and mutation is not None:
            reason = why_equivalent(subject.post, post, subject.target.wave_size) if edit.pre is None else ""
            reason = reason or (BY_CONSTRUCTION if mutation.equivalent else "")
        runs = refuted if audited.outcome is Outcome.REFUTED else min(proved, RUNS_ON_ARGUED) if reason else proved
        answer = oracle.compare(post, runs, seed) if runs else Answer(False)
        if not answer.differs and (fault := module_fault(before, after)):
            answer = Answer(True, fault)
        flags = audited.outcome is Outcome.PROVED and self._flags_tell
        if not answer.differs and flags:
            more = oracle.compare(post, (runs + 1) // 2, seed + 2, flags=True)
            answer = replace(more, runs=answer.runs + more.runs, visits=answer.visits + more.visits)
        if audited.outcome is Outcome.PROVED and mutation is not None and not answer.differs and not reason:
            more = oracle.compare(post, RUNS_AS_EVIDENCE, seed + 1, flags=flags)
            answer = replace(more, runs=answer.runs + more.runs, visits=answer.visits + more.visits)
        if audited.outcome is Outcome.PROVED and mutation is not None and not answer.differs and edit.pre is None:
            news = complaints(after + print_function(post), subject.target.name) - self._complaints
            if news - _NOTICES:
                answer = replace(answer, differs=True, where=f"LLVM's verifier: {sorted(news - _NOTICES)[0]}")
        visits = sum(answer.visits[b] for b in edit.touched)
        if audited.outcome is Outcome.PROVED and mutation is not None and not answer.differs:
            reason = reason or (RUNS if visits else NEVER_RUN)
        fault = ""
        if audited.outcome is Outcome.PROVED and (answer.differs or (mutation is not None and mutation.always)):
            fault = "false proof"
        elif audited.outcome is Outcome.REFUTED:
            if mutation is None or mutation.equivalent:
                fault = "false refutation"
            elif not rules & mutation.rules:
                fault = "wrong rule"
        message = render(audited.findings[0]) if audited.findings else ""
        return Judgement(audited.outcome, rules, message, answer, visits, reason, fault)
