"""The result of one ``verilocc allocate`` as frozen data. Verdicts are this machine's, not the server's."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Struct

from smt_verifier.outcome import Outcome, combine
from verilocc_mlir import forms
from verilocc_mlir.allocators.protocol import ServerAttempt
from verilocc_mlir.errors import ExitCode
from verilocc_mlir.forms import Amount, ExitNumber, Form, Sha256, Tool, Whole, about, filled
from verilocc_mlir.results.compile import EXIT_CODES
from verilocc_mlir.results.compile_document import ServerAttemptForm

ALLOCATE_VERSION = 3
"""Version of the JSON form; raised whenever ``allocate.schema.json`` changes."""


class AllocatedFunction(Struct, frozen=True):
    """One function.

    Attributes:
        outcome: of the audit here; without an allocation what the server says, which is never PROVED.
        obligations: that the audit here checked.
        allocator: the server's word for whose allocation it is, ``""`` without one.
        sgprs, vgprs, agprs: 32-bit registers in the proved text, the highest one counting; else 0.
        reason: why it is not proved, in a line, or ``""``.
        findings: of the audit here, one line each.
    """

    name: str
    outcome: Outcome
    obligations: int = 0
    allocator: str = ""
    sgprs: int = 0
    vgprs: int = 0
    agprs: int = 0
    attempts: tuple[ServerAttempt, ...] = ()
    reason: str = ""
    findings: tuple[str, ...] = ()


class AllocatedFile(Struct, frozen=True):
    """One input.

    Attributes:
        input_sha256: of the bytes read.
        functions: in its order; none where the server gave no answer that can be used.
        outcome: INVALID where the server refused the request for good, UNKNOWN where it was not there.
        reason: why there are no functions, or ``""``.
        output: where the text was written, or ``""``.
    """

    input: str
    input_sha256: str
    functions: tuple[AllocatedFunction, ...]
    outcome: Outcome
    reason: str = ""
    output: str = ""


class AllocateReport(Struct, frozen=True):
    """One run.

    Attributes:
        server_version: what the server says of itself; ``""`` where no answer came.
        phase: ``sgpr`` or ``vgpr``.
    """

    version: str
    server: str
    server_version: str
    phase: str
    files: tuple[AllocatedFile, ...]
    wall_seconds: float

    @property
    def outcome(self) -> Outcome:
        """The gravest of all files: REFUTED before INVALID before UNKNOWN before PROVED."""
        outcomes = [f.outcome for f in self.files]
        return Outcome.REFUTED if Outcome.REFUTED in outcomes else combine(outcomes)

    @property
    def exit_code(self) -> ExitCode:
        return EXIT_CODES[self.outcome]


# Allocations of a server as JSON: what ``verilocc allocate --report=FILE.json`` writes.


class ServerForm(Form):
    """Who allocated; no version where no answer came."""

    address: str
    version: str | None


class RegistersForm(Form):
    """32-bit registers in the proved text, the highest one counting; else 0."""

    sgprs: Whole
    vgprs: Whole
    agprs: Whole


class AllocatedFunctionForm(Form):
    """One function."""

    name: str
    outcome: Annotated[Outcome, about("of the audit here; without an allocation what the server says")]
    obligations: Whole
    allocator: Annotated[str | None, about("the server's word for whose allocation it is")]
    registers: RegistersForm
    attempts: list[ServerAttemptForm]
    reason: str | None
    findings: list[str]


class AllocatedFileForm(Form):
    """One input."""

    input: str
    input_sha256: Sha256
    outcome: Outcome
    reason: str | None
    output: str | None
    functions: list[AllocatedFunctionForm]


class AllocateDocument(Form, kw_only=True):
    """One run of ``verilocc allocate``. ``allocate_version`` is raised whenever this form changes."""

    allocate_version: Annotated[int, about("of this form", const=ALLOCATE_VERSION)] = ALLOCATE_VERSION
    tool: Tool
    server: ServerForm
    phase: Literal["sgpr", "vgpr"]
    outcome: Outcome
    exit_code: Annotated[ExitNumber, about("the gravest of all files: 1 before 2 before 3 before 0")]
    wall_seconds: Amount
    files: list[AllocatedFileForm]


def schema() -> dict[str, Any]:
    return forms.json_schema(AllocateDocument, title="verilocc allocate report")


def to_json(report: AllocateReport) -> str:
    return forms.to_json(
        filled(
            AllocateDocument,
            report,
            tool=filled(Tool, report),
            server=filled(ServerForm, address=report.server, version=report.server_version),
            files=[_file(f) for f in report.files],
        )
    )


def _file(file: AllocatedFile) -> AllocatedFileForm:
    return filled(AllocatedFileForm, file, functions=[_function(f) for f in file.functions])


def _function(function: AllocatedFunction) -> AllocatedFunctionForm:
    return filled(AllocatedFunctionForm, function, registers=filled(RegistersForm, function))
