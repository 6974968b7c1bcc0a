"""A compilation as one HTML file that needs nothing else: pictures, moves, verdicts, resources.

Everything that comes from the input goes through Jinja's escaping, or into a JSON block in which ``<``, ``>`` and ``&``
are written as escapes, so that no text can end it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from smt_verifier.outcome import Outcome, combine
from smt_verifier.smt import Verdict
from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.explain.boxes import wave_steps
from verilocc_mlir.report.page.data import Picture, picture, summary
from verilocc_mlir.results.compile import FunctionReport, PhaseReport, Report, Resources
from verilocc_mlir.results.page import CostRow, PageInput, PhaseRecord

MAX_MOVES = 400
"""Rows of moves shown for a phase; the heaviest are kept, in program order."""

_TITLES = {"sgpr": "SGPR phase", "wwm": "whole-wave phase", "vgpr": "VGPR phase"}
_ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


@dataclass(frozen=True)
class ResourceRow:
    """One resource, ours and LLVM's; ``better`` is 1 where ours is, -1 where LLVM's is, else 0."""

    title: str
    ours: str
    llvm: str
    better: int


def to_html(report: Report, given: PageInput) -> str:
    """The whole page.

    Args:
        given: what it was decided on, in the order of the run.
    """
    links: dict[int, tuple[str, ...]] = {}
    first = 0
    for number, record in enumerate(given.phases):
        links[number] = given.links[first : first + len(record.asked)]
        first += len(record.asked)
    records = {(r.function, r.phase): (r, links[k]) for k, r in enumerate(given.phases)}
    functions = [_function(f, k, records, given, _left_out(report, f.name)) for k, f in enumerate(report.functions)]
    environment = _environment()
    return environment.get_template("page.html.j2").render(
        report=report,
        name="standard input" if report.input == "-" else report.input.rpartition("/")[2],
        functions=functions,
        css=_asset(environment, "page.css"),
        js=_asset(environment, "page.js"),
        linked=bool(given.links),
    )


def safe_json(data: Mapping[str, Any]) -> str:
    """JSON that may stand in a ``script`` element whatever its strings are."""
    return json.dumps(data, separators=(",", ":")).translate(_ESCAPES)


def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("verilocc_mlir.report.page", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _asset(environment: Environment, name: str) -> Markup:
    """A file of ours, put in as it is."""
    assert environment.loader is not None
    return Markup(environment.loader.get_source(environment, name)[0])


def _function(
    function: FunctionReport,
    number: int,
    records: Mapping[tuple[str, str], tuple[PhaseRecord, tuple[str, ...]]],
    given: PageInput,
    left_out: list[str],
) -> dict[str, Any]:
    phases = [
        _phase(phase, f"f{number}-{phase.phase}", *records.get((function.name, phase.phase), (None, ())), given)
        for phase in function.phases
    ]
    costs = given.costs.get(function.name, ())
    return {
        "id": f"f{number}",
        "report": function,
        "resources": _resources(function.resources, function.greedy),
        "phases": phases,
        "costs": [_cost(row) for row in costs],
        "outcome": str(max((p.outcome for p in function.phases), key=_gravity, default="unknown")),
        "obligations": sum(p.obligations for p in function.phases),
        "left_out": left_out,
    }


def _left_out(report: Report, name: str) -> list[str]:
    """Why a function is left out of the result; empty for one that is in it."""
    if name not in report.left_out:
        return []
    head = f"{name} is left out: "
    why = [note.removeprefix(head) for note in report.notes if note.startswith(head)]
    return why or ["Its phases below say why."]


def _gravity(outcome: object) -> int:
    return ("proved", "unknown", "invalid", "refuted").index(str(outcome))


def _phase(
    phase: PhaseReport, identifier: str, record: PhaseRecord | None, links: tuple[str, ...], given: PageInput
) -> dict[str, Any]:
    phase_picture: Picture | None = None
    missing = "nothing was kept of this phase"
    if record is not None:
        missing = "the allocation problem of this phase cannot be stated"
        try:
            phase_picture = picture(record, given.target, phase.allocator)
        except VeriloccError as error:
            missing = error.what
    rows = list(phase_picture.moves) if phase_picture else []
    heaviest = sorted(range(len(rows)), key=lambda k: (-rows[k].weight, k))[:MAX_MOVES]
    steps = (
        wave_steps(given.target, phase.phase, max(phase_picture.budget, phase_picture.peak_demand[0]) + 2)
        if phase_picture
        else []
    )
    return {
        "id": identifier,
        "report": phase,
        "title": _TITLES.get(phase.phase, phase.phase),
        "picture": phase_picture,
        "missing": missing,
        "json": Markup(safe_json(phase_picture.data)) if phase_picture else "",
        "summary": [(title, count, _number(weight)) for title, count, weight in summary(rows)],
        "moves": [rows[k] for k in sorted(heaviest)],
        "left_out": len(rows) - len(heaviest),
        "asked": asked(record, links) if record is not None else list[Asked](),
        "steps": steps,
        "seconds": sorted(phase.seconds.items(), key=lambda item: -item[1]),
    }


# Registers that win no wave are neither better nor worse.
_FIELDS = (
    ("waves per SIMD, at most", "waves", 1),
    ("SGPRs", "sgprs", 0),
    ("vector registers", "vgprs", 0),
    ("of them AGPRs", "agprs", 0),
    ("SGPRs spilled", "sgpr_spills", -1),
    ("VGPRs spilled", "vgpr_spills", -1),
    ("scratch bytes a lane", "scratch_bytes", -1),
)


def _resources(ours: Resources | None, llvm: Resources | None) -> list[ResourceRow]:
    if ours is None and llvm is None:
        return []
    rows: list[ResourceRow] = []
    for title, name, sign in _FIELDS:
        a, b = (None if r is None else getattr(r, name) for r in (ours, llvm))
        better = 0 if a is None or b is None else sign * ((a > b) - (a < b))
        rows.append(ResourceRow(title, "?" if a is None else str(a), "?" if b is None else str(b), better))
    return rows


def _cost(row: CostRow) -> ResourceRow:
    unit = f" {row.unit}" if row.unit else ""
    llvm = "?" if row.llvm is None else _number(row.llvm) + unit
    better = 0 if row.llvm is None else (row.ours < row.llvm) - (row.ours > row.llvm)
    return ResourceRow(row.component, _number(row.ours) + unit, llvm, better)


def _number(value: float) -> str:
    """``1,234``, ``0.25``, ``1,000,000``."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,.3g}" if abs(value) < 100 else f"{value:,.1f}"


