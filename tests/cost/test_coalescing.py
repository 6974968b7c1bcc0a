"""Loads of neighbouring lanes, which CDNA serves four times as fast: single addresses, and code that LLVM compiles."""

from __future__ import annotations

import pytest
from support import run_llc

from verilocc_mlir.cost.accesses import Lanes, State, coalescing_slowdown, scattered, step, work_item_ids
from verilocc_mlir.cost.assembly import parse_assembly
from verilocc_mlir.cost.instructions import decode
from verilocc_mlir.cost.model import KernelCost, cost_of_assembly
from verilocc_mlir.target.targets import target

LANES = 64
ONE_GROUP = (0,) * LANES


def strided(stride: int, groups: tuple[int, ...] = ONE_GROUP) -> Lanes:
    first: dict[int, int] = {}
    values = [stride * k - first.setdefault(g, stride * k) for k, g in enumerate(groups)]
    return Lanes(tuple(value & 0xFFFFFFFF for value in values), groups)


@pytest.mark.parametrize(
    ("stride", "size", "times"),
    [(0, 1, 1), (1, 1, 1), (2, 1, 4), (3, 1, 4), (4, 1, 4), (2, 2, 1), (4, 2, 4), (4, 4, 1), (8, 4, 4), (-4, 4, 1)],
)
def test_four_lanes_that_want_four_elements_in_a_row_are_fast(stride: int, size: int, times: int) -> None:
    assert coalescing_slowdown(strided(stride), size, LANES) == times


