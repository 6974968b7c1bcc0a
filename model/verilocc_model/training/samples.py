"""Sampled answers of a model to one problem."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from smt_verifier.outcome import Outcome
from smt_verifier.prove import prove
from verilocc_mlir.allocators.protocol import AllocationFailure, Refutation
from verilocc_mlir.pipeline.regenerate import refutation_of
from verilocc_mlir.problem.model import PROBLEM_VERSION, Proposal
from verilocc_model.decoding.decoder import Decoded, Sampling, decode
from verilocc_model.decoding.scorer import Scorer
from verilocc_model.encoding.canonical import canonical
from verilocc_model.encoding.episode import Episode
from verilocc_model.encoding.examples import Preference
from verilocc_model.encoding.table import Table
from verilocc_model.price import price_of
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
    """Write a file for each problem with preferences. The arguments are those of ``feedback.collect_mistakes``.

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
