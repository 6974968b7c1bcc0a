"""A compilation as JSON: what ``verilocc compile --report=FILE.json`` writes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from smt_verifier.audit import Fault
from smt_verifier.outcome import Outcome
from smt_verifier.prove.forms import NearestForm
from verilocc_mlir import forms
from verilocc_mlir.forms import Amount, ExitNumber, Form, Positive, Sha256, ToolWithLlvm, Whole, about, filled
from verilocc_mlir.problem.model import Phase
from verilocc_mlir.results.compile import REPORT_VERSION, FunctionReport, PhaseReport, Report


class InputForm(Form):
    """The file that was read."""

    path: str
    sha256: Sha256


class CheckFindingForm(Form):
    """One violated constraint or failed obligation."""

    rule: str
    outcome: Outcome
    fault: Annotated[
        str | None, about("of an audit's finding: what kind of thing is wrong", enum=[*(f.value for f in Fault), None])
    ]
    message: str


class CheckForm(Form):
    """What a proof or an audit answered."""

    outcome: Outcome
    obligations: Whole
    findings: list[CheckFindingForm]


class AttemptForm(Form):
    """One allocation of one function in one phase."""

    allocator: str
    version: str | None
    ended: Literal["build", "allocate", "prove", "rewrite", "llvm", "audit"]
    outcome: Outcome
    reason: str | None
    proof: CheckForm | None
    audit: CheckForm | None
    server: Annotated[str | None, about("address of the server that was asked")]
    model: Annotated[ModelForm | None, about("what a model of this process did for it")]
    tries: Annotated[list[ServerAttemptForm], about("of the server, in its words; the last is what it answered with")]
    nearest: Annotated[NearestForm | None, about("near a proposal that was refuted; null for others")]


class MovesForm(Form):
    """Copies and spill code, counted in the texts before and after the phase."""

    copies_before: Whole
    copies_removed: Whole
    copies_left: Whole
    saves: Whole
    reloads: Whole
    rematerialised: Whole


class SpillForm(Form):
    """What was done to one register to make room."""

    register: str
    kind: Literal["spill", "accumulate", "rematerialise", "split"]
    parts: Positive
    saves: list[str]
    reloads: list[str]
    point: Whole
    cost: Amount
    reason: str


class PhaseForm(Form):
    """One phase of one function; the last attempt is the one whose text was used."""

    phase: Phase
    allocator: str
    outcome: Outcome
    obligations: Whole
    fallback: bool
    fallback_reason: str | None
    attempts: Annotated[list[AttemptForm], about("in order", minItems=1)]
    moves: MovesForm
    spills: list[SpillForm]
    cpu_seconds: dict[str, Amount]
    audited_with: Annotated[
        Literal["vgpr"] | None,
        about("the later phase with which it was audited at once; the audit is counted there"),
    ]


class ResourcesForm(Form):
    """What a function takes at run time; spills are null where LLVM does not count them."""

    sgprs: Whole
    vgprs: Whole
    agprs: Whole
    sgpr_spills: Whole | None
    vgpr_spills: Whole | None
    scratch_bytes: Whole
    waves: Whole


class FunctionForm(Form):
    """One function."""

    name: str
    kind: Literal["kernel", "device"]
    instructions: Whole
    plan: Annotated[str, about("under which LLVM made the text that was allocated: 'default', 'max-ilp' …")]
    variant: Annotated[str | None, about("how that text was allocated; null where there was no choice")]
    phases: list[PhaseForm]
    resources: ResourcesForm | None
    greedy: ResourcesForm | None


class TimedStepForm(Form):
    """One step of the run: ours, or a tool's."""

    name: str
    cpu_seconds: Amount


class TimeForm(Form):
    """Where the time went."""

    cpu_seconds: Amount
    wall_seconds: Amount
    steps: list[TimedStepForm]


class CompileDocument(Form, kw_only=True):
    """One run of ``verilocc compile``. ``report_version`` is raised whenever this form changes."""

    report_version: Annotated[int, about("of this form", const=REPORT_VERSION)] = REPORT_VERSION
    tool: ToolWithLlvm
    input: InputForm
    target: Annotated[str, about("processor, as for -mcpu", pattern="^gfx[0-9a-f]+(-[0-9]+)*(-generic)?$")]
    features: str
    allocator: str
    emit: Literal["mir", "asm", "obj", "hsaco"]
    outcome: Outcome
    exit_code: ExitNumber
    output: Annotated[str | None, about("path written, '-' for standard output; null where nothing was written")]
    functions: list[FunctionForm]
    left_out: Annotated[list[str], about("functions that nobody proves; the output has the others")]
    server: Annotated[str | None, about("why a server that was named had not its part; null where it had")]
    models: Annotated[list[ModelPartForm], about("models that were asked, here and behind the server")]
    mended: Annotated[list[str], about("kernel descriptor fields set to a direct compile's value")]
    notes: list[str]
    time: TimeForm


def schema() -> dict[str, Any]:
    return forms.json_schema(CompileDocument, title="verilocc compile report")


def to_json(report: Report) -> str:
    return forms.to_json(_document(report))


def to_data(report: Report) -> dict[str, Any]:
    return forms.to_data(_document(report))


def _document(report: Report) -> CompileDocument:
    return filled(
        CompileDocument,
        report,
        tool=filled(ToolWithLlvm, report),
        input=filled(InputForm, path=report.input, sha256=report.input_sha256),
        functions=[_function(f) for f in report.functions],
        time=filled(TimeForm, report, steps=[filled(TimedStepForm, s, cpu_seconds=s.seconds) for s in report.steps]),
    )


def _function(function: FunctionReport) -> FunctionForm:
    kind = "kernel" if function.is_kernel else "device"
    return filled(FunctionForm, function, kind=kind, phases=[_phase(p) for p in function.phases])


def _phase(phase: PhaseReport) -> PhaseForm:
    return filled(PhaseForm, phase, cpu_seconds=phase.seconds)


# What a model did, and what a server tried, as parts of the JSON documents.


class ModelForm(Form):
    """What a model did for one answer."""

    model: str
    adapter: Annotated[str | None, about("the adapter that was applied; null for none")]
    tokens: Annotated[Whole, about("that the model read, its own answers among them")]
    seconds: Annotated[Amount, about("wall time of the answer")]
    note: Annotated[str | None, about("an adapter that is there and was not applied, and why")]


class ModelPartForm(Form):
    """What one model did in the whole run."""

    model: str
    adapter: Annotated[str | None, about("the adapter that was applied; null for none")]
    server: Annotated[str | None, about("address of the server that it is behind; null: here")]
    tries: Whole
    refuted: Annotated[Whole, about("answers that the proof refuted")]
    tokens: Whole
    seconds: Amount
    note: Annotated[str | None, about("an adapter that is there and was not applied, and why")]


class ServerAttemptForm(Form):
    """One try of the server, in its own words."""

    allocator: str
    version: str
    ended: str
    outcome: Annotated[str | None, about("its verdict on the proposal; null where it judged none")]
    reason: Annotated[str | None, about("why it was not taken; null: it was")]
    refuted: Annotated[list[str], about("constraints that the proposal violates, which the next try was told")]
    model: Annotated[ModelForm | None, about("what its model did; null without one")]
    nearest: Annotated[
        str | None, about("the nearest valid assignment, which the next try was told; null: none refuted")
    ]
