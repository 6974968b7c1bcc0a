"""What chooses an answer: each policy ranks the answers for a kernel by the gain that it expects.

A gain is the logarithm of the cycles that are kept where the answer is tried, over those that ``-O=fast`` keeps
(``data.Labels.gain``). The baselines are what a learned policy has to beat.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from verilocc_mlir.errors import InputError
from verilocc_mlir.files import write_whole
from verilocc_mlir.pipeline.candidates import Answer
from verilocc_mlir.pipeline.plans import balanced_plans
from verilocc_mlir.pipeline.runs import OURS
from verilocc_model.plans.critic import Critic, of_kernel
from verilocc_model.plans.data import Labels

Array = NDArray[np.float64]
NEIGHBOURS, KERNELS = "neighbours.json", "neighbours.safetensors"
_HINT = "make one: verilocc train plans DATA --out DIR"
_NEIGHBOURS = 7
_SEEN = 8
"""Kernels that have to have an answer for anything to be learned of it."""


class Policy(Protocol):
    """Ranks answers.

    ``fit`` learns from labelled kernels; ``expected`` gives the gain expected of each answer for a kernel, of which it
    reads facts and target, and of the answers that ``reads`` gives the texts before allocation. Answers that it leaves
    out are not tried.
    """

    name: str

    def reads(self, kernel: Labels) -> Collection[str]: ...
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


class _Fixed:
    """What learns nothing and reads no text."""

    def fit(self, kernels: Sequence[Labels]) -> None: ...

    def reads(self, kernel: Labels) -> Collection[str]:
        return ()


class Nearest(_Fixed):
    """The mean gain over the kernels whose facts are the most alike; what a server states answers with.

    Attributes:
        names: of the facts.
    """

    name = f"{_NEIGHBOURS} nearest neighbours"

    def __init__(self) -> None:
        self.names: list[str] = []
        self._plans: list[str] = []
        self._of_kind: dict[str, list[str]] = {}
        self._facts = self._gains = np.zeros((0, 0))

    def fit(self, kernels: Sequence[Labels]) -> None:
        self.names = sorted(kernels[0].facts)
        counts = Counter(plan for kernel in kernels for plan in kernel.plans)
        self._plans = sorted(plan for plan, count in counts.items() if count >= _SEEN)
        for name in {_kind(kernel.cell.target) for kernel in kernels}:
            own = (kernel.plans for kernel in kernels if _kind(kernel.cell.target) == name)
            self._of_kind[name] = sorted({plan for plans in own for plan in plans})
        self._gains = np.array([[kernel.gain(plan) for plan in self._plans] for kernel in kernels])
        self._facts = np.array([of_kernel(kernel.facts, kernel.cell.target, self.names) for kernel in kernels])

    def expected(self, kernel: Labels) -> Mapping[str, float]:
        return self.gains(kernel.cell.target, kernel.facts)

    def gains(self, target: str, facts: Mapping[str, float]) -> Mapping[str, float]:
        """The gain that is expected of each answer; one that a kind of targets has not is not asked there.

        Raises:
            InputError: a fact is missing: the model was trained with other ones.
        """
        scale = self._facts.std(axis=0) + 1e-6
        try:
            own = np.array(of_kernel(facts, target, self.names))
        except KeyError as error:
            raise InputError(f"the model reads a fact that is not there: {error}", hint=_HINT) from error
        distances = np.abs((self._facts - own) / scale).sum(axis=1)
        nearest = np.argsort(distances, kind="stable")[:_NEIGHBOURS]
        gains = self._gains[nearest].sum(axis=0) / (len(nearest) + 1.0)
        there = self._of_kind.get(_kind(target), ())
        return {plan: gain for plan, gain in zip(self._plans, gains.tolist(), strict=True) if plan in there}

    def ranked(self, target: str, facts: Mapping[str, float]) -> list[Answer]:
        """Its answers, the best first."""
        gains = self.gains(target, facts)
        return [Answer.parse(text) for text in sorted(gains, key=lambda text: gains[text])]

    def save(self, directory: Path) -> None:
        """Facts and gains of the kernels (safetensors), and names."""
        directory.mkdir(parents=True, exist_ok=True)
        write_whole(directory / KERNELS, save({"facts": self._facts, "gains": self._gains}))
        data = {"facts": self.names, "answers": self._plans, "of_kind": self._of_kind}
        write_whole(directory / NEIGHBOURS, (json.dumps(data, indent=1) + "\n").encode())

    @classmethod
    def load(cls, directory: Path) -> Nearest:
        """What ``save`` wrote.

        Raises:
            InputError: it is not there.
        """
        result = cls()
        try:
            data = json.loads((directory / NEIGHBOURS).read_text())
            result.names, result._plans, result._of_kind = data["facts"], data["answers"], data["of_kind"]
            tensors = load_file(directory / KERNELS)
            result._facts, result._gains = tensors["facts"], tensors["gains"]
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            raise InputError(f"no model of plans is there: {error}", where=str(directory), hint=_HINT) from error
        return result


class Rule(_Fixed):
    """What ``-O=balanced`` tries where it tries plans, in its order (``pipeline.plan_rules``)."""

    name = "the rule of -O=balanced"

    def expected(self, kernel: Labels) -> Mapping[str, float]:
        spilled = any(kernel.plans[plan]["spills"] for plan in kernel.fast if plan in kernel.plans)
        return {plan.name: -1.0 + place / 10 for place, plan in enumerate(balanced_plans(spilled=spilled))}


class Texts(_Fixed):
    """The text whose estimate is the lowest (``facts.py``): cycles, in the waves that its registers leave room for, and
    what is spilled. A critic without anything learned: it needs LLVM's text of every plan, but allocates none.
    """

    name = "lowest estimate of a text"

    def reads(self, kernel: Labels) -> Collection[str]:
        return [plan for plan in kernel.plans if plan in kernel.texts and Answer.parse(plan).variant == OURS]

    def expected(self, kernel: Labels) -> Mapping[str, float]:
        first = kernel.texts.get(kernel.first)
        if first is None:
            return {}
        estimates = {plan: kernel.texts[plan]["text estimate"] for plan in self.reads(kernel)}
        return {plan: (value - first["text estimate"]) * math.log(2) for plan, value in estimates.items()}


class Oracle(_Fixed):
    """The answer that is the best in truth."""

    name = "oracle"

    def expected(self, kernel: Labels) -> Mapping[str, float]:
        return {plan: kernel.gain(plan) for plan in kernel.plans}


def baselines() -> list[Policy]:
    """Those that learned policies are compared with."""
    return [Rule(), Nearest(), Texts(), Critic()]


def _kind(name: str) -> str:
    """``CDNA`` or ``RDNA``."""
    return "CDNA" if name.startswith("gfx9") else "RDNA"
