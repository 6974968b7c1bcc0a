"""What no other wave hides: work that an allocation adds to the code of every wave.

All waves of a SIMD run the same code. Where a wave spills, copies between register files or changes the register group,
so do the others, and more waves are no help: they only make the caches hold less of each. So these cycles are added to
the total, once for each wave. That they are added in full is assumed; that they are dear was measured by others (four
times the waves took six times as long, triton#11249; half the throughput, triton#11663).

Private memory of all waves has to share the caches. A reload comes from the first cache for the share that this one
holds, then from the second, then from behind it. Stores go through to the second cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from verilocc_mlir.cost.assembly import Function
from verilocc_mlir.cost.counting import Scratch, accumulator_copies
from verilocc_mlir.cost.instructions import Instruction
from verilocc_mlir.cost.memory import dwords
from verilocc_mlir.cost.rates import Rates, rates
from verilocc_mlir.target.targets import Target

_GROUP_CHANGE = "s_set_vgpr_msb"
"""gfx1250 names 256 VGPRs at a time; each change of the group is an instruction (llvm-project#216909)."""


def group_changes(instruction: Instruction) -> int:
    """1 for a change of the group of 256 VGPRs that code can name, of gfx1250."""
    return int(instruction.base == _GROUP_CHANGE)


class Unhidden:
    """The unhidden work of one function's instructions.

    Attributes:
        latency: from the issue of a reload to its return, in cycles, on the average of where it comes from.
    """

    def __init__(self, function: Function, target: Target) -> None:
        self._speed = speed = rates(target)
        self._lanes = 4 * target.wave_size
        self._private: Callable[[Instruction], int] = Scratch(function, target).accesses
        held = (function.figures.scratch_bytes or 0) * target.wave_size * function.figures.occupancy(target)
        first, second, far = _shares(held, speed)
        self.latency = first * speed.vmem_latency + second * speed.l2_latency + far * speed.far_latency
        beyond = far / speed.far_bytes_per_cycle
        self._load = self._lanes * (first / speed.vmem_bytes_per_cycle + second / speed.l2_bytes_per_cycle + beyond)
        self._store = self._lanes * ((first + second) / speed.l2_store_bytes_per_cycle + beyond)

    def is_private(self, instruction: Instruction) -> bool:
        """Whether it accesses private memory."""
        return bool(self._private(instruction))

    def transfer(self, instruction: Instruction) -> float:
        """Cycles for which an access to private memory holds the way to it."""
        return dwords(instruction.base) * (self._store if instruction.is_store else self._load)

    def cycles(self, instruction: Instruction) -> float:
        """Cycles of one execution; 0 for instructions that other waves do hide."""
        if self.is_private(instruction):
            return self.transfer(instruction)
        if accumulator_copies(instruction):
            return self._speed.valu_issue[instruction.rate]
        return self._speed.slot * group_changes(instruction)


def _shares(held: int, speed: Rates) -> tuple[float, float, float]:
    """Which shares of what all waves of a SIMD hold in private memory are in either cache, and behind both."""
    first = min(1.0, speed.vmem_bytes / held) if held else 1.0
    second = min(1.0, speed.l2_bytes / held) - first if first < 1 else 0.0
    return first, second, 1 - first - second


# How the components of a kernel's cost make its total.
#
# CDNA: the instruction units of a CU work side by side, so the one with the most work decides. RDNA: the cycles of the
# vector units add up, those of VALU, LDS and vector memory; the scalar unit works beside them. Both were chosen by
# measured rows (``benchmarks/hardware.py``): the order of dedispersion on W7800 has a rank correlation of 0.40 with the
# greatest unit and of 0.81 with the sum; on MI250X 0.90 and 0.88. With the scalar unit in the sum, convolutions on
# W7800 that spill nothing have 0.88 instead of 0.91.


UNITS = ("valu", "mfma", "lds", "memory", "salu")
"""The components that are work of a unit, by their names in ``KernelCost``."""


def work(units: Mapping[str, float], target: Target) -> float:
    """Cycles that all the work of the units takes at least, whatever the order of the instructions.

    Args:
        units: cycles by ``UNITS``.
    """
    if target.wave_size == 64:
        return max(units.values())
    return max(units["salu"], sum(cycles for name, cycles in units.items() if name != "salu"))


def hidden(latency: float, unhidden: float, waves: float) -> float:
    """Cycles that the latency of a wave takes of its SIMD, which runs ``waves`` of them at once."""
    return max(latency - unhidden, 0.0) / waves


def total(units: Mapping[str, float], latency: float, unhidden: float, waves: float, target: Target) -> float:
    """What a wave costs its SIMD, in cycles.

    Args:
        units: cycles by ``UNITS``, without those in ``unhidden``.
        latency: L, cycles of one wave from start to end.
        unhidden: U, cycles that no other wave hides.
        waves: on a SIMD at once.
    """
    return unhidden + max(hidden(latency, unhidden, waves), work(units, target))
