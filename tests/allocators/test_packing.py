"""Packings know who stands in the way, and what a search leaves out decides nothing."""

from __future__ import annotations

import random

import pytest
from allocators_support import random_problem
from hypothesis import given, settings
from hypothesis import strategies as st

from verilocc_mlir.allocators import AllocationFailure
from verilocc_mlir.allocators.deterministic import DeterministicAllocator
from verilocc_mlir.allocators.items import Item
from verilocc_mlir.allocators.packing import Packing
from verilocc_mlir.allocators.search import Placement, Strategy
from verilocc_mlir.allocators.tables import Tables
from verilocc_mlir.problem.model import AllocationProblem


def obvious_conflicts(packing: Packing, item: Item, start: int) -> list[Item]:
    """Every placed item looked at, cell by cell of the new one; ``placed`` has them in the order of placing."""
    conflicting: dict[Item, None] = {}
    for offset, mask in item.cells:
        for other, other_start in packing.placed.items():
            if any(other_start + o == start + offset and m & mask for o, m in other.cells):
                conflicting[other] = None
    return list(conflicting)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.booleans())
def test_who_stands_in_the_way_is_known_whatever_was_placed_and_removed(seed: int, halves: bool) -> None:
    chance = random.Random(seed)
    tables = Tables(random_problem(seed, halves=halves, tight=True))
    packing = Packing(tables.fixed)
    for _ in range(120):
        item = chance.choice(tables.singles)
        candidates = tables.candidates.of(item)
        if item in packing.placed:
            packing.remove(item)
        if not candidates:
            continue
        start = chance.choice(candidates)
        assert packing.conflicts(item, start) == obvious_conflicts(packing, item, start)
        fitting = [s for s in candidates if packing.fits(item, s)]
        assert packing.first_fit(item, candidates) == (fitting[0] if fitting else -1)
        if fitting:
            packing.place(item, chance.choice(fitting))
    for item in [*packing.placed]:
        packing.remove(item)
    assert packing.occupied == tables.fixed


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.booleans())
def test_overlaps_are_counted_anew_where_something_moved(seed: int, halves: bool) -> None:
    chance = random.Random(seed)
    tables = Tables(random_problem(seed, halves=halves, tight=True))
    everywhere = dict(tables.cells.stop)
    placement = Placement((), tables.fixed, tables.candidates, tables.hints, tables.cells, everywhere)
    packing = placement.packing
    for _ in range(80):
        item = chance.choice(tables.singles)
        starts = placement.candidates(item).order
        if not starts or not item.cells:
            continue
        free = [s for s in starts if not any(tables.fixed[s + o] & m for o, m in item.cells)]
        assert sorted(placement.overlaps(item, starts)) == sorted(
            (sum((packing.occupied[s + o] & m).bit_count() for o, m in item.cells), s) for s in free
        )
        if packing.placed and chance.random() < 0.4:
            packing.remove(chance.choice([*packing.placed]))
        if item not in packing.placed and (fitting := [s for s in free if packing.fits(item, s)]):
            packing.place(item, chance.choice(fitting))


def answer(question: AllocationProblem) -> tuple[str, ...] | str:
    try:
        return DeterministicAllocator().allocate(question).registers
    except AllocationFailure as failure:
        return str(failure)


def test_an_order_that_ends_early_would_have_changed_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    questions = [random_problem(seed, phase=phase, tight=True) for seed in range(12) for phase in ("vgpr", "sgpr")]
    answers = [answer(question) for question in questions]
    to_the_end = Placement.run
    ended_early: list[bool] = []

    def run(placement: Placement, strategy: Strategy, enough: int | None = None) -> int:
        missing = to_the_end(placement, strategy)
        ended_early.append(enough is not None and missing > enough)
        return missing

    monkeypatch.setattr(Placement, "run", run)
    assert [answer(question) for question in questions] == answers
    assert any(ended_early)
