"""Which allocations of a file are tried, and which of them is kept.

``fast`` makes one. That one loses against LLVM's own result if it has fewer waves, or stores and reloads more by
estimated executions. Then ``fast`` makes another without loads ahead of their use, then LLVM's.

``balanced`` and ``best`` make several, each proved. They keep the one with the least modelled cost
(``verilocc_mlir.cost``) among those that lose nothing against LLVM's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from verilocc_mlir.pipeline.attempt import SPARE_REGISTERS, SpillLimits
from verilocc_mlir.pipeline.settings import Effort
from verilocc_mlir.results.compile import Resources
from verilocc_mlir.target.occupancy import max_vectors
from verilocc_mlir.target.targets import Target

if TYPE_CHECKING:
    from verilocc_mlir.cost.model import KernelCost

_RESOLUTION = 0.01
"""Share of its cycles within which the model is not believed to tell two allocations apart."""


@dataclass(frozen=True)
class Variant:
    """One way of allocating a file.

    Attributes:
        improved: the allocator's answers are improved before they are proved.
        packed: the exact allocator's answer, which needs OR-Tools.
        model: the language model's answer, which needs its packages; ours where it has none.
    """

    name: str
    llvm: bool = False
    improved: bool = False
    packed: bool = False
    model: bool = False
    spills: SpillLimits = field(default_factory=SpillLimits)


OURS = Variant("as it comes")
BESIDE = Variant("loads beside their use", spills=SpillLimits(load_ahead=False))
LLVM = Variant("LLVM's", llvm=True)
MODELS = Variant("the model's", model=True)
PACKED = Variant("packed exactly", packed=True, spills=SpillLimits(spare=()))
"""For a file that spilled because no registers in a row were free for a tuple, although enough were free. The exact
allocator then spills nothing, or has no answer in its time."""


def variants(effort: Effort, target: Target, waves: int) -> tuple[Variant, ...]:
    """What is tried beside ``OURS``, which has ``waves`` waves; 0: it came to nothing."""
    if effort is Effort.FAST:
        return ()
    result = [BESIDE, LLVM]
    if effort is Effort.BEST:
        result.append(Variant("improved", improved=True))
        more = range(waves + 1, target.max_waves + 1) if waves else ()
        steps = [w for w in more if max_vectors(target, w) < max_vectors(target, w - 1)]
        # Two steps at most: what more waves need is spilled, and that soon costs more than it hides.
        for count in steps[:2]:
            room = min(target.addressable_vectors, 256) - max_vectors(target, count)
            if room > 0:
                spare = tuple(room + s for s in SPARE_REGISTERS)
                result.append(
                    Variant(f"{count} waves", spills=SpillLimits(spare=spare, accumulators=False, always=True))
                )
    return tuple(result)


def fewer_waves(ours: Mapping[str, Resources], greedy: Mapping[str, Resources]) -> bool:
    """Whether some function has fewer waves than in LLVM's own result."""
    return any(ours[n].waves < greedy[n].waves for n in ours.keys() & greedy)


def losses(ours: Mapping[str, KernelCost], greedy: Mapping[str, KernelCost]) -> int:
    """Waves fewer than in LLVM's own result, and functions that spill more, over all functions."""
    return sum(
        max(0, greedy[n].occupancy - c.occupancy) + (spill_traffic(c) > spill_traffic(greedy[n]))
        for n, c in ours.items()
        if n in greedy
    )


def ahead(a: Mapping[str, KernelCost], b: Mapping[str, KernelCost]) -> bool:
    """Whether ``a`` stands better than ``b``: more waves over all functions, then less to store and reload."""

    def standing(found: Mapping[str, KernelCost]) -> tuple[int, float]:
        return sum(c.occupancy for c in found.values()), -sum(map(spill_traffic, found.values()))

    return standing(a) > standing(b)


def cheapest(costs: Iterable[Mapping[str, KernelCost]], greedy: Mapping[str, KernelCost]) -> int:
    """Index of the cheapest of several results.

    Those come first that lose nothing against LLVM's own. Among those as cheap as the cheapest by what the model can
    tell apart, the one that spills least.
    """

    def price(number: int) -> tuple[float, float]:
        return sum(map(spill_traffic, every[number].values())), sum(c.cycles for c in every[number].values())

    every = list(costs)
    losses_of = [losses(costs_of_result, greedy) for costs_of_result in every]
    least_losing = [number for number, count in enumerate(losses_of) if count == min(losses_of)]
    limit = (1 + _RESOLUTION) * min(price(number)[1] for number in least_losing)
    return min((number for number in least_losing if price(number)[1] <= limit), key=price)


def spill_traffic(cost: KernelCost) -> float:
    """Registers stored to and loaded from memory or lanes, by estimated executions."""
    return sum(c.weighted for c in (cost.spill_stores, cost.spill_reloads, cost.lane_saves, cost.lane_reloads))
