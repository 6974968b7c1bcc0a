"""What copies and the machine's preferences ask of a place: who says so, who heeds it, and what it is worth."""

from __future__ import annotations

import pytest
from builders import live_of, problem_of
from model_support import answered
from msgspec.structs import replace

from smt_verifier.outcome import Outcome
from smt_verifier.prove import prove
from verilocc_mlir.allocators.items import Item, fixed_start
from verilocc_mlir.problem.model import PROBLEM_VERSION, AllocationProblem, Preference, Proposal, Relation
from verilocc_model.encoding.canonical import canonical
from verilocc_model.encoding.episode import Episode, draft, usual
from verilocc_model.encoding.placing import place_of
from verilocc_model.encoding.table import Demands, Rule, Table, price_of
from verilocc_model.encoding.vocabulary import APART, CHAIN, JOIN, MEETS, MEETS_AT

PAIRED, CHAINED = "attn_d64.gfx1100", "attn_d64.gfx942"


def table_of(name: str) -> Table:
    """Of the vector phase of a kernel."""
    return Table(canonical(answered(name, "vgpr")[0]).problem)


def unmet(table: Table, starts: list[int]) -> float:
    """Weight of the preferences that are not met."""
    return sum(
        weight
        for relations, weight in table.cost.preferences
        if not all(r.holds(starts[r.a], starts[r.b]) for r in relations)
    )


def proved(asked: AllocationProblem, episode: Episode) -> bool:
    """Whether the answers are, to a problem in canonical form."""
    return prove(asked, Proposal(PROBLEM_VERSION, "test", episode.registers())).outcome is Outcome.PROVED


@pytest.mark.long
def test_places_that_meet_more_cost_less_and_are_proved() -> None:
    table = table_of(PAIRED)
    plain, meeting = Episode(table), Episode(table)
    draft(plain)
    given = draft(meeting, meets=True)
    assert any(word == MEETS for _, word in given)
    assert unmet(table, meeting.starts) < unmet(table, plain.starts)
    assert price_of(table, meeting.starts) < price_of(table, plain.starts)
    assert proved(table.problem, meeting)


def left(table: Table, starts: list[int]) -> float:
    """Weight of copies that stay, and of preferences lost, by the ranges that have a place."""
    total = 0.0
    for joint in table.joints:
        if not joint.chain and min(starts[joint.a], starts[joint.b]) >= 0:
            total += joint.weight * (starts[joint.b] != starts[joint.a] + joint.distance)
    for relations, weight in table.cost.preferences:
        decided = [r for r in relations if min(starts[r.a], starts[r.b]) >= 0]
        total += weight * (not all(r.holds(starts[r.a], starts[r.b]) for r in decided))
    fixed = (
        (a, goal) for a in table.problem.affinities if a.b < 0 and (goal := fixed_start(table.cells, a)) is not None
    )
    return total + sum(a.weight for a, goal in fixed if starts[a.a] not in (-1, goal))


@pytest.mark.long
@pytest.mark.parametrize("meets", [False, True])
def test_a_place_is_named_where_it_leaves_less_than_the_plain_one_and_nowhere_else(meets: bool) -> None:
    table = table_of(PAIRED)
    episode = Episode(table)
    named = others = 0
    while (question := episode.question()) is not None:
        if question.stage == "placing":
            assert episode.placing is not None
            item, facts = episode.placing.current(), question.facts
            banks = table.problem.ranges[item.members[0][0]].banks

            def cost(word: str, item: Item = item, banks: tuple[str, ...] = banks) -> float:
                start = place_of(table.cells, banks, word)
                starts = list(episode.starts)
                for member, offset in item.members:
                    starts[member] = start + offset
                return left(table, starts)

            plain = cost(facts[facts.index("hint" if "hint" in facts else "first") + 1])
            if MEETS_AT in facts:
                named += 1
                least = cost(facts[facts.index(MEETS_AT) + 1])
                assert least < plain
            else:
                least = plain
            # All free places, for some of the questions.
            others += 1
            if others % 7 == 0:
                assert least == min(cost(word) for word in episode.options() if not word.startswith("="))
        assert episode.answer(usual(question, meets=meets)) or episode.answer(question.draft)
    assert named > 10


