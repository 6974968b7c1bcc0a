"""Whatever the solver says, the audit says no more than it: only PROVED of every obligation is a proof."""

from __future__ import annotations

from functools import lru_cache

import pytest
from allocation import Pair, phases_of_ir
from fuzz_targets import machine_ir_pair
from msgspec.structs import replace
from support import REPOSITORY

from smt_verifier.artefacts import RecordingSolver
from smt_verifier.audit import AuditReport, audit
from smt_verifier.audit.core import check
from smt_verifier.outcome import Outcome
from smt_verifier.smt import Obligation, Solver, Verdict, default_solver
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.target.targets import target


class Sometimes:
    """Another solver's answers, but for one obligation, or for all from one on, of which it says something else."""

    def __init__(self, number: int, verdict: Verdict, *, ever_after: bool = False) -> None:
        self.inner: Solver = default_solver()
        self.number = number
        self.verdict = verdict
        self.ever_after = ever_after
        self.asked = 0

    def check(self, obligation: Obligation, timeout_s: float = 30.0, *, consistent: bool = False) -> Verdict:
        self.asked += 1
        if self.asked == self.number + 1 or (self.ever_after and self.asked > self.number):
            # The goal that is named false is one of those asked.
            named = tuple(name for name, _ in obligation.goals[: len(self.verdict.violated)])
            return replace(self.verdict, violated=named)
        return self.inner.check(obligation, timeout_s, consistent=consistent)


@lru_cache(maxsize=1)
def obligations() -> int:
    solver = Sometimes(-1, Verdict(Outcome.PROVED))
    assert judged(solver).outcome is Outcome.PROVED
    return solver.asked


def judged(solver: Solver) -> AuditReport:
    pre, post = machine_ir_pair()
    return audit(parse_mir(pre), parse_mir(post), target("gfx942"), solver=solver)


WRONG = ("V_XOR_B32_e32 killed $vgpr2", "V_XOR_B32_e32 $vgpr0")
UNDECIDED = [Verdict(Outcome.UNKNOWN, reason="no answer within 3 s"), Verdict(Outcome.UNKNOWN)]
DECIDED = [
    (Verdict(Outcome.INVALID, reason="the obligation does not parse"), {Outcome.INVALID}),
    # A counterexample whose goals could not be named in time; and one that is named.
    (Verdict(Outcome.REFUTED, reason="counterexample found, but not its goals"), {Outcome.REFUTED, Outcome.UNKNOWN}),
    (Verdict(Outcome.REFUTED, ("the first",)), {Outcome.REFUTED, Outcome.UNKNOWN}),
]


def assert_not_proved(report: AuditReport, outcomes: set[Outcome]) -> None:
    assert report.outcome in outcomes, report
    assert any(finding.outcome in outcomes for function in report.functions for finding in function.findings)


@pytest.mark.parametrize(("verdict", "outcomes"), [*[(v, {Outcome.UNKNOWN}) for v in UNDECIDED], *DECIDED])
def test_obligations_that_are_not_proved_from_one_on(verdict: Verdict, outcomes: set[Outcome]) -> None:
    assert obligations() > 1
    for number in range(obligations()):
        assert_not_proved(judged(Sometimes(number, verdict, ever_after=True)), outcomes)


@pytest.mark.parametrize(("verdict", "outcomes"), DECIDED)
def test_one_answer_against_all_others_is_no_proof(verdict: Verdict, outcomes: set[Outcome]) -> None:
    """Blocks that are proved one by one do not outweigh an answer that all of them together are not."""
    for number in range(obligations()):
        assert_not_proved(judged(Sometimes(number, verdict)), outcomes)


@pytest.mark.parametrize("verdict", UNDECIDED)
def test_what_is_too_much_at_once_may_be_proved_block_by_block(verdict: Verdict) -> None:
    solver = Sometimes(0, verdict)
    assert judged(solver).outcome is Outcome.PROVED
    assert solver.asked > obligations()


def test_a_large_question_is_asked_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part is a question of its own; what one of them does not prove is not proved."""
    pair = phases_of_ir((REPOSITORY / "tests" / "data" / "audit" / "divergent.ll").read_text(), "gfx942")[1]
    monkeypatch.setattr(check, "_MOST_TERMS", 10)

    def names(pair: Pair, outcome: Outcome) -> list[str]:
        solver = RecordingSolver()
        assert audit(parse_mir(pair.pre), parse_mir(pair.post), target("gfx942"), solver=solver).outcome is outcome
        return [asked.name for asked, _ in solver.answers]

    parts = names(pair, Outcome.PROVED)
    assert any(name.endswith("/values-0") for name in parts)
    assert any(name.endswith("/values-1") for name in parts)
    assert any("/block-" in name for name in names(pair.with_post(*WRONG), Outcome.REFUTED))
