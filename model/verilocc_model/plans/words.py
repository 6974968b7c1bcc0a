"""The words in which facts of a kernel and answers are written for a model.

A fact becomes a word of its name and of how many of the training kernels have less of it, in ``_PARTS`` equal parts. An
answer is one word a slot (``pipeline.answers``), so a model states answers that no label has too.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from verilocc_mlir.pipeline.answers import AS_IT_IS, SLOTS, Answer
from verilocc_model.plans.data import Labels
from verilocc_model.plans.policies import kind

_PARTS = 8
_SEEN = 8
KINDS = ("CDNA", "RDNA")
_ACCUMULATORS = SLOTS["matrices"]
WORDS = "words.json"
"""The file beside the weights that has the words."""


class Words:
    """The words of facts, kinds of targets and answers.

    Attributes:
        names: of the facts.
        limits: of each, the values that part the training kernels into equal parts.
        answers: those that at least ``_SEEN`` training kernels have, which are ranked.
    """

    def __init__(
        self, names: Sequence[str], limits: Mapping[str, Sequence[float]], answers: Sequence[str] = ()
    ) -> None:
        self.names, self.limits = list(names), {name: list(values) for name, values in limits.items()}
        self.answers = [Answer.parse(text) for text in answers]
        self._answers = [f"{slot}: {word}" for slot, words in SLOTS.items() for word in (AS_IT_IS, *words)]
        facts = [f"{name} {part}" for name in self.names for part in range(_PARTS)]
        words = ["?", *KINDS, *facts, *self._answers]
        self.ids = {word: number for number, word in enumerate(words)}
        self._spelt = {number: word for word, number in self.ids.items()}

    @classmethod
    def of(cls, kernels: Sequence[Labels]) -> Words:
        """As the training kernels have them."""
        shares = np.arange(1, _PARTS) / _PARTS
        names = sorted(kernels[0].facts)
        limits = {n: np.quantile([k.facts[n] for k in kernels], shares).tolist() for n in names}
        counts = Counter(plan for kernel in kernels for plan in kernel.plans)
        return cls(names, limits, [plan for plan, count in counts.items() if count >= min(_SEEN, len(kernels))])

    def to_data(self) -> dict[str, Any]:
        return {"names": self.names, "limits": self.limits, "answers": list(map(str, self.answers))}

    def facts(self, facts: Mapping[str, float], target: str, hidden: frozenset[str] = frozenset()) -> list[int]:
        """The target's kind, a kernel's facts, and the question; ``?`` for facts that are hidden."""
        words = (
            "?" if name in hidden else f"{name} {bisect.bisect_right(self.limits[name], facts[name])}"
            for name in self.names
        )
        return [self.ids[word] for word in (kind(target), *words, "?")]

    def ranked(self, target: str) -> list[Answer]:
        """``answers`` that a target has: RDNA has no accumulators."""
        there = kind(target) == "CDNA"
        return [answer for answer in self.answers if there or not {*_ACCUMULATORS} & {*answer.words}]

    def answer(self, answer: Answer) -> list[int]:
        return [self.ids[f"{slot}: {word}"] for slot, word in answer.by_slot.items()]

    def of_slot(self, slot: str, target: str) -> list[int]:
        """The numbers of a slot's words that a target has: the mask."""
        there = kind(target) == "CDNA"
        return [self.ids[f"{slot}: {w}"] for w in (AS_IT_IS, *SLOTS[slot]) if there or w not in _ACCUMULATORS]

    def read(self, ids: Sequence[int]) -> Answer | None:
        """What ``answer`` gave; None for anything else."""
        words: list[str] = []
        for number, slot in zip(ids, SLOTS, strict=True):
            name, _, word = self._spelt.get(number, "").partition(": ")
            if name != slot:
                return None
            words += [word] if word != AS_IT_IS else []
        return Answer.of(words)
