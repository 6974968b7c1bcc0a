"""What chooses an answer: each policy ranks the answers for a kernel by the gain that it expects.

A gain is the logarithm of the cycles that are kept where the answer is tried, over those that ``-O=fast`` keeps
(``data.Labels.gain``). The baselines are what a learned policy has to beat.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from verilocc_mlir.pipeline.answers import SLOTS, Answer
from verilocc_mlir.pipeline.effort import OURS
from verilocc_mlir.pipeline.plan_rules import balanced_plans
from verilocc_mlir.target.targets import target
from verilocc_model.plans.data import Labels

Array = NDArray[np.float64]
_NEIGHBOURS = 7
_MOST = 0.5
"""Gains and losses beyond this are learned as this: how bad a bad answer is does not matter."""
_LEAST = 0.01
"""Gain that has to be expected of an answer that takes the place of the first plan."""
_SEEN = 8
"""Kernels that have to have an answer for anything to be learned of it."""
_SHRINK = 3.0
"""Kernels without a gain that each mean is taken together with: few kernels say little."""


class Policy(Protocol):
    """Ranks answers.

    ``fit`` learns from labelled kernels; ``expected`` gives the gain expected of each answer for a kernel, of which it
    reads facts, target, and where it says so (``reads_texts``) the texts before allocation. Answers that it leaves out
    are not tried.
    """

    name: str
    reads_texts: bool

    def fit(self, kernels: Sequence[Labels]) -> None: ...
    def expected(self, kernel: Labels) -> Mapping[str, float]: ...


def ranked(policy: Policy, kernel: Labels) -> list[str]:
    """Answers in the order in which they are tried beside what ``fast`` tries; none for a kernel that promises nothing.
    Of those that are allocated alike, the first one: that is seen before it is allocated.
    """
    if not kernel.has_promise:
        return []
    gains = policy.expected(kernel)
    tried = {kernel.alike.get(plan, plan) for plan in kernel.fast}
    chosen: list[str] = []
    for plan in sorted(gains, key=lambda plan: gains[plan]):
        same = kernel.alike.get(plan, plan)
        if same not in tried and plan in kernel.cpu:
            tried.add(same)
            chosen.append(plan)
    return chosen


def instead(policy: Policy, kernel: Labels) -> str | None:
    """The answer that takes the place of the first one, where a gain is expected of it."""
    gains = policy.expected(kernel)
    return next((plan for plan in ranked(policy, kernel)[:1] if gains[plan] < -_LEAST), None)


class Default:
    """Never another plan."""

    name = "always the default"
    reads_texts = False

    def fit(self, kernels: Sequence[Labels]) -> None: ...

    def expected(self, kernel: Labels) -> Mapping[str, float]:
        return {}


class BestByTarget:
    """The answer with the best mean gain on a target; for a target without labels, on those of its kind."""

    name = "best single answer by target"
    reads_texts = False

    def __init__(self) -> None:
        self._means: dict[str, dict[str, float]] = {}

    def fit(self, kernels: Sequence[Labels]) -> None:
        for key in {key for kernel in kernels for key in (kernel.cell.target, kind(kernel.cell.target))}:
            of_key = [k for k in kernels if key in (k.cell.target, kind(k.cell.target))]
            plans = dict.fromkeys(plan for kernel in of_key for plan in kernel.plans)
            self._means[key] = {
                plan: sum(kernel.gain(plan) for kernel in of_key) / (len(of_key) + _SHRINK) for plan in plans
            }

    def expected(self, kernel: Labels) -> Mapping[str, float]:
        name = kernel.cell.target
        return self._means.get(name) or self._means.get(kind(name), {})


class _OfFacts:
    """Facts as an array, and gains by plan as another; a plan that a target has not is not asked there."""

    name = ""
    reads_texts = False

    def __init__(self) -> None:
        self._names: list[str] = []
        self._plans: list[str] = []
        self._of_kind: dict[str, set[str]] = {}

    def fit(self, kernels: Sequence[Labels]) -> None:
        self._names = sorted(kernels[0].facts)
        counts = Counter(plan for kernel in kernels for plan in kernel.plans)
        self._plans = sorted(plan for plan, count in counts.items() if count >= _SEEN)
        for kernel in kernels:
            self._of_kind.setdefault(kind(kernel.cell.target), set()).update(kernel.plans)
        gains = np.array([[kernel.gain(plan) for plan in self._plans] for kernel in kernels])
        self._fit(np.array([of_kernel(kernel, self._names) for kernel in kernels]), gains)

    def expected(self, kernel: Labels) -> Mapping[str, float]:
        gains = self._predict(np.array(of_kernel(kernel, self._names)))
        there = self._of_kind.get(kind(kernel.cell.target), set())
        return {plan: float(gain) for plan, gain in zip(self._plans, gains, strict=True) if plan in there}

    def _fit(self, facts: Array, gains: Array) -> None:
        raise NotImplementedError

    def _predict(self, facts: Array) -> Array:
        raise NotImplementedError


class Nearest(_OfFacts):
    """The mean gain over the kernels whose facts are the most alike."""

    name = f"{_NEIGHBOURS} nearest neighbours"

    def _fit(self, facts: Array, gains: Array) -> None:
        self._mean, self._scale = facts.mean(axis=0), facts.std(axis=0) + 1e-6
        self._facts, self._gains = (facts - self._mean) / self._scale, gains

    def _predict(self, facts: Array) -> Array:
        distances = np.abs(self._facts - (facts - self._mean) / self._scale).sum(axis=1)
        nearest = np.argsort(distances, kind="stable")[:_NEIGHBOURS]
        return self._gains[nearest].sum(axis=0) / (len(nearest) + 1.0)


class Rule:
    """What ``-O=balanced`` tries where it tries plans, in its order (``pipeline.plan_rules``)."""

    name = "the rule of -O=balanced"
    reads_texts = False

    def fit(self, kernels: Sequence[Labels]) -> None: ...

    def expected(self, kernel: Labels) -> Mapping[str, float]:
        spilled = any(kernel.plans[plan]["spills"] for plan in kernel.fast if plan in kernel.plans)
        return {plan.name: -1.0 + place / 10 for place, plan in enumerate(balanced_plans(spilled=spilled))}


class Texts:
    """The text with the fewest registers too many; of those with as many, the one with the fewest estimated cycles.

    A critic without anything learned: it needs LLVM's text of every plan, but allocates none.
    """

    name = "the text's registers, then its cycles"
    reads_texts = True

    def fit(self, kernels: Sequence[Labels]) -> None: ...

    def expected(self, kernel: Labels) -> Mapping[str, float]:
        there = [plan for plan in kernel.plans if plan in kernel.texts and Answer.parse(plan).variant == OURS]
        of = {plan: (max(0.0, kernel.texts[plan]["text over"]), kernel.texts[plan]["text cycles"]) for plan in there}
        first = of.get(kernel.first)
        order = sorted(there, key=lambda plan: of[plan])
        return {
            plan: -1.0 + place / 100 if first is None or of[plan] < first else place / 100
            for place, plan in enumerate(order)
        }


class Critic:
    """Gradient-boosted trees (scikit-learn) over facts and words, one model for all answers.

    Args:
        texts: read the text of an answer beside the first one's too: a critic of pairs. It needs LLVM's text of every
            answer, but allocates none.
    """

    reads_texts = True

    def __init__(self, *, texts: bool = True) -> None:
        self.reads_texts = texts
        self.name = "gradient-boosted critic of texts" if texts else "gradient-boosted trees"

    def fit(self, kernels: Sequence[Labels]) -> None:
        ensemble: Any = importlib.import_module("sklearn.ensemble")
        self._facts = sorted(kernels[0].facts)
        known = (text for kernel in kernels for text in kernel.texts.values())
        self._texts = sorted(next(known, ())) if self.reads_texts else []
        pairs = [(k, p) for k in kernels for p in self._of(k)]
        self._model: Any = None
        if not pairs:
            return
        rows = np.array([self._row(kernel, plan) for kernel, plan in pairs])
        gains = np.array([max(min(kernel.unguarded(plan), _MOST), -_MOST) for kernel, plan in pairs])
        self._model = ensemble.HistGradientBoostingRegressor(
            max_iter=200, learning_rate=0.05, max_leaf_nodes=15, min_samples_leaf=10, random_state=0
        ).fit(rows, gains)  # fmt: skip

    def expected(self, kernel: Labels) -> Mapping[str, float]:
        plans = self._of(kernel)
        if not plans or self._model is None:
            return {}
        gains = self._model.predict(np.array([self._row(kernel, plan) for plan in plans]))
        return {plan: float(gain) for plan, gain in zip(plans, gains, strict=True)}

    def _of(self, kernel: Labels) -> list[str]:
        """Answers, of those alike the first one; those with a text alone where texts are read."""
        there = [plan for plan in kernel.plans if plan not in kernel.alike]
        if not self.reads_texts:
            return there
        return [plan for plan in there if plan in kernel.texts] if kernel.first in kernel.texts else []

    def _row(self, kernel: Labels, plan: str) -> list[float]:
        by_slot = Answer.parse(plan).by_slot
        words = [float(by_slot[slot] == word) for slot, known in SLOTS.items() for word in known]
        mine, firsts = kernel.texts.get(plan, {}), kernel.texts.get(kernel.first, {})
        texts = [value for n in self._texts for value in (mine[n], mine[n] - firsts[n])]
        return [*of_kernel(kernel, self._facts), *words, *texts]


class Oracle:
    """The answer that is the best in truth."""

    name = "oracle"
    reads_texts = False

    def fit(self, kernels: Sequence[Labels]) -> None: ...

    def expected(self, kernel: Labels) -> Mapping[str, float]:
        return {plan: kernel.gain(plan) for plan in kernel.plans}


def baselines() -> list[Policy]:
    """Those that learned policies are compared with."""
    return [Default(), Rule(), BestByTarget(), Nearest(), Texts(), Critic(texts=False), Critic()]


def of_kernel(kernel: Labels, names: Sequence[str]) -> list[float]:
    """Facts by name, then numbers of the target."""
    gpu = target(kernel.cell.target)
    of_target = [float(gpu.unified_vgpr), float(gpu.max_waves), float(gpu.vgpr_total), float(gpu.vgpr_granule)]
    return [kernel.facts[name] for name in names] + of_target


def kind(name: str) -> str:
    """``CDNA`` or ``RDNA``."""
    return "CDNA" if name.startswith("gfx9") else "RDNA"
