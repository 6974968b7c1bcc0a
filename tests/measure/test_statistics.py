"""Intervals hold what they promise, whatever the distribution; verdicts follow from them alone."""

from __future__ import annotations

import random
from math import exp

import pytest

from verilocc_mlir.measure.runner import compare, median_interval, verdict_of
from verilocc_mlir.results.measure import Interval, Round, Verdict

NINETY_FIVE = 0.95


def test_six_values_are_the_least_that_ninety_five_percent_need() -> None:
    six = median_interval([3, 1, 2, 6, 5, 4], NINETY_FIVE)
    assert (six.low, six.median, six.high) == (1, 3.5, 6)
    assert six.confidence == 1 - 2 / 2**6
    five = median_interval([3, 1, 2, 5, 4], NINETY_FIVE)
    assert (five.low, five.high, five.confidence) == (1, 5, 1 - 2 / 2**5)
    assert median_interval([7.0], NINETY_FIVE) == Interval(7.0, 7.0, 7.0, 0.0)


@pytest.mark.parametrize(("count", "rank"), [(9, 2), (12, 3), (20, 6), (50, 18), (100, 40)])
def test_ranks_are_those_of_the_tables(count: int, rank: int) -> None:
    """Conover, Practical Nonparametric Statistics; Le Boudec, Performance Evaluation, table of order statistics."""
    values = list(range(1, count + 1))
    found = median_interval(values, NINETY_FIVE)
    assert (found.low, found.high) == (rank, count + 1 - rank)
    assert found.confidence >= NINETY_FIVE


@pytest.mark.parametrize("spread", [0.01, 2.0])
def test_the_interval_holds_the_median_as_often_as_it_says(spread: float) -> None:
    """Log-normal times, with a tail as interrupts make it; the true median is 1."""
    source = random.Random(20)
    samples = [[exp(source.gauss(0, spread)) for _ in range(12)] for _ in range(2000)]
    held = sum(found.low <= 1 <= found.high for found in (median_interval(s, NINETY_FIVE) for s in samples))
    assert held / 2000 >= NINETY_FIVE - 0.01


def rounds(ratio: float, noise: float, drift: float = 0.0, count: int = 12) -> list[Round]:
    source = random.Random(7)

    def turn(scale: float, number: int) -> tuple[float, ...]:
        return tuple(scale * (1 + drift * number) * (1 + source.uniform(-noise, noise)) for _ in range(5))

    return [Round(turn(1.0, number), turn(ratio, number)) for number in range(count)]


@pytest.mark.parametrize(
    ("ratio", "noise", "verdict"),
    [
        (0.9, 0.01, Verdict.FASTER),
        (1.1, 0.01, Verdict.SLOWER),
        (1.0, 0.002, Verdict.ALIKE),
        (1.0, 0.1, Verdict.UNDECIDED),
        (0.98, 0.1, Verdict.UNDECIDED),
        (0.995, 0.001, Verdict.ALIKE),
    ],
)
def test_verdicts(ratio: float, noise: float, verdict: Verdict) -> None:
    assert compare(rounds(ratio, noise), confidence=NINETY_FIVE, tie=0.01).verdict is verdict


def test_what_drifts_cancels_in_a_round() -> None:
    """A clock that falls by a third: each side's own interval is wide, that of the ratio is not."""
    found = compare(rounds(0.97, 0.003, drift=0.03), confidence=NINETY_FIVE, tie=0.01)
    assert found.base.high / found.base.low > 1.05
    assert found.ratio.high / found.ratio.low < 1.01
    assert found.verdict is Verdict.FASTER


def test_too_few_rounds_decide_nothing() -> None:
    found = compare(rounds(0.5, 0.001, count=5), confidence=NINETY_FIVE, tie=0.01)
    assert found.verdict is Verdict.UNDECIDED
    assert compare(rounds(0.5, 0.001, count=6), confidence=NINETY_FIVE, tie=0.01).verdict is Verdict.FASTER


def test_the_edge_of_a_tie_is_a_tie() -> None:
    edge = Interval(1.0, 0.99, 1.01, 0.96)
    assert verdict_of(edge, confidence=NINETY_FIVE, tie=0.01) is Verdict.ALIKE
    beyond = Interval(0.9, 0.8, 0.99, 0.96)
    assert verdict_of(beyond, confidence=NINETY_FIVE, tie=0.01) is Verdict.UNDECIDED
