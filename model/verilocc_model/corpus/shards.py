"""The data set on disk: shards of compressed lines, a journal of the kernels done, a manifest.

``DIR/problems-NNNNN.jsonl.zst`` are records, a line each, Zstandard-compressed. ``DIR/journal.jsonl`` has a line for
each kernel, written when its shard is on disk. ``DIR/manifest.json`` has the parameters, the versions, and each shard's
SHA-256. A run that was cut off leaves at most a shard that the journal does not name; the next run removes it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

import zstandard
from msgspec import MsgspecError, convert, to_builtins
from msgspec.structs import replace

from verilocc_mlir.allocators.bounds import Demand
from verilocc_mlir.allocators.protocol import Refutation
from verilocc_mlir.errors import InputError
from verilocc_mlir.files import JsonLines, records_in, write_whole
from verilocc_mlir.problem.model import AllocationProblem
from verilocc_mlir.problem.schema import problem_from_json, to_json
from verilocc_model.corpus import greedy
from verilocc_model.corpus.labels import Label, Refused
from verilocc_model.corpus.sources import Cell

DATA_VERSION = 1
MANIFEST, JOURNAL = "manifest.json", "journal.jsonl"
_SHARD = re.compile(r"problems-(\d{5})\.jsonl\.zst")
_LEVEL = 12
KERNELS_A_SHARD = 16
"""What is not in a whole shard yet is lost if the process is killed."""


class ShardWriter:
    """Appends to a data set, or begins one.

    Args:
        directory: made if it does not exist.
        parameters: the settings that decide the contents. A data set that is there must have the same.
        versions: versions of the tools that the contents are made with, likewise.

    Raises:
        InputError: the directory has another data set, or another writer adds to it.
    """

    def __init__(self, directory: Path, parameters: Mapping[str, Any], versions: Mapping[str, str]) -> None:
        self._directory = directory
        self._head = {"version": DATA_VERSION, "parameters": dict(parameters), "made_with": dict(versions)}
        directory.mkdir(parents=True, exist_ok=True)
        self._lines = JsonLines(directory / JOURNAL)
        manifest = directory / MANIFEST
        if manifest.exists():
            manifest_there = read_manifest(directory)
            for name in self._head:
                if manifest_there.get(name) != json.loads(json.dumps(self._head[name])):
                    raise InputError(
                        f"the data set there has other {name}: {manifest_there.get(name)}",
                        where=str(manifest),
                        hint="continue it with those, or choose another directory",
                    )
        self.journal = self._lines.records
        self._shards: dict[str, dict[str, Any]] = {}
        for row in self.journal:
            if row["shard"] and row["shard"] not in self._shards:
                self._shards[row["shard"]] = {"records": 0, "sha256": _digest(directory / row["shard"])}
            if row["shard"]:
                self._shards[row["shard"]]["records"] += sum(record["outcome"] == "kept" for record in row["records"])
        for path in directory.iterdir():
            if _SHARD.fullmatch(path.name) and path.name not in self._shards:
                path.unlink()
        self._write_manifest()

    def add(self, lines: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
        """Write a shard with ``lines``, unless there are none, and then the journal's ``rows`` of its kernels."""
        name = ""
        if lines:
            last = max((int(match[1]) for shard in self._shards if (match := _SHARD.fullmatch(shard))), default=-1)
            name = f"problems-{last + 1:05}.jsonl.zst"
            data = zstandard.ZstdCompressor(level=_LEVEL).compress("".join(f"{x}\n" for x in lines).encode())
            write_whole(self._directory / name, data, durable=True)
            self._shards[name] = {"records": len(lines), "sha256": hashlib.sha256(data).hexdigest()}
        for row in rows:
            self._lines.add({**row, "shard": name})
            self.journal.append({**row, "shard": name})
        self._write_manifest()

    def add_all(
        self,
        entries: Iterable[tuple[dict[str, Any], Sequence[str]]],
        kernels: int,
        progress: Callable[[Mapping[str, Any], int], None],
    ) -> None:
        """Write each kernel's row and lines. If an exception ends it, what there is by then is written.

        Args:
            kernels: how many entries there will be.
            progress: called with each row and the number of kernels left.
        """
        lines: list[str] = []
        rows: list[dict[str, Any]] = []
        try:
            for number, (row, its_lines) in enumerate(entries, 1):
                rows.append(row)
                lines += its_lines
                progress(row, kernels - number)
                if len(rows) >= KERNELS_A_SHARD:
                    self.add(lines, rows)
                    lines, rows = [], []
        finally:
            if rows:
                self.add(lines, rows)

    def _write_manifest(self) -> None:
        data = {**self._head, "kernels": len(self.journal), "shards": self._shards}
        write_whole(self._directory / MANIFEST, (json.dumps(data, indent=1, sort_keys=True) + "\n").encode())


