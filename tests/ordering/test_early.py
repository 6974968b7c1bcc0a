"""The order of instructions before allocation: it needs fewer registers, is proved, and is taken where that pays."""

from __future__ import annotations

import random
from collections import Counter
from functools import lru_cache

import pytest
from checker_support import needs_both
from msgspec.structs import replace
from support import REPOSITORY

from smt_verifier.certificate.verdict import Answer, order_answers
from smt_verifier.outcome import Outcome
from verilocc_mlir.cost.model import KernelCost
from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.mir.printer import print_mir
from verilocc_mlir.ordering.dependences import items_of
from verilocc_mlir.ordering.early import Accesses, Room, strain
from verilocc_mlir.ordering.schedule import Ordered, certificate_of, in_order
from verilocc_mlir.pipeline.compile import compile_module
from verilocc_mlir.pipeline.plans import BY_NAME, DEFAULT, ORDERED, Plan, Planned, ordered_plans, planned
from verilocc_mlir.pipeline.portfolio import Kept, Portfolio
from verilocc_mlir.pipeline.settings import Effort, Settings
from verilocc_mlir.problem.build import build_problem
from verilocc_mlir.spilling.relieve import most_too_many

MATRIX = REPOSITORY / "examples" / "kernels" / "gemm_mma_lds.gfx942.opt.ll"
KERNEL = REPOSITORY / "tests" / "data" / "order" / "attention.gfx1201.ll"
"""Attention of ``verilocc corpus`` over heads of 128, for which LLVM spills."""
OURS = DEFAULT.in_our_order


@lru_cache(maxsize=1)
def given() -> Planned:
    return planned(KERNEL.read_bytes(), KERNEL.name, Settings())


def too_many(plan: Plan) -> int:
    file = given().shared.parsed(given().pre_ra(plan), KERNEL.name)
    return sum(most_too_many(build_problem(file, f, given().work.target, "vgpr")) for f in file.functions)


@needs_both
def test_it_needs_fewer_registers_and_both_checkers_prove_it() -> None:
    (found,) = given().early(DEFAULT)
    assert found.strain < 0.5 * found.given
    assert too_many(OURS) < 0.6 * too_many(DEFAULT)
    before, after = given().pre_ra(DEFAULT), given().pre_ra(OURS)
    answers = order_answers(before, after, found.certificate, found.function.name, "gfx1201")
    assert [a.accepted for a in answers] == [True, True]
    # Most of what moves is in the loop.
    assert answers[0].operands == found.moved > 500
    lines = [Counter(line.replace("killed ", "") for line in text.split("\n")) for text in (before, after)]
    assert lines[0] == lines[1]


@pytest.mark.long
@needs_both
def test_it_is_tried_where_llvm_spills_and_taken_where_it_spills_less() -> None:
    report = compile_module(KERNEL.read_bytes(), KERNEL.name, Settings()).report
    assert report.functions[0].plan.endswith("-ordered")
    assert report.outcome is Outcome.PROVED
    assert any("instructions stand elsewhere before allocation" in note for note in report.notes)


@needs_both
def test_efforts_try_one_some_or_all() -> None:
    tried = {effort: ordered_plans(given(), BY_NAME["trackers"], effort) for effort in Effort}
    assert len(tried[Effort.FAST]) == 1
    assert tried[Effort.FAST] == tried[Effort.BALANCED][:1]
    assert {*tried[Effort.BALANCED]} <= {*tried[Effort.BEST]} <= {*ORDERED}


