"""Waves per SIMD, and the register counts that a number of waves leaves.

Ported in meaning from namespace IsaInfo of llvm/lib/Target/AMDGPU/Utils/AMDGPUBaseInfo.cpp and from
AMDGPUSubtarget.cpp (getOccupancyWithWorkGroupSizes, getEffectiveWavesPerEU). All register counts are numbers of
32-bit registers; LDS is in bytes; a work-group size is a number of work-items.
"""

from __future__ import annotations

from verilocc_mlir.target.targets import Target

MAX_FLAT_WORK_GROUP = 1024
_SGPR_TOTAL_GFX9 = 800
_SGPR_GRANULE_GFX9 = 16
_TRAP_SGPRS = 16


def ceil_div(value: int, by: int) -> int:
    return -(-value // by)


def align_up(value: int, to: int) -> int:
    return ceil_div(value, to) * to


def align_down(value: int, to: int) -> int:
    return value // to * to


def vector_registers(target: Target, vgprs: int, agprs: int) -> int:
    """Vector registers a wave takes: VGPRs rounded to 4, then AGPRs, where the file is unified."""
    if target.unified_vgpr:
        return align_up(vgprs, 4) + agprs if agprs else vgprs
    return max(vgprs, agprs)


def extra_sgprs(target: Target, *, vcc: bool, flat_scratch: bool = False) -> int:
    """SGPRs the hardware adds to the numbered ones: VCC, XNACK_MASK, FLAT_SCRATCH (IsaInfo::getNumExtraSGPRs)."""
    if target.major < 10:
        if flat_scratch or target.architected_flat_scratch:
            return 6
        if target.xnack:
            return 4
    return 2 if vcc else 0


def waves_by_vectors(target: Target, count: int) -> int:
    """Waves that ``count`` vector registers each leave room for (getNumWavesPerEUWithNumVGPRs)."""
    if count < target.vgpr_granule:
        return target.max_waves
    return min(max(target.vgpr_total // align_up(count, target.vgpr_granule), 1), target.max_waves)


def waves_by_sgprs(target: Target, count: int) -> int:
    """Waves that ``count`` SGPRs, extra ones included, leave room for (getOccupancyWithNumSGPRs)."""
    if target.major >= 10:
        return target.max_waves
    limit = 10 if count <= 80 else 9 if count <= 88 else 8 if count <= 100 else 7
    return min(limit, target.max_waves)


def _work_groups(target: Target, size: int) -> int:
    """Work-groups of ``size`` that wave slots and barriers allow in one block (getMaxWorkGroupsPerCU)."""
    slots = target.max_waves * target.simds
    waves_per_group = ceil_div(size, target.wave_size)
    return slots if waves_per_group == 1 else min(slots // waves_per_group, target.max_barriers)


def waves_by_work_group(target: Target, lds_bytes: int, flat_workgroup_size: tuple[int, int]) -> tuple[int, int]:
    """Least and most waves per SIMD over the allowed work-group sizes, LDS counted (getOccupancyWithWorkGroupSizes).

    LLVM searches both ends of the range only, then corrects for a size in between that fills the wave slots
    better (most) or worse (least); the same is done here.
    """
    groups_by_lds = target.lds_bytes // max(lds_bytes, 1)
    if groups_by_lds == 0:
        return 1, 1
    low, high = flat_workgroup_size
    low_each, high_each = ceil_div(low, target.wave_size), ceil_div(high, target.wave_size)
    many = min(_work_groups(target, low), groups_by_lds)
    few = min(_work_groups(target, high), groups_by_lds)
    most, least = low_each * many, high_each * few
    if least >= most:
        least, most = most, least
    else:
        slots = target.max_waves * target.simds
        packed = ceil_div(slots, few + 1) * few
        if least > packed:
            least -= few * min((least - packed) // few, high_each - low_each)
        spare = (slots - many * low_each) // many
        most += many * min(spare, (high - 1) // target.wave_size + 1 - low_each)
    return (
        min(max(least // target.simds, 1), target.max_waves),
        min(max(ceil_div(most, target.simds), 1), target.max_waves),
    )


def waves(
    target: Target,
    vgprs: int,
    agprs: int,
    sgprs: int,
    lds_bytes: int = 0,
    flat_workgroup_size: tuple[int, int] = (1, MAX_FLAT_WORK_GROUP),
    most_waves: int | None = None,
) -> int:
    """Waves per SIMD of a kernel, what llc prints as ``; Occupancy:`` (GCNSubtarget::computeOccupancy).

    Args:
        vgprs: VGPRs used: highest number plus one.
        agprs: AGPRs used, likewise.
        sgprs: SGPRs used, the ``extra_sgprs`` included, as in ``.sgpr_count``.
        lds_bytes: LDS of one work-group.
        flat_workgroup_size: least and most work-items of a work-group.
        most_waves: upper bound that ``amdgpu-waves-per-eu`` set (``Allocatable.waves[1]``): llc then asks for so many
            registers that no more waves fit.
    """
    by_size = waves_by_work_group(target, lds_bytes, flat_workgroup_size)[1]
    vectors = vector_registers(target, vgprs, agprs)
    if most_waves is not None:
        vectors = max(vectors, min_vectors(target, most_waves))
        sgprs = max(sgprs, min_sgprs(target, most_waves))
    return min(by_size, waves_by_vectors(target, vectors), waves_by_sgprs(target, sgprs))


def effective_waves(
    target: Target, requested: tuple[int, int | None] | None, lds_bytes: int, flat_workgroup_size: tuple[int, int]
) -> tuple[int, int]:
    """Least and most waves LLVM compiles for (AMDGPUSubtarget::getEffectiveWavesPerEU).

    ``requested`` is ``amdgpu-waves-per-eu``; LLVM ignores a request that contradicts the work-group size or the target.
    """
    per_group = ceil_div(ceil_div(flat_workgroup_size[1], target.wave_size), target.simds)
    most = waves_by_work_group(target, lds_bytes, flat_workgroup_size)[1]
    default = (min(per_group, most), most)
    if requested is None:
        return default
    low, high = requested[0], target.max_waves if requested[1] is None else requested[1]
    if low < default[0] or low > default[1] or low > high or high > target.max_waves:
        return default
    return low, min(high, default[1])


def max_vectors(target: Target, waves_per_simd: int) -> int:
    """Vector registers each of so many waves may take (IsaInfo::getMaxNumVGPRs)."""
    return min(align_down(target.vgpr_total // waves_per_simd, target.vgpr_granule), target.addressable_vectors)


def min_vectors(target: Target, waves_per_simd: int) -> int:
    """Fewest vector registers that keep the waves at or below ``waves_per_simd`` (IsaInfo::getMinNumVGPRs)."""
    if waves_per_simd >= target.max_waves:
        return 0
    total, granule = target.vgpr_total, target.vgpr_granule
    most = align_down(total // waves_per_simd, granule)
    if most == align_down(total // target.max_waves, granule):
        return 0
    fewest_waves = waves_by_vectors(target, target.addressable_vectors)
    if waves_per_simd < fewest_waves:
        return min_vectors(target, fewest_waves)
    after = align_down(total // (waves_per_simd + 1), granule)
    return min(1 + min(most - granule, after), target.addressable_vectors)


def max_sgprs(target: Target, waves_per_simd: int, *, addressable: bool) -> int:
    """SGPRs each of so many waves may take (IsaInfo::getMaxNumSGPRs); trap-handler registers are kept back.

    With ``addressable`` only those that instructions can name are counted, without VCC and the like.
    """
    if target.major >= 10:
        return target.addressable_sgprs if addressable else 108
    limit = target.addressable_sgprs if addressable else 112
    share = _SGPR_TOTAL_GFX9 // waves_per_simd
    return min(align_down(share - min(share, _TRAP_SGPRS), _SGPR_GRANULE_GFX9), limit)


def min_sgprs(target: Target, waves_per_simd: int) -> int:
    """Fewest SGPRs that keep the waves at or below ``waves_per_simd`` (IsaInfo::getMinNumSGPRs)."""
    if target.major >= 10 or waves_per_simd >= target.max_waves:
        return 0
    share = _SGPR_TOTAL_GFX9 // (waves_per_simd + 1)
    share -= min(share, _TRAP_SGPRS)
    return min(align_down(share, _SGPR_GRANULE_GFX9) + 1, target.addressable_sgprs)
