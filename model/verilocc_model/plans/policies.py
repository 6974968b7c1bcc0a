"""What chooses a plan: each policy ranks the plans of a kernel by the gain that it expects.

A gain is the logarithm of the plan's cycles over the default plan's, 0 where the guard would not keep the plan
(``data.Labels.gain``). The baselines are what a learned policy has to beat.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from verilocc_mlir.target.targets import target
from verilocc_model.plans.data import Labels

Array = NDArray[np.float64]
_TREES, _NEIGHBOURS = 300, 7
_SHRINK = 3.0
"""Kernels without a gain that each mean is taken together with: few kernels say little."""


class Policy(Protocol):
    """Ranks plans.

    ``fit`` learns from labelled kernels; ``expected`` gives the gain expected of each plan for a kernel, of which it
    reads facts and target alone. Plans that it leaves out are not tried.
    """

    name: str

    def fit(self, kernels: Sequence[Labels]) -> None: ...
    def expected(self, kernel: Labels) -> Mapping[str, float]: ...


def ranked(policy: Policy, kernel: Labels) -> list[str]:
    """Plans in the order in which they are tried beside the first, those with an expected gain only."""
    gains = policy.expected(kernel)
    return sorted(
        (plan for plan, gain in gains.items() if gain < 0 and plan != kernel.first), key=lambda plan: gains[plan]
    )


class Default:
    """Never another plan."""

    name = "always the default"

    def fit(self, kernels: Sequence[Labels]) -> None: ...

    def expected(self, kernel: Labels) -> Mapping[str, float]:
        return {}


class BestByTarget:
    """The plan with the best mean gain on a target; for a target without labels, on those of its kind."""

    name = "best single plan by target"

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

    def __init__(self) -> None:
        self._names: list[str] = []
        self._plans: list[str] = []
        self._of_kind: dict[str, set[str]] = {}

    def fit(self, kernels: Sequence[Labels]) -> None:
        self._names = sorted(kernels[0].facts)
        self._plans = sorted({plan for kernel in kernels for plan in kernel.plans if plan != kernel.first})
        for kernel in kernels:
            self._of_kind.setdefault(kind(kernel.cell.target), set()).update(kernel.plans)
        gains = np.array([[kernel.gain(plan) for plan in self._plans] for kernel in kernels])
        self._fit(np.array([self._row(kernel) for kernel in kernels]), gains)

    def expected(self, kernel: Labels) -> Mapping[str, float]:
        gains = self._predict(np.array(self._row(kernel)))
        there = self._of_kind.get(kind(kernel.cell.target), set())
        return {plan: float(gain) for plan, gain in zip(self._plans, gains, strict=True) if plan in there}

    def _row(self, kernel: Labels) -> list[float]:
        gpu = target(kernel.cell.target)
        of_target = [float(gpu.unified_vgpr), float(gpu.max_waves), float(gpu.vgpr_total), float(gpu.vgpr_granule)]
        return [kernel.facts[name] for name in self._names] + of_target

    def _fit(self, facts: Array, gains: Array) -> None:
        raise NotImplementedError

    def _predict(self, facts: Array) -> Array:
        raise NotImplementedError


class Nearest(_OfFacts):
    """The mean gain over the kernels whose facts are the most alike.

    Args:
        least: the share of the cycles that a plan has to be expected to save.
    """

    def __init__(self, least: float = 0.0) -> None:
        super().__init__()
        self._least = least
        self.name = f"{_NEIGHBOURS} nearest neighbours" + (f", at least {least:.1%}" if least else "")

    def expected(self, kernel: Labels) -> Mapping[str, float]:
        return {plan: gain for plan, gain in super().expected(kernel).items() if gain <= -self._least}

    def _fit(self, facts: Array, gains: Array) -> None:
        self._mean, self._scale = facts.mean(axis=0), facts.std(axis=0) + 1e-6
        self._facts, self._gains = (facts - self._mean) / self._scale, gains

    def _predict(self, facts: Array) -> Array:
        distances = np.abs(self._facts - (facts - self._mean) / self._scale).sum(axis=1)
        nearest = np.argsort(distances, kind="stable")[:_NEIGHBOURS]
        return self._gains[nearest].sum(axis=0) / (len(nearest) + 1.0)


class Trees(_OfFacts):
    """Gradient-boosted regression trees, one model a plan (scikit-learn)."""

    name = "gradient-boosted trees"

    def _fit(self, facts: Array, gains: Array) -> None:
        ensemble: Any = importlib.import_module("sklearn.ensemble")
        self._models = [
            ensemble.GradientBoostingRegressor(
                n_estimators=_TREES, learning_rate=0.03, max_depth=3, subsample=0.7, max_features=0.3, random_state=0
            ).fit(facts, column)
            for column in gains.T
        ]

    def _predict(self, facts: Array) -> Array:
        return np.array([model.predict(facts[None])[0] for model in self._models])


class Oracle:
    """The plan that is the best in truth."""

    name = "oracle"

    def fit(self, kernels: Sequence[Labels]) -> None: ...

    def expected(self, kernel: Labels) -> Mapping[str, float]:
        return {plan: kernel.gain(plan) for plan in kernel.plans}


def baselines() -> list[Policy]:
    """Those that learned policies are compared with."""
    return [Default(), BestByTarget(), Nearest(), Nearest(0.01), Trees()]


def kind(name: str) -> str:
    """``CDNA`` or ``RDNA``."""
    return "CDNA" if name.startswith("gfx9") else "RDNA"
