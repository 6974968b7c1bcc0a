"""Medians, their intervals, and when one code is faster than another. Nothing here assumes a distribution of times.

Interval of a median: for n independent values and their order x(1) ≤ … ≤ x(n), the true median lies below x(k) only if
fewer than k values fall below it, which has the probability P(B < k) with B binomial in n and 1/2. So [x(k), x(n+1-k)]
holds it with probability 1 - 2·P(B ≤ k-1) (David and Nagaraja, Order Statistics, 3rd ed., section 7.1).

Times of one process follow one another, so they are not independent: clocks and temperature drift. Rounds are taken
instead, in each of which both codes run side by side; a round has one ratio, in which what drifts slowly cancels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from statistics import median

from verilocc_mlir.results.measure import Interval, Round, Verdict


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both sides and their ratio; the ratio's interval is that of the rounds' ratios."""

    base: Interval
    candidate: Interval
    ratio: Interval
    verdict: Verdict


def median_interval(values: Sequence[float], confidence: float) -> Interval:
    """The narrowest interval of order statistics that holds the median with ``confidence``; else the whole range.

    Args:
        values: at least one.
        confidence: between 0 and 1. With fewer than 6 values 0.95 cannot be had; ``Interval.confidence`` says what can.
    """
    if not values:
        raise ValueError("no values")
    ordered, count = sorted(values), len(values)
    rank = max((k for k in range(1, (count + 1) // 2 + 1) if _held(k, count) >= confidence), default=1)
    return Interval(median(ordered), ordered[rank - 1], ordered[count - rank], _held(rank, count))


def _held(rank: int, count: int) -> float:
    """Probability that the median lies between the order statistics ``rank`` and ``count + 1 - rank``."""
    below = sum(comb(count, k) for k in range(rank))
    return 1 - 2 * below / 2**count if 2 * rank <= count + 1 and count > 1 else 0.0


def compare(rounds: Sequence[Round], *, confidence: float, tie: float) -> Comparison:
    """What the rounds say of the candidate.

    Args:
        rounds: at least one; each has a time of either.
        tie: a ratio within 1 - tie and 1 + tie is no difference.
    """
    ratios = [median(one.candidate) / median(one.base) for one in rounds]
    ratio = median_interval(ratios, confidence)
    return Comparison(
        median_interval([time for one in rounds for time in one.base], confidence),
        median_interval([time for one in rounds for time in one.candidate], confidence),
        ratio,
        verdict_of(ratio, confidence=confidence, tie=tie),
    )


def verdict_of(ratio: Interval, *, confidence: float, tie: float) -> Verdict:
    """FASTER or SLOWER where the whole interval lies beyond the tie, ALIKE where it lies within; else UNDECIDED."""
    if ratio.confidence < confidence:
        return Verdict.UNDECIDED
    if ratio.high < 1 - tie:
        return Verdict.FASTER
    if ratio.low > 1 + tie:
        return Verdict.SLOWER
    return Verdict.ALIKE if ratio.low >= 1 - tie and ratio.high <= 1 + tie else Verdict.UNDECIDED
