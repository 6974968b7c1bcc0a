"""Issue cycles and latencies of each kind of instruction, in cycles of the SIMD, with their sources.

CDNA: a wave of 64 takes four cycles on a SIMD of 16 lanes, and issues at most one instruction in them; LLVM's model
counts in these slots (SISchedule.td, SICommonWriteRes). RDNA: a wave of 32 takes one (GFX10SpeedModel and later).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from verilocc_mlir.cost.instructions import Rate
from verilocc_mlir.target.targets import SpeedModel, Target


@dataclass(frozen=True, slots=True)
class Rates:
    """Figures of one target, in cycles.

    Attributes:
        slot: least distance between two instructions of a wave.
        valu_issue: cycles for which a VALU instruction holds the VALU, by ``Rate``.
        valu_latency: cycles until an instruction that reads its result may issue, by ``Rate``.
        salu_latency: the same for a scalar instruction.
        scalar_float_latency: the same for a scalar floating-point instruction.
        lds_latency: from the issue of an LDS access to its return, with no other access under way.
        smem_latency: the same for a scalar load that hits.
        vmem_latency: the same for a vector memory access.
        taken_branch: from a branch that is taken to the first instruction at its target.
        lds_after_read: cycles that an LDS load waits if its destination was read just before.
        lds_bytes_per_cycle: this SIMD's share of its LDS.
        vmem_bytes_per_cycle: this SIMD's share of the first vector cache.
    """

    slot: int
    valu_issue: tuple[int, ...]
    valu_latency: tuple[int, ...]
    salu_latency: int
    scalar_float_latency: int
    lds_latency: int
    smem_latency: int
    vmem_latency: int
    taken_branch: int
    lds_after_read: int
    lds_bytes_per_cycle: int
    vmem_bytes_per_cycle: int


def _by_rate(full: int, trans: int, wide: int, double: int, trans_double: int, multiply: int) -> tuple[int, ...]:
    figures = {
        Rate.FULL: full,
        Rate.TRANS: trans,
        Rate.WIDE: wide,
        Rate.DOUBLE: double,
        Rate.TRANS_DOUBLE: trans_double,
        Rate.MULTIPLY: multiply,
        Rate.FLOAT: full,
    }
    return tuple(figures[rate] for rate in Rate)


def _cdna() -> Rates:
    """SIDPFullSpeedModel times four cycles: 32-bit, 64-bit, f64 and integer products at full rate, transcendentals
    at a quarter. A result can be read in the next slot. LDS, SMEM, VMEM, branch: 5, 5, 80, 8 slots.
    """
    return Rates(
        slot=4,
        valu_issue=_by_rate(4, 16, 4, 4, 16, 4),
        valu_latency=_by_rate(4, 16, 4, 4, 16, 4),
        salu_latency=4,
        scalar_float_latency=4,
        lds_latency=20,
        smem_latency=20,
        vmem_latency=320,
        taken_branch=32,
        lds_after_read=0,
        lds_bytes_per_cycle=32,
        vmem_bytes_per_cycle=16,
    )


def _rdna(target: Target) -> Rates:
    """GFX11SpeedModel's latencies (GFX1250SpeedModel's where they differ); issue cycles and the scalar latency from
    hardware traces (2 on gfx11, 9 on gfx12). Issue of f64 (16) and of 32-bit products (4): assumed.
    """
    newest = target.speed_model is SpeedModel.GFX1250
    return Rates(
        slot=1,
        valu_issue=_by_rate(1, 4, 2, 16, 16, 4),
        valu_latency=_by_rate(5, 7, 6, 32, 38, 11) if newest else _by_rate(5, 10, 6, 38, 40, 8),
        salu_latency=2 if target.major == 11 else 9,
        scalar_float_latency=4 if target.major == 11 else 9,
        lds_latency=20,
        smem_latency=20,
        vmem_latency=320,
        taken_branch=32,
        lds_after_read=18 if target.major == 11 else 0,
        lds_bytes_per_cycle=64,
        vmem_bytes_per_cycle=64,
    )


@lru_cache(maxsize=32)
def rates(target: Target) -> Rates:
    return _rdna(target) if target.wave_size == 32 else _cdna()
