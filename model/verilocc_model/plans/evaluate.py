"""``verilocc eval --plans``: every baseline on a data set of plans, on kernels that it did not learn from."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from verilocc_mlir.errors import ExitCode, InputError
from verilocc_mlir.files import write_whole
from verilocc_mlir.pipeline.candidates import Answer
from verilocc_mlir.pipeline.plans import DEFAULT
from verilocc_model.corpus.shards import read_manifest
from verilocc_model.plans.data import Labels, read_labels
from verilocc_model.plans.policies import Array, Oracle, Policy, baselines, ranked

FOLDS = 5
"""Parts of the kernels for cross-validation; each is judged by policies that learned from the others."""

_LEAST = 10
"""Kernels to learn from."""

Say = Callable[[str], None]


def labels_of(data: Sequence[Path]) -> list[Labels]:
    """The kernels of some data sets, each as the last one has it."""
    return list({kernel.cell.name: kernel for directory in data for kernel in read_labels(directory)}.values())


def to_learn_from(kernels: Sequence[Labels], data: Sequence[Path]) -> list[Labels]:
    """The train part, without kernels that promise nothing: no policy is asked about those.

    Raises:
        InputError: too few kernels to learn from.
    """
    train = [k for k in kernels if k.split == "train" and k.has_promise and not k.held_out]
    if len(train) < _LEAST:
        raise InputError(
            f"{len(train)} kernels to learn from are fewer than {_LEAST}",
            where=", ".join(map(str, data)),
            hint="label more kernels: verilocc corpus plans --kernels=N",
        )
    return train


def evaluate_plans(
    data: Sequence[Path],
    out: Path | None,
    say: Say,
    *,
    trained: Sequence[Policy] = (),
    model: str = "",
) -> int:
    """Print a table for each part of the kernels, and write them all as JSON.

    Args:
        data: directories that ``verilocc corpus plans`` wrote.
        trained: policies that were fitted to the train part; they are measured on what they did not learn from.
        model: the name of what trained them.

    Raises:
        InputError: no data set of plans is there, or it has too few kernels to learn from.
    """
    kernels = labels_of(data)
    parts: dict[str, list[Score]] = {}
    for name, rows in _parts(kernels, to_learn_from(kernels, data), trained):
        say(f"\n{name}\n\n{as_markdown(rows)}")
        parts[name] = rows
    if out is not None:
        manifests = [read_manifest(directory) for directory in data]
        result: dict[str, Any] = {
            "kernels": len(kernels),
            "data": [{key: manifest[key] for key in ("made_with", "parameters")} for manifest in manifests],
            "model": model,
            "parts": {name: [asdict(row) for row in rows] for name, rows in parts.items()},
        }
        write_whole(out, (json.dumps(result, indent=1) + "\n").encode())
    return ExitCode.PROVED


def _parts(
    kernels: Sequence[Labels], train: Sequence[Labels], trained: Sequence[Policy]
) -> Iterator[tuple[str, list[Score]]]:
    """Scores by part: the test part and what is held out, by policies fitted to the train part; then by folds."""
    seen = [kernel for kernel in kernels if not kernel.held_out]
    tests = {
        f"test part, fitted to {len(train)} kernels": [k for k in seen if k.split != "train"],
        "source held out": [kernel for kernel in kernels if "source" in kernel.held_out],
        "target held out": [kernel for kernel in kernels if "target" in kernel.held_out and kernel.split != "train"],
    }
    tests["all of these"] = list({id(kernel): kernel for test in tests.values() for kernel in test}.values())
    fitted = [answers_of(policy, tests["all of these"]) for policy in [*_fitted(train), *trained]]
    for name, test in tests.items():
        yield from _scored(name, fitted, test)

    for name, key in _FOLDS.items():
        folded = _cross_validated(kernels, key)
        if folded:
            yield from _scored(name, folded, kernels)


def _scored(name: str, asked: Sequence[Answers], kernels: Sequence[Labels]) -> Iterator[tuple[str, list[Score]]]:
    """On all of these kernels, on those where something is promised, and on those that LLVM spills registers of."""
    parts = {
        "": kernels,
        "; where another order promises something": [kernel for kernel in kernels if kernel.has_promise],
        "; where LLVM spills": [kernel for kernel in kernels if kernel.llvm["spills"]],
    }
    for which, chosen in parts.items():
        if chosen:
            yield f"{name}{which}", compared(asked, chosen)


_FOLDS: Mapping[str, Callable[[Labels], Hashable]] = {
    f"{FOLDS} folds": lambda kernel: int(kernel.cell.configuration[:8], 16) % FOLDS,
    "each source held out in turn": lambda kernel: kernel.cell.source,
    "each family held out in turn": lambda kernel: kernel.cell.family,
}
"""What is in one fold. Kernels that differ in target or limits alone are in the same one."""


def _cross_validated(kernels: Sequence[Labels], key: Callable[[Labels], Hashable]) -> list[Answers]:
    """What each policy answers for a kernel when it has learned from the other folds; none where there is one fold."""
    folds: dict[Hashable, list[Labels]] = {}
    for kernel in kernels:
        folds.setdefault(key(kernel), []).append(kernel)
    result: list[Answers] = []
    for name, test in folds.items():
        rest = [kernel for other, fold in folds.items() if other != name for kernel in fold if kernel.has_promise]
        if not rest:
            return []
        parts = [answers_of(policy, test) for policy in _fitted(rest)]
        result = [Answers(a.policy, {**a.of, **b.of}) for a, b in zip(result or parts, parts, strict=True)]
    return result


def _fitted(kernels: Sequence[Labels]) -> Sequence[Policy]:
    result = baselines()
    for policy in result:
        policy.fit(kernels)
    return result


# Policies compared on kernels that they did not learn from.


TRIED = (1, 2, 4)
"""Answers that are tried beside what ``fast`` tries; the best is kept."""

_SAMPLES = 2000


@dataclass(frozen=True)
class Score:
    """One policy on some kernels.

    Attributes:
        policy: its name.
        tried: answers that it may try beside what ``fast`` tries (``TRIED``).
        kernels: how many.
        cycles: geometric mean of the kept cycles over those that ``fast`` keeps.
        low, high: of ``cycles``, 95 % by resampling kernels.
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
    share: float | None
    worst: float
    unguarded: float
    cpu: float | None


