"""Issue cycles and latencies of each kind of instruction, in cycles of the SIMD, each with its source.

CDNA: a wave of 64 takes four cycles on a SIMD of 16 lanes, and issues at most one instruction in them; LLVM's model
counts in these slots (SISchedule.td, SICommonWriteRes). RDNA: a wave of 32 takes one (GFX10SpeedModel and later).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from functools import lru_cache
from typing import TypeVar

from msgspec import Struct

from verilocc_mlir.cost.instructions import Rate
from verilocc_mlir.target.targets import SpeedModel, Target

# Where a figure of the model comes from. It stands beside the figure; the table in the documentation is made of it.


_Rule = TypeVar("_Rule", bound=Callable[..., object])


class Origin(Enum):
    """How a figure is known."""

    MEASURED = "measured"
    LLVM = "LLVM"
    ASSUMED = "assumed"


class Source(Struct, frozen=True):
    """Where a figure comes from.

    Attributes:
        origin: how it is known.
        detail: what was measured, LLVM's file, or what the assumption rests on.
    """

    origin: Origin
    detail: str


class Figure(Struct, frozen=True):
    """One figure and its source."""

    value: float
    source: Source


RULES: dict[str, Source] = {}
"""Sources of the rules that compute figures, by ``module.function``."""


def sourced(origin: Origin, detail: str) -> Callable[[_Rule], _Rule]:
    """Say where the figures in a function come from."""

    def noted(rule: _Rule) -> _Rule:
        RULES[f"{rule.__module__.rpartition('.')[2]}.{rule.__name__}"] = Source(origin, detail)
        return rule

    return noted


class Rates(Struct, frozen=True):
    """Figures of one target, in cycles.

    Attributes:
        slot: least distance between two instructions of a wave.
        valu_issue: cycles for which a VALU instruction holds the VALU, by ``Rate``.
        valu_latency: cycles until an instruction that reads its result may issue, by ``Rate``.
        salu_latency: the same for a scalar instruction.
        scalar_float_latency: the same for a scalar floating-point instruction.
        lds_latency: from the issue of an LDS access to its return, with no other access under way.
        smem_latency: the same for a scalar load.
        load_latency: the same for an access to global memory, as if the second cache held it.
        vmem_latency: the same for an access to private memory that the first vector cache holds.
        taken_branch: from a branch that is taken to the first instruction at its target.
        lds_after_read: cycles that an LDS load waits if its destination was read just before.
        lds_bytes_per_cycle: this SIMD's share of its LDS.
        vmem_bytes_per_cycle: this SIMD's share of the first vector cache.
        vmem_bytes: this SIMD's share of what the first vector cache holds.
        l2_latency: as ``vmem_latency``, for what the second cache holds and the first does not.
        l2_bytes_per_cycle: this SIMD's share of what the second cache delivers.
        l2_store_bytes_per_cycle: this SIMD's share of what the second cache takes: all stores go to it.
        l2_bytes: this SIMD's share of what the second cache holds.
        far_latency: as ``vmem_latency``, for what is in neither.
        far_bytes_per_cycle: this SIMD's share of what lies behind the second cache.
    """

    slot: float
    valu_issue: tuple[float, ...]
    valu_latency: tuple[float, ...]
    salu_latency: float
    scalar_float_latency: float
    lds_latency: float
    smem_latency: float
    load_latency: float
    vmem_latency: float
    taken_branch: float
    lds_after_read: float
    lds_bytes_per_cycle: float
    vmem_bytes_per_cycle: float
    vmem_bytes: float
    l2_latency: float
    l2_bytes_per_cycle: float
    l2_store_bytes_per_cycle: float
    l2_bytes: float
    far_latency: float
    far_bytes_per_cycle: float


_LDS = "128 bytes a CU, all SIMDs busy, no bank conflicts"
_SHARE = "64 bytes a CU, all SIMDs busy, no misses"
_TRACES = Source(Origin.MEASURED, "hardware traces of two GEMMs, gfx11 and gfx12")
_SQTT = "by others: an emulator's constants, fitted to instruction traces of gfx1100"
_MT4G = "by others: mt4g's sample results, MI210, MI300X, MI350P"
_NAVI31 = "by others: 150 ns from the memory-side cache of an RX 7900 XTX (Chips and Cheese, 2023), at 2.5 GHz"
_FITTED = "fitted to measured convolutions that spill, W7800 (benchmarks/hardware.py)"


def _assumed(value: float, detail: str) -> Figure:
    return Figure(value, Source(Origin.ASSUMED, detail))


def _llvm(value: float, detail: str) -> Figure:
    return Figure(value, Source(Origin.LLVM, f"SISchedule.td, {detail}"))


def _measured(value: float, detail: str) -> Figure:
    return Figure(value, Source(Origin.MEASURED, detail))


def _traced(value: float) -> Figure:
    return Figure(value, _TRACES)


def _by_rate(what: str, source: Source, **cycles: int) -> dict[str, Figure]:
    return {f"{what}.{rate}": Figure(value, source) for rate, value in cycles.items()}


class _Cdna(Struct, frozen=True):
    """What was measured on one generation of CDNA: latencies in cycles, bytes a cycle and SIMD."""

    lds: int
    scalar: int
    first: int
    second: int
    far: int
    read: float
    write: float
    far_read: float


_CDNA = {
    SpeedModel.CDNA2: _Cdna(48, 48, 124, 292, 684, 6.1, 3.7, 1.65),
    SpeedModel.CDNA3: _Cdna(52, 48, 116, 288, 876, 6.0, 2.8, 2.3),
    SpeedModel.CDNA4: _Cdna(48, 48, 112, 256, 740, 11.9, 5.5, 2.3),
}


def _cdna(target: Target) -> dict[str, Figure]:
    """32-bit, 64-bit, f64 and integer products at full rate, transcendentals at a quarter."""
    full = Source(Origin.LLVM, "SISchedule.td, the target's speed model, slots of 4 cycles")
    cycles = {"full": 4, "trans": 16, "wide": 4, "double": 4, "trans_double": 16, "multiply": 4}
    found = _CDNA[target.speed_model]
    second = target.speed_model is SpeedModel.CDNA2
    return {
        "slot": _llvm(4, "SICommonWriteRes"),
        **_by_rate("valu_issue", full, **cycles),
        **_by_rate("valu_latency", full, **cycles),
        "salu_latency": _llvm(4, "WriteSALU"),
        "scalar_float_latency": _assumed(4, "CDNA has no scalar floating-point unit"),
        "lds_latency": _measured(found.lds, _MT4G),
        "smem_latency": _measured(found.scalar, f"{_MT4G}; a hit in the scalar cache"),
        "load_latency": _measured(found.second, f"{_MT4G}; that it is in the second cache is assumed"),
        "vmem_latency": _measured(found.first, _MT4G),
        "taken_branch": _llvm(32, "WriteBranch"),
        "lds_after_read": _assumed(0, "seen on gfx11 alone"),
        "lds_bytes_per_cycle": _assumed(32, _LDS),
        "vmem_bytes_per_cycle": _assumed(16, _SHARE),
        "vmem_bytes": _assumed(4 << 10 if second else 8 << 10, _FIRST),
        "l2_latency": _measured(found.second, _MT4G),
        "l2_bytes_per_cycle": _measured(found.read, _MT4G),
        "l2_store_bytes_per_cycle": _measured(found.write, _MT4G),
        "l2_bytes": _assumed(20 << 10 if second else 28 << 10, _SECOND),
        "far_latency": _measured(found.far, f"{_MT4G}; DRAM"),
        "far_bytes_per_cycle": _measured(found.far_read, f"{_MT4G}; DRAM, on MI300X the memory-side cache"),
    }


_FIRST = "published size over the SIMDs, all of it for private memory"
_SECOND = "published size over all SIMDs, rounded"


def _rdna(target: Target) -> dict[str, Figure]:
    newest, eleventh = target.speed_model is SpeedModel.GFX1250, target.major == 11
    latencies = {"full": 5, "trans": 10, "wide": 6, "double": 38, "trans_double": 40, "multiply": 8}
    if newest:
        latencies = {"full": 5, "trans": 7, "wide": 7, "double": 32, "trans_double": 38, "multiply": 11}
    model = "the target's speed model"

    def found(value: float, detail: str) -> Figure:
        """A figure of gfx1100; the other targets are taken to have the same."""
        return _measured(value, detail) if eleventh else _assumed(value, "as on gfx1100")

    return {
        "slot": _llvm(1, "GFX10SpeedModel and later"),
        **_by_rate("valu_issue", _TRACES, full=1, trans=4, wide=2),
        "valu_issue.double": _assumed(16, "published rate of f64"),
        "valu_issue.trans_double": _assumed(16, "published rate of f64"),
        "valu_issue.multiply": _assumed(4, "a quarter of the full rate"),
        **_by_rate("valu_latency", Source(Origin.LLVM, f"SISchedule.td, {model}"), **latencies),
        "salu_latency": _llvm(2, model) if eleventh else _assumed(9, "as on gfx1201") if newest else _traced(9),
        "scalar_float_latency": _llvm(4, model) if eleventh else _assumed(9, "as other scalars"),
        "lds_latency": found(31, _SQTT),
        "smem_latency": found(200, f"{_SQTT}; the scalar cache misses"),
        "load_latency": found(300, f"{_SQTT}; the first cache misses"),
        "vmem_latency": _assumed(120, "as on CDNA"),
        "taken_branch": _llvm(32, "WriteBranch"),
        "lds_after_read": _traced(18) if eleventh else _assumed(0, "seen on gfx11 alone"),
        "lds_bytes_per_cycle": _assumed(64, _LDS),
        "vmem_bytes_per_cycle": found(32, _FITTED),
        "vmem_bytes": _assumed(16 << 10, _FIRST),
        "l2_latency": found(300, _SQTT),
        "l2_bytes_per_cycle": found(8, _FITTED),
        "l2_store_bytes_per_cycle": found(8, _FITTED),
        "l2_bytes": _assumed(32 << 10, _SECOND),
        "far_latency": found(375, _NAVI31),
        "far_bytes_per_cycle": found(4, _FITTED),
    }


def figures(target: Target) -> Mapping[str, Figure]:
    """The figures of a target by the field of ``Rates``, those by rate as ``valu_issue.full``."""
    return _rdna(target) if target.wave_size == 32 else _cdna(target)


@lru_cache(maxsize=32)
def rates(target: Target) -> Rates:
    given = figures(target)

    def by_rate(what: str) -> tuple[float, ...]:
        # A scalar floating-point instruction has no figure of the VALU.
        return tuple(given[f"{what}.{'full' if r is Rate.FLOAT else r.name.lower()}"].value for r in Rate)

    single = {name: figure.value for name, figure in given.items() if "." not in name}
    return Rates(**single, valu_issue=by_rate("valu_issue"), valu_latency=by_rate("valu_latency"))