def read_manifest(directory: Path) -> dict[str, Any]:
    """The manifest.

    Raises:
        InputError: there is no manifest of this version.
    """
    path = directory / MANIFEST
    try:
        manifest: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"this is no data set: {error}", where=str(path)) from error
    if manifest.get("version") != DATA_VERSION:
        raise InputError(f"version {manifest.get('version')!r} is not {DATA_VERSION}", where=str(path))
    return manifest


def read_journal(directory: Path) -> list[dict[str, Any]]:
    """The journal's rows."""
    path = directory / JOURNAL
    return records_in(path.read_bytes())[0] if path.exists() else []


def read_lines(directory: Path) -> Iterator[str]:
    """The records' lines, in the order of the shards.

    Raises:
        InputError: a shard is missing or damaged.
    """
    shards: dict[str, dict[str, Any]] = read_manifest(directory)["shards"]
    for name, facts in sorted(shards.items()):
        path = directory / name
        if _digest(path) != facts["sha256"]:
            raise InputError("the shard is not the one that the manifest names", where=str(path))
        data: bytes = zstandard.ZstdDecompressor().decompress(path.read_bytes())
        yield from data.decode().splitlines()


def read_records(directory: Path) -> Iterator[Record]:
    """All records. ``split_of`` and ``held_out`` say what each may be used for.

    Raises:
        InputError: a shard is missing or damaged, or a line is no record.
    """
    for number, line in enumerate(read_lines(directory), 1):
        yield Record.from_json(line, f"{directory}, record {number}")


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"a shard cannot be read: {error.strerror}", where=str(path)) from error


# The contents of a data set, counted from its journal.


Rows = Sequence[Mapping[str, Any]]


def summary(journal: Rows) -> dict[str, Any]:
    """Counts as JSON values.

    ``cells`` has a row for each target, source and family. ``teachers`` has, for each phase and teacher, the number of
    its labels, and how many of these are the best known.
    """
    records = [(row, record) for row in journal for record in row["records"] if record["outcome"] == "kept"]
    by_cell = Counter(
        (row["target"], row["source"], row["family"], row["split"], record["phase"]) for row, record in records
    )
    parts = [(split, phase) for split in SPLITS for phase in ("sgpr", "vgpr")]
    cells = [
        dict(zip(("target", "source", "family"), names, strict=True))
        | {f"{split}_{phase}": by_cell[(*names, split, phase)] for split, phase in parts}
        for names in sorted({key[:3] for key in by_cell})
    ]
    return {
        "kernels": len(journal),
        "kernels_failed": sum(bool(row["failure"]) for row in journal),
        "problems": len(records),
        "duplicates": sum(record["outcome"] == "duplicate" for row in journal for record in row["records"]),
        "leaks": sum(record["outcome"] == "leak" for row in journal for record in row["records"]),
        "base_training": sum(
            row["split"] == "train" and row["source"] != HELD_OUT_SOURCE and row["target"] != HELD_OUT_TARGET
            for row, _ in records
        ),
        "splits": dict(Counter(row["split"] for row, _ in records)),
        "phases": {
            phase: _phase([record for _, record in records if record["phase"] == phase]) for phase in ("sgpr", "vgpr")
        },
        "cells": cells,
    }


def _phase(problems: Rows) -> dict[str, Any]:
    teachers = sorted({name.partition("/")[0] for one in problems for name in (*one["ranks"], *one["refused"])})
    ranges = [one["ranges"] for one in problems] or [0]
    return {
        "problems": len(problems),
        "fit": sum(one["fits"] for one in problems),
        "without_label": sum(not one["ranks"] for one in problems),
        "ranges": {"median": median(ranges), "most": max(ranges)},
        "teachers": {name: _teacher(name, problems) for name in teachers},
    }


def _teacher(name: str, problems: Rows) -> dict[str, Any]:
    ranks = [rank for one in problems for label, rank in one["ranks"].items() if label.partition("/")[0] == name]
    fitting = [one for one in problems if one["fits"]]
    labelled = sum(any(label.partition("/")[0] == name for label in one["ranks"]) for one in fitting)
    return {
        "labels": len(ranks),
        "best": sum(rank == 0 for rank in ranks),
        "labels_where_it_fits": f"{labelled} of {len(fitting)}",
    }


# One line of the data set: a problem, its origin, its demand, its labels, and what a model proposed and was refuted.
#
# Canonical JSON: ``{"version", "cell", "phase", "split", "held_out", "structure", "instructions", "fits", "demand",
# "problem", "labels", "refused", "refuted"}``; ``problem`` is as in ``verilocc_mlir/problem/allocation.schema.json``,
# and ``refuted`` is left out where nothing was.


