"""How the components of a kernel's cost make its total.

CDNA: the instruction units of a CU work side by side, so the one with the most work decides. RDNA: the cycles of the
vector units add up, those of VALU, LDS and vector memory; the scalar unit works beside them. Both were chosen by
measured rows (``benchmarks/hardware.py``): the order of dedispersion on W7800 has a rank correlation of 0.40 with the
greatest unit and of 0.81 with the sum; on MI250X 0.90 and 0.88. With the scalar unit in the sum, convolutions on W7800
that spill nothing have 0.88 instead of 0.91.
"""

from __future__ import annotations

from collections.abc import Mapping

from verilocc_mlir.target.targets import Target

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