@needs_both
def test_no_plan_without_the_second_checker_without_order_and_with_accumulators_but_for_scalars(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = KERNEL.read_bytes()
    accumulators = planned(MATRIX.read_bytes(), MATRIX.name, Settings())
    assert not accumulators.plans(ORDERED)
    assert replace(accumulators, counts_scalars=True).plans(ORDERED)
    assert not planned(data, KERNEL.name, Settings(order=False)).plans(ORDERED)
    monkeypatch.setattr("verilocc_mlir.pipeline.plans.second_program", lambda: None)
    assert not given().plans(ORDERED)


@needs_both
def test_a_wrong_order_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = planned(KERNEL.read_bytes(), KERNEL.name, Settings())
    (good,) = wrong.early(DEFAULT)
    block, order = max(good.orders.items(), key=lambda item: len(item[1]))
    file = wrong.shared.parsed(wrong.pre, KERNEL.name)
    (function,) = file.functions
    items = items_of(function.blocks[block].instructions, pinned=True)
    at = next(k for k, n in enumerate(order) if items[n].before and not items[n].stays)
    first = max(items[order[at]].before, key=order.index)
    swapped = [*order]
    here, there = order.index(first), at
    swapped[here], swapped[there] = swapped[there], swapped[here]
    blocks = [*function.blocks]
    blocks[block] = replace(blocks[block], instructions=in_order(items, swapped))
    bad = replace(good, function=replace(function, blocks=tuple(blocks)), orders={block: swapped})
    monkeypatch.setattr(Planned, "early", lambda _self, _plan: (bad,))
    with pytest.raises(UnsupportedError, match=r"our order is refused: .*order-registers"):
        wrong.check_order(OURS)


@needs_both
def test_an_order_that_a_checker_refuses_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_texts: str) -> tuple[Answer, ...]:
        return (Answer("python", accepted=False, rule="order-registers", message="as this test says"),)

    monkeypatch.setattr("verilocc_mlir.pipeline.plans.order_answers", refused)
    report = compile_module(KERNEL.read_bytes(), KERNEL.name, Settings()).report
    assert report.outcome is Outcome.PROVED
    assert not report.functions[0].plan.endswith("-ordered")
    assert any("our order is refused: python: order-registers" in note for note in report.notes)


def test_strain_is_what_is_too_much_and_what_is_reloaded() -> None:
    # Three values are made, then read: two registers are one too few for one instruction, and one value goes to memory
    # and comes back. Read where they are made, they fit.
    make = [frozenset({n}) for n in range(3)]
    none: frozenset[int] = frozenset()
    accesses = Accesses([none] * 3 + make, make + [none] * 3, none, none)
    room = Room((2.0,), ((0,),) * 3, (1.0,) * 3)
    assert strain(accesses, room, [0, 3, 1, 4, 2, 5]) == 0
    assert strain(accesses, room, range(6)) == pytest.approx(1 + 1 / 7 + 2)


def test_what_needs_no_more_registers_than_there_are_stays_as_it_is() -> None:
    path = REPOSITORY / "examples" / "kernels" / "gemm_mma_lds.gfx1201.opt.ll"
    roomy = planned(path.read_bytes(), path.name, Settings())
    assert [(e.moved, e.given) for e in roomy.early(DEFAULT)] == [(0, 0.0)]
    assert roomy.pre_ra(OURS) == print_mir(roomy.shared.parsed(roomy.pre, path.name))


@needs_both
@pytest.mark.parametrize("seed", range(3))
def test_any_order_that_keeps_the_dependences_is_proved(seed: int) -> None:
    """The scheduler's reading of what depends on what, with virtual registers, against the checkers'."""
    file = given().shared.parsed(given().pre, KERNEL.name)
    (function,) = file.functions
    chance = random.Random(seed)
    blocks, orders = [*function.blocks], {}
    for number, block in enumerate(function.blocks):
        items = items_of(block.instructions, pinned=True)
        order: list[int] = []
        while len(order) < len(items):
            done = {*order}
            stop = next((i.number for i in items if i.stays and i.number not in done), len(items))
            ready = [i.number for i in items[:stop] if i.number not in done and i.before <= done]
            order.append(chance.choice(ready) if ready else stop)
        orders[number] = order
        blocks[number] = replace(block, instructions=in_order(items, order))
    moved = Ordered(replace(function, blocks=tuple(blocks)), orders, 0)
    after = print_mir(replace(file, functions=(moved.function,)))
    answers = order_answers(given().pre, after, certificate_of(function.name, orders), function.name, "gfx1201")
    assert [a.accepted for a in answers] == [True, True], answers


@pytest.mark.parametrize(("more", "is_kept"), [(0, True), (1, False)], ids=["as cheap", "dearer"])
def test_what_is_dearer_than_llvms_in_the_end_is_taken_back(
    monkeypatch: pytest.MonkeyPatch, more: int, *, is_kept: bool
) -> None:
    """Within the error bar, that spills less."""

    def costs(self: Portfolio, kept: Kept) -> dict[str, KernelCost]:
        return {name: replace(self.greedy[name], cycles=self.greedy[name].cycles + more) for name in kept.candidates}

    monkeypatch.setattr(Portfolio, "costs", costs)
    report = compile_module(KERNEL.read_bytes(), KERNEL.name, Settings(order=False)).report
    assert report.outcome is Outcome.PROVED
    assert (report.functions[0].plan != "default") is is_kept
