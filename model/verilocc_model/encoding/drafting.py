"""Answers without a model: the draft, with or without the places that meet more copies and preferences."""

from __future__ import annotations

from verilocc_model.encoding.episode import Episode
from verilocc_model.encoding.vocabulary import MEETS, MEETS_AT, Question


def usual(question: Question, *, meets: bool) -> str:
    """The draft; with ``meets``, the place that meets more than the plain ones, if the facts name one."""
    return MEETS if meets and MEETS_AT in question.facts else question.draft


def draft(episode: Episode, *, meets: bool = False) -> list[tuple[Question, str]]:
    """Give every question its usual answer, or the draft where the mask forbids that; returns the answers.

    Raises:
        AllocationFailure: as ``Episode.question``.
    """
    answers: list[tuple[Question, str]] = []
    while (question := episode.question()) is not None:
        word = usual(question, meets=meets)
        if not episode.answer(word):
            if word == question.draft or not episode.answer(question.draft):
                raise AssertionError(f"the draft {question.draft!r} is not allowed")
            word = question.draft
        answers.append((question, word))
    return answers
