"""The cost model's figures as rows of the page."""

from __future__ import annotations

from verilocc_mlir.cost.compare import CAUSES, TITLES
from verilocc_mlir.cost.model import KernelCost
from verilocc_mlir.results.page import CostRow


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
