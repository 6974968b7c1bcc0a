"""What lanes hold, and the bank conflicts of LDS that come of it: single instructions, and code that LLVM compiles."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support import run_llc

from verilocc_mlir.cost.accesses import Lanes, State, constant, either, slowdown, step, work_item_ids
from verilocc_mlir.cost.assembly import parse_assembly
from verilocc_mlir.cost.instructions import decode
from verilocc_mlir.cost.model import KernelCost, cost_of_assembly, cost_of_function
from verilocc_mlir.target.targets import target

LANES = 64
IDS = work_item_ids((64, 1, 1), LANES)
ONE_GROUP = (0,) * LANES


def after(*code: str, state: State | None = None) -> State:
    known: State = {**state} if state is not None else {0: IDS}
    for text in code:
        step(decode(text, 9), known, LANES)
    return known


@pytest.mark.parametrize(
    ("code", "rule"),
    [
        ("v_lshlrev_b32_e32 v1, 2, v0", lambda k: 4 * k),
        ("v_and_b32_e32 v1, 31, v0", lambda k: k % 32),
        ("v_lshrrev_b32_e32 v1, 3, v0", lambda k: k // 8),
        ("v_mul_u32_u24_e32 v1, 0x84, v0", lambda k: 132 * k),
        ("v_mad_u32_u24 v1, v0, 12, 7", lambda k: 12 * k + 7),
        ("v_bfe_u32 v1, v0, 2, 3", lambda k: k // 4 % 8),
        ("v_lshl_add_u32 v1, v0, 4, v0", lambda k: 17 * k),
        ("v_lshl_or_b32 v1, v0, 8, v0", lambda k: k << 8 | k),
        ("v_xor_b32_e32 v1, 5, v0", lambda k: k ^ 5),
        ("v_sub_u32_e32 v1, 63, v0", lambda k: 63 - k),
        ("v_subrev_u32_e32 v1, 1, v0", lambda k: k - 1 & 0xFFFFFFFF),
    ],
)
def test_what_an_instruction_makes_of_the_ids(code: str, rule) -> None:
    assert after(code)[1] == Lanes(tuple(rule(k) for k in range(LANES)))


def test_a_number_of_the_work_group_leaves_the_distances_known() -> None:
    state = after("v_lshl_add_u32 v1, v0, 2, s4", "v_lshlrev_b32_e32 v2, 1, v1", "v_and_b32_e32 v3, 7, v1")
    assert state[1] == Lanes(tuple(4 * k for k in range(LANES)), ONE_GROUP)
    assert state[2] == Lanes(tuple(8 * k for k in range(LANES)), ONE_GROUP)
    assert 3 not in state


@pytest.mark.parametrize(
    ("store", "load"),
    [
        ("scratch_store_dwordx2 off, v[1:2], off offset:8", "scratch_load_dword v3, off, off offset:12"),
        ("scratch_store_b64 off, v[1:2], s32", "scratch_load_b32 v3, off, s32 offset:4"),
        ("buffer_store_dword v2, off, s[0:3], 0 offset:4", "buffer_load_dword v3, off, s[0:3], 0 offset:4"),
        ("v_accvgpr_write_b32 a7, v2", "v_accvgpr_read_b32 v3, a7"),
    ],
)
def test_a_value_that_waits_elsewhere_is_known(store: str, load: str) -> None:
    """In a slot of private memory or an AGPR; otherwise a spilled address would have no bank conflicts."""
    made = "v_lshlrev_b32_e32 v2, 2, v0"
    assert after(made, store, load)[3] == Lanes(tuple(4 * k for k in range(LANES)))


@pytest.mark.parametrize(
    "other",
    [
        "scratch_store_dword off, v9, off offset:12",
        "scratch_store_byte off, v0, off offset:13",
        "scratch_store_dword v5, v0, off",
    ],
    ids=["not known", "a part", "anywhere"],
)
def test_a_slot_that_is_stored_again_is_forgotten(other: str) -> None:
    code = ("scratch_store_dword off, v0, off offset:12", other, "scratch_load_dword v3, off, off offset:12")
    assert 3 not in after(*code)
    assert 3 in after(*code[::2])


@pytest.mark.parametrize(
    "code",
    ["v_add_f32_e32 v1, v0, v0", "v_mov_b32_dpp v1, v0 row_shl:1", "v_add_u32_e32 v1, v0, v9", "ds_read_b32 v1, v0"],
)
def test_what_is_not_known_is_not_guessed(code: str) -> None:
    assert 1 not in after(code, state={0: IDS, 1: IDS})


def test_either_of_two_values() -> None:
    shifted = Lanes(tuple(k + 5 for k in range(LANES)))
    assert either(IDS, IDS) == IDS
    assert either(IDS, shifted) == Lanes(IDS.values, ONE_GROUP)
    assert either(IDS, constant(3, LANES)) is None


@pytest.mark.parametrize(
    ("stride", "words", "active", "banks", "times"),
    [
        (4, 1, 64, 32, 1),
        (8, 1, 64, 32, 2),
        (128, 1, 64, 32, 32),
        (0, 1, 64, 32, 1),
        (132, 1, 64, 32, 1),
        (8, 2, 64, 32, 1),
        (16, 4, 64, 32, 1),
        (256, 4, 64, 32, 8),
        (256, 4, 64, 64, 16),
        (128, 1, 8, 32, 8),
    ],
)
def test_lanes_that_want_one_bank_wait_for_each_other(
    stride: int, words: int, active: int, banks: int, times: int
) -> None:
    address = Lanes(tuple(stride * k for k in range(LANES)), ONE_GROUP)
    assert slowdown(address, words, active, banks) == times


def transposed(width: int) -> str:
    """A kernel that writes rows of LDS and reads columns, in a loop."""
    return f"""target triple = "amdgcn-amd-amdhsa"