def test_only_lanes_of_one_group_are_compared() -> None:
    """Two rows of two work-items in each four lanes: dedispersion takes twice the bytes to be slower."""
    pairs = tuple(k // 2 for k in range(LANES))
    assert coalescing_slowdown(strided(3, pairs), 1, LANES) == 1
    assert coalescing_slowdown(strided(4, pairs), 1, LANES) == 4


def test_of_a_small_work_group_only_its_lanes_count() -> None:
    far_behind = Lanes(tuple(k if k < 16 else 100 * k for k in range(LANES)), ONE_GROUP)
    assert coalescing_slowdown(far_behind, 1, 16) == 1
    assert coalescing_slowdown(far_behind, 1, LANES) == 1 + 3 * 48 / 64


LOADS = {
    "global_load_ubyte v2, v1, s[0:1]": 4,
    "global_load_sbyte_d16_hi v2, v1, s[0:1]": 1,
    "buffer_load_ubyte v2, v1, s[0:3], 0 offen": 4,
    "buffer_load_ubyte v2, v1, s[0:3], 0 idxen": 1,
    "buffer_load_ubyte v2, off, s[0:3], 0": 1,
    "flat_load_ubyte v2, v[1:2]": 4,
    "global_load_dword v2, v1, s[0:1]": 1,
    "global_load_dwordx4 v[4:7], v1, s[0:1]": 1,
    "global_store_byte v1, v2, s[0:1]": 1,
    "global_load_ubyte v2, v9, s[0:1]": 1,
}


@pytest.mark.parametrize("code", LOADS)
def test_what_is_known_of_a_load(code: str) -> None:
    """Every fourth byte is wanted. Addresses that are not known, and wide loads, take no longer."""
    state: State = {1: strided(4)}
    assert scattered(decode(code, 9), state, LANES, LANES) == LOADS[code]


def after(*code: str) -> State:
    state: State = {0: work_item_ids((16, 4, 1), LANES)}
    for text in code:
        step(decode(text, 9), state, LANES)
    return state


ROW, COLUMN = "v_bfe_u32 v1, v0, 10, 10", "v_and_b32_e32 v2, 0x3ff, v0"
ROWS = tuple(k // 16 for k in range(LANES))


@pytest.mark.parametrize(
    "code",
    [
        ("v_cvt_f32_u32_e32 v3, v1", "v_mul_f32_e32 v3, s0, v3", "v_cvt_u32_f32_e32 v3, v3"),
        ("v_cvt_f32_u32_e32 v3, v1", "v_fma_f32 v3, v3, s0, 1.0", "v_fmac_f32_e32 v3, s1, v3"),
        ("global_load_dword v3, v1, s[0:1]",),
        ("global_load_dwordx2 v[3:4], v1, s[0:1]", "v_add_f32_e32 v3, v3, v4"),
        ("v_add_u32_e32 v3, s0, v1", "v_and_b32_e32 v3, 5, v3"),
        ("v_add_u32_e32 v3, s0, v1", "v_mul_lo_u32 v3, v3, s1"),
    ],
)
def test_a_function_of_the_row_is_one_unknown_number_for_each_row(code: tuple[str, ...]) -> None:
    assert after(ROW, *code)[3] == Lanes((0,) * LANES, ROWS)
    column = after(ROW, COLUMN, *code, "v_add_u32_e32 v5, v2, v3", "v_lshlrev_b32_e32 v6, 1, v5")
    assert column[5] == Lanes(tuple(k % 16 for k in range(LANES)), ROWS)
    assert column[6] == Lanes(tuple(2 * (k % 16) for k in range(LANES)), ROWS)


@pytest.mark.parametrize(
    "code",
    [
        "v_cndmask_b32_e64 v3, v1, 0, s[0:1]",
        "v_addc_co_u32_e32 v3, vcc, v1, v1, vcc",
        "v_mov_b32_dpp v3, v1 row_shl:1",
        "v_add_f32_dpp v3, v1, v1 row_shl:1",
        "global_atomic_add v3, v1, v2, s[0:1] glc",
        "v_mul_f32_e32 v3, v9, v1",
    ],
)
def test_what_other_lanes_or_masks_decide_is_not_known(code: str) -> None:
    assert 3 not in after(ROW, code)


def kernel(stride: int, size: int) -> str:
    """Bytes (or words) ``stride`` apart in a row, each row behind a delay that is a product of floats."""
    return f"""target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workitem.id.y()
define amdgpu_kernel void @k(ptr addrspace(1) %in, ptr addrspace(1) noalias %out, float %f) #0 {{
  %x = call i32 @llvm.amdgcn.workitem.id.x()
  %y = call i32 @llvm.amdgcn.workitem.id.y()
  %row = uitofp i32 %y to float
  %product = fmul float %row, %f
  %delay = fptoui float %product to i32
  %own = mul i32 %x, {stride}
  %at = add i32 %own, %delay
  %wide = zext i32 %at to i64
  %from = getelementptr i{8 * size}, ptr addrspace(1) %in, i64 %wide
  %read = load i{8 * size}, ptr addrspace(1) %from
  %value = zext i{8 * size} %read to i64
  %to = getelementptr i64, ptr addrspace(1) %out, i64 %wide
  store i64 %value, ptr addrspace(1) %to
  ret void
}}
attributes #0 = {{ "amdgpu-flat-work-group-size"="64,64" }}
!0 = !{{i32 16, i32 4, i32 1}}
""".replace("#0 {", "#0 !reqd_work_group_size !0 {", 1)


def cost(stride: int, size: int, cpu: str) -> KernelCost:
    return cost_of_assembly(run_llc(kernel(stride, size), cpu, mir=False), target(cpu))["k"]


@pytest.mark.parametrize("cpu", ["gfx90a", "gfx942", "gfx950"])
@pytest.mark.parametrize("size", [1, 2])
def test_cdna_takes_four_times_as_long_for_lanes_that_are_apart(cpu: str, size: int) -> None:
    neighbours, apart = cost(1, size, cpu), cost(3, size, cpu)
    load = (apart.memory - neighbours.memory) / 3
    assert load > 0
    assert apart.waits - neighbours.waits == pytest.approx(3 * load)


@pytest.mark.parametrize("cpu", ["gfx1100", "gfx1201"])
def test_rdna_takes_no_longer(cpu: str) -> None:
    assert cost(3, 1, cpu).memory == cost(1, 1, cpu).memory


def test_without_the_size_of_a_work_group_nothing_takes_longer() -> None:
    free = kernel(3, 1).replace(" !reqd_work_group_size !0", "").replace('"64,64"', '"1,1024"')
    assembly = run_llc(free, "gfx90a", mir=False)
    assert parse_assembly(assembly, target("gfx90a"))[0].figures.extents is None
    assert cost_of_assembly(assembly, target("gfx90a"))["k"].memory == cost(1, 1, "gfx90a").memory
