"""Answers: words become a plan and a way to allocate, and each of them does what it says to real code."""

from __future__ import annotations

from functools import lru_cache

import pytest
from support import DEMO_KERNELS

from verilocc_mlir.errors import InputError
from verilocc_mlir.pipeline.candidates import AS_IT_IS, LABELLED, SLOTS, Answer, Candidate, candidate_costs
from verilocc_mlir.pipeline.effort import BESIDE, packing
from verilocc_mlir.pipeline.plans import BY_NAME, DEFAULT, PLANS, Planned, planned
from verilocc_mlir.pipeline.portfolio import Portfolio
from verilocc_mlir.pipeline.runs import OURS, Result
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.results.compile import Resources
from verilocc_mlir.toolchain.ir_compat import with_attributes

ATTENTION = (DEMO_KERNELS / "attn_d64.gfx1100.opt.ll").read_text()


@lru_cache(maxsize=None)
def given(registers: int = 0) -> Planned:
    text = with_attributes(ATTENTION, (("amdgpu-num-vgpr", str(registers)),)) if registers else ATTENTION
    return planned(text.encode(), "attention.ll", Settings("gfx1100"))


def test_every_plan_is_a_word_and_every_answer_is_spelt_back() -> None:
    words = [word for known in SLOTS.values() for word in known]
    assert len({*words}) == len(words)
    assert {plan.name for plan in PLANS} - {DEFAULT.name} <= {*words}
    for answer in (*(Answer.of((word,)) for word in words), *LABELLED, Answer.of(("packed", "trackers", "max-ilp"))):
        assert Answer.parse(str(answer)) == answer
    assert str(Answer()) == "default"
    assert [*Answer.of(("trackers",)).by_slot.values()].count(AS_IT_IS) == len(SLOTS) - 1


def test_24_answers_are_labelled_with_llvm_22() -> None:
    of_22 = [answer for answer in LABELLED if answer.plan.llvm[0] <= 22]
    assert len({*of_22}) == 24


@pytest.mark.parametrize(
    ("text", "reason"), [("fastest", "no word 'fastest'"), ("max-ilp + iterative-ilp", "answer one question")]
)
def test_what_is_no_answer_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        Answer.parse(text)


def test_words_of_the_schedule_make_one_plan() -> None:
    assert Answer().candidate == Candidate(DEFAULT, OURS)
    assert Answer.of(("max-ilp",)).plan is BY_NAME["max-ilp"]
    plan = Answer.of(("two-waves", "no-accumulators", "max-ilp")).plan
    assert plan.name == "max-ilp + two-waves + no-accumulators"
    assert plan.options == BY_NAME["max-ilp"].options
    assert plan.attributes == (*BY_NAME["two-waves"].attributes, *BY_NAME["no-accumulators"].attributes)
    assert plan.accumulators


def test_words_of_the_registers_make_a_way_to_allocate() -> None:
    assert Answer.of(("beside",)).variant is BESIDE
    variant = Answer.of(("packed", "beside", "to-memory", "spare-8")).variant
    assert variant.allocators is packing
    assert (variant.spills.load_ahead, variant.spills.accumulators) == (False, False)
    assert variant.spills.spare[0] == 8
    assert Answer.of(("spare-24",)).variant.spills.spare == (24, 32, 64)


def test_packed_takes_fewer_registers_than_spread() -> None:
    spread, packed = (given().cost(DEFAULT, Answer.parse(text).variant) for text in ("default", "packed"))
    assert spread is not None
    assert packed is not None
    assert packed["attn"].vectors < spread["attn"].vectors


@pytest.mark.long
def test_more_room_spills_more() -> None:
    ours, roomy = (given(96).cost(DEFAULT, Answer.parse(text).variant) for text in ("default", "spare-24"))
    assert ours is not None
    assert roomy is not None
    assert 0 < ours["attn"].spills.weighted < roomy["attn"].spills.weighted


def test_a_plan_of_two_words_makes_a_text_of_its_own() -> None:
    one, other = Answer.of(("trackers",)), Answer.of(("no-clusters",))
    both = Answer.of((*one.words, *other.words))
    assert len({given().pre_ra(answer.plan) for answer in (Answer(), one, other, both)}) == 4


def test_ways_to_spill_are_one_where_nothing_is_spilled() -> None:
    answers = [Answer.parse(text) for text in ("default", "beside", "to-memory", "packed")]
    alike = [cost.same_as for cost in candidate_costs(given(), [answer.candidate for answer in answers])]
    assert alike == ["", OURS.name, OURS.name, ""]
    spilled = candidate_costs(given(96), [Answer().candidate, Answer.of(("beside",)).candidate])
    assert [cost.same_as for cost in spilled] == ["", ""]


def test_another_plan_may_spill_no_more_than_llvm() -> None:
    limited = given.__wrapped__(96)
    limited.most_spilled = {"attn": 0.0}
    default, trackers = (limited.cost(Answer.parse(words).plan) for words in ("default", "trackers"))
    assert default is not None
    assert default["attn"].spills.weighted > 0
    assert trackers is None


def test_the_default_plan_is_limited_until_the_limit_is_lifted() -> None:
    limited = given.__wrapped__(96)
    limited.most_spilled, limited.limits_default = {"attn": 0.0}, True
    assert limited.cost(DEFAULT) is None
    assert limited.runs(DEFAULT).is_too_dear(OURS)
    limited.lift_default_limit()
    assert limited.cost(DEFAULT) is not None
    assert not limited.runs(DEFAULT).is_too_dear(OURS)


def test_ours_is_taken_however_much_it_spills_where_llvms_is_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verilocc_mlir.pipeline.portfolio.ESTIMATED", 0.0)
    limited = given.__wrapped__(96)
    code = limited.work.compiler.direct(limited.ir, "asm")

    def kernels() -> dict[str, Resources]:
        return {"attn": Resources(0, 0, 0, 0, 1, 4, 1)}

    portfolio = Portfolio(limited, ["attn"], lambda: code, kernels)
    kept = portfolio.kept()
    assert kept is not None
    assert kept.is_llvms
    assert "1.5 times" in kept.result.phases["attn"][-1].fallback_reason
    monkeypatch.setattr("verilocc_mlir.pipeline.runs.Runs.plain", lambda *_: Result())
    again = Portfolio(given.__wrapped__(96), ["attn"], lambda: code, kernels).kept()
    assert again is not None
    assert again.candidates == {"attn": Candidate(DEFAULT, OURS)}
