"""Issue cycles and latencies of each kind of instruction, in cycles of the SIMD, each with its source.

CDNA: a wave of 64 takes four cycles on a SIMD of 16 lanes, and issues at most one instruction in them; LLVM's model
counts in these slots (SISchedule.td, SICommonWriteRes). RDNA: a wave of 32 takes one (GFX10SpeedModel and later).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from verilocc_mlir.cost.instructions import Rate
from verilocc_mlir.cost.sources import Figure, Origin, Source
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
        vmem_bytes: this SIMD's share of what the first vector cache holds.
        l2_latency: as ``vmem_latency``, for what the second cache holds and the first does not.
        l2_bytes_per_cycle: this SIMD's share of the second cache, by which stores go too.
        l2_bytes: this SIMD's share of what the second cache holds.
        far_latency: as ``vmem_latency``, for what is in neither.
        far_bytes_per_cycle: this SIMD's share of what lies behind the second cache.
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
    vmem_bytes: int
    l2_latency: int
    l2_bytes_per_cycle: int
    l2_bytes: int
    far_latency: int
    far_bytes_per_cycle: int


_LDS = "128 bytes a CU, all SIMDs busy, no bank conflicts"
_SHARE = "64 bytes a CU (wave64), 128 (wave32), all SIMDs busy, no misses"
_TRACES = Source(Origin.MEASURED, "hardware traces of two GEMMs, gfx11 and gfx12")


def _assumed(value: int, detail: str) -> Figure:
    return Figure(value, Source(Origin.ASSUMED, detail))


def _llvm(value: int, detail: str) -> Figure:
    return Figure(value, Source(Origin.LLVM, f"SISchedule.td, {detail}"))


def _traced(value: int) -> Figure:
    return Figure(value, _TRACES)


def _by_rate(what: str, source: Source, **cycles: int) -> dict[str, Figure]:
    return {f"{what}.{rate}": Figure(value, source) for rate, value in cycles.items()}


def _memory(first: int, second: int, per_cycle: int, far: int) -> dict[str, Figure]:
    """Caches behind the first one."""
    return {
        "vmem_bytes": _assumed(first, "published size over the SIMDs, all of it for private memory"),
        "l2_latency": _assumed(500, "between the first cache's and DRAM's"),
        "l2_bytes_per_cycle": _assumed(per_cycle, "published peak rate over all SIMDs, rounded"),
        "l2_bytes": _assumed(second, "published size over all SIMDs, rounded"),
        "far_latency": _assumed(800, "memory-side cache or DRAM"),
        "far_bytes_per_cycle": _assumed(far, "published peak rate over all SIMDs, rounded"),
    }


def _cdna(target: Target) -> dict[str, Figure]:
    """32-bit, 64-bit, f64 and integer products at full rate, transcendentals at a quarter. A result can be read in the
    next slot.
    """
    full = Source(Origin.LLVM, "SISchedule.td, the target's speed model, slots of 4 cycles")
    second = target.speed_model is SpeedModel.CDNA2
    cycles = {"full": 4, "trans": 16, "wide": 4, "double": 4, "trans_double": 16, "multiply": 4}
    return {
        "slot": _llvm(4, "SICommonWriteRes"),
        **_by_rate("valu_issue", full, **cycles),
        **_by_rate("valu_latency", full, **cycles),
        "salu_latency": _llvm(4, "WriteSALU"),
        "scalar_float_latency": _assumed(4, "CDNA has no scalar floating-point unit"),
        "lds_latency": _llvm(20, "WriteLDS"),
        "smem_latency": _llvm(20, "WriteSMEM"),
        "vmem_latency": _llvm(320, "WriteVMEM"),
        "taken_branch": _llvm(32, "WriteBranch"),
        "lds_after_read": _assumed(0, "seen on gfx11 alone"),
        "lds_bytes_per_cycle": _assumed(32, _LDS),
        "vmem_bytes_per_cycle": _assumed(16, _SHARE),
        **(_memory(4 << 10, 20 << 10, 8, 2) if second else _memory(8 << 10, 28 << 10, 8, 6)),
    }


def _rdna(target: Target) -> dict[str, Figure]:
    newest, eleventh = target.speed_model is SpeedModel.GFX1250, target.major == 11
    latencies = {"full": 5, "trans": 10, "wide": 6, "double": 38, "trans_double": 40, "multiply": 8}
    if newest:
        latencies = {"full": 5, "trans": 7, "wide": 7, "double": 32, "trans_double": 38, "multiply": 11}
    model = "the target's speed model"
    return {
        "slot": _llvm(1, "GFX10SpeedModel and later"),
        **_by_rate("valu_issue", _TRACES, full=1, trans=4, wide=2),
        "valu_issue.double": _assumed(16, "published rate of f64"),
        "valu_issue.trans_double": _assumed(16, "published rate of f64"),
        "valu_issue.multiply": _assumed(4, "a quarter of the full rate"),
        **_by_rate("valu_latency", Source(Origin.LLVM, f"SISchedule.td, {model}"), **latencies),
        "salu_latency": _llvm(2, model) if eleventh else _assumed(9, "as on gfx1201") if newest else _traced(9),
        "scalar_float_latency": _llvm(4, model) if eleventh else _assumed(9, "as other scalars"),
        "lds_latency": _llvm(20, "WriteLDS"),
        "smem_latency": _llvm(20, "WriteSMEM"),
        "vmem_latency": _llvm(320, "WriteVMEM"),
        "taken_branch": _llvm(32, "WriteBranch"),
        "lds_after_read": _traced(18) if eleventh else _assumed(0, "seen on gfx11 alone"),
        "lds_bytes_per_cycle": _assumed(64, _LDS),
        "vmem_bytes_per_cycle": _assumed(64, _SHARE),
        **_memory(16 << 10, 32 << 10, 16, 8),
    }


@lru_cache(maxsize=32)
def figures(target: Target) -> Mapping[str, Figure]:
    """The figures of a target by the field of ``Rates``, those by rate as ``valu_issue.full``."""
    return _rdna(target) if target.wave_size == 32 else _cdna(target)


@lru_cache(maxsize=32)
def rates(target: Target) -> Rates:
    given = figures(target)

    def by_rate(what: str) -> tuple[int, ...]:
        # A scalar floating-point instruction has no figure of the VALU.
        return tuple(given[f"{what}.{'full' if r is Rate.FLOAT else r.name.lower()}"].value for r in Rate)

    single = {name: figure.value for name, figure in given.items() if "." not in name}
    return Rates(**single, valu_issue=by_rate("valu_issue"), valu_latency=by_rate("valu_latency"))
