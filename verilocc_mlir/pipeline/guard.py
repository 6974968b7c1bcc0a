"""What is kept of a function must not stand worse than LLVM's default compile of it, by the modelled cost of both.

Three things count, each on final machine code: modelled cycles, registers stored and reloaded by estimated executions,
and waves. Fewer waves are no fault where the cycles are fewer too: a schedule that hides more needs fewer of them, and
cycles are those of one wave over the waves. Where the model can tell nothing apart, fewer waves are a fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verilocc_mlir.cost.model import KernelCost

RESOLUTION = 0.01
"""Share of its cycles within which the model is not believed to tell two allocations apart."""

_EQUAL = 1e-6
"""Share of a figure below which two are the same: they are sums of floating-point numbers."""


def spill_traffic(cost: KernelCost) -> float:
    """Registers stored to and loaded from memory or lanes, by estimated executions."""
    return sum(c.weighted for c in (cost.spill_stores, cost.spill_reloads, cost.lane_saves, cost.lane_reloads))


def shortfalls(ours: KernelCost, llvms: KernelCost) -> list[str]:
    """In what ours stands worse than LLVM's, in words; nothing where it does not."""
    result: list[str] = []
    spills = spill_traffic(ours), spill_traffic(llvms)
    if _more(*spills):
        result.append(f"stores and reloads {spills[0]:.0f} registers for {spills[1]:.0f}, by estimated executions")
    fewer_waves = ours.occupancy < llvms.occupancy
    if _more(ours.cycles, llvms.cycles if not fewer_waves else (1 - RESOLUTION) * llvms.cycles):
        waves = f", with {ours.occupancy} waves for {llvms.occupancy}" if fewer_waves else ""
        result.append(f"takes {ours.cycles / llvms.cycles:.4f} of its modelled cycles{waves}")
    return result


def _more(a: float, b: float) -> bool:
    return a > b * (1 + _EQUAL)
