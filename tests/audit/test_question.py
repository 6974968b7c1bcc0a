"""How goals are put to the solver: which hypotheses go with a goal, and which goals are asked once for all."""

from __future__ import annotations

from collections.abc import Collection

from smt_verifier.audit.core.check import Question
from smt_verifier.audit.core.machine import Goal
from smt_verifier.audit.core.pairs import Step
from smt_verifier.audit.core.state import Expression
from smt_verifier.outcome import Outcome
from smt_verifier.smt import default_solver

Pairs = list[tuple[int, int]]


def goal(pre: int, post: int, rule: str = "value") -> Goal:
    return Goal(rule, pre, post, Step(None, None), pre, post)


def ask(
    goals: Pairs, hypotheses: Pairs, expressions: Collection[Expression] = (), maybe: Collection[int] = ()
) -> tuple[list[Pairs], set[tuple[int, int]]]:
    """Groups of goals that are asked as one, and the goals that do not hold."""
    question = Question()
    question.add(hypotheses, list(expressions), [goal(*g) for g in goals], maybe)
    obligation, groups = question.obligation("f/block-0"), question.groups
    assert len(obligation.goals) == len(groups)
    verdict = default_solver().check(obligation, 10.0)
    assert verdict.outcome is (Outcome.REFUTED if verdict.violated else Outcome.PROVED)
    wrong = {(g.pre, g.post) for name in verdict.violated for g in groups[int(name.removeprefix("g"))]}
    return [[(g.pre, g.post) for g in group] for group in groups], wrong


def test_goals_that_only_names_tell_apart_are_asked_once() -> None:
    groups, wrong = ask([(1, 2), (3, 4), (5, 6)], [(1, 2), (3, 4), (5, 6)])
    assert groups == [[(1, 2), (3, 4), (5, 6)]]
    assert not wrong


def test_if_one_of_them_does_not_hold_none_does() -> None:
    groups, wrong = ask([(1, 3), (4, 6), (7, 8)], [(1, 2), (4, 5), (7, 8)])
    assert groups == [[(1, 3), (4, 6)], [(7, 8)]]
    assert wrong == {(1, 3), (4, 6)}


def test_other_hypotheses_make_another_question() -> None:
    groups, wrong = ask([(1, 3), (4, 6)], [(1, 2), (1, 3), (4, 5)])
    assert groups == [[(1, 3)], [(4, 6)]]
    assert wrong == {(4, 6)}


def test_what_may_be_undefined_is_another_question() -> None:
    pairs = [(1, 2), (3, 4)]
    assert ask(pairs, pairs, maybe={3}) == ([[(1, 2)], [(3, 4)]], set())
    # Undefined, or equal to one place, and undefined, or equal to another, does not make the places equal.
    assert ask([(2, 3)], [(1, 2), (1, 3)]) == ([[(2, 3)]], set())
    assert ask([(2, 3)], [(1, 2), (1, 3)], maybe={1}) == ([[(2, 3)]], {(2, 3)})
    assert ask([(1, -1), (4, -1)], [(1, 2), (4, 5)], maybe={1}) == ([[(1, -1)], [(4, -1)]], {(1, -1), (4, -1)})


def test_equality_is_found_along_chains() -> None:
    """Through a shared place, through one operation on equal arguments, and through constants that are equal."""
    made = [Expression("add", 0, (1, 2), 10), Expression("add", 0, (3, 4), 11)]
    assert ask([(10, 11)], [(1, 5), (3, 5), (2, 6), (4, 6)], made)[1] == set()
    assert ask([(10, 11)], [(1, 5), (3, 5), (2, 6), (4, 7)], made)[1] == {(10, 11)}
    constants = [Expression("7", 0, (), 20), Expression("7", 0, (), 21), Expression("8", 0, (), 22)]
    assert ask([(20, 21)], [], constants)[1] == set()
    assert ask([(20, 22)], [], constants)[1] == {(20, 22)}
    on_constants = [*constants, Expression("neg", 0, (20,), 30), Expression("neg", 0, (21,), 31)]
    assert ask([(30, 31)], [], on_constants)[1] == set()


def test_operations_lanes_and_shapes_are_told_apart() -> None:
    for other in (Expression("sub", 0, (3,), 4), Expression("add", 1, (3,), 4), Expression("add", 0, (3, 3), 4)):
        _, wrong = ask([(2, 4)], [(1, 9), (3, 9)], [Expression("add", 0, (1,), 2), other])
        assert wrong == {(2, 4)}


def test_hypotheses_that_no_goal_is_joined_to_are_left_out() -> None:
    question = Question()
    question.add([(1, 2), (3, 4)], [], [goal(1, 2)], ())
    assert len(question.groups) == 1
    assert question.obligation("f/block-0").script.count("(assert") == 1


def test_goals_of_undecided_rules_keep_their_rule() -> None:
    both = [goal(1, 2), goal(1, 2, "relation"), goal(1, 2)]
    question = Question()
    question.add([(1, 2)], [], both, ())
    assert sorted(g.rule for group in question.groups for g in group) == ["relation", "value"]


def test_blocks_have_terms_of_their_own() -> None:
    """Term 1 of one block is not term 1 of another: what is assumed there says nothing here."""
    question = Question()
    question.add([(1, 2), (1, 3)], [], [goal(2, 3)], ())
    question.add([(1, 2)], [], [goal(2, 3)], ())
    verdict = default_solver().check(question.obligation("f/values"), 10.0)
    assert verdict.outcome is Outcome.REFUTED
    assert [len(question.groups[int(name.removeprefix("g"))]) for name in verdict.violated] == [1]
    assert len(question.groups) == 2
