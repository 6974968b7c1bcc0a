"""After a refutation only the live ranges that must move are asked about again, around those that stay."""

from __future__ import annotations

import random
from functools import partial

import pytest
from builders import live_of, problem_of
from model_support import answered
from msgspec.structs import replace
from prove_support import proposal
from support import few

from smt_verifier.outcome import Outcome
from smt_verifier.prove import prove
from verilocc_mlir.allocators import Refutation, Regenerating, allocator
from verilocc_mlir.pipeline.attempt import refutation_of
from verilocc_mlir.problem.build import Phase
from verilocc_mlir.problem.model import PROBLEM_VERSION, AllocationProblem, Proposal
from verilocc_mlir.target.registers import physical_register
from verilocc_model.decoding import FirstFit, decode
from verilocc_model.encoding.canonical import canonical
from verilocc_model.encoding.episode import Episode
from verilocc_model.encoding.table import Table
from verilocc_model.repair import guidance_of, remainders

KERNELS = [
    ("gemm_mma_lds.gfx942", "vgpr"), ("gemm_mma_lds.gfx1100", "sgpr"), ("attn_d64.gfx90a", "vgpr"),
    ("attn_d64.gfx1201", "sgpr"),
]  # fmt: skip


def spoilt(problem: AllocationProblem, proposal: Proposal, count: int) -> Proposal:
    """``count`` registers, drawn by chance, are those of other ranges of the same class, or none."""
    generator = random.Random(count)
    registers = list(proposal.registers)
    for one in generator.sample(problem.ranges, count):
        others = [r.id for r in problem.ranges if r.register_class == one.register_class]
        registers[one.id] = generator.choice([*(proposal.registers[i] for i in others), ""])
    return replace(proposal, registers=tuple(registers))


def refuted(name: str, phase: Phase) -> tuple[AllocationProblem, Refutation]:
    """A problem, and a proposal for it of which a few registers are wrong."""
    problem, proposal = answered(name, phase)
    for count in range(6, len(problem.ranges)):
        wrong = spoilt(problem, proposal, count)
        proof = prove(problem, wrong)
        if proof.outcome is Outcome.REFUTED:
            return problem, refutation_of(problem, wrong, proof)
    raise AssertionError("nothing that was spoilt is wrong")


@pytest.mark.parametrize(("name", "phase"), KERNELS)
def test_an_answer_to_what_must_move_makes_one_to_the_whole(name: str, phase: Phase) -> None:
    problem, refutation = refuted(name, phase)
    part, everything = remainders(problem, (refutation,))
    assert part.ids == (tuple(i for i, _ in refutation.nearest) or refutation.moves)
    if refutation.nearest:
        assert prove(problem, replace(refutation.proposal, registers=part.draft)).outcome is Outcome.PROVED
    assert 0 < len(part.problem.ranges) < len(problem.ranges)
    assert (everything.problem, everything.refuted) == (problem, (refutation,))
    answer = allocator("deterministic").allocate(part.problem)
    assert prove(part.problem, answer).outcome is Outcome.PROVED
    whole = replace(answer, registers=part.whole(answer.registers))
    assert prove(problem, whole).outcome is Outcome.PROVED
    was = refutation.proposal.registers
    assert {i for i, (a, b) in enumerate(zip(was, whole.registers, strict=True)) if a != b} <= set(part.ids)


@pytest.mark.parametrize(("name", "phase"), few([("gemm_mma_lds.gfx1100", "sgpr")], KERNELS))
def test_what_moves_into_what_stays_is_refuted_in_both(name: str, phase: Phase) -> None:
    problem, refutation = refuted(name, phase)
    part, _ = remainders(problem, (refutation,))
    answer = allocator("deterministic").allocate(part.problem)
    rules: set[tuple[str, str]] = set()
    pairs = [
        (number, other.id)
        for number, moving in enumerate(part.problem.ranges)
        for other in problem.ranges
        if other.id not in part.ids and other.register_class == moving.register_class
    ]
    for number, other in random.Random(0).sample(pairs, min(len(pairs), 40)):
        registers = list(answer.registers)
        registers[number] = refutation.proposal.registers[other]
        first = prove(part.problem, replace(answer, registers=tuple(registers)))
        second = prove(problem, replace(answer, registers=part.whole(registers)))
        assert first.outcome is second.outcome
        rules |= {(v.rule, w.rule) for v in first.violations[:1] for w in second.violations[:1]}
    assert ("fixed", "interference") in rules


