"""What each phase of a run was decided on, kept for the HTML page.

That needs runs in which every phase is audited alone, by a solver that keeps what it was asked, beside LLVM's own
allocation of the same text.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import ClassVar

from msgspec import Struct, field

from smt_verifier.artefacts import RecordingSolver
from verilocc_mlir.cost.assembly import parse_assembly
from verilocc_mlir.cost.compare import CAUSES, TITLES
from verilocc_mlir.cost.model import KernelCost
from verilocc_mlir.cost.together import costs_together
from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.mir.model import MirFile
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.mir.printer import print_function
from verilocc_mlir.pipeline.attempt import AttemptLimits, Start
from verilocc_mlir.pipeline.events import Assembled, Decided, Event, Events
from verilocc_mlir.pipeline.phase import Draft, Function, PhaseRunner
from verilocc_mlir.pipeline.runs import Result, Runs, Variant
from verilocc_mlir.pipeline.whole import Reports
from verilocc_mlir.problem.build import build_problem
from verilocc_mlir.problem.model import AllocationProblem, Phase
from verilocc_mlir.results.page import Action, CostRow, PageInput, PhaseRecord
from verilocc_mlir.target.targets import Target


class RecordedPhases(PhaseRunner):
    """Phases of which it is kept what they were decided on."""

    def _solver(self) -> RecordingSolver:
        return RecordingSolver()

    def _start(self, file: MirFile, function: Function, phase: Phase, limits: AttemptLimits) -> Start:
        """Not those of an earlier variant, of which nobody kept the questions."""
        self.shared.starts.pop((id(function.before), phase, self.work.allocators), None)
        return super()._start(file, function, phase, limits)

    def _records(self, draft: Draft) -> tuple[PhaseRecord, ...]:
        if any(f.llvm is None for f in draft.functions):
            # To be shown beside ours, where it was not needed.
            with contextlib.suppress(VeriloccError), self.work.events.measure("compare"):
                llvms = parse_mir(self._llvm_allocate(draft.before, draft.phase), "LLVM's")
                versions = {f.name: f for f in llvms.functions}
                for function in draft.functions:
                    function.llvm = versions.get(function.before.name)
        return tuple(self._record(draft.file, draft.phase, function) for function in draft.functions)

    def _record(self, file: MirFile, phase: Phase, function: Function) -> PhaseRecord:
        attempted = function.attempted
        # With spill code in it, the question was another function's: what was done is then read off the text.
        exact = attempted if attempted is not None and not attempted.spills else None
        ours = exact is not None and exact.function is not None and function.chosen is exact.function
        return PhaseRecord(
            function=function.before.name,
            phase=phase,
            before=function.before,
            after=function.chosen,
            llvm=function.llvm,
            problem=(exact.problem if exact is not None else None) or self._problem(file, phase, function),
            proposal=exact.proposed[-1].proposal if exact is not None and ours else None,
            asked=tuple(function.solver.answers) if isinstance(function.solver, RecordingSolver) else (),
            actions=tuple(Action(s.kind, s.register, s.point, s.reason, s.cost) for s in function.spills),
        )

    def _problem(self, file: MirFile, phase: Phase, function: Function) -> AllocationProblem | None:
        """Where it cannot be stated, the report's attempts say why; the page then has no picture of this phase."""
        with contextlib.suppress(VeriloccError):
            return build_problem(file, function.before, self.work.target, phase)
        return None


class RecordedRuns(Runs):
    """Runs of which it is kept what they were decided on."""

    def _at_once(self, variant: Variant, names: Collection[str] | None) -> Result | None:
        return None

    def _llvms_at_once(self, text: str, names: Collection[str], *, to_the_end: bool) -> Reports:
        return {}

    def _runner(self, variant: Variant) -> PhaseRunner:
        return RecordedPhases(self._work(variant), self._limited(variant.spills), self.shared, self.most_spilled)


class Recording(Struct):
    """The phases of one run in their order; it listens to the events of a compilation.

    ``costs`` are the cost model's figures of the result and of LLVM's own, by function; none where there is no result.
    """

    runs: ClassVar[type[Runs]] = RecordedRuns
    phases: list[PhaseRecord] = field(default_factory=list[PhaseRecord])
    costs: dict[str, tuple[CostRow, ...]] = field(default_factory=dict[str, "tuple[CostRow, ...]"])

    def hear(self, event: Event, events: Events) -> None:
        """A listener's part (``events.Listener``)."""
        match event:
            case Decided(records):
                self.phases[:] = records
            case Assembled(path, target, ours, llvms):
                assemblies = ours(), llvms()
                with events.measure("cost"):
                    self._add_costs(*assemblies, target, path)
            case _:
                pass

    def _add_costs(self, ours: bytes, llvms: bytes, target: Target, path: str) -> None:
        """Keep the costs of our final assembly beside LLVM's, of functions where the two do the same work."""
        first, second = (parse_assembly(text.decode(), target, where=path) for text in (ours, llvms))
        pairs = costs_together(first, second, target)
        self.costs.update(
            (name, cost_rows(pair.first, None if pair.problem else pair.second))
            for name, pair in pairs.items()
            if pair.first is not None
        )

    def texts(self) -> dict[str, bytes]:
        """Both texts of each phase of a function, by what they are."""
        return {
            f"{record.phase}/{record.function}/{side}": print_function(function).encode()
            for record in self.phases
            for side, function in (("before", record.before), ("after", record.after))
            if function is not None
        }

    def page(self, target: Target, links: tuple[str, ...]) -> PageInput:
        """What the page is made from. ``links``: as for ``PageInput``."""
        return PageInput(target, tuple(self.phases), links, self.costs)


# The cost model's figures as rows of the page.


def cost_rows(ours: KernelCost, llvm: KernelCost | None) -> tuple[CostRow, ...]:
    """The total, its components, and by estimated executions what an allocation can change.

    Args:
        ours: of the code that was made.
        llvm: of LLVM's own compilation; None where it is not known.
    """
    rows = [CostRow("total", ours.cycles, llvm.cycles if llvm is not None else None, "cycles")]
    rows.append(CostRow(TITLES["unhidden"], ours.unhidden, llvm.unhidden if llvm is not None else None, "cycles"))
    llvms = llvm.bounds if llvm is not None else {}
    rows += [CostRow(TITLES[name], cycles, llvms.get(name), "cycles") for name, cycles in ours.bounds.items()]
    for name, title in CAUSES:
        our_value, llvm_value = getattr(ours, name).weighted, getattr(llvm, name).weighted if llvm is not None else None
        if our_value or llvm_value:
            rows.append(CostRow(title, our_value, llvm_value))
    return tuple(rows)