RECORD_VERSION = 1
_Read = tuple[int, tuple[Demand, ...], tuple[Label, ...], tuple[Refused, ...], tuple[Refutation, ...]]


@dataclass(frozen=True)
class Record:
    """One problem of one kernel.

    Attributes:
        instructions: number of instructions of the function as it enters the phase.
        demand: the registers of each set of files that are needed at once. If that is more than there are, the problem
            has no answer without spilling (``fits``).
        labels: best first; empty where no teacher has one.
        refuted: refuted proposals of a model (``training.entries.collect_mistakes``).
    """

    cell: Cell
    problem: AllocationProblem
    instructions: int = 0
    demand: tuple[Demand, ...] = ()
    labels: tuple[Label, ...] = ()
    refused: tuple[Refused, ...] = ()
    refuted: tuple[Refutation, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether the pressure exceeds no file. Even so, an allocation need not exist."""
        return all(one.registers <= one.available for one in self.demand)

    @property
    def registers(self) -> tuple[str, ...]:
        """The best label, by range id; of equally good ones, one of this project's allocators: it is easier to explain.
        Empty where there is no label.
        """
        best = min(self.labels, key=lambda label: (label.rank, label.allocator.startswith(greedy.NAME)), default=None)
        return best.registers if best else ()

    @property
    def greedy(self) -> tuple[str, ...]:
        """The label by LLVM's greedy allocator; empty where it has none."""
        return next((label.registers for label in self.labels if label.allocator.startswith(greedy.NAME)), ())

    def facts(self) -> dict[str, Any]:
        """What the journal has of it."""
        return {
            "phase": self.problem.phase,
            "structure": structure_of(self.problem),
            "instructions": self.instructions,
            "ranges": len(self.problem.ranges),
            "fits": self.fits,
            "ranks": {label.allocator: label.rank for label in self.labels},
            "refused": {refusal.allocator: f"{refusal.stage}: {refusal.reason}" for refusal in self.refused},
        }

    def to_json(self) -> str:
        """One line, without its end."""
        data = {
            "version": RECORD_VERSION,
            "cell": self.cell.to_data(),
            "phase": self.problem.phase,
            "split": split_of(self.cell),
            "held_out": held_out(self.cell),
            "structure": structure_of(self.problem),
            "instructions": self.instructions,
            "fits": self.fits,
            "problem": json.loads(to_json(self.problem)),
            **{name: to_builtins(getattr(self, name)) for name in ("demand", "labels", "refused")},
            **({"refuted": to_builtins(self.refuted)} if self.refuted else {}),
        }
        return json.dumps(data, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str, where: str) -> Record:
        """A record from what ``to_json`` gave. Split, structure and the like are computed again.

        Raises:
            InputError: the line is no record of this version, or its problem is not valid.
        """
        try:
            data: dict[str, Any] = {"refuted": (), **json.loads(line)}
            if data["version"] != RECORD_VERSION:
                raise ValueError(f"version {data['version']!r} is not {RECORD_VERSION}")
            parts = [data[name] for name in ("instructions", "demand", "labels", "refused", "refuted")]
            problem = problem_from_json(json.dumps(data["problem"]))
            return cls(Cell.from_data(data["cell"]), problem, *convert(parts, _Read))
        except (ValueError, KeyError, TypeError, MsgspecError) as error:
            raise InputError(f"is no record: {error}", where=where) from error


def structure_of(problem: AllocationProblem) -> str:
    """SHA-256 of a problem without names and target: equal for problems that differ in nothing else."""
    ranges = tuple(replace(live, name="") for live in problem.ranges)
    bare = replace(problem, target="", function="", ranges=ranges)
    return hashlib.sha256(to_json(bare).encode()).hexdigest()


# Which part of the data set a kernel belongs to: its contents decide, never its file or the order.
#
# The hash covers source, family, shape and configuration, but neither target nor limits: the same kernel for another
# GPU or with another budget is in the same part. One source and one target are kept out of the base model's training,
# in every part, to see what the model does with kernels that it has never met. Adaptation to that target uses its
# ``train`` part.


Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")

HELD_OUT_SOURCE = "iree"
HELD_OUT_TARGET = "gfx1201"
_TEST, _VALID = 0.12, 0.05


def split_of(cell: Cell) -> Split:
    position = int(cell.configuration[:8], 16) / 2**32
    if position < _TEST:
        return "test"
    return "valid" if position < _TEST + _VALID else "train"


def held_out(cell: Cell) -> tuple[str, ...]:
    """Why the base model must not see a cell: ``source``, ``target``; empty where it may."""
    reasons = (("source", cell.source == HELD_OUT_SOURCE), ("target", cell.target == HELD_OUT_TARGET))
    return tuple(name for name, holds in reasons if holds)
