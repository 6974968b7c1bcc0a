"""Better labels for the next round of training: the cheapest proved answers (expert iteration).

The answers to a problem are its label, the answer of a teacher that tries many (``teacher``), and the model's samples.
The cheapest answer that is proved is written to a file of its own.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smt_verifier.outcome import Outcome
from smt_verifier.prove import prove
from verilocc_mlir.allocators.protocol import AllocationFailure
from verilocc_mlir.problem.model import PROBLEM_VERSION, Proposal
from verilocc_model.decoding.decoder import Sampling
from verilocc_model.encoding.canonical import Canonical, canonical
from verilocc_model.encoding.drafting import usual
from verilocc_model.encoding.episode import Episode
from verilocc_model.encoding.examples import cells_of
from verilocc_model.encoding.questions import Question
from verilocc_model.encoding.table import Table
from verilocc_model.encoding.vocabulary import APART, POINTERS
from verilocc_model.price import Price, price_of
from verilocc_model.training.entries import Entry, Labelled, write_each
from verilocc_model.training.samples import Asking, ScorerFor, sampled

LABEL, TEACHER, MODEL = "label", "teacher", "model"


@dataclass(frozen=True)
class Effort(Asking):
    """How hard better labels are searched for. The samples come after the model's first answer.

    Attributes:
        attempts: attempts of the teacher, which uses the seed too; 0: no teacher.
    """

    samples: int = 4
    attempts: int = 8


@dataclass(frozen=True)
class _Candidate:
    price: Price
    registers: tuple[str, ...]
    teacher: str


def relabel(
    chosen: Sequence[Entry],
    out: Path,
    model: ScorerFor | None,
    effort: Effort,
    say: Callable[[str], None],
) -> Counter[str]:
    """Write a file for each problem that has a proved answer. A file that exists is left as it is.

    Args:
        chosen: the problems; all must be for training.
        out: directory of the files, which ``training.entries`` reads.
        model: the scorer for a GPU; None: no samples.
        effort: how many answers are tried.

    Returns:
        The number of files by the label's maker; ``refused``: labels that were not proved; ``none``: problems without
        an answer.
    """

    def find(labelled: Labelled, counts: Counter[str]) -> dict[str, Any] | None:
        form = canonical(labelled.problem)
        for candidate in sorted(_answers(labelled, form, model, effort), key=lambda f: f.price):
            proposal = Proposal(PROBLEM_VERSION, candidate.teacher, candidate.registers)
            if prove(labelled.problem, proposal, timeout_s=effort.seconds).outcome is Outcome.PROVED:
                counts[candidate.teacher] += 1
                return {"registers": list(candidate.registers), "teacher": candidate.teacher}
            counts["refused"] += 1
        counts["none"] += 1
        return None

    return write_each(chosen, out, find, say)


def _answers(labelled: Labelled, form: Canonical, model: ScorerFor | None, effort: Effort) -> Iterator[_Candidate]:
    """Answers, not proved yet; the label comes before equally cheap ones."""
    table = Table(form.problem)
    if labelled.registers:
        price = price_of(table, cells_of(table, form.permuted(labelled.registers)))
        yield _Candidate(price, labelled.registers, LABEL)
    try:
        table.check_pressure()
    except AllocationFailure:
        return
    if effort.attempts and (taught := explore(table, effort.attempts, effort.seed)) is not None:
        yield _Candidate(taught.price, form.restored(taught.registers), TEACHER)
    if model is None:
        return
    first = Sampling(0.0, effort.seed, effort.seconds)
    for sample in sampled(table, model(labelled.target), (first, *map(effort.draw, range(effort.samples)))):
        if sample is not None:
            yield _Candidate(price_of(table, sample[0].starts), form.restored(sample[1].registers), MODEL)


# A teacher that tries many variants of the draft, some answers changed at random; the cheapest assignment wins.


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
