"""What one ``verilocc measure`` found, as frozen data: two codes of one kernel, run in turns on one device.

Times are milliseconds. A ratio is the candidate's time over the base's, so below 1 the candidate is faster.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Struct

from verilocc_mlir import forms
from verilocc_mlir.errors import ExitCode
from verilocc_mlir.forms import Amount, ExitNumber, Form, Sha256, Tool, about, filled

MEASURE_VERSION = 1
"""Version of a journal's line; raised whenever ``measure.schema.json`` changes."""


class Verdict(Enum):
    """What the times say of the candidate.

    ``ALIKE``: the whole interval lies within what counts as no difference. ``UNDECIDED``: it does not, and it does not
    lie beyond either. ``DIFFERENT``: the results differ, so that nothing was timed.
    """

    FASTER = "faster"
    SLOWER = "slower"
    ALIKE = "alike"
    UNDECIDED = "undecided"
    DIFFERENT = "different results"


class Sameness(Enum):
    """Whether the two left the same bytes. ``UNSTEADY``: the base does not even agree with itself."""

    EQUAL = "equal"
    DIFFERENT = "different"
    UNSTEADY = "unsteady"
    NOT_COMPARED = "not compared"


class Interval(Struct, frozen=True):
    """A median with its interval.

    Attributes:
        confidence: that the interval holds the true median; may be less than was asked for where there are few values.
    """

    median: float
    low: float
    high: float
    confidence: float


class MeasuredCode(Struct, frozen=True):
    """One of the two codes: its name, and SHA-256 of its bytes; of a configuration's name where it is a recording."""

    name: str
    sha256: str


class MeasuredKernel(Struct, frozen=True):
    """What both are codes of.

    Attributes:
        name: of the kernel, or of the function of a module.
        interface: SHA-256 of what a caller sees: arguments and their places, or the types of a function.
        ir: SHA-256 of the kernel's LLVM IR, as data sets of labels have it; ``""`` where none was given.
    """

    name: str
    interface: str
    ir: str = ""


class DeviceAbout(Struct, frozen=True):
    """What ran them.

    Attributes:
        driver: ``hip``, ``iree``, ``triton`` or ``replay``.
        name: as the driver calls the device.
        architecture: processor; ``""`` where the driver does not say.
        software: the driver's version.
    """

    driver: str
    name: str
    architecture: str = ""
    software: str = ""


class Clocks(Struct, frozen=True):
    """Clocks of the device in MHz; None where they cannot be read."""

    core_mhz: float | None = None
    memory_mhz: float | None = None


class Round(Struct, frozen=True):
    """Times of one turn of each, in the order in which they were taken."""

    base: tuple[float, ...]
    candidate: tuple[float, ...]


class Measurement(Struct, frozen=True):
    """One line of a journal.

    Attributes:
        asked: SHA-256 of all that was asked for: kernel, codes, device, work, settings. What has one is not run again.
        at: when it ended, UTC, ISO 8601.
        tool: version of this program.
        work: SHA-256 of launch and inputs.
        workload: the same in words.
        before: clocks before the first round; ``after``: after the last.
        sameness: of the results, bit for bit.
        why: why they were not compared, or where they differ first; ``""`` where they are equal.
        rounds: every time that was taken.
        base_ms: of all times of the base; None where nothing was timed. ``candidate_ms`` likewise.
        ratio: of the rounds' ratios; likewise.
        tie: ratios as near to 1 as this are no difference.
    """

    asked: str
    at: str
    tool: str
    kernel: MeasuredKernel
    base: MeasuredCode
    candidate: MeasuredCode
    device: DeviceAbout
    work: str
    workload: str
    before: Clocks
    after: Clocks
    sameness: Sameness
    why: str
    rounds: tuple[Round, ...]
    base_ms: Interval | None
    candidate_ms: Interval | None
    ratio: Interval | None
    tie: float
    verdict: Verdict


class MeasureRun(Struct, frozen=True):
    """All that one command measured, in order.

    Attributes:
        measurements: one for each candidate.
        known: ``asked`` of those that an earlier run had in the journal.
        notes: what whoever reads the figures must know.
    """

    measurements: tuple[Measurement, ...]
    known: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> ExitCode:
        """REFUTED if some results differ, else PROVED: the measurement was taken, whoever is faster."""
        differ = any(one.verdict is Verdict.DIFFERENT for one in self.measurements)
        return ExitCode.REFUTED if differ else ExitCode.PROVED


