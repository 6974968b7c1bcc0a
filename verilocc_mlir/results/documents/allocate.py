"""Allocations of a server as JSON: what ``verilocc allocate --report=FILE.json`` writes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from smt_verifier.outcome import Outcome
from verilocc_mlir import forms
from verilocc_mlir.forms import Amount, ExitNumber, Form, Sha256, Tool, Whole, about, filled
from verilocc_mlir.results.allocate import ALLOCATE_VERSION, AllocatedFile, AllocatedFunction, AllocateReport
from verilocc_mlir.results.documents.tries import ServerAttemptForm


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
