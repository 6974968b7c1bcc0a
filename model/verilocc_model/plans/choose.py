"""Facts of one input, and what a model of plans says of them: the way into this package from ``-O=learned``."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from verilocc_mlir.errors import UnsupportedError, VeriloccError
from verilocc_mlir.pipeline.answers import Answer
from verilocc_mlir.pipeline.candidates import effective
from verilocc_mlir.pipeline.effort import OURS
from verilocc_mlir.pipeline.plans import Plan, Planned
from verilocc_model.plans.critic import FORM, Critic
from verilocc_model.plans.facts import dearest_of, facts
from verilocc_model.plans.shortlist import LISTED
from verilocc_model.plans.stater import Stater
from verilocc_model.plans.texts import facts_of_text
from verilocc_model.plans.words import WORDS


def facts_of(given: Planned, first: Plan, code: bytes) -> dict[str, float] | None:
    """Facts of the dearest function; None for one whose allocation problem cannot be stated.

    Args:
        first: the plan that is tried first.
        code: assembly of LLVM's default compile.
    """
    dearest, by_name = dearest_of(code, given.target, given.path)
    try:
        return {**facts(dearest, by_name[dearest.name], given.target), **facts_of_text(given, first, dearest.name)}
    except UnsupportedError:
        return None


def ranked(
    given: Planned, first: Plan, code: bytes, known: Mapping[str, float] | None, directory: Path
) -> tuple[str, list[Answer]]:
    """The name of the model in a directory, and its answers, the best first; none where nothing is known.

    It states answers from the facts alone; or it is a critic, which reads the text of each of its answers; or both are
    there, and the critic reads the texts of the first answers (``shortlist.py``).

    Args:
        known: what ``facts_of`` gave.

    Raises:
        InputError: the directory has no model of plans, or one that was trained with other facts.
    """
    critic = _critic(directory) if (directory / FORM).is_file() else None
    if critic is not None and not (directory / WORDS).is_file():
        name = f"critic {directory.resolve().name}"
        return name, _judged(critic, critic.answers, given, first, code, known) if known else []
    model = stater(directory, given.target.name)
    answers = model.ranked(known) if known else []
    if critic is None or known is None:
        return model.name, answers
    return f"{model.name} with its critic", _judged(critic, answers, given, first, code, known, LISTED)


def _judged(
    critic: Critic,
    answers: Sequence[Answer],
    given: Planned,
    first: Plan,
    code: bytes,
    known: Mapping[str, float],
    most: int = sys.maxsize,
) -> list[Answer]:
    """The first ``most`` answers that the input can have, in the critic's order; of those that are allocated alike, the
    first one, and none that is the first plan's.
    """
    dearest, _ = dearest_of(code, given.target, given.path)
    texts: dict[str, Mapping[str, float]] = {}
    seen = {(given.pre_ra(first), OURS)}
    for answer in answers:
        candidate = answer.candidate
        if len(texts) == most or candidate.plan not in given.plans((candidate.plan,)):
            continue
        try:
            # Whether anything is spilled is known of the text that is allocated already.
            variant = effective(given, candidate) if candidate.plan == first else candidate.variant
            key = given.pre_ra(candidate.plan), variant
            if key not in seen:
                seen.add(key)
                texts[str(answer)] = facts_of_text(given, candidate.plan, dearest.name)
        except VeriloccError:
            continue  # LLVM makes no text of it, or its problem cannot be stated.
    of_first = {name: value for name, value in known.items() if name.startswith("text ")}
    gains = dict(zip(texts, critic.gains(given.target.name, known, of_first, texts), strict=True))
    return [Answer.parse(text) for text in sorted(texts, key=lambda text: gains[text])]


@cache
def _critic(directory: Path) -> Critic:
    return Critic.load(directory)


@cache
def stater(directory: Path, target: str) -> Stater:
    """The model there with the adapter for a target; loaded once.

    Raises:
        InputError: there is none.
    """
    return Stater(directory, target)
