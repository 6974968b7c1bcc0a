"""Reading a data set of plans."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verilocc_mlir.errors import InputError
from verilocc_mlir.measure.journal import read_measurements
from verilocc_mlir.pipeline.candidates import Answer
from verilocc_mlir.results.measure import Measurement, Verdict
from verilocc_model.corpus.shards import ShardWriter, Split, held_out, read_journal, read_lines, read_manifest, split_of
from verilocc_model.corpus.sources import Cell

DEFAULT = "default"
_FOR_A_WAVE = 0.01
"""Share of its cycles that a plan had to save for a wave, by the guard of the time the labels are of."""
FIGURES = ("cycles", "waves", "spills")
"""Of a code (``labels.figures``)."""


@dataclass(frozen=True)
class Labels:
    """One kernel: what is known of it, and what each plan costs.

    Attributes:
        facts: as ``facts.facts`` gives them, and those of the first plan's text (``facts.text_facts``) where there are.
        llvm: ``cycles``, ``waves`` and ``spills`` of LLVM's default compile (``labels.figures``).
        plans: the same by answer (``pipeline.candidates``, as text); an answer without an allocation is missing.
        first: the plan that is tried first in any case, which the others are compared with.
        cpu: CPU seconds that allocating, finishing and costing took, by answer.
        texts: facts of the text that is allocated (``facts.text_facts``), by answer.
        alike: by answer, the first one that is allocated alike, where that is another; known before it is allocated.
        has_promise: whether another order of the instructions could bring something worth a try, by the ruler that the
            labels are of, as LLVM's default compile shows.
    """

    cell: Cell
    facts: Mapping[str, float]
    llvm: Mapping[str, float]
    plans: Mapping[str, Mapping[str, float]]
    first: str = DEFAULT
    cpu: Mapping[str, float] = field(default_factory=dict[str, float])
    texts: Mapping[str, Mapping[str, float]] = field(default_factory=dict[str, Mapping[str, float]])
    alike: Mapping[str, str] = field(default_factory=dict[str, str])
    has_promise: bool = True

    @property
    def split(self) -> Split:
        return split_of(self.cell)

    @property
    def held_out(self) -> tuple[str, ...]:
        """Why no policy is fitted to it; empty where it may be."""
        return held_out(self.cell)

    @property
    def fast(self) -> tuple[str, ...]:
        """What ``-O=fast`` tries (``pipeline.portfolio``): the first plan; where that falls short of LLVM's, also
        with loads beside their use, the default plan, and one further plan (``plan_rules.extra_plan``).
        """
        if self.stands(self.first):
            return (self.first,)
        first = self.plans.get(self.first)
        extra = "trackers" if first is not None and first["spills"] else "max-ilp"
        more = (f"{self.first} + beside" if self.first != DEFAULT else "beside", DEFAULT, extra)
        return (self.first, *(plan for plan in more if plan in self.plans and plan != self.first))

    def stands(self, plan: str) -> bool:
        """Whether an answer stands, by the guard of the time the labels are of: an allocation with no more cycles than
        LLVM's default compile, no more registers stored and reloaded, and fewer waves only for 1 % of the cycles.
        """
        chosen, llvm = self.plans.get(plan), self.llvm
        if chosen is None or chosen["cycles"] > llvm["cycles"] or chosen["spills"] > llvm["spills"]:
            return False
        return chosen["waves"] >= llvm["waves"] or chosen["cycles"] < (1 - _FOR_A_WAVE) * llvm["cycles"]

    def kept(self, plans: Iterable[str]) -> float:
        """Modelled cycles of what is kept where these are tried: the fewest of those that stand, else LLVM's."""
        return min((self.plans[plan]["cycles"] for plan in plans if self.stands(plan)), default=self.llvm["cycles"])

    def gain(self, plan: str) -> float:
        """Natural logarithm of the cycles kept where an answer is tried beside what ``fast`` tries, over ``fast``'s."""
        return math.log(self.kept((*self.fast, plan)) / self.kept(self.fast))

    def unguarded(self, plan: str) -> float:
        """Natural logarithm of an answer's cycles over those that ``fast`` keeps; 0 for one without an allocation."""
        chosen = self.plans.get(plan)
        return math.log(chosen["cycles"] / self.kept(self.fast)) if chosen else 0.0


def read_labels(directory: Path) -> Iterator[Labels]:
    """All kernels whose first plan has an allocation and, if any has them, facts of its text.

    Raises:
        InputError: a shard is missing or damaged, or a line is none of this form.
    """
    for number, line in enumerate(read_lines(directory), 1):
        try:
            labels = _labels(json.loads(line))
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"line {number} has no labels of plans: {error}", where=str(directory)) from error
        if labels.first in labels.plans and (labels.first in labels.texts or not labels.texts):
            yield labels


def _labels(data: Mapping[str, Any]) -> Labels:
    plans = {row["plan"]: _figures(row) for row in data["plans"] if "cycles" in row}
    cpu = {row["plan"]: float(row.get("cpu", 0.0)) for row in data["plans"]}
    own = {row["plan"]: row["text"] for row in data["plans"] if row.get("text")}
    texts = {row["plan"]: own.get(row.get("text_of", row["plan"])) for row in data["plans"]}
    first = data.get("first", DEFAULT)
    return Labels(
        Cell.from_data(data["cell"]),
        {**data["facts"], **(texts.get(first) or {})},
        _figures(data["llvm"]),
        plans,
        first,
        cpu,
        {plan: text for plan, text in texts.items() if text},
        {row["plan"]: row["same_as"] for row in data["plans"] if "same_as" in row},
        bool(data["promises"]),
    )


def _figures(row: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(row[name]) for name in FIGURES}


# Labels of plans by the clock: a data set once more, with what ``verilocc measure`` found in the place of the model.
#
# A measurement is of a kernel where the digest of its IR is that of the data set's line, and of an answer where the
# code's name is one (``verilocc measure default=A.hsaco max-ilp=B.hsaco --ir K.ll``). An answer's cycles become those
# of the base, by the model, times the measured ratio: the scale stays the model's, the order is the clock's. What was
# not measured has no label, so that the two are not mixed within a kernel; LLVM's default compile alone keeps the
# model's figure, unless a code of the name ``llvm`` was measured.


LLVM = "llvm"
"""The name of LLVM's default compile as a code."""


def measured_labels(directory: Path, journals: Iterable[Path], out: Path) -> tuple[int, int]:
    """Write the kernels of a data set that were measured, with those labels; returns how many kernels, and labels.

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
    return len(lines), labels


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
    unlabelled = {key: value for key, value in row.items() if key not in (*FIGURES, "same_as")}
    reason = "its results differ" if plan in wrong else row.get("reason", "not measured")
    return {**unlabelled, "reason": reason}


def _answer(name: str) -> str:
    """The answer that a code's name is, as data sets write it; another name as it is."""
    try:
        return str(Answer.parse(name))
    except InputError:
        return name