def test_where_nothing_looks_ahead_no_such_place_is_named() -> None:
    episode = Episode(table_of(PAIRED), mask=False)
    stages: set[str] = set()
    while (question := episode.question()) is not None:
        stages.add(question.stage)
        assert MEETS_AT not in question.facts
        joins = question.stage == "joining"
        assert episode.answer(JOIN if joins else "=first" if question.stage == "placing" else next(episode.options()))
    assert "placing" in stages


def test_chains_are_joined_and_then_met() -> None:
    """The third goes on from the second, and the first leaves a lower place to it."""
    before, after = (255, [(2, 10)]), (255, [(10, 20)])
    asked = replace(
        problem_of(*(live_of("vreg_128_align2", group) for group in (before, before, after))),
        preferences=(Preference("mfma-chain", (Relation(1, 0, 2, 0, 0),), 0.25, 10),),
    )
    table = Table(asked)
    joined, apart = Episode(table), Episode(table)
    for episode, word in ((joined, JOIN), (apart, APART)):
        question = episode.question()
        assert question is not None
        assert (question.stage, question.draft, question.facts[0]) == ("joining", JOIN, CHAIN)
        assert episode.answer(word)
        draft(episode)
        assert proved(asked, episode)
    assert (unmet(table, joined.starts), unmet(table, apart.starts)) == (0, 0.25)


@pytest.mark.long
def test_all_chains_of_a_kernel_are_joined() -> None:
    table = table_of(CHAINED)
    episode = Episode(table)
    given = draft(episode)
    assert sum(CHAIN in question.facts and word == JOIN for question, word in given) > 5
    assert unmet(table, episode.starts) == 0
    assert proved(table.problem, episode)


@pytest.mark.long
def test_the_drafted_grant_leaves_no_copies_that_more_registers_would_not() -> None:
    for name in (PAIRED, CHAINED, "gemm_mma_lds.gfx942"):
        for phase in ("sgpr", "vgpr"):
            table = Table(canonical(answered(name, phase)[0]).problem)
            drafted = Episode(table)
            draft(drafted)
            ample = Episode(table)
            while (question := ample.question()) is not None:
                word = question.draft
                if word.startswith("grant"):
                    word = f"grant{next(k for k in table.steps if k >= int(word[5:]))}"
                assert ample.answer(word)
            assert price_of(table, drafted.starts)[:2] <= price_of(table, ample.starts)[:2]


ALIKE, BANKS = Rule(8, 0), Rule(3, 4)


def test_rules_of_one_preference_count_together() -> None:
    assert [ALIKE.holds(k) for k in (7, 8)] == [False, True]
    assert [BANKS.holds(k) for k in (3, 4, 7, 11)] == [False, True, False, False]
    asked = Demands({5: 2.0}, [((ALIKE, BANKS), 0.5)])
    assert [asked.unmet(k) for k in (5, 8, 9)] == [0.5, 2.0, 2.5]
    assert asked.better(9, (7, 8, 5), lambda start: start != 5) == 8
    assert asked.better(9, (7, 8, 5), lambda _: True) == 5
    assert asked.better(5, (7, 8), lambda _: True) == -1


def test_a_preference_that_is_lost_asks_for_nothing() -> None:
    """The first and the second in different banks, the second and the third too."""
    relations = (Relation(0, 0, 1, 0, 4), Relation(1, 0, 2, 0, 4))
    asked = replace(
        problem_of(live_of("vgpr_32"), live_of("vgpr_32"), live_of("vgpr_32")),
        preferences=(Preference("vopd", relations, 0.5, 4),),
    )
    table = Table(asked)
    third = table.singles[2]
    base, step = table.cells.base["vgpr"], table.cells.halves

    def of(*registers: int) -> Demands:
        return table.wishes.of(third, [base + r * step if r >= 0 else -1 for r in registers])

    same, other = base + 5 * step, base + 6 * step
    kept, open_, lost = of(0, 1, -1), of(-1, 1, -1), of(0, 4, -1)
    assert (kept.unmet(same), kept.unmet(other)) == (0.5, 0.0)
    assert (open_.unmet(same), open_.unmet(other)) == (0.5, 0.0)
    assert (lost.unmet(same), lost.unmet(other)) == (0.0, 0.0)
