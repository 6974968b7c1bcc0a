"""The GPUs this project compiles for, as facts.

Sources: llvm/lib/Target/AMDGPU/GCNProcessors.td, AMDGPU.td (features), Utils/AMDGPUBaseInfo.cpp (namespace IsaInfo),
SISchedule.td. Checked against llc by tests/target/test_occupancy.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from enum import Enum

from msgspec import Struct
from msgspec.structs import replace

from verilocc_mlir.errors import InputError, UnsupportedError


class SpeedModel(Enum):
    """LLVM's scheduling models (SISchedule.td), one for each generation of matrix unit; the cost model has figures for
    each.
    """

    CDNA2 = "SIDPFullSpeedModel"
    CDNA3 = "SIDPGFX940FullSpeedModel"
    CDNA4 = "SIDPGFX950FullSpeedModel"
    RDNA3 = "GFX11SpeedModel"
    RDNA4 = "GFX12SpeedModel"
    GFX1250 = "GFX1250SpeedModel"


class Target(Struct, frozen=True):
    """One GPU.

    Attributes:
        name: LLVM's ``-mcpu`` name.
        major: ISA generation: 9, 11 or 12.
        wave_size: lanes of a wave as LLVM compiles for it by default.
        unified_vgpr: VGPRs and AGPRs share one file and one budget (gfx90a and later CDNA).
        addressable_vgprs: VGPRs one wave can name.
        addressable_agprs: AGPRs one wave can name; 0 where there are none.
        addressable_sgprs: SGPRs one wave can name, VCC and the like not counted.
        vgpr_granule: vector registers are handed out in multiples of this.
        vgpr_total: vector registers of one SIMD, per lane.
        max_waves: waves one SIMD holds at most.
        align2: tuples of vector registers start at even numbers (``_align2`` classes).
        lds_bytes: LDS that the waves of one work-group's block (CU or WGP) share.
        simds: SIMDs of that block.
        max_barriers: work-groups of two and more waves that the block holds at most.
        architected_flat_scratch: FLAT_SCRATCH is outside the SGPR file and set up by hardware.
        xnack: the target has XNACK, which keeps its mask in SGPRs before gfx10.
        speed_model: LLVM's scheduling model of it.
        vopd_same_source: both halves of a ``v_dual_*`` may read the same register as the same source.
        cu_mode: a work-group stays in one CU by default; None where there is no choice (before gfx10).
    """

    name: str
    major: int
    wave_size: int
    unified_vgpr: bool
    addressable_vgprs: int
    addressable_agprs: int
    addressable_sgprs: int
    vgpr_granule: int
    vgpr_total: int
    max_waves: int
    align2: bool
    lds_bytes: int
    simds: int
    max_barriers: int
    architected_flat_scratch: bool
    xnack: bool
    speed_model: SpeedModel
    vopd_same_source: bool = False
    cu_mode: bool | None = None

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def has_agprs(self) -> bool:
        return self.addressable_agprs > 0

    @property
    def addressable_vectors(self) -> int:
        """VGPRs and AGPRs together that one wave can name."""
        return self.addressable_vgprs + self.addressable_agprs


def _cdna(name: str, speed_model: SpeedModel, *, lds: int, architected: bool) -> Target:
    return Target(
        name, 9, 64, True, 256, 256, 102, 8, 512, 8, True,
        lds_bytes=lds, simds=4, max_barriers=16, architected_flat_scratch=architected, xnack=True,
        speed_model=speed_model,
    )  # fmt: skip


def _rdna(name: str, major: int, speed_model: SpeedModel, *, vgprs: int = 1536) -> Target:
    # A work-group may spread over both CUs of a WGP (cumode off), so LDS and SIMDs are those of the WGP.
    return Target(
        name, major, 32, False, 256, 0, 106, vgprs // 64, vgprs, 16, False,
        lds_bytes=128 * 1024, simds=4, max_barriers=32, architected_flat_scratch=True, xnack=False,
        speed_model=speed_model, cu_mode=False,
    )  # fmt: skip


TARGETS: dict[str, Target] = {
    t.name: t
    for t in (
        _cdna("gfx90a", SpeedModel.CDNA2, lds=64 * 1024, architected=False),
        _cdna("gfx942", SpeedModel.CDNA3, lds=64 * 1024, architected=True),
        _cdna("gfx950", SpeedModel.CDNA4, lds=160 * 1024, architected=True),
        _cdna("gfx9-4-generic", SpeedModel.CDNA3, lds=64 * 1024, architected=True),
        _rdna("gfx1100", 11, SpeedModel.RDNA3),
        _rdna("gfx1101", 11, SpeedModel.RDNA3),
        _rdna("gfx1102", 11, SpeedModel.RDNA3, vgprs=1024),
        _rdna("gfx1103", 11, SpeedModel.RDNA3, vgprs=1024),
        _rdna("gfx1150", 11, SpeedModel.RDNA3, vgprs=1024),
        _rdna("gfx1151", 11, SpeedModel.RDNA3),
        _rdna("gfx1152", 11, SpeedModel.RDNA3, vgprs=1024),
        _rdna("gfx1153", 11, SpeedModel.RDNA3, vgprs=1024),
        _rdna("gfx11-generic", 11, SpeedModel.RDNA3, vgprs=1024),
        _rdna("gfx1200", 12, SpeedModel.RDNA4),
        _rdna("gfx1201", 12, SpeedModel.RDNA4),
        _rdna("gfx12-generic", 12, SpeedModel.RDNA4),
        Target(
            "gfx1250", 12, 32, False, 1024, 0, 106, 16, 1024, 16, True,
            lds_bytes=320 * 1024, simds=4, max_barriers=16, architected_flat_scratch=True, xnack=True,
            speed_model=SpeedModel.GFX1250, vopd_same_source=True, cu_mode=True,
        ),
    )
}  # fmt: skip


def target(name: str) -> Target:
    """The target called ``name``.

    Raises:
        InputError: it is not one of ``TARGETS``; the message lists them.
    """
    match = TARGETS.get(name)
    if match is None:
        raise InputError(
            f"unknown target {name or '(none given)'}", hint=f"give one of {', '.join(TARGETS)} with -mcpu"
        )
    return match


def _of(has: Callable[[Target], bool]) -> frozenset[str]:
    return frozenset(name for name, target in TARGETS.items() if has(target))


def _addressable_lds(target: Target) -> int:
    """Bytes of LDS that one work-group can name."""
    return target.lds_bytes if target.lds_bytes in _LDS else _LDS[0]


_NONE = frozenset[str]()
_LDS = (64 * 1024, 160 * 1024, 320 * 1024)
_OF_REGISTERS: Mapping[str, frozenset[str]] = {
    "sgpr-init-bug": _NONE,
    "trap-handler": frozenset(TARGETS),
    "wavefrontsize16": _NONE,
    "architected-flat-scratch": _of(lambda t: t.architected_flat_scratch),
    "vgpr-align2": _of(lambda t: t.align2),
    "mai-insts": _of(lambda t: t.has_agprs),
    "gfx90a-insts": _of(lambda t: t.unified_vgpr),
    "1024-addressable-vgprs": _of(lambda t: t.addressable_vgprs == 1024),
    "allocate1_5xvgprs": _of(lambda t: t.vgpr_granule == 24),
    **{f"addressablelocalmemorysize{k}": _of(lambda t, k=k: _addressable_lds(t) == k) for k in _LDS},
    "addressablelocalmemorysize32768": _NONE,
    **{f"gfx{n}": _of(lambda t, n=n: t.major == n) for n in (9, 10, 11, 12)},
    **dict.fromkeys(("southern-islands", "sea-islands", "volcanic-islands"), _NONE),
}
"""Features that decide which registers there are, or how many waves share them, with the targets that have them by
themselves on HSA (AMDGPU.td, GCNProcessors.td, GCNSubtarget::initializeSubtargetDependencies)."""


def with_features(target: Target, features: Set[str]) -> Target:
    """``target`` as a function's ``target-features`` change it (``+cumode``, ``-xnack``; GCNSubtarget.cpp).

    Raises:
        UnsupportedError: the features ask for the wave size that is not the target's own, or for other registers.
    """
    for feature in features:
        sign, name = feature[:1], feature[1:]
        if sign not in ("+", "-") or (name in _OF_REGISTERS and f"{'-' if sign == '+' else '+'}{name}" in features):
            raise UnsupportedError(f"the features have {feature!r} without a sign, or with both")
        if name in _OF_REGISTERS and (sign == "+") is not (target.name in _OF_REGISTERS[name]):
            raise UnsupportedError(f"the feature {feature} changes which registers {target.name} has")
    other = 32 if target.wave_size == 64 else 64
    if f"+wavefrontsize{other}" in features:
        raise UnsupportedError(
            f"{target.name} in wave{other} mode is not supported",
            hint=f"compile the kernel for wave{target.wave_size}, the mode LLVM takes by default",
        )
    if "-xnack" in features and target.xnack:
        target = replace(target, xnack=False)
    if target.cu_mode is False and "+cumode" in features:
        # The block that waves of a work-group share is then one CU: half the LDS, SIMDs and barriers of the WGP.
        target = replace(target, cu_mode=True, lds_bytes=target.lds_bytes // 2, simds=2, max_barriers=16)
    elif target.cu_mode and "-cumode" in features:
        # gfx1250 has no other mode, but LLVM counts as if it had, with the SIMDs of one CU.
        target = replace(target, cu_mode=False, lds_bytes=target.lds_bytes * 2, max_barriers=32)
    return target
