"""Sampled answers of a model to one problem."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from smt_verifier.outcome import Outcome
from smt_verifier.prove import prove
from verilocc_mlir.allocators.protocol import AllocationFailure, Refutation
from verilocc_mlir.pipeline.attempt import refutation_of
from verilocc_mlir.problem.model import PROBLEM_VERSION, Proposal
from verilocc_model.decoding import Decoded, Sampling, Scorer, decode
from verilocc_model.encoding.canonical import Canonical, canonical
from verilocc_model.encoding.episode import Episode, usual
from verilocc_model.encoding.examples import Preference, cells_of
from verilocc_model.encoding.table import Price, Table, price_of
from verilocc_model.encoding.vocabulary import APART, POINTERS, Question
from verilocc_model.training.entries import Entry, Labelled, write_each

ScorerFor = Callable[[str], Scorer]
"""The scorer for a GPU."""


@dataclass(frozen=True)
class Asking:
    """How answers are drawn.

    Attributes:
        samples: answers to each problem.
        temperature: temperature of the samples.
        seconds: wall time for one answer, and for one proof.
        seed: seed of the samples.
    """

    samples: int = 2
    temperature: float = 0.7
    seconds: float = 60.0
    seed: int = 0

    def draw(self, number: int, factor: float = 1.0) -> Sampling:
        """How sample ``number`` is drawn, at ``factor`` times the temperature."""
        return Sampling(self.temperature * factor, self.seed * 1000 + number, self.seconds)


def sampled(
    table: Table, scorer: Scorer, draws: Iterable[Sampling], *, mask: bool = True
) -> Iterator[tuple[Episode, Decoded] | None]:
    """An answer for each of ``draws``, not proved yet; None where there is none.

    Args:
        draws: how each answer is drawn.
        mask: as for ``Episode``.
    """
    for draw in draws:
        episode = Episode(table, mask=mask)
        try:
            table.check_pressure()
            decoded = decode(episode, scorer, draw)
        except AllocationFailure:
            yield None
        else:
            yield episode, decoded


# Preferences between answers, for DPO: where a sample leaves the draft, which of the two answers becomes cheaper.
#
# Both answers are given to such a question, each with the sample's answers before it and the draft's after it. So a
# difference in price is due to that answer alone. Both assignments are proved before a preference is kept.


LOOKED_AT = 6
"""Most questions per sample; the first at which it leaves the draft are used."""


def collect_preferences(
    chosen: Sequence[Entry], out: Path, model: ScorerFor, asking: Asking, say: Callable[[str], None]
) -> Counter[str]:
    """Write a file for each problem with preferences. The arguments are those of ``collect_mistakes``.

    Returns:
        How many samples were ``drawn`` or had no answer (``none``); of the pairs that were compared, how many made a
        ``preference``, were ``alike`` in price, or had an assignment that was ``refused`` by the verifier.
    """

    def find(labelled: Labelled, counts: Counter[str]) -> dict[str, Any] | None:
        preferences = dict.fromkeys(_preferences(labelled, model, asking, counts))
        return {"preferences": [asdict(preference) for preference in preferences]} if preferences else None

    return write_each(chosen, out, find, say)


def _preferences(labelled: Labelled, model: ScorerFor, asking: Asking, counts: Counter[str]) -> Iterator[Preference]:
    form = canonical(labelled.problem)
    table = Table(form.problem)

    def proved(end: Episode) -> bool:
        proposal = Proposal(PROBLEM_VERSION, "model", form.restored(end.registers()))
        return prove(labelled.problem, proposal, timeout_s=asking.seconds).outcome is Outcome.PROVED

    draws = map(asking.draw, range(asking.samples))
    for sample in sampled(table, model(labelled.target), draws):
        counts["none" if sample is None else "drawn"] += 1
        if sample is None:
            continue
        for departure in _departures(table, sample[1].answers):
            ends = [_finished(table, (*departure.before, w)) for w in (departure.chosen, departure.rejected)]
            prices = [price_of(table, end.starts) for end in ends]
            if prices[0] == prices[1]:
                counts["alike"] += 1
            elif not all(map(proved, ends)):
                counts["refused"] += 1
            else:
                counts["preference"] += 1
                yield departure if prices[0] < prices[1] else departure.reversed()


def _departures(table: Table, answers: Sequence[str]) -> list[Preference]:
    """The first answers that differ from the draft, each as if it were preferred to the draft."""
    episode = Episode(table)
    departures: list[Preference] = []
    for at, word in enumerate(answers):
        question = episode.question()
        assert question is not None
        if word != question.draft:
            departures.append(Preference(tuple(answers[:at]), word, question.draft))
            if len(departures) == LOOKED_AT:
                break
        episode.answer(word)
    return departures


def _finished(table: Table, answers: Sequence[str]) -> Episode:
    """An episode with these answers, finished as drafted."""
    episode = Episode(table)
    for word in answers:
        if not episode.answer(word):
            raise AssertionError(f"{word!r} was an answer, and is none now")
    while (question := episode.question()) is not None:
        if not episode.answer(question.draft):
            raise AssertionError(f"the draft {question.draft!r} is not allowed")
    return episode


# A model's mistakes as examples: unmasked answers that were refuted, with the verifier's counterexamples.
#
# A model trained on them learns to answer after a refutation. The prompt says what was refuted; the right answer is one
# that needs no look-ahead, with registers to spare (``encoding.examples.sure_windows``).


FURTHER = 1.5
"""Factor of the temperature for samples after the first, so that they differ from it."""


def collect_mistakes(
    chosen: Sequence[Entry], out: Path, model: ScorerFor, asking: Asking, say: Callable[[str], None]
) -> Counter[str]:
    """Write a file for each problem to which an answer is refuted. A file that exists is left as it is.

    Args:
        chosen: the problems; all must be for training.
        out: directory of the files, which ``training.entries`` reads.
        asking: how answers are drawn.

    Returns:
        How many answers were ``proved``, ``refuted``, or neither (``none``).
    """

    def find(labelled: Labelled, counts: Counter[str]) -> dict[str, Any] | None:
        refutations = [
            {
                "registers": list(refutation.proposal.registers),
                "counterexamples": [asdict(c) for c in refutation.counterexamples],
                "moves": list(refutation.moves),
                "nearest": list(refutation.nearest),
            }
            for refutation in _refuted(labelled, model, asking, counts)
        ]
        return {"refuted": refutations} if refutations else None

    return write_each(chosen, out, find, say)


def _refuted(labelled: Labelled, model: ScorerFor, asking: Asking, counts: Counter[str]) -> Iterator[Refutation]:
    form = canonical(labelled.problem)
    draws = (asking.draw(k, FURTHER if k else 1.0) for k in range(asking.samples))
    for sample in sampled(Table(form.problem), model(labelled.target), draws, mask=False):
        if sample is None:
            counts["none"] += 1
            continue
        proposal = Proposal(PROBLEM_VERSION, "model", form.restored(sample[1].registers))
        proof = prove(labelled.problem, proposal, timeout_s=asking.seconds)
        if proof.outcome is Outcome.PROVED:
            counts["proved"] += 1
        elif proof.violations:
            counts["refuted"] += 1
            yield refutation_of(labelled.problem, proposal, proof)
        else:
            counts["none"] += 1


# Better labels for the next round of training: the cheapest proved answers (expert iteration).
#
# The answers to a problem are its label, the answer of a teacher that tries many, and the model's
# samples. The cheapest answer that is proved is written to a file of its own.


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
