"""Masked decoding: every answer is legal, dead ends are seen in time, drafts change nothing."""

from __future__ import annotations

import numpy as np
import pytest
from allocators_support import random_problem, violations
from model_support import Hashed, OneByOne, answered, disguised
from support import few, long

from smt_verifier.outcome import Outcome
from smt_verifier.prove import prove
from verilocc_mlir.allocators import AllocationFailure
from verilocc_mlir.problem.build import Phase
from verilocc_mlir.problem.model import PROBLEM_VERSION, AllocationProblem, Proposal
from verilocc_model.decoding import FirstFit, OutOfTime, RandomChoice, Sampling, Scorer, decode
from verilocc_model.encoding.canonical import canonical
from verilocc_model.encoding.episode import Episode
from verilocc_model.encoding.table import Table, price_of
from verilocc_model.encoding.vocabulary import VOCABULARY, Domain


def hashed() -> Hashed:
    known = VOCABULARY
    prior = np.zeros(len(known.words), np.float32)
    for word in ("=first", "=hint", "=top", "join", "apart"):
        prior[known.ids[word]] = 2.0
    return Hashed(Domain(), prior, limit=400)


def proposal_of(problem: AllocationProblem, scorer: Scorer, sampling: Sampling | None = None) -> tuple[str, ...]:
    form = canonical(problem)
    return form.restored(decode(Episode(Table(form.problem)), scorer, sampling).registers)


def drafted(table: Table) -> Episode:
    """An episode answered by its own draft."""
    episode = Episode(table)
    while (question := episode.question()) is not None:
        assert episode.answer(question.draft)
    return episode


GEMM: tuple[str, Phase] = ("gemm_mma_lds.gfx1100", "vgpr")
ATTENTION: tuple[str, Phase] = ("attn_d64.gfx90a", "vgpr")
SCALARS: tuple[str, Phase] = ("attn_d64.gfx942", "sgpr")
KERNELS = few((GEMM, SCALARS), (GEMM, ATTENTION, SCALARS))
VECTORS = few((GEMM,), (GEMM, ATTENTION))


@pytest.mark.parametrize(("name", "phase"), KERNELS)
@pytest.mark.parametrize("scorer", [FirstFit(), RandomChoice(3), hashed()], ids=lambda s: s.name)
def test_whatever_answers_the_first_decode_is_proved(name: str, phase: Phase, scorer: Scorer) -> None:
    problem, _ = answered(name, phase)
    proposal = Proposal(PROBLEM_VERSION, scorer.name, proposal_of(problem, scorer))
    assert prove(problem, proposal).outcome is Outcome.PROVED


@pytest.mark.parametrize("seed", few(range(2, 32, 5), range(60)))
def test_random_problems_are_answered_wherever_there_is_a_witness(seed: int) -> None:
    problem = random_problem(seed, halves=seed % 2 == 1, tight=seed % 3 == 0, phase="sgpr" if seed % 5 == 0 else "vgpr")
    try:
        found = proposal_of(problem, RandomChoice(seed))
    except AllocationFailure:
        # Only where there is none from the start, which is found out before any answer but joins and order.
        with pytest.raises(AllocationFailure):
            drafted(Table(canonical(problem).problem))
        return
    assert not violations(problem, Proposal(PROBLEM_VERSION, "random", found))


@pytest.mark.parametrize(("name", "phase"), KERNELS)
@pytest.mark.parametrize("temperature", [0.7, *long(0.0)])
def test_drafting_ahead_gives_what_one_at_a_time_gives(name: str, phase: Phase, temperature: float) -> None:
    problem, _ = answered(name, phase)
    table = Table(canonical(problem).problem)
    sampling = Sampling(temperature, seed=5)
    ahead = decode(Episode(table), hashed(), sampling)
    single = decode(OneByOne(table), hashed(), sampling)
    assert ahead.registers == single.registers
    assert ahead.questions == single.questions
    assert ahead.passes < single.passes or temperature


@pytest.mark.parametrize("seed", few(range(1, 30, 4), range(30)))
def test_a_plan_drafted_ahead_of_joins_that_are_refused_is_forgotten(seed: int) -> None:
    table = Table(canonical(random_problem(seed, phase="sgpr" if seed % 2 else "vgpr")).problem)
    try:
        single = decode(OneByOne(table), hashed())
    except AllocationFailure:
        pytest.skip("does not fit")
    assert decode(Episode(table), hashed()).registers == single.registers


@pytest.mark.parametrize(("name", "phase"), KERNELS)
def test_names_and_block_order_leave_the_answer(name: str, phase: Phase) -> None:
    one, other, renamed = disguised(name, phase, 4)
    first, second = proposal_of(one, hashed()), proposal_of(other, hashed())
    by_name = {r.name: register for r, register in zip(other.ranges, second, strict=True)}
    assert {renamed[r.name]: register for r, register in zip(one.ranges, first, strict=True)} == by_name


@pytest.mark.parametrize(("name", "phase"), VECTORS)
def test_a_seed_gives_the_same_answer_and_another_seed_another(name: str, phase: Phase) -> None:
    problem, _ = answered(name, phase)
    answers = [proposal_of(problem, hashed(), Sampling(1.0, seed)) for seed in (1, 1, 2)]
    assert answers[0] == answers[1] != answers[2]


@pytest.mark.parametrize(("name", "phase"), VECTORS)
def test_random_answers_cost_more_than_the_draft(name: str, phase: Phase) -> None:
    problem, _ = answered(name, phase)
    table = Table(canonical(problem).problem)
    draft = drafted(table)
    episode = Episode(table)
    decode(episode, RandomChoice(1))
    assert price_of(table, draft.starts) < price_of(table, episode.starts)


@pytest.mark.parametrize(("name", "phase"), VECTORS)
def test_without_a_mask_wrong_answers_are_given_and_refuted(name: str, phase: Phase) -> None:
    problem, _ = answered(name, phase)
    form = canonical(problem)
    found = decode(Episode(Table(form.problem), mask=False), RandomChoice(1))
    assert found.refused == 0
    result = prove(problem, Proposal(PROBLEM_VERSION, "random", form.restored(found.registers)))
    assert result.outcome is Outcome.REFUTED


def test_time_is_limited() -> None:
    problem, _ = answered(*GEMM)
    with pytest.raises(OutOfTime, match="more than"):
        proposal_of(problem, hashed(), Sampling(seconds=0.0))
