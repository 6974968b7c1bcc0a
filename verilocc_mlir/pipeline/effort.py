"""Which allocations of a file are tried, and which of them is kept.

``fast`` makes one, and LLVM's where that has fewer waves or more spills than LLVM's own result. ``balanced`` and
``best`` make several, each proved, and keep the one with the least modelled cost (``verilocc_mlir.cost``) among those
that lose neither waves nor, by estimated executions, spills against LLVM's own result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from verilocc_mlir.cost.model import KernelCost
from verilocc_mlir.pipeline.attempt import SPARE_REGISTERS, SpillLimits
from verilocc_mlir.pipeline.settings import Effort
from verilocc_mlir.report.model import Resources
from verilocc_mlir.target.occupancy import max_vectors
from verilocc_mlir.target.targets import Target

_RESOLUTION = 0.01
"""Share of its cycles within which the model is not believed to tell two allocations apart."""


@dataclass(frozen=True)
class Variant:
    """One way of allocating a file.

    Attributes:
        name: for the report.
        llvm: LLVM's allocation, audited.
        improved: the allocator's answers are improved before they are proved.
        spills: how much is spilled, and how.
    """

    name: str
    llvm: bool = False
    improved: bool = False
    spills: SpillLimits = field(default_factory=SpillLimits)


OURS = Variant("as it comes")
LLVM = Variant("LLVM's", llvm=True)


def variants(effort: Effort, target: Target, waves: int) -> tuple[Variant, ...]:
    """What is tried beside ``OURS``, which has ``waves`` waves."""
    if effort is Effort.FAST:
        return ()
    found = [Variant("loads beside their use", spills=SpillLimits(load_ahead=False)), LLVM]
    if effort is Effort.BEST:
        found.append(Variant("improved", improved=True))
        steps = [
            w for w in range(waves + 1, target.max_waves + 1) if max_vectors(target, w) < max_vectors(target, w - 1)
        ]
        # Two steps at most: what more waves need is spilled, and that soon costs more than it hides.
        for more in steps[:2]:
            room = min(target.addressable_vectors, 256) - max_vectors(target, more)
            if room > 0:
                spare = tuple(room + s for s in SPARE_REGISTERS)
                found.append(Variant(f"{more} waves", spills=SpillLimits(spare=spare, accumulators=False, always=True)))
    return tuple(found)


def loses(ours: Mapping[str, Resources], greedy: Mapping[str, Resources]) -> bool:
    """Whether some function has fewer waves or more spilled registers than in LLVM's own result."""
    return any(_loses(ours[name], greedy[name]) for name in ours.keys() & greedy.keys())


def ahead(a: Mapping[str, Resources], b: Mapping[str, Resources]) -> bool:
    """Whether ``a`` stands better than ``b``: more waves over all functions, then fewer spills."""
    return sum(r.waves for r in a.values()) > sum(r.waves for r in b.values()) or (
        sum(r.waves for r in a.values()) == sum(r.waves for r in b.values())
        and sum(_spilled(r) for r in a.values()) < sum(_spilled(r) for r in b.values())
    )


def cheapest(costs: Iterable[Mapping[str, KernelCost]], greedy: Mapping[str, KernelCost]) -> int:
    """Index of the cheapest of several results.

    Those come first that lose nothing against LLVM's own. Among those as cheap as the cheapest by what the model can
    tell apart, the one that spills least.
    """

    def lost(found: Mapping[str, KernelCost]) -> int:
        return sum(
            max(0, greedy[n].occupancy - c.occupancy) + (spill_traffic(c) > spill_traffic(greedy[n]))
            for n, c in found.items()
            if n in greedy
        )

    def price(number: int) -> tuple[float, float]:
        return sum(map(spill_traffic, every[number].values())), sum(c.cycles for c in every[number].values())

    every = list(costs)
    least = min(map(lost, every))
    left = [number for number, found in enumerate(every) if lost(found) == least]
    limit = (1 + _RESOLUTION) * min(price(number)[1] for number in left)
    return min((number for number in left if price(number)[1] <= limit), key=price)


def spill_traffic(cost: KernelCost) -> float:
    """Registers stored to and loaded from memory or lanes, by estimated executions."""
    return sum(c.weighted for c in (cost.spill_stores, cost.spill_reloads, cost.lane_saves, cost.lane_reloads))


def _loses(a: Resources, b: Resources) -> bool:
    return a.waves < b.waves or _spilled(a) > _spilled(b)


def _spilled(resources: Resources) -> int:
    return (resources.vgpr_spills or 0) + (resources.sgpr_spills or 0)