# Rows about what was asked of the solver, rule by rule and block by block.


@dataclass(frozen=True, slots=True)
class VerdictRow:
    """One rule of a proof, or one block of an audit.

    Attributes:
        what: the rule's stable name, or ``values in block 3``.
        goals: how many goals of it were asked.
        false: how many of them have a counterexample.
        outcome: of these goals; None where others of the same question are false and none of these was found to be.
        link: relative address of the obligation's file, or ``""``.
    """

    what: str
    goals: int
    false: int
    outcome: Outcome | None
    link: str


@dataclass(frozen=True, slots=True)
class Asked:
    """The rows of one proof, or of all blocks of one audit."""

    title: str
    rows: tuple[VerdictRow, ...]

    @property
    def goals(self) -> int:
        return sum(row.goals for row in self.rows)

    @property
    def outcome(self) -> Outcome:
        return combine(row.outcome for row in self.rows if row.outcome is not None)


def asked(record: PhaseRecord, links: tuple[str, ...]) -> list[Asked]:
    """What was asked in a phase, in order: proofs of proposals, then audits of texts.

    Args:
        links: addresses of the files of its obligations, or empty.
    """
    questions: list[Asked] = []
    blocks: list[VerdictRow] = []
    places_seen: set[str] = set()
    proofs = audits = 0

    def end_of_audit() -> None:
        nonlocal audits
        if blocks:
            audits += 1
            questions.append(Asked(f"audit {audits}" if audits > 1 else "audit of the text", tuple(blocks)))
        blocks.clear()
        places_seen.clear()

    for k, (obligation, verdict) in enumerate(record.asked):
        link = links[k] if links else ""
        false = set(verdict.violated)
        if obligation.name.startswith("prove/"):
            end_of_audit()
            proofs += 1
            goals = Counter(name.partition("/")[0] for name, _ in obligation.goals)
            wrong = Counter(name.partition("/")[0] for name, _ in obligation.goals if name in false)
            rows = tuple(
                VerdictRow(rule, n, wrong[rule], _outcome(verdict, wrong[rule]), link) for rule, n in goals.items()
            )
            # Without live ranges there is a question without goals; it has a file all the same.
            rows = rows or (VerdictRow("nothing to place", 0, 0, verdict.outcome, link),)
            questions.append(Asked(f"proof of proposal {proofs}" if proofs > 1 else "proof of the proposal", rows))
            continue
        _, separator, block = obligation.name.rpartition("/block-")
        place = f"block {block}" if separator else "all blocks"
        if place in places_seen:
            end_of_audit()
        places_seen.add(place)
        blocks.append(VerdictRow(f"values in {place}", len(obligation.goals), len(false), verdict.outcome, link))
    end_of_audit()
    return questions


def _outcome(verdict: Verdict, false: int) -> Outcome | None:
    """Outcome of a rule's goals; None where the solver may have met its limit before it had all false goals."""
    return verdict.outcome if verdict.outcome is not Outcome.REFUTED or false else None
