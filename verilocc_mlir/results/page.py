"""What the page shows beyond the report: both texts of each phase, the allocation problem, and what was asked of whom.

Slots are those of ``verilocc_mlir.problem.model``: four an instruction of the text before the phase.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from smt_verifier.smt import Obligation, Verdict
from verilocc_mlir.mir.model import MachineFunction
from verilocc_mlir.problem.model import AllocationProblem, Phase, Proposal
from verilocc_mlir.target.targets import Target


class Action(Struct, frozen=True):
    """Something that an allocator did before it assigned registers, and why.

    Attributes:
        kind: ``spill``, ``reload``, ``rematerialise``, ``split``, ``copy``, or a word of the allocator's own.
        register: the live range's name, ``%346``.
        point: slot in the text that was assigned.
        reason: one sentence without a full stop.
        weight: estimated executions (``problem.build.frequency``).
    """

    kind: str
    register: str
    point: int
    reason: str
    weight: float


class CostRow(Struct, frozen=True):
    """One component of the cost model for one function.

    Attributes:
        ours: the figure for the code that was made.
        llvm: the same for LLVM's; None where it is not known.
        unit: of both figures, ``cycles``; ``""`` for a plain number.
    """

    component: str
    ours: float
    llvm: float | None = None
    unit: str = ""


class PhaseRecord(Struct, frozen=True):
    """One phase of one function, with all that was decided about.

    Attributes:
        phase: ``sgpr``, ``wwm`` or ``vgpr``.
        after: the text that was used; None where there is none.
        llvm: LLVM's own allocation of ``before``; None where it was not made.
        problem: the allocation problem of ``before``; None where it cannot be stated.
        proposal: the assignment that ``after`` was written from; None where ``after`` is LLVM's, or missing.
        asked: every obligation with its verdict, in order: of the proofs, then of the audits.
        actions: what our allocator did to ``before`` first.
    """

    function: str
    phase: Phase
    before: MachineFunction
    after: MachineFunction | None
    llvm: MachineFunction | None
    problem: AllocationProblem | None
    proposal: Proposal | None
    asked: tuple[tuple[Obligation, Verdict], ...] = ()
    actions: tuple[Action, ...] = ()


class PageInput(Struct, frozen=True):
    """Everything the page is made from, the report left out.

    Attributes:
        phases: in the order of the run.
        links: for each obligation, all phases in a row, the relative address of its file; empty where none were
            written.
        costs: rows of the cost model by function name; a function without an entry has no table.
    """

    target: Target
    phases: tuple[PhaseRecord, ...]
    links: tuple[str, ...] = ()
    costs: Mapping[str, tuple[CostRow, ...]] = field(default_factory=dict[str, tuple[CostRow, ...]])
