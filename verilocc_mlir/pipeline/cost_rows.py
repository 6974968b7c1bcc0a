"""The cost model's figures as rows of the page."""

from __future__ import annotations

from typing import overload

from verilocc_mlir.cost.compare import CAUSES, COMPONENTS, TITLES
from verilocc_mlir.cost.model import KernelCost
from verilocc_mlir.results.page import CostRow


def cost_rows(ours: KernelCost, llvm: KernelCost | None) -> tuple[CostRow, ...]:
    """The total, the components it is the greatest of, and by estimated executions what an allocation can change.

    Args:
        ours: of the code that was made.
        llvm: of LLVM's own compilation; None where it is not known.
    """
    rows = [CostRow("total", ours.cycles, llvm.cycles if llvm is not None else None, "cycles")]
    rows += [CostRow(TITLES[n], _component(ours, n), _component(llvm, n), "cycles") for n in COMPONENTS]
    for name, title in CAUSES:
        our_value, llvm_value = getattr(ours, name).weighted, getattr(llvm, name).weighted if llvm is not None else None
        if our_value or llvm_value:
            rows.append(CostRow(title, our_value, llvm_value))
    return tuple(rows)


@overload
def _component(cost: KernelCost, name: str) -> float: ...
@overload
def _component(cost: KernelCost | None, name: str) -> float | None: ...
def _component(cost: KernelCost | None, name: str) -> float | None:
    if cost is None:
        return None
    return getattr(cost, name) / (cost.occupancy if name == "latency" else 1)