# A measurement as JSON: a line of the journal of ``verilocc measure``, and what ``--json`` prints.


class _Fine(Form):
    """Milliseconds and ratios: kernels take microseconds."""

    DIGITS: ClassVar[int] = 7


class IntervalForm(_Fine):
    """A median with its interval."""

    median: Amount
    low: Amount
    high: Amount
    confidence: Annotated[float, about("that the interval holds the true median", minimum=0, maximum=1)]


class CodeForm(Form):
    """One of the two codes."""

    name: str
    sha256: Annotated[Sha256, about("of its bytes; of a configuration's name where it is a recording")]


class KernelForm(Form):
    """What both are codes of."""

    name: str
    interface: Annotated[Sha256, about("of what a caller sees: arguments and their places, or types")]
    ir: Annotated[Sha256 | None, about("of the kernel's LLVM IR, as data sets of labels have it")]


class DeviceForm(Form):
    """What ran them."""

    driver: Annotated[str, about("hip, iree, triton or replay")]
    name: str
    architecture: str | None
    software: Annotated[str | None, about("the driver's version")]


class ClocksForm(Form):
    """Clocks in MHz; null where they cannot be read."""

    core_mhz: float | None
    memory_mhz: float | None


class RoundForm(Form):
    """Times of one turn of each, in milliseconds."""

    base: list[float]
    candidate: list[float]


class MeasurementDocument(_Fine, kw_only=True):
    """One line of the journal. ``measurement`` is raised whenever this form changes."""

    measurement: Annotated[int, about("version of this form", const=MEASURE_VERSION)] = MEASURE_VERSION
    asked: Annotated[Sha256, about("of kernel, codes, device, work and settings: what has one is not run again")]
    at: Annotated[str, about("when it ended, UTC", format="date-time")]
    tool: Annotated[str, about("version of verilocc")]
    kernel: KernelForm
    base: CodeForm
    candidate: CodeForm
    device: DeviceForm
    work: Annotated[Sha256, about("of launch and inputs")]
    workload: Annotated[str, about("the same in words")]
    before: Annotated[ClocksForm, about("before the first round")]
    after: Annotated[ClocksForm, about("after the last round")]
    sameness: Annotated[Sameness, about("of the results, bit for bit")]
    why: Annotated[str | None, about("why results were not compared, or where they differ first")]
    rounds: Annotated[list[RoundForm], about("every time that was taken; none where results differ")]
    base_ms: IntervalForm | None
    candidate_ms: IntervalForm | None
    ratio: Annotated[IntervalForm | None, about("of the rounds' ratios, candidate over base; below 1: faster")]
    tie: Annotated[float, about("ratios as near to 1 as this are no difference", minimum=0)]
    verdict: Annotated[Verdict, about("of the candidate")]


class MeasureDocument(Form, kw_only=True):
    """All that one command measured."""

    tool: Tool
    exit_code: ExitNumber
    measurements: list[MeasurementDocument]
    known: Annotated[list[Sha256], about("'asked' of those that an earlier run had in the journal")]
    notes: list[str]


def schema() -> dict[str, Any]:
    title = f"verilocc measure, version {MEASURE_VERSION}: a line of the journal, or what --json prints"
    return forms.json_schema(MeasurementDocument, MeasureDocument, title=title)


def measurement_data(one: Measurement) -> dict[str, Any]:
    """A line of the journal as JSON values."""
    return forms.to_data(filled(MeasurementDocument, one))


def measurement_from_data(data: Mapping[str, Any]) -> Measurement:
    """What ``measurement_data`` was made of.

    Raises:
        ValueError: ``data`` is not of that form, or of another version of it.
    """
    form = msgspec.convert(data, MeasurementDocument)
    if form.measurement != MEASURE_VERSION:
        raise ValueError(f"version {form.measurement}, not {MEASURE_VERSION}")
    plain = forms.to_data(form)
    del plain["measurement"]
    plain["why"] = plain["why"] or ""
    plain["kernel"]["ir"] = plain["kernel"]["ir"] or ""
    for name in ("architecture", "software"):
        plain["device"][name] = plain["device"][name] or ""
    return msgspec.convert(plain, Measurement)


def to_json(run: MeasureRun, version: str) -> str:
    return forms.to_json(
        MeasureDocument(
            tool=Tool(version=version),
            exit_code=int(run.exit_code),  # pyright: ignore[reportArgumentType]
            measurements=[filled(MeasurementDocument, one) for one in run.measurements],
            known=sorted(run.known),
            notes=list(run.notes),
        )
    )