@lds = internal addrspace(3) global [{32 * width} x float] poison, align 16
declare i32 @llvm.amdgcn.workitem.id.x()
declare void @llvm.amdgcn.s.barrier()
define amdgpu_kernel void @k(ptr addrspace(1) %out) #0 {{
entry:
  %i = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %row = getelementptr float, ptr addrspace(3) @lds, i32 %i
  store volatile float 1.0, ptr addrspace(3) %row
  call void @llvm.amdgcn.s.barrier()
  %c = mul i32 %i, {width}
  br label %loop
loop:
  %n = phi i32 [ 0, %entry ], [ %m, %loop ]
  %at = add i32 %c, %n
  %column = getelementptr float, ptr addrspace(3) @lds, i32 %at
  %x = load volatile float, ptr addrspace(3) %column
  store volatile float %x, ptr addrspace(1) %out
  %m = add i32 %n, 1
  %more = icmp ult i32 %m, 20
  br i1 %more, label %loop, label %end
end:
  ret void
}}
attributes #0 = {{ "amdgpu-flat-work-group-size"="64,64" }}
"""


def cost(width: int, cpu: str) -> KernelCost:
    return cost_of_assembly(run_llc(transposed(width), cpu, mir=False), target(cpu))["k"]


@pytest.mark.parametrize("cpu", ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"])
def test_columns_of_a_padded_array_are_read_without_conflicts(cpu: str) -> None:
    """The loop's counter is added to each lane's column; a column of 32 words is one bank."""
    padded, conflicting = cost(33, cpu), cost(32, cpu)
    assert conflicting.lds > 10 * padded.lds
    assert conflicting.waits > padded.waits
    assert [loop.trips for loop in conflicting.loops] == [loop.trips for loop in padded.loops] == [20]


ACCESSES = (
    "ds_read_addtid_b32 v0 offset:4",
    "ds_consume v0 offset:4",
    "ds_bpermute_b32 v0, v1, v2",
    "ds_add_rtn_u32 v1, v0, v2",
    "ds_swizzle_b32 v0, v1 offset:swizzle(SWAP,1)",
    "ds_gws_init v0 gds",
    "ds_write_b32 v0, v1",
    "ds_read_b32 v0, v1",
)


@pytest.mark.parametrize("code", ACCESSES)
def test_every_form_of_an_access_is_read(code: str) -> None:
    text = f'\t.amdgcn_target "amdgcn-amd-amdhsa--gfx942"\n\t.type\tk,@function\nk:\n\t{code}\n\ts_endpgm\n'
    text += ".Lfunc_end0:\n\t.size\tk, .Lfunc_end0-k\n"
    (function,) = parse_assembly(text, target("gfx942"))
    started = replace(function, figures=replace(function.figures, extents=(64, 1, 1)))
    assert cost_of_function(started, target("gfx942")).lds == cost_of_function(function, target("gfx942")).lds


def test_without_the_size_of_a_work_group_no_conflict_is_counted() -> None:
    assembly = run_llc(transposed(32).replace('"64,64"', '"1,1024"'), "gfx942", mir=False)
    (function,) = parse_assembly(assembly, target("gfx942"))
    assert function.figures.extents is None
    assert cost_of_assembly(assembly, target("gfx942"))["k"].lds == cost(33, "gfx942").lds
