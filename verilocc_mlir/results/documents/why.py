"""Where functions are full of registers, as JSON: what ``verilocc why --json`` prints."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from verilocc_mlir import forms
from verilocc_mlir.forms import Form, Positive, ToolWithLlvm, Whole, about, filled
from verilocc_mlir.results.documents.compile import ResourcesForm, SpillForm
from verilocc_mlir.results.why import WHY_VERSION, WhyRun


class SiteForm(Form):
    """One instruction of the text before allocation."""

    block: str
    depth: Annotated[int, about("loops around it", minimum=0)]
    index: Annotated[int, about("number in the function", minimum=0)]
    instruction: str
    source: Annotated[str | None, about("file:line:column, where there is debug information")]


class LiveValueForm(Form):
    """One value that is live at a point."""

    name: str
    registers: Positive
    register_class: str
    defined: SiteForm | None
    live_for: Annotated[int | None, about("instructions from its definition; null: it comes around a loop")]
    idle: Annotated[int, about("instructions around the point in which nothing touches it", minimum=0)]
    next_use: SiteForm | None
    hint: Annotated[str | None, about("what might free its registers; never a promise")]


class ThresholdForm(Form):
    """A number of registers, and the waves that it leaves room for."""

    registers: Whole
    waves: Whole


class FilePressureForm(Form):
    """One register file."""

    file: Literal["SGPR", "VGPR", "AGPR"]
    available: Annotated[int, about("registers that LLVM lets the function have", minimum=0)]
    beside: Annotated[int, about("of the other file for values that are live there and may be in either", minimum=0)]
    most: Annotated[int, about("most registers that are needed at once", minimum=0)]
    held: Annotated[int, about("of those by physical registers", minimum=0)]
    at: SiteForm
    elsewhere: Annotated[list[SiteForm], about("further points with as many, a few of them")]
    values: Annotated[list[LiveValueForm], about("those that are idle longest first")]
    fewer_waves: Annotated[ThresholdForm | None, about("the fewest registers above with which waves are lost")]
    more_waves: Annotated[ThresholdForm | None, about("the most registers below with which there are more waves")]
    plan: Annotated[
        list[SpillForm] | None,
        about("what the spiller would do to reach more_waves, or what is available; null: it finds no way"),
    ]


class MovedForm(Form):
    """An instruction that an allocation added."""

    phase: Literal["SGPR", "VGPR"]
    kind: Literal["spill", "reload", "rematerialised"]
    value: Annotated[str | None, about("null: the text does not show whose it is")]
    defined: SiteForm | None
    site: SiteForm


class CureForm(Form):
    """A way to raise a cap, tried by compiling the kernel so."""

    words: str
    attribute: Annotated[str, about("as IR has it")]
    vgpr_spills: Annotated[int, about("that LLVM then spills", minimum=0)]
    waves: Whole


class CapForm(Form):
    """What caps the vector registers that LLVM lets a function have."""

    vgprs: Whole
    agprs: Whole
    attribute: Annotated[str, about("that which caps them")]
    because: str
    cure: Annotated[CureForm | None, about("null: nothing is spilled, or none was tried")]


class WhyFunctionForm(Form):
    """One function."""

    name: str
    is_kernel: bool
    waves: Annotated[int, about("that the pressure leaves room for, what must be spilled included", minimum=0)]
    other_limit: Annotated[int, about("waves that LDS, work-group size and attributes allow", minimum=0)]
    files: list[FilePressureForm]
    moved: list[MovedForm]
    resources: Annotated[ResourcesForm | None, about("of the finished code")]
    cap: Annotated[CapForm | None, about("null: the hardware alone")]


class WhyDocument(Form, kw_only=True):
    """One run of ``verilocc why``."""

    why_version: Annotated[int, about("of this form", const=WHY_VERSION)] = WHY_VERSION
    tool: ToolWithLlvm
    input: str
    target: Annotated[str, about("processor, as for -mcpu")]
    allocator: str
    functions: list[WhyFunctionForm]
    notes: list[str]


def schema() -> dict[str, Any]:
    return forms.json_schema(WhyDocument, title=f"Report of verilocc why, version {WHY_VERSION}")


def to_json(run: WhyRun) -> str:
    return forms.to_json(filled(WhyDocument, run, tool=filled(ToolWithLlvm, run)))
