"""The result of one ``verilocc compile-many`` as frozen data. Seconds are wall seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any

import msgspec
from msgspec import Struct

from smt_verifier.outcome import Outcome
from verilocc_mlir import forms
from verilocc_mlir.errors import ExitCode
from verilocc_mlir.forms import Amount, ExitNumber, Form, Sha256, ToolWithLlvm, Whole, about, filled
from verilocc_mlir.results.compile import EXIT_CODES

BATCH_VERSION = 2
"""Version of the JSON form, the journal's records included; raised whenever ``batch.schema.json`` changes."""


class Origin(Enum):
    """Where a result came from: ``COMPILED`` now, ``CACHE``: the store, ``JOURNAL``: an earlier run wrote it here."""

    COMPILED = "compiled"
    CACHE = "cache"
    JOURNAL = "journal"


class BatchItem(Struct, frozen=True):
    """What came of one input.

    Attributes:
        input_sha256: of the bytes read; ``""`` where they could not be.
        key: what the result depends on (``verilocc_mlir.pipeline.key``), likewise; ``""`` also where a server was asked
            for and the result is a local one.
        outcome: INVALID is bad input, or a tool that failed.
        origin: where the result came from.
        output: file that has the result, ``""`` where there is none; ``output_sha256`` is that of its bytes. Where it
            is not proved, it is without the functions that nobody proves.
        report: file that has the JSON report of ``verilocc compile``, likewise.
        seconds: elapsed time of this input, its worker's only; 0 where nothing was compiled.
        message: why it is not proved, in a line; ``""`` where it is.
        final: the same input would end the same way again: not a time limit, a crash, or a disk that is full.
        target: the processor; ``""`` where the input did not come to one.
    """

    input: str
    input_sha256: str
    key: str
    outcome: Outcome
    origin: Origin = Origin.COMPILED
    output: str = ""
    output_sha256: str = ""
    report: str = ""
    report_sha256: str = ""
    seconds: float = 0.0
    message: str = ""
    final: bool = True
    target: str = ""

    @property
    def exit_code(self) -> ExitCode:
        """Of this input alone, as ``verilocc compile`` would have it."""
        return EXIT_CODES[self.outcome]


class BatchReport(Struct, frozen=True):
    """One run, to its end.

    Attributes:
        llvm: version line of the LLVM used.
        settings: what was asked for, as ``Settings.to_data`` has it.
        items: in the order in which they were ready.
        warnings: what went wrong beside the results: entries that were not kept.
    """

    version: str
    llvm: str
    settings: dict[str, object]
    items: tuple[BatchItem, ...]
    warnings: tuple[str, ...]
    wall_seconds: float

    @property
    def exit_code(self) -> ExitCode:
        """The gravest: REFUTED before BAD_INPUT before UNKNOWN before PROVED."""
        return min((i.exit_code for i in self.items if i.exit_code), default=ExitCode.PROVED)

    def count(self, outcome: Outcome, origin: Origin | None = None) -> int:
        """Inputs with that outcome, from that origin or any."""
        counts = Counter(i.origin for i in self.items if i.outcome is outcome)
        return counts.total() if origin is None else counts[origin]


# A batch as JSON: what ``verilocc compile-many --report=FILE.json`` writes, and one input of it in the journal.


class BatchItemForm(Form):
    """What came of one input."""

    input: str
    input_sha256: Annotated[Sha256 | None, about("null where the file could not be read")]
    key: Annotated[Sha256 | None, about("digest of everything that the result depends on")]
    outcome: Outcome
    exit_code: ExitNumber
    origin: Origin
    output: str | None
    output_sha256: Sha256 | None
    report: str | None
    report_sha256: Sha256 | None
    seconds: Amount
    message: Annotated[str | None, about("why it is not proved")]
    final: Annotated[bool, about("false: a time limit, a crash or a full disk, which another run may not meet")]
    target: Annotated[str | None, about("processor; null where the input did not come to one")]


class OutcomesForm(Form):
    """Inputs by outcome."""

    proved: Whole
    refuted: Whole
    unknown: Whole
    invalid: Whole


class OriginsForm(Form):
    """Inputs by where the result came from."""

    compiled: Whole
    cache: Whole
    journal: Whole


class BatchCountsForm(Form):
    """How many."""

    inputs: Whole
    outcomes: OutcomesForm
    origins: OriginsForm


class BatchDocument(Form, kw_only=True):
    """One run of ``verilocc compile-many``. ``batch_version`` is raised whenever this form changes."""

    batch_version: Annotated[int, about("of this form", const=BATCH_VERSION)] = BATCH_VERSION
    tool: ToolWithLlvm
    settings: Annotated[dict[str, Any], about("what was asked for, by name")]
    exit_code: Annotated[ExitNumber, about("the gravest of all inputs: 1 before 2 before 3 before 0")]
    counts: BatchCountsForm
    wall_seconds: Amount
    warnings: list[str]
    inputs: list[BatchItemForm]


def schema() -> dict[str, Any]:
    return forms.json_schema(BatchDocument, title="verilocc compile-many report")


def to_json(report: BatchReport) -> str:
    """The report as indented JSON with a final line break; inputs sorted by path."""
    return forms.to_json(
        filled(
            BatchDocument,
            report,
            tool=filled(ToolWithLlvm, report),
            counts=_counts(report),
            inputs=sorted(report.items, key=lambda item: item.input),
        )
    )


def _counts(report: BatchReport) -> BatchCountsForm:
    outcomes = {outcome.value: report.count(outcome) for outcome in Outcome}
    origins = {origin.value: sum(i.origin is origin for i in report.items) for origin in Origin}
    return filled(BatchCountsForm, inputs=len(report.items), outcomes=outcomes, origins=origins)


def item_data(item: BatchItem) -> dict[str, Any]:
    """One input as JSON values; null for what there is not."""
    return forms.to_data(filled(BatchItemForm, item))


def item_from_data(data: Mapping[str, Any]) -> BatchItem:
    """What ``item_data`` was made of; other keys are passed over.

    Raises:
        ValueError: ``data`` is not of that form.
    """
    known = {name: data[name] for name in BatchItemForm.__struct_fields__ if name in data}
    row = msgspec.convert(known, BatchItemForm)
    texts = ("input_sha256", "key", "output", "output_sha256", "report", "report_sha256", "message", "target")
    return msgspec.convert(
        {**msgspec.structs.asdict(row), **{name: getattr(row, name) or "" for name in texts}}, BatchItem
    )
