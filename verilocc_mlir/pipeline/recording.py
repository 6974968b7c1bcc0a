"""What each phase of a run was decided on, kept for the HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from smt_verifier.smt import Obligation, Verdict
from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.mir.model import MachineFunction, MirFile
from verilocc_mlir.problem.build import build_problem
from verilocc_mlir.problem.model import AllocationProblem, Phase, Proposal
from verilocc_mlir.results.page import Action, CostRow, PhaseRecord
from verilocc_mlir.target.targets import Target


@dataclass
class Recording:
    """The phases of one run in their order, and the GPU; ``target`` is None until a phase is done.

    ``costs`` are the cost model's figures of the result and of LLVM's own, by function; none where there is no result.
    """

    phases: list[PhaseRecord] = field(default_factory=list[PhaseRecord])
    target: Target | None = None
    costs: dict[str, tuple[CostRow, ...]] = field(default_factory=dict[str, "tuple[CostRow, ...]"])

    def add(
        self,
        file: MirFile,
        target: Target,
        phase: Phase,
        *,
        before: MachineFunction,
        after: MachineFunction | None,
        llvm: MachineFunction | None,
        problem: AllocationProblem | None,
        proposal: Proposal | None,
        asked: Sequence[tuple[Obligation, Verdict]],
        actions: Sequence[Action] = (),
    ) -> None:
        """Keep one function; the fields are those of ``PhaseRecord``. A problem that nobody stated is stated now."""
        if problem is None:
            try:
                problem = build_problem(file, before, target, phase)
            except VeriloccError:
                # The report's attempts say why; the page then has no picture of this phase.
                problem = None
        self.target = target
        self.phases.append(
            PhaseRecord(before.name, phase, before, after, llvm, problem, proposal, tuple(asked), tuple(actions))
        )
