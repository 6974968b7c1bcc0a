"""Labelled problems on disk: data sets of ``verilocc corpus make``, and files of one problem each.

A file is JSON, gzip-compressed or not, called ``SOURCE.KERNEL.TARGET.PHASE.N.json[.gz]``, with ``problem`` (as
``verilocc_mlir.problem.schema`` writes it), ``registers`` (a proved assignment by range id, null where there is none),
and ``name``, ``source``, ``family``, ``target``, ``phase``.

It may have ``refuted``: a list of proposals, each with ``registers``, ``counterexamples`` (the fields of
``Counterexample``), ``moves`` and ``nearest`` (pairs of a range id and a register).
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from smt_verifier.outcome import Outcome
from smt_verifier.prove import prove
from verilocc_mlir.allocators.protocol import AllocationFailure, Counterexample, Refutation
from verilocc_mlir.errors import InputError
from verilocc_mlir.files import write_whole
from verilocc_mlir.pipeline.attempt import refutation_of
from verilocc_mlir.problem.model import PROBLEM_VERSION, AllocationProblem, Proposal
from verilocc_mlir.problem.schema import problem_from_json, to_json
from verilocc_model.corpus import greedy
from verilocc_model.corpus.shards import MANIFEST, Record, held_out, read_lines, reasons_held_out, split_of
from verilocc_model.corpus.sources import Cell
from verilocc_model.decoding import Sampling, Scorer, decode
from verilocc_model.encoding.canonical import canonical
from verilocc_model.encoding.episode import Episode
from verilocc_model.encoding.table import Table

_SUFFIXES = (".json", ".json.gz")


@dataclass(frozen=True)
class Labelled:
    """A problem with a proved assignment.

    Attributes:
        registers: by range id; empty where there is no label. greedy: the assignment of LLVM's greedy allocator; empty
            where it is not known. refuted: refuted proposals of a model; ``collect_mistakes`` collects them.
    """

    name: str
    source: str
    family: str
    target: str
    phase: str
    problem: AllocationProblem
    registers: tuple[str, ...]
    greedy: tuple[str, ...] = ()
    refuted: tuple[Refutation, ...] = ()


@dataclass(frozen=True)
class Entry:
    """A labelled problem that can be read.

    Attributes:
        key: changes when the contents change.
        kernel: the same for all targets and phases of a kernel.
        part: ``train``, ``valid`` or ``test``.
        held_out: why the base must not see it, whatever its part: ``source``, ``target``.
        read: reads the problem; raises InputError where that is not possible.
    """

    key: str
    kernel: str
    target: str
    part: str
    held_out: tuple[str, ...]
    read: Callable[[], Labelled]

    @property
    def unseen(self) -> bool:
        return self.part != "train" or bool(self.held_out)

    def trains(self, targets: tuple[str, ...]) -> bool:
        """Whether a run for these GPUs (none: all) may see it; a GPU that is held out must be named."""
        if targets and self.target not in targets:
            return False
        reasons = [r for r in self.held_out if r != "target" or self.target not in targets]
        return self.part != "test" and not reasons


def entries(directories: Iterable[Path], hold_out: float) -> list[Entry]:
    """All labelled problems in some directories, in an order that does not depend on their contents.

    Args:
        directories: data sets, or directories of files.
        hold_out: share of the kernels of files that is for validation; data sets name theirs.

    Raises:
        InputError: a directory does not exist; a data set is damaged; a file has a wrong name.
    """
    result: list[Entry] = []
    for directory in directories:
        if not directory.is_dir():
            raise InputError("is no directory of labelled problems", where=str(directory))
        result += _of_data_set(directory) if (directory / MANIFEST).exists() else _of_files(directory, hold_out)
    return sorted(result, key=lambda e: hashlib.blake2b(e.key.encode()).digest())


def _of_data_set(directory: Path) -> Iterator[Entry]:
    for number, line in enumerate(read_lines(directory), 1):
        try:
            cell = Cell.from_data(json.loads(line)["cell"])
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"record {number} is none: {error}", where=str(directory)) from error
        yield Entry(
            key=hashlib.sha256(line.encode()).hexdigest(),
            kernel=cell.configuration,
            target=cell.target,
            part=split_of(cell),
            held_out=held_out(cell),
            read=partial(_read_record, line, f"{directory}, record {number}"),
        )


def _read_record(line: str, where: str) -> Labelled:
    try:
        record = Record.from_json(line)
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"is no record: {error}", where=where) from error
    # Of equally good labels, prefer one of this project's allocators: it is easier to explain.
    best = min(record.labels, key=lambda x: (x.rank, x.allocator.startswith(greedy.NAME)), default=None)
    rival = next((x for x in record.labels if x.allocator.startswith(greedy.NAME)), None)
    return Labelled(
        record.cell.name,
        record.cell.source,
        record.cell.family,
        record.cell.target,
        record.problem.phase,
        record.problem,
        best.registers if best else (),
        rival.registers if rival else (),
    )


def _of_files(directory: Path, hold_out: float) -> Iterator[Entry]:
    for path in sorted(p for p in directory.rglob("*.json*") if p.name.endswith(_SUFFIXES)):
        parts = path.name.split(".")
        if len(parts) < 5:
            raise InputError("is not called SOURCE.KERNEL.TARGET.PHASE.N.json", where=str(path))
        source, kernel, target = parts[:3]
        stat = path.stat()
        yield Entry(
            key=f"{path.resolve()}/{stat.st_size}/{stat.st_mtime_ns}",
            kernel=f"{source}.{kernel}",
            target=target,
            part="valid" if _chosen(f"{source}.{kernel}", hold_out) else "train",
            held_out=reasons_held_out(source, target),
            read=partial(read_file, path),
        )


def _chosen(kernel: str, share: float) -> bool:
    return int.from_bytes(hashlib.blake2b(kernel.encode(), digest_size=4).digest(), "big") < share * 2**32


def read_file(path: Path) -> Labelled:
    """The labelled problem in a file.

    Raises:
        InputError: the file has none.
    """
    try:
        data = path.read_bytes()
        row = json.loads(gzip.decompress(data) if path.name.endswith(".gz") else data)
        problem = problem_from_json(json.dumps(row["problem"]))
        name, source, family, target, phase = (str(row[k]) for k in ("name", "source", "family", "target", "phase"))
        refuted = tuple(_refutation(one) for one in row.get("refuted") or ())
        return Labelled(
            name, source, family, target, phase, problem, tuple(row.get("registers") or ()), refuted=refuted,
        )  # fmt: skip
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"is no labelled problem: {error}", where=str(path)) from error


def write_each(
    chosen: Sequence[Entry],
    out: Path,
    find: Callable[[Labelled, Counter[str]], Mapping[str, Any] | None],
    say: Callable[[str], None],
) -> Counter[str]:
    """Write a file for each problem for which ``find`` returns something. A file that exists is left as it is.

    Args:
        out: directory of the files; it is made if it does not exist.
        find: the fields of JSON that a file has beside the problem; None: no file. It also counts its outcomes.
        say: called with a line of progress every fifty problems.

    Returns:
        The counts.
    """
    counts: Counter[str] = Counter()
    out.mkdir(parents=True, exist_ok=True)
    for number, entry in enumerate(chosen, 1):
        labelled = entry.read()
        digest = hashlib.blake2b(entry.key.encode(), digest_size=5).hexdigest()
        kernel = entry.kernel.removeprefix(f"{labelled.source}.")
        path = out / f"{labelled.source}.{kernel}.{labelled.target}.{labelled.phase}.{digest}.json.gz"
        if not path.exists() and (fields_found := find(labelled, counts)) is not None:
            write_file(path, labelled, fields_found)
        if number % 50 == 0 or number == len(chosen):
            say(f"{number} of {len(chosen)} problems: {', '.join(f'{k} {n}' for k, n in sorted(counts.items()))}")
    return counts


def write_file(path: Path, labelled: Labelled, extra: Mapping[str, Any]) -> None:
    """Write a file for ``read_file``: the problem, and ``extra`` fields; without ``registers`` it has no label."""
    row = {
        "name": labelled.name, "source": labelled.source, "family": labelled.family, "target": labelled.target,
        "phase": labelled.phase, "problem": json.loads(to_json(labelled.problem)), "registers": None, **extra,
    }  # fmt: skip
    write_whole(path, gzip.compress(json.dumps(row).encode(), 6, mtime=0))


def _refutation(row: dict[str, Any]) -> Refutation:
    counterexamples = tuple(
        Counterexample(
            str(c["rule"]), tuple(c["ranges"]), int(c["slot"]), tuple(c["lanes"]), tuple(c["registers"]),
            tuple(c["free"]),
        )
        for c in row["counterexamples"]
    )  # fmt: skip
    proposal = Proposal(PROBLEM_VERSION, str(row.get("allocator", "")), tuple(row["registers"]))
    nearest = tuple((int(number), str(register)) for number, register in row.get("nearest") or ())
    return Refutation(proposal, counterexamples, tuple(map(int, row.get("moves") or ())), nearest)


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
    table = Table(form.problem)
    for number in range(asking.samples):
        temperature = asking.temperature * (FURTHER if number else 1.0)
        draw = Sampling(temperature, asking.seed * 1000 + number, asking.seconds)
        try:
            table.check_pressure()
            decoded = decode(Episode(table, mask=False), model(labelled.target), draw)
        except AllocationFailure:
            counts["none"] += 1
            continue
        proposal = Proposal(PROBLEM_VERSION, "model", form.restored(decoded.registers))
        proof = prove(labelled.problem, proposal, timeout_s=asking.seconds)
        if proof.outcome is Outcome.PROVED:
            counts["proved"] += 1
        elif proof.violations:
            counts["refuted"] += 1
            yield refutation_of(labelled.problem, proposal, proof)
        else:
            counts["none"] += 1
