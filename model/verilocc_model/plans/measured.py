"""Labels of plans by the clock: a data set once more, with what ``verilocc measure`` found in the place of the model.

A measurement is of a kernel where the digest of its IR is that of the data set's line, and of an answer where the
code's name is one (``verilocc measure default=A.hsaco max-ilp=B.hsaco --ir K.ll``). An answer's cycles become those of
the base, by the model, times the measured ratio: the scale stays the model's, the order is the clock's. What was not
measured has no label, so that the two are not mixed within a kernel; LLVM's default compile alone keeps the model's
figure, unless a code of the name ``llvm`` was measured.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verilocc_mlir.errors import InputError
from verilocc_mlir.measure.journal import read_measurements
from verilocc_mlir.pipeline.answers import Answer
from verilocc_mlir.results.measure import Measurement, Verdict
from verilocc_model.corpus.cells import Cell
from verilocc_model.corpus.shards import ShardWriter, read_journal, read_lines, read_manifest

LLVM = "llvm"
"""The name of LLVM's default compile as a code."""


@dataclass(frozen=True)
class Labelled:
    """What came of it: kernels with labels by the clock, and the labels that they have."""

    kernels: int
    labels: int


def measured_labels(directory: Path, journals: Iterable[Path], out: Path) -> Labelled:
    """Write the kernels of a data set that were measured, with those labels.

    Raises:
        InputError: no data set of plans is there, or something is at ``out``; a journal cannot be read; nothing in it
            is of a kernel of the data set.
    """
    by_ir: dict[str, list[Measurement]] = defaultdict(list)
    for journal in journals:
        for one in read_measurements(journal)[0]:
            if one.kernel.ir:
                by_ir[one.kernel.ir].append(one)
    manifest, rows = read_manifest(directory), {row["cell"]: row for row in read_journal(directory)}
    lines: list[str] = []
    kept: list[Mapping[str, Any]] = []
    labels = 0
    for data in map(json.loads, read_lines(directory)):
        cell = Cell.from_data(data["cell"])
        made = _with_clock(data, [m for m in by_ir.get(data["sha256"], ()) if _is_of(m, cell)])
        if made is not None:
            lines.append(json.dumps(made, sort_keys=True))
            kept.append({key: value for key, value in rows[cell.name].items() if key != "shard"})
            labels += sum("cycles" in row for row in made["plans"])
    if not lines:
        raise InputError(
            "no kernel of the data set was measured", where=str(directory),
            hint="verilocc measure PLAN=FILE PLAN=FILE --ir K.ll --journal FILE, K.ll from verilocc corpus export",
        )  # fmt: skip
    if out.exists():
        raise InputError("there is something already", where=str(out), hint="choose another directory")
    writer = ShardWriter(out, manifest["parameters"], {**manifest["made_with"], "labels": "measured"})
    writer.add(lines, kept)
    return Labelled(len(lines), labels)


def _is_of(one: Measurement, cell: Cell) -> bool:
    """Whether it was taken on the kernel's target, or on a device that does not say what it is."""
    return one.device.architecture in ("", cell.target)


def _with_clock(data: Mapping[str, Any], measurements: Iterable[Measurement]) -> dict[str, Any] | None:
    """A line with labels by the clock; None where it has none. The last measurement of an answer counts."""
    modelled = {row["plan"]: float(row["cycles"]) for row in data["plans"] if "cycles" in row}
    modelled.setdefault(LLVM, float(data["llvm"]["cycles"]))
    clock: dict[str, float] = {}
    wrong: set[str] = set()
    bases: set[str] = set()
    for one in measurements:
        base, candidate = _answer(one.base.name), _answer(one.candidate.name)
        if base not in modelled or candidate not in modelled:
            continue
        if one.verdict is Verdict.DIFFERENT:
            wrong.add(candidate)
        elif one.ratio is not None:
            bases.add(base)
            clock[candidate] = modelled[base] * one.ratio.median
    if len(bases) != 1:
        # None was measured, or beside several: ratios to different bases have no scale in common.
        return None
    (base,) = bases
    clock[base] = modelled[base]
    return {
        **data,
        "llvm": {**data["llvm"], "cycles": round(clock.get(LLVM, modelled[LLVM]), 1)},
        "plans": [_row(row, clock, wrong) for row in data["plans"]],
    }


def _row(row: Mapping[str, Any], clock: Mapping[str, float], wrong: set[str]) -> dict[str, Any]:
    plan = row["plan"]
    if plan in clock and plan not in wrong and "cycles" in row:
        return {**row, "cycles": round(clock[plan], 1)}
    unlabelled = {key: value for key, value in row.items() if key not in ("cycles", "waves", "spills", "same_as")}
    reason = "its results differ" if plan in wrong else row.get("reason", "not measured")
    return {**unlabelled, "reason": reason}


def _answer(name: str) -> str:
    """The answer that a code's name is, as data sets write it; another name as it is."""
    try:
        return str(Answer.parse(name))
    except InputError:
        return name
