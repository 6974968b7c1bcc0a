"""The questions of an episode."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    """One question.

    Attributes:
        stage: ``joining``, ``planning`` or ``placing``. facts: words that come before the answer. draft: an allowed
            answer, found without a model: the witness's, or else a free place; ``""`` where none is known. final: the
            next question depends on the answer. known: the draft is the answer; it is stated like a fact.
    """

    stage: str
    facts: tuple[str, ...]
    draft: str
    final: bool = False
    known: bool = False
