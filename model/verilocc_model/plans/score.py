"""Policies compared on kernels that they did not learn from."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from verilocc_mlir.pipeline.answers import Answer
from verilocc_mlir.pipeline.plans import DEFAULT
from verilocc_model.plans.data import Labels
from verilocc_model.plans.policies import Array, Oracle, Policy, Rule, instead, ranked

TRIED = (0, 1, 2, 4)
"""Answers that are tried beside what ``fast`` tries; the best is kept. 0: one, in place of the first plan."""

_SAMPLES = 2000


@dataclass(frozen=True)
class Score:
    """One policy on some kernels.

    Attributes:
        policy: its name.
        tried: answers that it may try beside what ``fast`` tries; 0: one in its place (``TRIED``).
        kernels: how many.
        cycles: geometric mean of the kept cycles over those that ``fast`` keeps.
        low, high: of ``cycles``, 95 % by resampling kernels.
        over_rule: ``cycles``, ``low`` and ``high`` over what the rule of ``-O=balanced`` keeps with as many tried.
        share: of the logarithmic gain that the best answer for each kernel brings; None where that is nothing.
        worst: the dearest kernel after the guard, over what ``fast`` keeps.
        unguarded: the dearest first choice, were there no guard.
        cpu: CPU seconds of all that is tried, and of the texts that the policy reads, over those of what ``fast``
            tries; without LLVM's own compile and without proofs. None where the labels have none.
    """

    policy: str
    tried: int
    kernels: int
    cycles: float
    low: float
    high: float
    over_rule: tuple[float, float, float]
    share: float | None
    worst: float
    unguarded: float
    cpu: float | None


def scores(policies: Iterable[Policy], test: Sequence[Labels], seed: int = 0) -> list[Score]:
    """Every fitted policy with each number of plans in ``TRIED``, then the oracle."""
    best = _gains(Oracle(), test, 1)
    rows: list[Score] = []
    for asked in (*policies, Oracle()):
        policy = _Once(asked)
        for tried in TRIED if not isinstance(asked, Oracle) else (1,):
            rows.append(_score(policy, tried, test, best, seed))
    return rows


class _Once:
    """A policy that is asked once for each kernel."""

    def __init__(self, policy: Policy) -> None:
        self._policy, self._known = policy, dict[int, Mapping[str, float]]()
        self.name = policy.name

    def fit(self, kernels: Sequence[Labels]) -> None:
        raise NotImplementedError("it is fitted")

    def reads(self, kernel: Labels) -> Collection[str]:
        return self._policy.reads(kernel)

    def expected(self, kernel: Labels) -> Mapping[str, float]:
        if id(kernel) not in self._known:
            self._known[id(kernel)] = self._policy.expected(kernel)
        return self._known[id(kernel)]


def _score(policy: Policy, tried: int, test: Sequence[Labels], best: Array, seed: int) -> Score:
    gains = _gains(policy, test, tried)
    cycles, low, high = interval(gains, seed)
    share = round(float(gains.sum() / best.sum()), 3) if best.sum() else None
    unguarded = max((kernel.unguarded(plan) for kernel in test for plan in ranked(policy, kernel)[:1]), default=0.0)
    return Score(
        policy.name, tried, len(test), cycles, low, high, interval(gains - _gains(Rule(), test, tried), seed), share,
        round(float(np.exp(gains.max(initial=0.0))), 4), round(math.exp(unguarded), 3), _cpu(policy, test, tried),
    )  # fmt: skip


def interval(gains: Sequence[float] | Array, seed: int = 0) -> tuple[float, float, float]:
    """The geometric mean of what has these logarithms, and its bounds (95 %) by resampling."""
    gains = np.array(gains)
    draws = np.random.default_rng(seed).integers(0, len(gains), (_SAMPLES, len(gains)))
    low, high = np.quantile(np.exp(gains[draws].mean(axis=1)), [0.025, 0.975])
    return round(float(np.exp(gains.mean())), 4), round(float(low), 4), round(float(high), 4)


def _gains(policy: Policy, test: Sequence[Labels], tried: int) -> Array:
    if not tried:
        chosen = ((kernel, instead(policy, kernel)) for kernel in test)
        return np.array([0.0 if plan is None else kernel.instead(plan) for kernel, plan in chosen])
    return np.array([min((k.gain(plan) for plan in ranked(policy, k)[:tried]), default=0.0) for k in test])


def _cpu(policy: Policy, test: Sequence[Labels], tried: int) -> float | None:
    fast = sum(_of(kernel, kernel.fast) for kernel in test)
    total = 0.0
    for kernel in test:
        total += _texts(kernel, policy.reads(kernel)) if kernel.has_promise else 0.0
        chosen = instead(policy, kernel) if not tried else None
        if tried:
            total += _of(kernel, (*kernel.fast, *ranked(policy, kernel)[:tried]))
        elif chosen is None:
            total += _of(kernel, kernel.fast)
        else:
            total += _of(kernel, (chosen, *(() if kernel.stands(chosen) else kernel.fast)))
    return round(total / fast, 2) if fast else None


def _of(kernel: Labels, plans: Iterable[str]) -> float:
    return sum(kernel.cpu.get(plan, 0.0) for plan in plans)


def _texts(kernel: Labels, answers: Iterable[str]) -> float:
    """CPU seconds for LLVM's texts of the answers: what one alike another takes is for its text alone."""
    alone = sorted(kernel.cpu[plan] for plan in kernel.alike if kernel.cpu.get(plan))
    plans = {Answer.parse(answer).plan for answer in answers if answer in kernel.cpu} - {DEFAULT}
    return alone[len(alone) // 2] * len(plans) if alone else 0.0


def as_markdown(rows: Sequence[Score]) -> str:
    """The rows as a table."""
    head = (
        "| policy | tried | cycles over fast's | 95 % | over the rule's, 95 % | share of the oracle's gain |"
        " worst kept | worst unguarded | CPU over fast's |"
    )
    lines = [head, "|---|---|---|---|---|---|---|---|---|"]
    for row in rows:
        share = "" if row.share is None else f"{row.share:.2f}"
        cpu = "" if row.cpu is None else f"{row.cpu:.2f}"
        tried, over = row.tried or "instead", "{:.4f}, {:.4f} to {:.4f}".format(*row.over_rule)
        lines.append(
            f"| {row.policy} | {tried} | {row.cycles:.4f} | {row.low:.4f} to {row.high:.4f} | {over} | {share} |"
            f" {row.worst:.4f} | {row.unguarded:.2f} | {cpu} |"
        )
    return "\n".join(lines)


def as_data(rows: Sequence[Score]) -> list[dict[str, object]]:
    return [asdict(row) for row in rows]
