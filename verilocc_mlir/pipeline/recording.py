"""What each phase of a run was decided on, kept for the HTML page."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace

from verilocc_mlir.cost.assembly import parse_assembly
from verilocc_mlir.cost.compare import CAUSES, TITLES
from verilocc_mlir.cost.model import KernelCost
from verilocc_mlir.cost.together import costs_together
from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.mir.model import MirFile
from verilocc_mlir.mir.printer import print_function
from verilocc_mlir.problem.build import build_problem
from verilocc_mlir.results.page import CostRow, PageInput, PhaseRecord
from verilocc_mlir.target.targets import Target


@dataclass
class Recording:
    """The phases of one run in their order, and the GPU; ``target`` is None until a phase is done.

    ``costs`` are the cost model's figures of the result and of LLVM's own, by function; none where there is no result.
    """

    phases: list[PhaseRecord] = field(default_factory=list[PhaseRecord])
    target: Target | None = None
    costs: dict[str, tuple[CostRow, ...]] = field(default_factory=dict[str, "tuple[CostRow, ...]"])

    def add(self, file: MirFile, target: Target, record: PhaseRecord) -> None:
        """Keep one function. A problem that nobody stated is stated now."""
        if record.problem is None:
            # Where it cannot be stated, the report's attempts say why; the page then has no picture of this phase.
            with contextlib.suppress(VeriloccError):
                record = replace(record, problem=build_problem(file, record.before, target, record.phase))
        self.target = target
        self.phases.append(record)

    def add_costs(self, ours: bytes, llvms: bytes, target: Target, path: str) -> None:
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
