"""The result of one ``verilocc audit`` as frozen data, the one source of every form and of the exit code, and its
JSON.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from msgspec import Struct

from smt_verifier.audit import AuditReport, Fault, Finding, FunctionAudit
from smt_verifier.outcome import Outcome, combine
from verilocc_mlir import forms
from verilocc_mlir.errors import ExitCode
from verilocc_mlir.forms import Amount, ExitNumber, Form, Sha256, Tool, Whole, about, filled
from verilocc_mlir.results.compile import EXIT_CODES

AUDIT_VERSION = 2
"""Version of the JSON form; raised whenever ``audit.schema.json`` changes."""


class Listing(Struct, frozen=True):
    """A text as it was audited: ``path`` is its name in messages."""

    path: str
    text: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(self.text.split("\n"))


class AuditedPair(Struct, frozen=True):
    """One text before and one after allocation, and the verdict on each of their functions.

    Attributes:
        phase: ``sgpr``, ``wwm`` or ``vgpr`` where LLVM was run phase by phase, ``all`` for the text before the first
            and after the last; ``""`` for two given files.
        before: the text that the allocator was given.
        cpu_seconds: the audit's, solver included; parsing and LLVM left out.
    """

    phase: str
    before: Listing
    after: Listing
    report: AuditReport
    cpu_seconds: float

    def name(self, function: FunctionAudit) -> str:
        """``k``, or ``k, VGPR`` where there are phases."""
        return f"{function.function}, {self.label}" if self.phase else function.function

    @property
    def label(self) -> str:
        return "all phases" if self.phase == "all" else self.phase.upper()

    def listing(self, side: str) -> Listing:
        return self.before if side == "pre" else self.after


class AuditRun(Struct, frozen=True):
    """One run.

    Attributes:
        llvm: version line of the LLVM that made the texts; ``""`` where they were given.
        source: what both sides were made from; None where they were given.
        allocator: LLVM's allocator that was asked for; ``""`` where the texts were given.
        pairs: in the order of the phases.
        notes: anything else a person should know.
    """

    version: str
    llvm: str
    target: str
    source: Listing | None
    allocator: str
    pairs: tuple[AuditedPair, ...]
    notes: tuple[str, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """The worst of all functions in all phases; UNKNOWN where nothing was audited."""
        outcomes = [f.outcome for p in self.pairs for f in p.report.functions]
        return combine(outcomes) if outcomes else Outcome.UNKNOWN

    @property
    def exit_code(self) -> ExitCode:
        return EXIT_CODES[self.outcome]

    def findings(self) -> Iterator[tuple[AuditedPair, FunctionAudit, Finding]]:
        for pair in self.pairs:
            for function in pair.report.functions:
                for finding in function.findings:
                    yield pair, function, finding


# An audit as JSON: what ``verilocc audit --report=FILE.json`` writes.


Faults = Annotated[list[Fault], about("gravest first", uniqueItems=True)]


class AuditTool(Tool, kw_only=True):
    """The program, and the LLVM that made the texts; null where they were given."""

    llvm: str | None


class ListingForm(Form):
    """A text by its name."""

    path: str
    sha256: Sha256


class GoalCountsForm(Form):
    """Goals about values."""

    literal: Annotated[int, about("t = t, or a hypothesis word for word", minimum=0)]
    decided: Annotated[int, about("all other goals about values", minimum=0)]


class MoveCountsForm(Form):
    """Copies and spill code in one function, by side."""

    copies_before: Whole
    copies_after: Whole
    saves: Whole
    reloads: Whole
    rematerialised: Whole


class OperandForm(Form):
    """The operand that a finding is about."""

    number: Annotated[int, about("LLVM's: definitions first", minimum=0)]
    pre: str
    post: str


class SiteForm(Form):
    """One instruction of one side."""

    side: Literal["pre", "post"]
    block: Whole
    label: str
    line: Whole
    text: str


class FactForm(Form):
    """One step of an explanation."""

    what: str
    site: SiteForm | None


class ValueForm(Form):
    """A value in a place, and how it came there."""

    place: str
    facts: list[FactForm]


class FindingForm(Form):
    """One thing that is wrong, or could not be decided."""

    rule: Annotated[str, about("stable name", pattern="^[a-z-]+$")]
    outcome: Outcome
    message: str
    block: Annotated[int, about("layout position; -1: the function as a whole", minimum=-1)]
    pre_line: Annotated[int, about("1-based, in the text before; 0: none", minimum=0)]
    post_line: Annotated[int, about("1-based, in the text after; 0: none", minimum=0)]
    instruction: str
    operand: OperandForm | None
    lane: str
    expected: ValueForm | None
    found: ValueForm | None
    lost: FactForm | None
    elsewhere: list[str]
    path: Annotated[list[str], about("blocks, from the definition to the use")]
    more: Annotated[int, about("further operands that are wrong for the same cause", minimum=0)]
    fault: Fault


class AuditedFunctionForm(Form):
    """The verdict on one function."""

    name: str
    outcome: Outcome
    faults: Faults
    obligations: Annotated[int, about("goals and rule checks", minimum=0)]
    goals: GoalCountsForm
    rule_checks: Annotated[int, about("obligations that are no goals: steps, flags and blocks", minimum=0)]
    moves: MoveCountsForm
    checkers: Annotated[list[str], about("that accepted a certificate: python, rust")]
    operands: Annotated[int, about("of the text after allocation, compared by each of them", minimum=0)]
    premises: Annotated[
        list[str], about("told to each: saved-later, a scalar phase; near-branches, LLVM was seen to make no long one")
    ]
    findings: list[FindingForm]


class AuditedPairForm(Form):
    """One text before and one after allocation."""

    phase: Annotated[
        str | None, about("sgpr, wwm, vgpr; all: from before the first to after the last; null: two given files")
    ]
    before: ListingForm
    after: ListingForm
    outcome: Outcome
    faults: Faults
    obligations: Whole
    cpu_seconds: Amount
    functions: list[AuditedFunctionForm]


class AuditDocument(Form, kw_only=True):
    """One run of ``verilocc audit``."""

    audit_version: Annotated[int, about("of this form", const=AUDIT_VERSION)] = AUDIT_VERSION
    tool: AuditTool
    target: Annotated[str, about("processor, as for -mcpu")]
    source: Annotated[ListingForm | None, about("what LLVM made both texts from")]
    allocator: Literal["greedy", "basic", "fast"] | None
    outcome: Outcome
    exit_code: ExitNumber
    pairs: list[AuditedPairForm]
    notes: list[str]


def schema() -> dict[str, Any]:
    return forms.json_schema(AuditDocument, title=f"Report of verilocc audit, version {AUDIT_VERSION}")


def to_json(run: AuditRun) -> str:
    return forms.to_json(_document(run))


def to_data(run: AuditRun) -> dict[str, Any]:
    return forms.to_data(_document(run))


def _document(run: AuditRun) -> AuditDocument:
    allocator = run.allocator or None
    return filled(
        AuditDocument, run, tool=filled(AuditTool, run), allocator=allocator, pairs=[_pair(p) for p in run.pairs]
    )


def _pair(pair: AuditedPair) -> AuditedPairForm:
    report = pair.report
    return filled(
        AuditedPairForm,
        pair,
        outcome=report.outcome,
        faults=report.faults,
        obligations=report.obligations,
        functions=[_function(f) for f in report.functions],
    )


def _function(function: FunctionAudit) -> AuditedFunctionForm:
    return filled(AuditedFunctionForm, function, name=function.function)
