"""The mutation campaign: many generated functions, LLVM's allocations of them, and mutants of those that are proved.

One *unit* of work is one generated function, or one kernel file, with both phases and its mutants; it is a function of
the campaign's seed and its number, so that a run can be taken up again and gives the same again. The row of a unit is
plain data for JSON.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mutants import CLASSES, Subject
from mutants.judge import RUNS_ON_REFUTED, Judge, Judgement
from mutants.sources import NoFunction, Phase, kernel_phases, phases
from smt_verifier.outcome import Outcome
from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.mir.printer import print_function
from verilocc_mlir.target.targets import target

LARGEST_MUTATED = 1500
"""Instructions of a kernel that is mutated; larger ones are audited as they are."""
LARGEST_IN_FULL = 400
"""Instructions up to which a phase gets its full number of mutants."""
_RARE = frozenset({
    "moved under a narrower EXEC", "lost back-edge copy", "clobbered by a call", "early-clobber overlap", "broken tie",
    "wrong rematerialisation", "dropped reload", "dropped save", "spill slots mixed up", "wrong spill offset",
    "moved spill code", "wrong spill base", "spill slot of the program", "spill slot shrunk", "misaligned tuple",
    "callee-saved scalar clobbered", "changed register mask", "early-clobber flag dropped", "whole-wave clobber",
})  # fmt: skip


@dataclass(frozen=True)
class Unit:
    """What one worker does at once.

    Attributes:
        seed: of the campaign.
        number: of the generated function; of a kernel file, its number in the list.
        kernel: path of a kernel file, or ``""``.
        mutants: how many mutants to make of each phase.
        scratch: directory where the texts of faults are kept.
    """

    seed: int
    number: int
    kernel: str
    mutants: int
    scratch: str


def run_unit(unit: Unit) -> dict[str, Any]:
    """The row of a unit: ``number``, ``kernel``, ``none`` (why there is no function), ``phases`` and ``mutants``."""
    row: dict[str, Any] = {"number": unit.number, "kernel": unit.kernel, "none": "", "phases": [], "mutants": []}
    try:
        found = kernel_phases(Path(unit.kernel)) if unit.kernel else phases(unit.seed, unit.number)
        for phase in found:
            _phase(unit, phase, row)
    except NoFunction as error:
        row["none"] = str(error)
    except Exception:
        row["none"] = "the campaign failed"
        row["phases"].append({"fault": "campaign", "message": traceback.format_exc(limit=8)})
    return row


def _phase(unit: Unit, phase: Phase, row: dict[str, Any]) -> None:
    after = {f.name: f for f in phase.post.functions}
    for function in phase.pre.functions:
        subject = Subject(phase.pre, function, after[function.name], target(phase.cpu), phase.post.preamble)
        judge = Judge(subject)
        judged = judge.unchanged(8 if function.instruction_count < 400 else 2)
        entry = {
            "name": f"{phase.name}/{function.name}", "target": phase.cpu, "allocator": phase.allocator,
            "phase": phase.number, "instructions": function.instruction_count, **_said(judged),
        }  # fmt: skip
        row["phases"].append(entry)
        if judged.fault or judged.answer.differs:
            texts = (print_function(subject.pre), print_function(subject.post))
            entry["files"] = _keep(unit, phase, "unchanged", *texts)
        if judged.outcome is Outcome.PROVED and function.instruction_count <= LARGEST_MUTATED:
            _mutants(unit, phase, judge, row)


def _mutants(unit: Unit, phase: Phase, judge: Judge, row: dict[str, Any]) -> None:
    rng = random.Random(f"{unit.seed}/{unit.number}/{unit.kernel}/{phase.number}/{judge.subject.pre.name}")
    wanted = unit.mutants if judge.subject.pre.name == "k" or unit.kernel else 1
    if judge.subject.pre.instruction_count > LARGEST_IN_FULL:
        wanted = min(wanted, 3)
    names = sorted(CLASSES, key=lambda name: rng.random() * (0.4 if name in _RARE else 1.0))
    streams: list[tuple[str, Iterator[Any]]] = [(n, CLASSES[n].edits(judge.subject, rng)) for n in names]
    made = 0
    while streams and made < wanted:
        name, edits = streams.pop(0)
        edit = next(edits, None)
        if edit is None:
            continue
        made += 1
        streams.append((name, edits))
        entry: dict[str, Any] = {"class": name, "target": phase.cpu}
        try:
            judged = judge.mutant(CLASSES[name], edit, rng.randrange(1 << 30), RUNS_ON_REFUTED * (rng.random() < 0.25))
        except VeriloccError as error:
            entry |= {"outcome": "unreadable", "message": str(error)[:300]}
        else:
            entry |= _said(judged)
            if judged.reason:
                entry |= {"reason": judged.reason, "visits": judged.visits}
            if judged.fault:
                entry |= {"what": edit.what, "name": phase.name, "phase": phase.number, "allocator": phase.allocator}
                texts = (print_function(edit.pre or judge.subject.pre), print_function(edit.function))
                entry["files"] = _keep(unit, phase, f"{name}.{made}", *texts)
        row["mutants"].append(entry)


def _said(judged: Judgement) -> dict[str, Any]:
    """Outcome, rules and what the oracle saw; the message of what is not as expected."""
    said: dict[str, Any] = {"outcome": judged.outcome.value}
    if judged.rules:
        said["rules"] = sorted(judged.rules)
    if judged.answer.differs:
        said["differs"] = True
    if judged.answer.runs or judged.answer.differs:
        said["ran"] = True
    if not judged.answer.supported:
        said["oracle"] = judged.answer.where[:200]
    if judged.fault or judged.outcome in (Outcome.UNKNOWN, Outcome.INVALID):
        said |= {"fault": judged.fault, "message": judged.message[:500], "where": judged.answer.where[:300]}
    return said


def _keep(unit: Unit, phase: Phase, name: str, pre: str, post: str) -> str:
    """Both texts in the scratch directory, for a look at them."""
    label = Path(unit.kernel).stem if unit.kernel else str(unit.number)
    base = Path(unit.scratch) / "faults" / f"{label}.{phase.number}.{name.replace(' ', '-')}"
    base.parent.mkdir(parents=True, exist_ok=True)
    Path(f"{base}.pre.mir").write_text(phase.pre.preamble + pre)
    Path(f"{base}.post.mir").write_text(phase.post.preamble + post)
    return base.name
