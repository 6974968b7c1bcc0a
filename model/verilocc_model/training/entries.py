"""The problems of data sets, as training and evaluation take them; a model's mistakes as a data set of their own."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from smt_verifier.outcome import Outcome
from smt_verifier.prove import prove
from verilocc_mlir.allocators.protocol import AllocationFailure, Refutation
from verilocc_mlir.errors import InputError
from verilocc_mlir.pipeline.attempt import refutation_of
from verilocc_mlir.problem.model import PROBLEM_VERSION, Proposal
from verilocc_model.corpus.build import journal_row
from verilocc_model.corpus.shards import Record, ShardWriter, held_out, read_lines, split_of
from verilocc_model.corpus.sources import Cell
from verilocc_model.decoding import Sampling, Scorer, decode
from verilocc_model.encoding.canonical import canonical
from verilocc_model.encoding.episode import Episode
from verilocc_model.encoding.table import Table


@dataclass(frozen=True)
class Entry:
    """A problem that can be read.

    Attributes:
        line: of the data set; ``where`` it stands.
        key: changes when the contents change.
    """

    cell: Cell
    line: str
    where: str
    key: str

    @property
    def unseen(self) -> bool:
        return split_of(self.cell) != "train" or bool(held_out(self.cell))

    def trains(self, targets: tuple[str, ...]) -> bool:
        """Whether a run for these GPUs (none: all) may see it; a GPU that is held out must be named."""
        if targets and self.cell.target not in targets:
            return False
        reasons = [r for r in held_out(self.cell) if r != "target" or self.cell.target not in targets]
        return split_of(self.cell) != "test" and not reasons

    def read(self) -> Record:
        """
        Raises:
            InputError: the line is no record.
        """
        return Record.from_json(self.line, self.where)


def entries(directories: Iterable[Path]) -> list[Entry]:
    """All problems of some data sets, in an order that does not depend on their contents.

    Raises:
        InputError: no data set is there, or it is damaged.
    """
    result: list[Entry] = []
    for directory in directories:
        for number, line in enumerate(read_lines(directory), 1):
            where = f"{directory}, record {number}"
            try:
                cell = Cell.from_data(json.loads(line)["cell"])
            except (ValueError, KeyError, TypeError) as error:
                raise InputError(f"is no record: {error}", where=where) from error
            result.append(Entry(cell, line, where, hashlib.sha256(line.encode()).hexdigest()))
    return sorted(result, key=lambda entry: hashlib.blake2b(entry.key.encode()).digest())


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


# A model's mistakes as examples: unmasked answers that were refuted, with the verifier's counterexamples.
#
# A model trained on them learns to answer after a refutation. The prompt says what was refuted; the right answer is one
# that needs no look-ahead, with registers to spare (``encoding.examples.sure_windows``).


FURTHER = 1.5
"""Factor of the temperature for samples after the first, so that they differ from it."""


def collect_mistakes(
    chosen: Sequence[Entry], out: Path, model: Callable[[str], Scorer], asking: Asking, say: Callable[[str], None]
) -> Counter[str]:
    """Make or continue a data set of the problems to which an answer is refuted, without their labels.

    Args:
        chosen: the problems; all must be for training.
        model: the scorer for a GPU.
        asking: how answers are drawn.

    Returns:
        How many answers were ``proved``, ``refuted``, or neither (``none``), in this run.
    """
    counts: Counter[str] = Counter()
    writer = ShardWriter(out, {"asking": asdict(asking)}, {})
    done = {row["key"] for row in writer.journal}
    todo = [entry for entry in chosen if entry.key not in done]

    def asked() -> Iterator[tuple[dict[str, Any], list[str]]]:
        for entry in todo:
            whole = entry.read()
            refuted = tuple(_refuted(whole, model(entry.cell.target), asking, counts))
            record = Record(entry.cell, whole.problem, whole.instructions, whole.demand, refuted=refuted)
            row = journal_row(entry.cell, [{**record.facts(), "outcome": "kept"}] if refuted else [])
            yield {**row, "key": entry.key}, [record.to_json()] if refuted else []

    def progress(_: object, left: int) -> None:
        number = len(todo) - left
        if number % 50 == 0 or not left:
            say(f"{number} of {len(todo)} problems: {', '.join(f'{k} {n}' for k, n in sorted(counts.items()))}")

    writer.add_all(asked(), len(todo), progress)
    return counts


def _refuted(record: Record, scorer: Scorer, asking: Asking, counts: Counter[str]) -> Iterator[Refutation]:
    form = canonical(record.problem)
    table = Table(form.problem)
    for number in range(asking.samples):
        temperature = asking.temperature * (FURTHER if number else 1.0)
        draw = Sampling(temperature, asking.seed * 1000 + number, asking.seconds)
        try:
            table.check_pressure()
            decoded = decode(Episode(table, mask=False), scorer, draw)
        except AllocationFailure:
            counts["none"] += 1
            continue
        proposal = Proposal(PROBLEM_VERSION, "model", form.restored(decoded.registers))
        proof = prove(record.problem, proposal, timeout_s=asking.seconds)
        if proof.outcome is Outcome.PROVED:
            counts["proved"] += 1
        elif proof.violations:
            counts["refuted"] += 1
            yield refutation_of(record.problem, proposal, proof)
        else:
            counts["none"] += 1
