"""Obligations and the Z3 back end: each verdict, and what must not pass as a proof."""

from __future__ import annotations

import pytest
from smt_support import EQUAL, obligation, pigeons

from smt_verifier.outcome import Outcome
from smt_verifier.smt import Obligation, Z3Solver, conjunction, to_smtlib


def test_goals_that_follow_are_proved() -> None:
    verdict = Z3Solver().check(obligation("(= (f a) (f b))", "(= b a)"))
    assert (verdict.outcome, verdict.violated) == (Outcome.PROVED, ())


def test_a_counterexample_names_its_goals() -> None:
    verdict = Z3Solver().check(obligation("(= (f a) (f b))", "(= a c)", "true"))
    assert (verdict.outcome, verdict.violated) == (Outcome.REFUTED, ("goal (= a c)",))


def test_the_goals_named_are_those_of_one_counterexample() -> None:
    """(= c d) and its negation are never false together."""
    asked = obligation("(= c d)", "(not (= c d))", "(= a b)")
    assert len(Z3Solver().check(asked).violated) == 1


def test_no_goals_are_proved() -> None:
    assert Z3Solver().check(obligation()).outcome is Outcome.PROVED


def test_time_out_is_unknown() -> None:
    verdict = Z3Solver().check(obligation("false", script=pigeons(12)), timeout_s=0.2)
    assert verdict.outcome is Outcome.UNKNOWN
    assert verdict.reason


def test_resource_limit_is_unknown() -> None:
    verdict = Z3Solver(rlimit=20_000).check(obligation("false", script=pigeons(12)))
    assert verdict.outcome is Outcome.UNKNOWN
    assert verdict.reason


@pytest.mark.parametrize(
    "script", [EQUAL + "(assert (= a", EQUAL + "(assert (= a nobody))", EQUAL + "(assert |a", EQUAL + "(assert (f a))"]
)
def test_text_that_does_not_parse_is_invalid(script: str) -> None:
    verdict = Z3Solver().check(obligation("true", script=script))
    assert verdict.outcome is Outcome.INVALID
    assert "parse" in verdict.reason


def test_a_comment_cannot_hide_the_goals() -> None:
    assert Z3Solver().check(obligation("(= a c)", script=EQUAL + " ; comment")).outcome is Outcome.REFUTED


def test_contradictory_hypotheses_prove_nothing_where_asked() -> None:
    asked = obligation("(= a c)", script=EQUAL + "(assert (not (= b a)))")
    assert Z3Solver().check(asked).outcome is Outcome.PROVED
    verdict = Z3Solver().check(asked, consistent=True)
    assert verdict.outcome is Outcome.INVALID
    assert "contradict" in verdict.reason
    assert Z3Solver().check(obligation("(= a b)"), consistent=True).outcome is Outcome.PROVED


def test_one_obligation_is_nothing_to_the_next() -> None:
    """Hypotheses, names and types of one do not reach another of the same solver."""
    solver = Z3Solver()
    assert solver.check(obligation("(= a c)", script=EQUAL + "(assert (= b c))")).outcome is Outcome.PROVED
    assert solver.check(obligation("(= a c)")).outcome is Outcome.REFUTED
    assert solver.check(obligation("(= a c)", script=EQUAL + "(assert false)")).outcome is Outcome.PROVED
    assert solver.check(obligation("(= a c)")).outcome is Outcome.REFUTED
    other = "(declare-const a Bool)(declare-fun f (Bool) Bool)(assert (f a))"
    assert solver.check(obligation("a", script=other)).outcome is Outcome.REFUTED
    assert solver.check(obligation("(= (f a) (f b))")).outcome is Outcome.PROVED
    assert solver.check(obligation("(= nobody a)")).outcome is Outcome.INVALID
    assert solver.check(obligation("(= a b)")).outcome is Outcome.PROVED


def test_a_question_after_one_that_ran_out_of_time() -> None:
    solver = Z3Solver()
    hard = obligation("false", script=pigeons(12))
    assert solver.check(hard, timeout_s=0.2).outcome is Outcome.UNKNOWN
    assert solver.check(obligation("(= a b)")).outcome is Outcome.PROVED
    assert solver.check(obligation("(= a c)")).outcome is Outcome.REFUTED


def test_two_goals_of_one_name_are_invalid() -> None:
    asked = Obligation("test", "QF_UF", EQUAL, (("g", "(= a b)"), ("g", "true")))
    assert Z3Solver().check(asked).outcome is Outcome.INVALID


@pytest.mark.parametrize(("count", "text"), [(0, "true"), (1, "p0"), (2, "(and\n p0\n p1)")])
def test_conjunctions_of_any_length(count: int, text: str) -> None:
    assert conjunction([f"p{k}" for k in range(count)]) == text


def test_a_file_stands_on_its_own() -> None:
    text = to_smtlib(Obligation('a "b"', "QF_UF", EQUAL, (("line\n(assert false)", "(= a b)"),)))
    assert text.splitlines()[2:4] == ["(set-info :status unsat)", "(set-logic QF_UF)"]
    assert text.endswith("(check-sat)\n")
    assert "\"VeriLocc-MLIR obligation a 'b'\"" in text
    assert "\n(assert false)" not in text