def test_the_other_end_of_a_copy_stays_where_it_is() -> None:
    problem, proposal = answered("gemm_mma_lds.gfx942", "vgpr")
    copy = next(a for a in problem.affinities if a.b >= 0 and a.a != a.b and a.weight)
    registers = list(proposal.registers)
    registers[copy.a] = ""
    wrong = replace(proposal, registers=tuple(registers))
    part, _ = remainders(problem, (refutation_of(problem, wrong, prove(problem, wrong)),))
    assert part.ids == (copy.a,)
    units = physical_register(proposal.registers[copy.b]).units[copy.b_lane : copy.b_lane + copy.lanes]
    ends = [(a.a, a.a_lane, physical_register(a.fixed).units, a.weight) for a in part.problem.affinities if a.fixed]
    assert (0, copy.a_lane, units, copy.weight) in ends
    assert all(a.a == 0 for a in part.problem.affinities)


def test_all_is_asked_where_nothing_or_everything_must_move() -> None:
    problem, refutation = refuted("gemm_mma_lds.gfx942", "vgpr")
    everything = tuple(range(len(problem.ranges)))
    for said in ((), *((replace(refutation, moves=moves, nearest=()),) for moves in ((), everything))):
        (part,) = remainders(problem, said)
        assert part.problem == problem
        right = answered("gemm_mma_lds.gfx942", "vgpr")[1].registers
        assert part.whole(right) == right


def test_the_model_leaves_what_need_not_move() -> None:
    problem, refutation = refuted("gemm_mma_lds.gfx942", "vgpr")
    model = allocator("model")
    assert isinstance(model, Regenerating)
    again = model.regenerate(problem, (refutation,))
    assert prove(problem, again).outcome is Outcome.PROVED
    was = refutation.proposal.registers
    moved = {i for i, (a, b) in enumerate(zip(was, again.registers, strict=True)) if a != b}
    assert moved <= {i for i, _ in refutation.nearest}
    assert model.regenerate(problem, (refutation,)).registers == again.registers
    # Where the nearest assignment is not known, those that must move are asked about.
    again = model.regenerate(problem, (replace(refutation, nearest=()),))
    assert prove(problem, again).outcome is Outcome.PROVED
    moved = {i for i, (a, b) in enumerate(zip(was, again.registers, strict=True)) if a != b}
    assert moved <= set(refutation.moves)


def test_the_nearest_assignment_is_the_answer_where_the_model_finds_none() -> None:
    problem, refutation = refuted("gemm_mma_lds.gfx942", "vgpr")
    model = allocator("model", seconds=1e-9)
    assert isinstance(model, Regenerating)
    again = model.regenerate(problem, (refutation,))
    was = dict(enumerate(refutation.proposal.registers))
    assert again.registers == tuple((was | dict(refutation.nearest)).values())
    assert prove(problem, again).outcome is Outcome.PROVED


def test_the_model_asks_for_all_where_what_must_move_finds_no_place() -> None:
    """Four registers: those that stay leave the first and the last, and an aligned pair must move."""
    asked = problem_of(live_of("vreg_64_align2"), live_of("vgpr_32"), live_of("vgpr_32"), vgprs=(0, 1, 2, 3), agprs=())
    wrong = proposal("", "vgpr1", "vgpr2")
    refutation = refutation_of(asked, wrong, prove(asked, wrong))
    assert refutation.moves == (0,)
    model = allocator("model")
    assert isinstance(model, Regenerating)
    again = model.regenerate(asked, (refutation,))
    assert prove(asked, again).outcome is Outcome.PROVED


@pytest.mark.parametrize(("name", "phase"), KERNELS)
def test_the_plan_is_stated_where_first_fit_goes_through(name: str, phase: Phase) -> None:
    problem, refutation = refuted(name, phase)
    part, _ = remainders(problem, (refutation,))
    form = canonical(part.problem)
    table = Table(form.problem)
    told = guidance_of(part.refuted, form, table)
    again = partial(Episode, table, mask=False, advice=told.advice, refuted=told.grants, sure=True)
    done = decode(again(), FirstFit())
    whole = Proposal(PROBLEM_VERSION, "test", part.whole(form.restored(done.registers)))
    assert prove(problem, whole).outcome is Outcome.PROVED
    # Joins and places are asked for, the plan is not.
    episode, planned = again(), 0
    while (question := episode.question()) is not None:
        assert question.known is (question.stage == "planning")
        planned += question.known
        assert episode.answer(question.draft or "=first")
    assert planned == 3
    assert done.questions
