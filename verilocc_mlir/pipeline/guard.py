"""What is kept of a function must not stand worse than LLVM's default compile of it, nor a front end's kernel be
replaced by a worse one.

Spills count by themselves: no modelled cycles make up for more of them. Else the comparison of both costs decides
(``cost/judge.py``): modelled cycles where they are further apart than the model's error bar, waves and instructions
below it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verilocc_mlir.cost.model import KernelCost


def spill_traffic(cost: KernelCost) -> float:
    """Registers stored to and loaded from memory or lanes, by estimated executions."""
    from verilocc_mlir.cost.judge import spill_traffic as traffic

    return traffic(cost)


def cycles_beside(ours: KernelCost, theirs: KernelCost) -> str:
    """The modelled cycles of ours over theirs, in words."""
    return f"{ours.cycles / theirs.cycles:.4f} of its modelled cycles" if theirs.cycles else "more modelled cycles"


def shortfalls(ours: KernelCost, theirs: KernelCost) -> list[str]:
    """In what ours stands worse than theirs, in words; nothing where it does not.

    Args:
        theirs: of code whose loops run equally often (``cost/together.py``).
    """
    from verilocc_mlir.cost.judge import Ground, judge, more

    result: list[str] = []
    spills = spill_traffic(ours), spill_traffic(theirs)
    if more(*spills):
        result.append(f"stores and reloads {spills[0]:,.0f} registers for {spills[1]:,.0f}, by estimated executions")
    judged = judge(ours, theirs)
    if judged.order <= 0:
        return result
    cycles = cycles_beside(ours, theirs)
    if judged.by_cycles:
        waves = f", with {ours.occupancy} waves for {theirs.occupancy}" if ours.occupancy < theirs.occupancy else ""
        result.append(f"takes {cycles}, more than the error bar of {judged.bar:.0%}{waves}")
    elif judged.ground is Ground.WAVES:
        result.append(f"has {ours.occupancy} waves for {theirs.occupancy}; modelled cycles do not decide ({cycles})")
    elif judged.ground is Ground.INSTRUCTIONS:
        executed = f"{ours.issued:,.0f} instructions for {theirs.issued:,.0f}"
        result.append(f"executes {executed}, and takes {cycles}")
    return result
