"""Better labels, for the next round of training: what the verifier proves and the cost ranks first (expert iteration).

For each problem: the label that is there, answers of a teacher that tries (``teacher``), and answers that the model
samples. The cheapest that is proved is written as a file of its own; nothing enters unproved.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from smt_verifier.outcome import Outcome
from smt_verifier.prove import prove
from verilocc_mlir.allocators.protocol import AllocationFailure
from verilocc_mlir.files import write_whole
from verilocc_mlir.problem.model import PROBLEM_VERSION, Proposal
from verilocc_mlir.problem.schema import to_json
from verilocc_model.decoding.decoder import Sampling, decode
from verilocc_model.decoding.scorer import Scorer
from verilocc_model.encoding.canonical import Canonical, canonical
from verilocc_model.encoding.episode import Episode
from verilocc_model.encoding.examples import cells_of
from verilocc_model.encoding.table import Table
from verilocc_model.price import Price, price_of
from verilocc_model.training.entries import Entry, Labelled
from verilocc_model.training.teacher import explore

LABEL, TEACHER, MODEL = "label", "teacher", "model"


@dataclass(frozen=True)
class Effort:
    """How hard better labels are looked for.

    Attributes:
        attempts: of the teacher, 0: none.
        samples: of the model, beside its first answer.
        temperature: of the samples.
        seconds: wall time for one answer, and for one proof.
        seed: of teacher and samples.
    """

    attempts: int = 8
    samples: int = 4
    temperature: float = 0.7
    seconds: float = 60.0
    seed: int = 0


@dataclass(frozen=True)
class _Found:
    price: Price
    registers: tuple[str, ...]
    teacher: str


def relabel(
    chosen: Sequence[Entry],
    out: Path,
    model: Callable[[str], Scorer] | None,
    effort: Effort,
    say: Callable[[str], None],
) -> Counter[str]:
    """Write a file for each problem that has a proved answer; one that is there is left as it is.

    Args:
        chosen: the problems; those that are not for training must not be among them.
        out: directory of the files, which ``training.entries`` reads.
        model: the scorer for a GPU; None: no samples.
        effort: how many answers are tried.
        say: takes lines of progress.

    Returns:
        How many were written, by who made the label; ``refused``: labels that were not proved; ``none``: problems
        without an answer.
    """
    counts: Counter[str] = Counter()
    out.mkdir(parents=True, exist_ok=True)
    for number, entry in enumerate(chosen, 1):
        asked = entry.read()
        digest = hashlib.blake2b(entry.key.encode(), digest_size=5).hexdigest()
        kernel = entry.kernel.removeprefix(f"{asked.source}.")
        path = out / f"{asked.source}.{kernel}.{asked.target}.{asked.phase}.{digest}.json.gz"
        if not path.exists():
            _relabel(asked, path, model, effort, counts)
        if number % 50 == 0 or number == len(chosen):
            say(f"{number} of {len(chosen)} problems: {', '.join(f'{k} {n}' for k, n in sorted(counts.items()))}")
    return counts


def _relabel(
    asked: Labelled, path: Path, model: Callable[[str], Scorer] | None, effort: Effort, counts: Counter[str]
) -> None:
    form = canonical(asked.problem)
    found = sorted(_answers(asked, form, model, effort), key=lambda f: f.price)
    for one in found:
        proof = prove(asked.problem, Proposal(PROBLEM_VERSION, one.teacher, one.registers), timeout_s=effort.seconds)
        if proof.outcome is not Outcome.PROVED:
            counts["refused"] += 1
            continue
        row = {
            "name": asked.name, "source": asked.source, "family": asked.family, "target": asked.target,
            "phase": asked.phase, "problem": json.loads(to_json(asked.problem)), "registers": list(one.registers),
            "teacher": one.teacher,
        }  # fmt: skip
        write_whole(path, gzip.compress(json.dumps(row).encode(), 6, mtime=0))
        counts[one.teacher] += 1
        return
    counts["none"] += 1


def _answers(
    asked: Labelled, form: Canonical, model: Callable[[str], Scorer] | None, effort: Effort
) -> Iterator[_Found]:
    """Answers, not proved yet; of equally cheap ones the label comes first."""
    table = Table(form.problem)
    if asked.registers:
        price = price_of(table, cells_of(table, form.permuted(asked.registers)))
        yield _Found(price, asked.registers, LABEL)
    try:
        table.check_pressure()
    except AllocationFailure:
        return
    if effort.attempts and (taught := explore(table, effort.attempts, effort.seed)) is not None:
        yield _Found(taught.price, form.restored(taught.registers), TEACHER)
    for sample in range(-1, effort.samples if model is not None else -1):
        if model is None:
            return
        temperature = effort.temperature if sample >= 0 else 0.0
        try:
            episode = Episode(table)
            done = decode(
                episode, model(asked.target), Sampling(temperature, effort.seed * 1000 + sample, effort.seconds)
            )
        except AllocationFailure:
            continue
        yield _Found(price_of(table, episode.starts), form.restored(done.registers), MODEL)
