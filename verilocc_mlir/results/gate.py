"""The result of one ``verilocc gate`` as frozen data: kernels of now beside those of a baseline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import Enum
from typing import Annotated, Any

import msgspec
from msgspec import Struct

from smt_verifier.outcome import Outcome
from verilocc_mlir import forms
from verilocc_mlir.errors import ExitCode, InputError
from verilocc_mlir.forms import Form, Tool, Whole, about, filled

GATE_VERSION = 1
"""Version of the baseline's form; raised whenever ``gate.schema.json`` changes."""


class Kernel(Struct, frozen=True):
    """What one kernel takes; None where it is not known. Registers are 32-bit registers.

    Attributes:
        name: symbol, as the code has it.
        demangled: the same in the source language, as far as it could be told.
        target: processor.
        work_items: most work-items of a work-group; tells configurations of one kernel apart.
        vgprs: vector registers in all; accumulators included where the file is unified.
        agprs: accumulators among them.
        sgprs: scalar registers, VCC and the like included.
        vgpr_spills: VGPRs spilled, by LLVM's count; ``sgpr_spills`` likewise.
        waves: waves per SIMD that registers, LDS and work-group leave room for.
        scratch_bytes: private memory of a work-item.
        lds_bytes: LDS of a work-group.
        verdict: of its allocation; None where nothing is stated.
        undeclared: registers that its code uses beyond those declared, in words; ``""`` where there are none, or the
            code was not looked at.
        path: file it was read from, ``""`` in a baseline.
    """

    name: str
    demangled: str
    target: str
    work_items: int | None
    vgprs: int
    agprs: int
    sgprs: int
    vgpr_spills: int | None
    sgpr_spills: int | None
    waves: int
    scratch_bytes: int | None
    lds_bytes: int | None
    verdict: Outcome | None
    path: str = ""
    undeclared: str = ""

    @property
    def title(self) -> str:
        return f"{self.demangled} for {self.target}"


FIGURES = {
    "vgprs": "VGPRs",
    "agprs": "AGPRs",
    "sgprs": "SGPRs",
    "vgpr_spills": "VGPR spills",
    "sgpr_spills": "SGPR spills",
    "waves": "waves",
    "scratch_bytes": "scratch bytes",
    "lds_bytes": "LDS bytes",
}
"""What is compared, with its title."""

LEAST = ("waves",)
"""Of these fewer are worse, of all others more."""


class Change(Struct, frozen=True):
    """One figure that differs, or the verdict, or registers that are not declared.

    Attributes:
        figure: a key of ``FIGURES``, ``verdict`` or ``declared``.
        before: what it was, or what a budget allows.
        worse: now is worse than before.
        beyond: worse by more than the tolerance.
        budget: it is a budget that is exceeded.
    """

    figure: str
    before: str
    now: str
    worse: bool
    beyond: bool
    budget: bool = False

    def __str__(self) -> str:
        if self.figure == "declared":
            return self.now
        if self.budget:
            return f"{FIGURES.get(self.figure, self.figure)} {self.now}, the budget is {self.before}"
        return f"{FIGURES.get(self.figure, self.figure)} {self.before} -> {self.now}"


class Status(Enum):
    """What became of a kernel, gravest first. ``TOLERATED`` is worse within the tolerances."""

    WORSE = "worse"
    VANISHED = "vanished"
    NEW = "new"
    TOLERATED = "tolerated"
    BETTER = "better"
    SAME = "same"


class Compared(Struct, frozen=True):
    """One kernel: ``before`` is None for a new one, ``now`` for a vanished one. ``alone``: there is no baseline."""

    before: Kernel | None
    now: Kernel | None
    changes: tuple[Change, ...] = ()
    alone: bool = False

    @property
    def kernel(self) -> Kernel:
        kernel = self.now or self.before
        assert kernel is not None
        return kernel

    @property
    def status(self) -> Status:
        if any(change.beyond for change in self.changes):
            return Status.WORSE
        if self.before is None and not self.alone:
            return Status.NEW
        if self.now is None:
            return Status.VANISHED
        if any(change.worse for change in self.changes):
            return Status.TOLERATED
        return Status.BETTER if self.changes else Status.SAME


