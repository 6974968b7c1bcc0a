"""Ways to allocate one text, by effort. Which plans they go with: ``plans.py``; what is kept: ``portfolio.py``."""

from __future__ import annotations

from dataclasses import dataclass, field

from verilocc_mlir.pipeline.attempt import SPARE_REGISTERS, SpillLimits
from verilocc_mlir.pipeline.settings import Effort
from verilocc_mlir.target.occupancy import max_vectors
from verilocc_mlir.target.targets import Target

FAST_STEPS = 2
"""``SpillLimits.steps`` with ``fast``."""


@dataclass(frozen=True)
class Variant:
    """One way of allocating a file.

    Attributes:
        improved: the allocator's answers are improved before they are proved.
        packed: the exact allocator's answer, which needs OR-Tools.
        model: the language model's answer, which needs its packages; ours where it has none.
        spread: registers that no wave needs put off reuse (``allocators/spread.py``); else the fewest are taken.
    """

    name: str
    llvm: bool = False
    improved: bool = False
    packed: bool = False
    model: bool = False
    spread: bool = True
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
