"""What an episode asks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    """What is asked next.

    Attributes:
        stage: ``joining``, ``planning`` or ``placing``.
        facts: words that come before the answer.
        draft: an answer that is allowed, found without a model: what the witness says, or else what is free; ``""``
            where that is not known.
        final: the answer must be known before there is a next question.
        known: the draft is the answer; it is stated like a fact.
    """

    stage: str
    facts: tuple[str, ...]
    draft: str
    final: bool = False
    known: bool = False
