"""Ways to allocate one text, by effort. Which plans they go with: ``plans.py``; what is kept: ``portfolio.py``."""

from __future__ import annotations

from verilocc_mlir.allocators import Allocator, allocator
from verilocc_mlir.allocators.deterministic import DeterministicAllocator
from verilocc_mlir.allocators.registry import MODEL
from verilocc_mlir.pipeline.attempt import SPARE_REGISTERS, SpillForWaves, SpillLimits
from verilocc_mlir.pipeline.runs import LLVM, Variant
from verilocc_mlir.pipeline.settings import Effort, Settings
from verilocc_mlir.target.occupancy import max_vectors
from verilocc_mlir.target.targets import Target

# Who allocates: of the allocators that settings name (``runs.Choice``).


def packing(ours: tuple[Allocator, ...], _: Settings) -> tuple[Allocator, ...]:
    """They take the fewest registers, instead of those that no wave needs too (``allocators/spread.py``)."""
    return tuple(a.packing() if isinstance(a, DeterministicAllocator) else a for a in ours)


def improving(ours: tuple[Allocator, ...], settings: Settings) -> tuple[Allocator, ...]:
    """Their answers are improved before they are proved."""
    from verilocc_mlir.allocators.improve import Improving

    return tuple(Improving(a, settings.allocator_seconds) for a in ours)


def exactly(_: tuple[Allocator, ...], settings: Settings) -> tuple[Allocator, ...]:
    """The exact allocator, which needs OR-Tools."""
    return (allocator("exact", seconds=settings.allocator_seconds),)


def model_first(ours: tuple[Allocator, ...], settings: Settings) -> tuple[Allocator, ...]:
    """The language model, which needs its packages; ours where it has no answer."""
    model = allocator(MODEL, seconds=settings.allocator_seconds, samples=settings.model_samples)
    return (model, *ours)


BESIDE = Variant("loads beside their use", spills=SpillLimits(load_ahead=False))
MODELS = Variant("the model's", model_first)
PACKED = Variant("packed exactly", exactly, SpillLimits(spare=()))
"""For a file that spilled because no registers in a row were free for a tuple, although enough were free. The exact
allocator then spills nothing, or has no answer in its time."""


def variants(effort: Effort, target: Target, waves: int) -> tuple[Variant, ...]:
    """What is tried beside ``OURS``, which has ``waves`` waves; 0: it came to nothing."""
    if effort is Effort.FAST:
        return ()
    result = [BESIDE, LLVM]
    if effort is Effort.BEST:
        result.append(Variant("improved", improving))
        more = range(waves + 1, target.max_waves + 1) if waves else ()
        steps = [w for w in more if max_vectors(target, w) < max_vectors(target, w - 1)]
        # Two steps at most: what more waves need is spilled, and that soon costs more than it hides.
        for count in steps[:2]:
            room = min(target.addressable_vectors, 256) - max_vectors(target, count)
            if room > 0:
                spare = tuple(room + s for s in SPARE_REGISTERS)
                result.append(Variant(f"{count} waves", spills=SpillForWaves(spare, accumulators=False)))
    return tuple(result)
