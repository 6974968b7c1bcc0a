"""Which plans are tried for an input: by effort, target, and what the final code of the default plan costs.

The estimates are cheap, since that code is costed anyway. Where a unit of the GPU binds a function (matrix unit, VALU,
LDS, memory), no order of the instructions changes its modelled cycles, so nothing is tried for it. Where registers are
spilled, an order that needs fewer may bring more than one that hides more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from verilocc_mlir.pipeline.guard import spill_traffic
from verilocc_mlir.pipeline.plans import BY_NAME, DEFAULT, PLANS, Plan
from verilocc_mlir.pipeline.settings import Effort
from verilocc_mlir.target.targets import Target

if TYPE_CHECKING:
    from verilocc_mlir.cost.model import KernelCost

LEAST_PROMISE = 0.03
"""Share of its modelled cycles that another order could bring at most, below which none is tried."""

FAST_PROMISE = 0.15
"""The same for the one extra plan of ``fast``."""


def promise(cost: KernelCost) -> float:
    """The share of a function's modelled cycles that no unit needs: what another order could bring at most."""
    units = max(cycles for name, cycles in cost.bounds.items() if name != "latency")
    return 1 - units / cost.cycles if cost.cycles else 0.0


def plans_of(effort: Effort, target: Target) -> tuple[Plan, ...]:
    """The plans tried beside the default one, where there is promise."""
    if effort is Effort.BEST:
        return tuple(plan for plan in PLANS if plan != DEFAULT)
    if effort is Effort.BALANCED:
        return tuple(BY_NAME[name] for name in ("max-ilp", "iterative-minreg", "no-clusters", "iterative-ilp"))
    return ()


def extra_plan(costs: Mapping[str, KernelCost]) -> Plan | None:
    """The one plan that ``fast`` tries beside the default one, by what the default one's code costs.

    Where registers are spilled, the order that needs fewest; else the one that hides most.
    """
    most = max(costs.values(), key=lambda c: c.latency, default=None)
    if most is None or promise(most) < FAST_PROMISE:
        return None
    return BY_NAME["iterative-minreg" if spill_traffic(most) else "max-ilp"]
