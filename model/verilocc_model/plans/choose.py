"""Facts of one input, and what a model states for them: the way into this package from ``-O=learned``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from verilocc_mlir.cost.assembly import parse_assembly
from verilocc_mlir.cost.model import costs
from verilocc_mlir.errors import InputError, UnsupportedError, VeriloccError
from verilocc_mlir.pipeline.answers import Answer
from verilocc_mlir.pipeline.candidates import effective
from verilocc_mlir.pipeline.effort import Variant
from verilocc_mlir.pipeline.plans import Plan, Planned
from verilocc_model.plans.critic import FORM, Critic
from verilocc_model.plans.facts import facts
from verilocc_model.plans.stater import Stater
from verilocc_model.plans.texts import facts_of_text


def choose(given: Planned, first: Plan, code: bytes, directory: Path) -> tuple[str, list[Answer]]:
    """The model's name and its answers for the dearest function, the best first; none for a function whose allocation
    problem cannot be stated.

    The model is a critic, which reads the text of each of its answers, or one that states answers from the facts alone.

    Args:
        first: the plan that is tried first.
        code: assembly of LLVM's default compile.

    Raises:
        InputError: the directory has no model of plans, or one that was trained with other facts.
    """
    name, known = known_of(given, first, code)
    if (directory / FORM).is_file():
        critic = _critic(directory)
        return f"{directory.resolve().name} (critic)", ranked(critic, given, first, name, known)
    stater = _stater(directory, given.target.name)
    return stater.name, stater.ranked(known) if known else []


def known_of(given: Planned, first: Plan, code: bytes) -> tuple[str, dict[str, float]]:
    """The name of the dearest function and what is known of it; nothing where its problem cannot be stated."""
    functions = parse_assembly(code.decode(), given.target, where=given.path)
    by_name = costs(functions, given.target)
    dearest = max(functions, key=lambda function: by_name[function.name].cycles)
    try:
        of_text = facts_of_text(given, first, dearest.name)
    except UnsupportedError:
        return dearest.name, {}
    return dearest.name, {**facts(dearest, by_name[dearest.name], given.target), **of_text}


def ranked(critic: Critic, given: Planned, first: Plan, name: str, known: Mapping[str, float]) -> list[Answer]:
    """The critic's answers that the input can have, of those that are allocated alike the first one; the best first."""
    texts: dict[str, Mapping[str, float]] = {}
    seen: set[tuple[str, Variant]] = set()
    for answer in critic.answers if known else ():
        candidate = answer.candidate
        if candidate.plan not in given.plans((candidate.plan,)):
            continue
        try:
            key = given.pre_ra(candidate.plan), effective(given, candidate)
            if key not in seen:
                seen.add(key)
                texts[str(answer)] = facts_of_text(given, candidate.plan, name)
        except InputError:
            raise
        except VeriloccError:
            continue  # LLVM makes no text of it, or its problem cannot be stated.
    of_first = {fact: known[fact] for fact in known if fact.startswith("text ")}
    gains = critic.gains(given.target.name, known, of_first, texts)
    answers = [Answer.parse(text) for text in texts]
    return _ordered(answers, gains)


def _ordered(answers: Sequence[Answer], gains: Sequence[float]) -> list[Answer]:
    return [answers[k] for k in sorted(range(len(answers)), key=lambda k: gains[k])]


@cache
def _critic(directory: Path) -> Critic:
    return Critic.load(directory)


@cache
def _stater(directory: Path, target: str) -> Stater:
    return Stater(directory, target)
