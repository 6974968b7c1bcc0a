"""The result of one ``verilocc why`` as frozen data: where a function is full of registers, and what it costs.

Registers are 32-bit registers. Pressure is what must be kept at once, whatever the assignment: an allocation may need
more, for alignment and tuples, and less, if it spills.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Struct

from verilocc_mlir import forms
from verilocc_mlir.forms import Form, Positive, ToolWithLlvm, Whole, about, filled
from verilocc_mlir.results.compile import Resources
from verilocc_mlir.results.compile_document import ResourcesForm, SpillForm
from verilocc_mlir.spilling import SpillAction

WHY_VERSION = 2
"""Version of the JSON form; raised whenever ``why.schema.json`` changes."""


class Site(Struct, frozen=True):
    """One instruction of the text before allocation.

    Attributes:
        block: ``bb.3.loop``, as the text has it.
        depth: loops around it.
        index: number in the function.
        instruction: its text, implicit operands left out.
        source: ``file.py:12:5``, with ``inlined at`` where it was; ``""`` without debug information.
    """

    block: str
    depth: int
    index: int
    instruction: str
    source: str


class LiveValue(Struct, frozen=True):
    """One value that is live at a point.

    Attributes:
        name: ``%346``.
        registers: of it that are live there.
        defined: last definition before the point in the text, or the last at all for one that comes around a loop; None
            where no instruction defines it.
        live_for: instructions from there to the point, in the order of the text; None for one from around a loop.
        idle: instructions around the point in which it is live and nothing touches it, over all blocks.
        next_use: the first in the text that touches it after those, or None.
        hint: what might free its registers here, or ``""``; never a promise.
    """

    name: str
    registers: int
    register_class: str
    defined: Site | None
    live_for: int | None
    idle: int
    next_use: Site | None
    hint: str


class Threshold(Struct, frozen=True):
    """A number of registers, and the waves that it leaves room for, all else equal."""

    registers: int
    waves: int


class FilePressure(Struct, frozen=True):
    """One register file of one function.

    Attributes:
        file: ``SGPR``, ``VGPR`` or ``AGPR``.
        available: registers that LLVM lets the function have.
        beside: registers of the other file that values which are live there may be in as well.
        most: most registers that are needed at once; ``held`` of them by physical registers.
        at: the first point where it is so; ``elsewhere`` a few further ones.
        values: live there, those that are idle longest first.
        fewer_waves: the fewest registers, above ``most``, with which waves are lost; None where none can be lost.
        more_waves: the most registers, below ``most``, with which there are more waves; None where it is not this file
            that limits them.
        plan: what this project's spiller would do to get along with those of ``more_waves``, or with ``available`` if
            more are needed; None where it finds no way.
    """

    file: str
    available: int
    beside: int
    most: int
    held: int
    at: Site
    elsewhere: tuple[Site, ...]
    values: tuple[LiveValue, ...]
    fewer_waves: Threshold | None
    more_waves: Threshold | None
    plan: tuple[SpillAction, ...] | None


class Moved(Struct, frozen=True):
    """An instruction that an allocation added.

    Attributes:
        kind: ``spill``, ``reload`` or ``rematerialised``.
        value: whose it is, ``%346``; ``""`` where the text does not show it.
        defined: as of ``LiveValue``.
        site: in the text before, where it stands; ``instruction`` is that of the text after.
    """

    phase: str
    kind: str
    value: str
    defined: Site | None
    site: Site


class Cure(Struct, frozen=True):
    """A way to raise a cap that was tried by compiling the kernel so.

    Attributes:
        words: "with work-groups of at most 256 threads".
        attribute: what says so in IR.
        vgpr_spills: VGPRs that LLVM then spills.
        waves: that the code then has.
    """

    words: str
    attribute: str
    vgpr_spills: int
    waves: int


class Cap(Struct, frozen=True):
    """What caps the vector registers that LLVM lets a function have.

    Attributes:
        vgprs, agprs: registers of each file that it may have.
        attribute: that which caps them.
        because: why, in words.
        cure: the mildest change with which nothing is spilled, or else the least; None where nothing is spilled, or
            none was tried.
    """

    vgprs: int
    agprs: int
    attribute: str
    because: str
    cure: Cure | None = None


class WhyFunction(Struct, frozen=True):
    """One function.

    Attributes:
        waves: that the pressure leaves room for, what must be spilled included.
        other_limit: waves that LDS, work-group size and ``amdgpu-waves-per-eu`` allow.
        files: those that it uses.
        moved: what the allocation added.
        resources: of the finished code; None where it was not made, or of a device function.
        cap: what caps its vector registers; None where the hardware alone does.
    """

    name: str
    is_kernel: bool
    waves: int
    other_limit: int
    files: tuple[FilePressure, ...]
    moved: tuple[Moved, ...]
    resources: Resources | None
    cap: Cap | None = None


class WhyRun(Struct, frozen=True):
    """One run.

    Attributes:
        allocator: whose allocation was made: ``llvm``, or ``verilocc``.
        notes: anything else a person should know.
    """

    version: str
    llvm: str
    input: str
    target: str
    allocator: str
    functions: tuple[WhyFunction, ...]
    notes: tuple[str, ...] = ()


# Where functions are full of registers, as JSON: what ``verilocc why --json`` prints.


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
