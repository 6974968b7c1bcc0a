"""A model that states answers from facts alone, and a critic that reads the texts of the likeliest ones.

LLVM makes a text for each answer on the list, and none of them is allocated: that costs less than trying them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from verilocc_model.plans.critic import Critic
from verilocc_model.plans.data import Labels
from verilocc_model.plans.policies import Policy, ranked

LISTED = 6
"""Answers whose texts the critic reads."""


class Shortlist:
    """The ``LISTED`` answers that one policy ranks first, in the order of a critic.

    Args:
        stater: a fitted one, or one that is fitted before this is.
    """

    def __init__(self, stater: Policy, critic: Critic) -> None:
        self._stater, self._critic = stater, critic
        self.name = f"{stater.name}, the first {LISTED} by the critic"

    def fit(self, kernels: Sequence[Labels]) -> None:
        self._critic.fit(kernels)

    def reads(self, kernel: Labels) -> list[str]:
        return ranked(self._stater, kernel)[:LISTED]

    def expected(self, kernel: Labels) -> Mapping[str, float]:
        first = kernel.texts.get(kernel.first, {})
        texts = {plan: kernel.texts[plan] for plan in self.reads(kernel) if plan in kernel.texts}
        gains = self._critic.gains(kernel.cell.target, kernel.facts, first, texts) if first else []
        return dict(zip(texts, gains, strict=True)) if gains else {}
