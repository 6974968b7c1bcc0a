"""A teacher that tries many variants of the draft, some answers changed at random; the cheapest assignment wins."""

from __future__ import annotations

import random
from dataclasses import dataclass

from verilocc_mlir.allocators.protocol import AllocationFailure
from verilocc_model.encoding.drafting import usual
from verilocc_model.encoding.episode import Episode
from verilocc_model.encoding.questions import Question
from verilocc_model.encoding.table import Table
from verilocc_model.encoding.vocabulary import APART, POINTERS
from verilocc_model.price import Price, price_of

PLACING_RATES = (0.0, 0.02, 0.1, 0.3)
JOINING_RATES = (0.02, 0.1, 0.3)
PLANNING_RATE = 0.3
GRANT_REACH = 2


@dataclass(frozen=True)
class Taught:
    """An assignment of the canonical problem, and its price."""

    registers: tuple[str, ...]
    price: Price


def explore(table: Table, attempts: int, seed: int = 0) -> Taught | None:
    """The cheapest of ``attempts`` assignments; None where there is no draft.

    The first attempt is the draft, the second the draft with all places that meet more.
    """
    best: Taught | None = None
    for attempt in range(attempts):
        try:
            episode = _attempt(table, attempt, random.Random(f"{seed}/{attempt}"))
        except AllocationFailure:
            if attempt == 0:
                return None
            continue
        price = price_of(table, episode.starts)
        if best is None or price < best.price:
            best = Taught(episode.registers(), price)
    return best


def _attempt(table: Table, attempt: int, generator: random.Random) -> Episode:
    episode = Episode(table)
    trial = attempt // 2
    rates = {
        "joining": JOINING_RATES[trial // len(PLACING_RATES) % len(JOINING_RATES)],
        "planning": PLANNING_RATE,
        "placing": PLACING_RATES[trial % len(PLACING_RATES)],
    }
    while (question := episode.question()) is not None:
        word = usual(question, meets=bool(attempt % 2))
        if trial and generator.random() < rates[question.stage]:
            word = _other(episode, question, generator)
        if not episode.answer(word) and not episode.answer(question.draft):
            raise AssertionError(f"the draft {question.draft!r} is not allowed")
    return episode


def _other(episode: Episode, question: Question, generator: random.Random) -> str:
    if question.stage == "joining":
        return APART
    if question.stage == "placing":
        return generator.choice(POINTERS)
    options = list(episode.options())
    at = options.index(question.draft)
    # There are few orders and splits; of the grants, take one near the draft's.
    return generator.choice(options[max(0, at - GRANT_REACH) : at + GRANT_REACH + 1])
