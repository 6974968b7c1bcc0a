"""Facts of one input, and what a model of plans says of them: the way into this package from ``-O=learned``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from verilocc_mlir.errors import UnsupportedError, VeriloccError
from verilocc_mlir.pipeline.candidates import Answer, effective
from verilocc_mlir.pipeline.plans import Plan, Planned
from verilocc_mlir.pipeline.runs import OURS
from verilocc_model.plans.critic import FORM, Critic
from verilocc_model.plans.facts import dearest_of, facts, facts_of_text
from verilocc_model.plans.policies import Nearest as Nearest


def facts_of(given: Planned, first: Plan, code: bytes) -> dict[str, float] | None:
    """Facts of the dearest function; None for one whose allocation problem cannot be stated.

    Args:
        first: the plan that is tried first.
        code: assembly of LLVM's default compile.
    """
    dearest, by_name = dearest_of(code, given.work.target, given.work.path)
    try:
        return {**facts(dearest, by_name[dearest.name], given.work.target), **facts_of_text(given, first, dearest.name)}
    except UnsupportedError:
        return None


def ranked(
    given: Planned, first: Plan, code: bytes, known: Mapping[str, float] | None, directory: Path
) -> tuple[str, list[Answer]]:
    """The name of the model in a directory, and its answers, the best first; none where nothing is known.

    A critic reads the text of each of its answers. Where there is none, a model states answers from the facts alone.

    Args:
        known: what ``facts_of`` gave.

    Raises:
        InputError: the directory has no model of plans, or one that was trained with other facts.
    """
    model, name = _model(directory), directory.resolve().name
    if isinstance(model, Nearest):
        return name, model.ranked(given.work.target.name, known) if known else []
    return f"critic {name}", _judged(model, given, first, code, known) if known else []


def _judged(
    critic: Critic,
    given: Planned,
    first: Plan,
    code: bytes,
    known: Mapping[str, float],
) -> list[Answer]:
    """The answers that the input can have, in the critic's order; of those that are allocated alike, the
    first one, and none that is the first plan's.
    """
    dearest, _ = dearest_of(code, given.work.target, given.work.path)
    texts: dict[str, Mapping[str, float]] = {}
    seen = {(given.pre_ra(first), OURS)}
    for answer in critic.answers:
        candidate = answer.candidate
        if candidate.plan not in given.plans((candidate.plan,)):
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
    gains = dict(zip(texts, critic.gains(given.work.target.name, known, of_first, texts), strict=True))
    return [Answer.parse(text) for text in sorted(texts, key=lambda text: gains[text])]


@cache
def _model(directory: Path) -> Critic | Nearest:
    """The critic in a directory, else the model that states answers; loaded once.

    Raises:
        InputError: there is neither.
    """
    return Critic.load(directory) if (directory / FORM).is_file() else Nearest.load(directory)
