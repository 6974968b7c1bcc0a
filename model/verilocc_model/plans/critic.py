"""The critic: gradient-boosted trees that rank answers by their texts, none of which is allocated.

Each answer is a row: facts of the kernel, the answer's words, facts of its text and how far they are from those of the
first plan's text. The trees give the logarithm of the cycles that it is expected to take over the kept ones of
``-O=fast``. They are fitted with scikit-learn and asked with NumPy alone.
"""

from __future__ import annotations

import importlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verilocc_mlir.errors import InputError
from verilocc_mlir.files import write_whole
from verilocc_mlir.pipeline.candidates import SLOTS, Answer
from verilocc_mlir.target.targets import target as target_called
from verilocc_model.plans.data import Labels
from verilocc_model.trees import Trees

FORM = "critic.json"
TREES = "critic.safetensors"
_MOST = 0.5
"""Gains and losses beyond this are learned as this: how bad a bad answer is does not matter."""
_GOOD, _SEEN = 0.9, 4
"""An answer is asked about if it has brought this share of the best gain for so many kernels."""
_DEARER = ("text cycles", "text over", "text over hot", "text over hot mean", "text over often", "text spilled",
           "text in waves", "text estimate")  # fmt: skip
"""Facts of which more, beside the first plan's text, never makes an answer look better. Without that the trees learn
from few kernels what does not hold for those of another source (docs/results/plan-choice.md)."""
_HINT = "make one: verilocc train critic DATA --out DIR"

Facts = Mapping[str, float]


class Critic:
    """Ranks answers (``policies.Policy``)."""

    name = "gradient-boosted critic of texts"

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self._facts: list[str] = []
        self._texts: list[str] = []
        self._trees: Trees | None = None

    def fit(self, kernels: Sequence[Labels]) -> None:
        """Learn from labelled kernels; nothing where no kernel has texts and those are read."""
        self._facts = sorted(kernels[0].facts)
        known = (text for kernel in kernels for text in kernel.texts.values())
        self._texts = sorted(next(known, ()))
        self.answers = [Answer.parse(plan) for plan in _worth_asking(kernels)]
        rows, gains = self.labelled_rows(kernels)
        if not len(rows):
            return
        of_texts = [direction for name in self._texts for direction in (0, int(name in _DEARER))]
        ensemble: Any = importlib.import_module("sklearn.ensemble")
        model = ensemble.HistGradientBoostingRegressor(
            max_iter=200, learning_rate=0.05, max_leaf_nodes=15, min_samples_leaf=10, random_state=0,
            monotonic_cst=[0] * (rows.shape[1] - len(of_texts)) + of_texts,
        )  # fmt: skip
        self._trees = Trees.of(model.fit(rows, gains))

    def reads(self, kernel: Labels) -> list[str]:
        """Answers whose texts have to be made."""
        return [*map(str, self.answers)]

    def expected(self, kernel: Labels) -> Mapping[str, float]:
        asked = {*map(str, self.answers)}
        plans = [plan for plan in self._of(kernel) if plan in asked]
        texts = {plan: kernel.texts.get(plan, {}) for plan in plans}
        first = kernel.texts.get(kernel.first, {})
        return dict(zip(plans, self.gains(kernel.cell.target, kernel.facts, first, texts), strict=True))

    def gains(self, target: str, facts: Facts, first: Facts, texts: Mapping[str, Facts]) -> list[float]:
        """What is expected of each answer, a logarithm of cycles; below 0 is a gain.

        Args:
            facts: of the kernel (``facts.facts``), with those of the first plan's text.
            first: of that text.
            texts: facts of each answer's text, by answer.

        Raises:
            InputError: a fact is missing: the critic was trained with other ones.
        """
        if not texts or self._trees is None:
            return []
        try:
            rows = [self._features(target, facts, plan, text, first) for plan, text in texts.items()]
        except KeyError as error:
            raise InputError(f"the critic reads a fact that is not there: {error}", hint=_HINT) from error
        return self._trees.values(np.array(rows)).tolist()

    def _of(self, kernel: Labels) -> list[str]:
        """Answers with a text, of those alike the first one."""
        there = kernel.plans.keys() & kernel.texts.keys() - kernel.alike.keys()
        return [plan for plan in kernel.plans if plan in there] if kernel.first in kernel.texts else []

    def labelled_rows(self, kernels: Sequence[Labels]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What is learned from, once the facts are known: a row for each answer, and its gain."""
        rows = [row for kernel in kernels for row in self.rows(kernel, self._of(kernel))]
        gains = [max(min(kernel.unguarded(p), _MOST), -_MOST) for kernel in kernels for p in self._of(kernel)]
        return np.array(rows), np.array(gains)

    def rows(self, kernel: Labels, plans: Sequence[str]) -> NDArray[np.float64]:
        """A row for each of these answers."""
        first = kernel.texts.get(kernel.first, {})
        texts = [(plan, kernel.texts.get(plan, {})) for plan in plans]
        return np.array([self._features(kernel.cell.target, kernel.facts, p, text, first) for p, text in texts])

    def _features(self, target: str, facts: Facts, plan: str, text: Facts, first: Facts) -> list[float]:
        by_slot = Answer.parse(plan).by_slot
        words = [float(by_slot[slot] == word) for slot, known in SLOTS.items() for word in known]
        texts = [value for name in self._texts for value in (text[name], text[name] - first[name])]
        return [*of_kernel(facts, target, self._facts), *words, *texts]

    def save(self, directory: Path) -> None:
        """The trees (safetensors), and the names of what they read.

        Raises:
            InputError: nothing was learned.
        """
        if self._trees is None:
            raise InputError("no kernel has facts of its texts", hint="label kernels: verilocc corpus plans")
        directory.mkdir(parents=True, exist_ok=True)
        self._trees.save(directory / TREES)
        data = {"facts": self._facts, "texts": self._texts, "answers": list(map(str, self.answers))}
        write_whole(directory / FORM, (json.dumps(data, indent=1) + "\n").encode())

    @classmethod
    def load(cls, directory: Path) -> Critic:
        """What ``save`` wrote.

        Raises:
            InputError: no critic is there.
        """
        result = cls()
        try:
            data = json.loads((directory / FORM).read_text())
            result._facts, result._texts = data["facts"], data["texts"]
            result.answers = [Answer.parse(text) for text in data["answers"]]
            result._trees = Trees.load(directory / TREES)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"no critic of plans is there: {error}", where=str(directory), hint=_HINT) from error
        return result


def of_kernel(facts: Facts, target: str, names: Sequence[str]) -> list[float]:
    """Facts by name, then numbers of the target."""
    gpu = target_called(target)
    of_target = [float(gpu.unified_vgpr), float(gpu.max_waves), float(gpu.vgpr_total), float(gpu.vgpr_granule)]
    return [facts[name] for name in names] + of_target


def _worth_asking(kernels: Sequence[Labels]) -> list[str]:
    """Answers that were the best, or nearly, for some kernels: each costs a run of LLVM. With few kernels, all."""
    good: Counter[str] = Counter()
    for kernel in kernels:
        gains = {plan: kernel.gain(plan) for plan in kernel.plans if plan not in kernel.alike}
        best = min(gains.values(), default=0.0)
        good.update(plan for plan, gain in gains.items() if best < 0 and gain <= _GOOD * best)
    known = dict.fromkeys(plan for kernel in kernels for plan in kernel.plans)
    # The first plan may be another one than the default.
    return [plan for plan in known if good[plan] >= min(_SEEN, len(kernels) // 20) or plan == "default"]
