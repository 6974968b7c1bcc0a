"""Outcomes are not booleans, and a conjunction is as bad as its worst part."""

from __future__ import annotations

import itertools

import pytest

from smt_verifier.outcome import Outcome, combine


@pytest.mark.parametrize("outcome", Outcome)
def test_an_outcome_is_not_a_boolean(outcome: Outcome) -> None:
    with pytest.raises(TypeError, match="not a boolean"):
        bool(outcome)


def test_the_worst_part_decides() -> None:
    order = [Outcome.PROVED, Outcome.UNKNOWN, Outcome.REFUTED, Outcome.INVALID]
    for size in range(1, 4):
        for parts in itertools.product(order, repeat=size):
            assert combine(parts) is max(parts, key=order.index)


def test_nothing_to_show_is_proved() -> None:
    assert combine([]) is Outcome.PROVED