class GateRun(Struct, frozen=True):
    """One run.

    Attributes:
        baseline: path of the baseline, or of the budgets where there is none.
        rows: every kernel, gravest first.
        failing: what makes the gate fail; ``WORSE`` is always among it.
        notes: anything else a person should know.
        updated: the baseline is written anew, so that nothing fails.
    """

    version: str
    baseline: str
    rows: tuple[Compared, ...]
    failing: frozenset[Status]
    notes: tuple[str, ...] = ()
    updated: bool = False

    def count(self, status: Status) -> int:
        return Counter(row.status for row in self.rows)[status]

    def fails(self, row: Compared) -> bool:
        return row.status in self.failing and not self.updated

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.WORSE if any(map(self.fails, self.rows)) else ExitCode.PROVED

    @property
    def summary(self) -> str:
        """``12 kernels: 1 worse, 11 same``."""
        counts = [f"{count} {status.value}" for status in Status if (count := self.count(status))]
        return f"{len(self.rows)} kernel{'s' * (len(self.rows) != 1)}: {', '.join(counts) or 'none'}"


# The baseline of ``verilocc gate`` as JSON: one entry a kernel, in a stable order, without paths.


_HINT = "verilocc gate --update writes a new one"


class KernelForm(Form):
    """One kernel; null where a figure is not known."""

    name: Annotated[str, about("symbol")]
    demangled: Annotated[str, about("the name in the source language; not compared")]
    target: Annotated[str, about("processor, as for -mcpu")]
    work_items: Annotated[int | None, about("most work-items of a work-group; tells kernels of one name apart")]
    vgprs: Annotated[int, about("accumulators included where the file is unified", minimum=0)]
    agprs: Annotated[int, about("of those", minimum=0)]
    sgprs: Annotated[int, about("VCC and the like included", minimum=0)]
    vgpr_spills: Whole | None
    sgpr_spills: Whole | None
    waves: Annotated[int, about("per SIMD", minimum=0)]
    scratch_bytes: Annotated[int | None, about("of a work-item")]
    lds_bytes: Annotated[int | None, about("of a work-group")]
    verdict: Annotated[Outcome | None, about("of the allocation; null: nothing is stated")]


class BaselineDocument(Form, kw_only=True):
    """A baseline of ``verilocc gate``."""

    gate_version: Annotated[int, about("of this form", const=GATE_VERSION)] = GATE_VERSION
    tool: Tool
    kernels: list[KernelForm]


def schema() -> dict[str, Any]:
    return forms.json_schema(BaselineDocument, title=f"Baseline of verilocc gate, version {GATE_VERSION}")


def to_json(kernels: Iterable[Kernel], version: str) -> str:
    ordered = sorted(kernels, key=_order)
    return forms.to_json(
        BaselineDocument(tool=Tool(version=version), kernels=[filled(KernelForm, kernel) for kernel in ordered])
    )


def from_json(data: bytes, path: str) -> tuple[Kernel, ...]:
    """The kernels of a baseline.

    Raises:
        InputError: it is none, or of another version of the form.
    """
    try:
        document = msgspec.json.decode(data, type=BaselineDocument)
    except msgspec.DecodeError as error:
        raise InputError(f"this is no baseline of verilocc gate: {error}", where=path, hint=_HINT) from error
    if document.gate_version != GATE_VERSION:
        message = f"this baseline has gate_version {document.gate_version}, not {GATE_VERSION}"
        raise InputError(message, where=path, hint=_HINT)
    return tuple(Kernel(**msgspec.structs.asdict(kernel)) for kernel in document.kernels)


def _order(kernel: Kernel) -> tuple[Any, ...]:
    return kernel.name, kernel.target, kernel.work_items or 0, kernel.vgprs, kernel.sgprs, kernel.lds_bytes or 0
