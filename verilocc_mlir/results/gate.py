"""The result of one ``verilocc gate`` as frozen data: kernels of now beside those of a baseline."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum

from smt_verifier.outcome import Outcome
from verilocc_mlir.errors import ExitCode

GATE_VERSION = 1
"""Version of the baseline's form; raised whenever ``gate.schema.json`` changes."""


@dataclass(frozen=True, slots=True)
class Kernel:
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


@dataclass(frozen=True, slots=True)
class Change:
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


@dataclass(frozen=True, slots=True)
class Compared:
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


@dataclass(frozen=True)
class GateRun:
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
