"""Policies compared on kernels that they did not learn from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from verilocc_model.plans.data import Labels
from verilocc_model.plans.policies import Array, Oracle, Policy, ranked

TRIED = (1, 2, 4)
"""Plans that are tried beside the first one; the best is kept."""

_SAMPLES = 2000


@dataclass(frozen=True)
class Score:
    """One policy on some kernels.

    Attributes:
        policy: its name.
        tried: plans that it may try beside the first plan.
        kernels: how many.
        cycles: geometric mean of the kept plan's cycles over the first one's.
        low, high: of ``cycles``, 95 % by resampling kernels.
        share: of the logarithmic gain that the best plan of each kernel brings; None where that is nothing.
        worst: the dearest choice over the first plan, were there no guard.
        cpu: CPU seconds of the first plan and of what is tried beside it, over those of the first plan; without
            LLVM's own compile and without proofs. None where the labels have none.
    """

    policy: str
    tried: int
    kernels: int
    cycles: float
    low: float
    high: float
    share: float | None
    worst: float
    cpu: float | None


def scores(policies: Iterable[Policy], test: Sequence[Labels], seed: int = 0) -> list[Score]:
    """Every fitted policy with each number of plans in ``TRIED``, then the oracle."""
    best = np.array([_gain(Oracle(), kernel, 1) for kernel in test])
    rows: list[Score] = []
    for policy in (*policies, Oracle()):
        worst = max((kernel.unguarded(plan) for kernel in test for plan in ranked(policy, kernel)[:1]), default=0.0)
        for tried in TRIED if not isinstance(policy, Oracle) else (1,):
            rows.append(_score(policy, tried, test, best, math.exp(worst), seed))
    return rows


def _score(policy: Policy, tried: int, test: Sequence[Labels], best: Array, worst: float, seed: int) -> Score:
    gains = np.array([_gain(policy, kernel, tried) for kernel in test])
    draws = np.random.default_rng(seed).integers(0, len(gains), (_SAMPLES, len(gains)))
    low, high = (round(float(cycles), 4) for cycles in np.quantile(np.exp(gains[draws].mean(axis=1)), [0.025, 0.975]))
    share = round(float(gains.sum() / best.sum()), 3) if best.sum() else None
    cycles = round(float(np.exp(gains.mean())), 4)
    cpu = _cpu(policy, test, tried)
    return Score(policy.name, tried, len(test), cycles, low, high, share, round(worst, 3), cpu)


def _cpu(policy: Policy, test: Sequence[Labels], tried: int) -> float | None:
    first = sum(kernel.cpu.get(kernel.first, 0.0) for kernel in test)
    beside = sum(kernel.cpu.get(plan, 0.0) for kernel in test for plan in ranked(policy, kernel)[:tried])
    return round(1 + beside / first, 2) if first else None


def _gain(policy: Policy, kernel: Labels, tried: int) -> float:
    return min((kernel.gain(plan) for plan in ranked(policy, kernel)[:tried]), default=0.0)


def as_markdown(rows: Sequence[Score]) -> str:
    """The rows as a table."""
    head = (
        "| policy | plans tried | cycles over the first's | 95 % | share of the oracle's gain | worst unguarded |"
        " CPU over the first's |"
    )
    lines = [head, "|---|---|---|---|---|---|---|"]
    for row in rows:
        share = "" if row.share is None else f"{row.share:.2f}"
        cpu = "" if row.cpu is None else f"{row.cpu:.2f}"
        lines.append(
            f"| {row.policy} | {row.tried} | {row.cycles:.4f} | {row.low:.4f} to {row.high:.4f} | {share} |"
            f" {row.worst:.2f} | {cpu} |"
        )
    return "\n".join(lines)


def as_data(rows: Sequence[Score]) -> list[dict[str, object]]:
    return [asdict(row) for row in rows]