@dataclass(frozen=True)
class Answers:
    """What a policy answers.

    Attributes:
        of: for a kernel, by its ``id``: answers in the order in which they are tried, and those whose texts it reads.
    """

    policy: str
    of: Mapping[int, tuple[Sequence[str], Collection[str]]]


def answers_of(policy: Policy, kernels: Iterable[Labels]) -> Answers:
    return Answers(policy.name, {id(kernel): (ranked(policy, kernel), policy.reads(kernel)) for kernel in kernels})


def scores(policies: Iterable[Policy], test: Sequence[Labels]) -> list[Score]:
    """Every fitted policy with each number of plans in ``TRIED``, then the oracle."""
    return compared([answers_of(policy, test) for policy in policies], test)


def compared(asked: Iterable[Answers], test: Sequence[Labels]) -> list[Score]:
    """``scores`` of what policies answered."""
    oracle = answers_of(Oracle(), test)
    best = _gains(oracle, test, 1)
    tries = [(one, tried) for one in asked for tried in TRIED] + [(oracle, 1)]
    return [_score(one, tried, test, best) for one, tried in tries]


def _score(answers: Answers, tried: int, test: Sequence[Labels], best: Array) -> Score:
    gains = _gains(answers, test, tried)
    cycles, low, high = interval(gains)
    share = round(float(gains.sum() / best.sum()), 3) if best.sum() else None
    first = (kernel.unguarded(plan) for kernel in test for plan in answers.of[id(kernel)][0][:1])
    return Score(
        answers.policy, tried, len(test), cycles, low, high, share,
        round(float(np.exp(gains.max(initial=0.0))), 4), round(math.exp(max(first, default=0.0)), 3),
        _cpu(answers, test, tried),
    )  # fmt: skip


def interval(gains: Sequence[float] | Array, seed: int = 0) -> tuple[float, float, float]:
    """The geometric mean of what has these logarithms, and its bounds (95 %) by resampling."""
    gains = np.array(gains)
    draws = np.random.default_rng(seed).integers(0, len(gains), (_SAMPLES, len(gains)))
    low, high = np.quantile(np.exp(gains[draws].mean(axis=1)), [0.025, 0.975])
    return round(float(np.exp(gains.mean())), 4), round(float(low), 4), round(float(high), 4)


def _gains(answers: Answers, test: Sequence[Labels], tried: int) -> Array:
    return np.array([min(map(k.gain, answers.of[id(k)][0][:tried]), default=0.0) for k in test])


def _cpu(answers: Answers, test: Sequence[Labels], tried: int) -> float | None:
    fast = sum(_of(kernel, kernel.fast) for kernel in test)
    total = 0.0
    for kernel in test:
        ranking, reads = answers.of[id(kernel)]
        total += _texts(kernel, reads) if kernel.has_promise else 0.0
        total += _of(kernel, (*kernel.fast, *ranking[:tried]))
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
        "| policy | tried | cycles over fast's | 95 % | share of the oracle's gain |"
        " worst kept | worst unguarded | CPU over fast's |"
    )
    lines = [head, "|---|---|---|---|---|---|---|---|"]
    for row in rows:
        share = "" if row.share is None else f"{row.share:.2f}"
        cpu = "" if row.cpu is None else f"{row.cpu:.2f}"
        lines.append(
            f"| {row.policy} | {row.tried} | {row.cycles:.4f} | {row.low:.4f} to {row.high:.4f} | {share} |"
            f" {row.worst:.4f} | {row.unguarded:.2f} | {cpu} |"
        )
    return "\n".join(lines)
