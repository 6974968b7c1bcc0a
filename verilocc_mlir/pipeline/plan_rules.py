"""Which plans are tried for an input: by effort, target, and what the final code of the default plan costs.

The estimates are cheap, since that code is costed anyway. Where a unit of the GPU binds a function (matrix unit, VALU,
LDS, memory), no order of the instructions changes its modelled cycles, so nothing is tried for it. Where registers are
spilled, an order that needs fewer may bring more than one that hides more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from verilocc_mlir.cost.compare import spill_traffic
from verilocc_mlir.cost.model import KernelCost
from verilocc_mlir.pipeline.plans import BY_NAME, DEFAULT, ORDERED, PLANS, WHOLE_PHIS, Plan, Planned
from verilocc_mlir.pipeline.settings import Effort

LEAST_PROMISE = 0.03
"""Share of its modelled cycles that another order could bring at most, below which none is tried."""


def promise(cost: KernelCost) -> float:
    """The share of a function's modelled cycles that no unit needs: what another order could bring at most."""
    return 1 - cost.work / cost.cycles if cost.cycles else 0.0


def has_promise(costs: Mapping[str, KernelCost]) -> bool:
    """Whether another order of the instructions could bring something worth a try in one of these functions."""
    return any(promise(cost) > LEAST_PROMISE or spill_traffic(cost) for cost in costs.values())


WHERE_TIGHT = ("trackers", "iterative-minreg", "matrices-in-vgprs")
"""Plans that may stand in for the default one where LLVM spills vector registers: the schedulers of two count
registers; the third has room for more accumulators of matrix instructions than there are AGPRs.
"""
_WIDE_PHI = re.compile(r" = phi (?:[a-z]+ )*<(?:8|16|32) x (?:float|i32)>")
"""An accumulator of a matrix instruction that a loop carries."""
NEARLY = 1.25
"""Times the fewest registers too many, up to which ``balanced`` tries a plan."""


def first_plans(given: Planned) -> tuple[Plan, ...]:
    """The plans that are tried in turn, until one comes to something, for an input that LLVM's default compile spills
    vector registers of; the default plan is the last.

    Raises:
        VeriloccError: LLVM fails, or an allocation problem cannot be stated.
    """
    if not given.too_many(DEFAULT):
        # There are enough at every point: what is spilled found no place. Another order then costs more than it saves.
        return (DEFAULT,)
    others = {plan: given.too_many(plan) for plan in given.plans(BY_NAME[name] for name in WHERE_TIGHT)}
    # Whole vectors come after the others: what LLVM then moves to AGPRs counts as spilled.
    whole = given.plans((WHOLE_PHIS,)) if _WIDE_PHI.search(given.ir) else []
    return (*tightest(given.too_many(DEFAULT), others), *whole, DEFAULT)


def tightest(default: int, others: Mapping[Plan, int]) -> tuple[Plan, ...]:
    """The plans that are taken before the default one by ``Planned.too_many`` of each, the best first.

    With equally many, an exact count while scheduling still leaves less to spill.
    """
    return tuple(sorted((plan for plan in others if others[plan] <= default), key=lambda plan: others[plan]))


LESS = 0.97
"""Share of the first plan's strain up to which a text in an order of our own is worth a try."""


def ordered_plans(given: Planned, first: Plan, effort: Effort) -> list[Plan]:
    """The plans whose text is put in an order of our own, tried beside the first plan where LLVM's default compile
    spills: those that are less short of registers so, the least short first. Of ``fast`` one, of ``balanced`` those
    that are nearly as little short, of ``best`` all that are less short at all.

    Raises:
        VeriloccError: LLVM fails, or liveness or registers of a text cannot be stated.
    """
    if not given.plans(ORDERED):
        return []
    bar = sum(early.given for early in given.early(first))
    strains = {plan: sum(early.strain for early in given.early(plan)) for plan in given.plans(ORDERED)}
    better = sorted((plan for plan in strains if strains[plan] < bar), key=lambda plan: strains[plan])
    if effort is Effort.BEST:
        return better
    better = [plan for plan in better if strains[plan] <= min(LESS * bar, NEARLY * strains[better[0]])]
    return better[:1] if effort.is_quick else better


_WHERE_SPILLED = ("trackers", "max-ilp", "iterative-minreg", "no-clusters")
_ELSEWHERE = ("max-ilp", "iterative-ilp", "max-memory-clause", "top-down")


def plans_of(effort: Effort, costs: Mapping[str, KernelCost]) -> tuple[Plan, ...]:
    """The plans tried beside the default one, whose final code has these costs, where there is promise: of ``balanced``
    four, which together brought most over 60 kernels (``benchmarks/plans.py``); of ``best`` all.
    """
    if effort is Effort.BEST:
        return tuple(plan for plan in PLANS if plan != DEFAULT)
    return balanced_plans(spilled=any(map(spill_traffic, costs.values()))) if effort is Effort.BALANCED else ()


def balanced_plans(*, spilled: bool) -> tuple[Plan, ...]:
    """The four of ``balanced``, where registers are spilled under the first plan or not."""
    return tuple(BY_NAME[name] for name in (_WHERE_SPILLED if spilled else _ELSEWHERE))


def extra_plan(costs: Mapping[str, KernelCost], *, short: bool) -> Plan | None:
    """The one plan that ``fast`` tries beside the default one, by what the default one's code costs.

    Only where ours stands worse than LLVM's, and an order can bring something: where registers are spilled, the one
    whose scheduler counts registers exactly, else the one that hides most. Elsewhere it would bring 0.1 to 0.3 % of the
    cycles (docs/results/plan-choice.md), and where registers are spilled it triples the time of a compilation.

    Args:
        short: what there is stands worse than LLVM's default compile.
    """
    most = max(costs.values(), key=lambda c: c.latency, default=None)
    if most is None or not short or not has_promise(costs):
        return None
    return BY_NAME["trackers" if spill_traffic(most) else "max-ilp"]
