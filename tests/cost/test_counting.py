"""What is counted in the code, against what llc says of it: spills, copies, occupancy, size; waits and decoding."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from msgspec.structs import replace
from support import cpu_of, few, kernel_paths, llc, run_llc

from verilocc_mlir.cost import counting
from verilocc_mlir.cost.figures import figures_of_text
from verilocc_mlir.cost.instructions import AGPR, EXEC, SCC, SGPR, VCC, Instruction, Kind, Rate, decode, units
from verilocc_mlir.cost.memory import counters, dwords, waits
from verilocc_mlir.cost.model import KernelCost, cost_of_assembly
from verilocc_mlir.target.targets import TARGETS, target

TRIPLE = 'target triple = "amdgcn-amd-amdhsa"\n'
ATTENTION = [p for p in kernel_paths() if p.name.startswith(("attn_d64.", "attn_d128_")) and ".opt." in p.name]


def cost_of(ir: str, cpu: str) -> KernelCost:
    (cost,) = cost_of_assembly(run_llc(ir, cpu, mir=False), target(cpu)).values()
    return cost


def said(assembly: str, key: str) -> int:
    return int(assembly.partition(f".{key}:")[2].split(None, 1)[0])


@pytest.mark.parametrize("waves", [8, 16])
@pytest.mark.parametrize("path", few(ATTENTION[::4], ATTENTION), ids=lambda p: p.name.removesuffix(".opt.ll"))
def test_spills_to_memory(path: Path, waves: int) -> None:
    """Registers stored are those of .vgpr_spill_count; occupancy is LLVM's also where it is asked for."""
    cpu, size = cpu_of(path), '"amdgpu-flat-work-group-size"'
    ir = path.read_text().replace(size, f'"amdgpu-waves-per-eu"="{min(waves, target(cpu).max_waves)}" {size}')
    assembly = run_llc(ir, cpu, mir=False)
    (cost,) = cost_of_assembly(assembly, target(cpu)).values()
    assert cost.spill_stores.static == said(assembly, "vgpr_spill_count")
    assert cost.spill_reloads.static >= cost.spill_stores.static
    assert cost.occupancy == cost.llvm_occupancy
    assert (cost.scratch.static > 0) == (cost.spill_stores.static > 0)


@pytest.mark.parametrize("cpu", TARGETS)
def test_a_local_array_is_no_spill(cpu: str) -> None:
    ir = f"""{TRIPLE}define amdgpu_kernel void @k(i32 %i) {{
  %a = alloca [8 x i32], addrspace(5)
  store volatile i32 1, ptr addrspace(5) %a
  %p = getelementptr i32, ptr addrspace(5) %a, i32 %i
  %x = load volatile i32, ptr addrspace(5) %p
  ret void
}}
"""
    cost = cost_of(ir, cpu)
    assert cost.scratch.static == 2
    assert cost.spills.static == 0


@pytest.mark.parametrize("cpu", TARGETS)
def test_sgprs_in_lanes(cpu: str) -> None:
    """.sgpr_spill_count counts every save of a 32-bit register to a lane."""
    loads = "".join(f'  %x{k} = call i32 asm sideeffect "s_mov_b32 $0, {k}", "=s"()\n' for k in range(40))
    uses = "".join(f'  call void asm sideeffect "; $0", "s"(i32 %x{k})\n' for k in range(40))
    clobbers = ",".join(f"~{{s{k}}}" for k in range(100))
    ir = f"""{TRIPLE}define amdgpu_kernel void @k() {{
{loads}  call void asm sideeffect "", "{clobbers},~{{vcc}}"()
{uses}  ret void
}}
"""
    assembly = run_llc(ir, cpu, mir=False)
    (cost,) = cost_of_assembly(assembly, target(cpu)).values()
    assert cost.lane_saves.static == said(assembly, "sgpr_spill_count") > 30
    assert cost.lane_reloads.static >= cost.lane_saves.static
    assert cost.spill_stores.static == 0


def test_lanes_that_are_no_spills() -> None:
    ir = f"""{TRIPLE}declare i32 @llvm.amdgcn.readlane.i32(i32, i32)
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @k(ptr addrspace(1) %p) {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %x = call i32 @llvm.amdgcn.readlane.i32(i32 %t, i32 5)
  store i32 %x, ptr addrspace(1) %p
  ret void
}}
"""
    assembly = run_llc(ir, "gfx942", mir=False)
    assert "v_readlane_b32" in assembly
    (cost,) = cost_of_assembly(assembly, target("gfx942")).values()
    assert cost.spills.static == 0


@pytest.mark.parametrize("cpu", TARGETS)
def test_occupancy_over_register_counts(cpu: str) -> None:
    llc()
    rng, gpu, text = random.Random(cpu), target(cpu), TRIPLE
    for k, vgprs in enumerate([*range(8, 257, 8), 65, 97, 121, 257][: None if cpu == "gfx1250" else -1]):
        sgprs, size = rng.choice([10, 88, 98, 102]), rng.choice([64, 256, 1024])
        agprs = rng.choice([0, 4, 60]) if gpu.has_agprs else 0
        clobbers = f"~{{v{vgprs - 1}}},~{{s{sgprs - 1}}}" + (f",~{{a{agprs - 1}}}" if agprs else "")
        body = f'  call void asm sideeffect "", "{clobbers}"()\n  ret void\n'
        text += f'define amdgpu_kernel void @k{k}() "amdgpu-flat-work-group-size"="1,{size}" '
        text += f'"amdgpu-agpr-alloc"="0,{256 if agprs else 0}" {{\n{body}}}\n'
    known = figures_of_text(run_llc(text, cpu, mir=False), gpu)
    assert len(known) > 30
    for name, figures in known.items():
        assert replace(figures, extents=None).occupancy(gpu) == figures.llvm_occupancy, name
    assert len({figures.llvm_occupancy for figures in known.values()}) > 3


def test_the_size_of_a_work_group_decides_the_waves_that_are_there() -> None:
    """LLVM says the most waves over all sizes that the code is compiled for; the size that is started has fewer."""
    text = f"""{TRIPLE}@lds = internal addrspace(3) global [20000 x i8] poison
define amdgpu_kernel void @any(i32 %i) "amdgpu-flat-work-group-size"="64,1024" {{
  %p = getelementptr i8, ptr addrspace(3) @lds, i32 %i
  store volatile i8 1, ptr addrspace(3) %p
  ret void
}}
define amdgpu_kernel void @one(i32 %i) !reqd_work_group_size !0 {{
  %p = getelementptr i8, ptr addrspace(3) @lds, i32 %i
  store volatile i8 1, ptr addrspace(3) %p
  ret void
}}
!0 = !{{i32 16, i32 16, i32 1}}
"""
    costs = cost_of_assembly(run_llc(text, "gfx942", mir=False), target("gfx942"))
    # Three work-groups find room in 64 KiB of LDS: 3 times 16 waves, or 3 times 4, on 4 SIMDs.
    assert costs["any"].occupancy == 8
    assert costs["one"].occupancy == 3


def test_without_comments_and_metadata_registers_are_counted_in_the_code() -> None:
    path = next(p for p in ATTENTION if cpu_of(p) == "gfx942")
    assembly = run_llc(path.read_text(), "gfx942", mir=False)
    bare = "\n".join(line.partition(";")[0] for line in assembly.partition("\t.amdgpu_metadata")[0].splitlines())
    (full,) = cost_of_assembly(assembly, target("gfx942")).values()
    (counted,) = cost_of_assembly(bare, target("gfx942")).values()
    assert (counted.vectors, counted.occupancy) == (full.vectors, full.occupancy)
    assert counted.code_bytes is None
    # The size of a work-group stands in the metadata alone; without it no bank conflict is known.
    assert counted.valu == full.valu
    assert counted.lds <= full.lds


def test_accumulator_copies_of_unattributed_matrix_loops() -> None:
    """Without amdgpu-agpr-alloc=0, LLVM 22 copies the accumulators of an MFMA loop in every iteration (FACTS)."""
    llc()
    vector = "<16 x float>"
    ir = f"""{TRIPLE}declare {vector} @llvm.amdgcn.mfma.f32.32x32x8f16(<4 x half>, <4 x half>, {vector}, i32, i32, i32)
define amdgpu_kernel void @k(ptr addrspace(1) %p, <4 x half> %a) #0 {{
entry:
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %j, %loop ]
  %c = phi {vector} [ zeroinitializer, %entry ], [ %e, %loop ]
  %d = call {vector} @llvm.amdgcn.mfma.f32.32x32x8f16(<4 x half> %a, <4 x half> %a, {vector} %c, i32 0, i32 0, i32 0)
  %e = call {vector} asm sideeffect "; $0", "=v,0"({vector} %d)
  %j = add i32 %i, 1
  %more = icmp ult i32 %j, 7
  br i1 %more, label %loop, label %exit
exit:
  store {vector} %e, ptr addrspace(1) %p
  ret void
}}
attributes #0 = {{ ATTRIBUTES }}
"""
    copied = cost_of(ir.replace("ATTRIBUTES", '"amdgpu-agpr-alloc"="32,32"'), "gfx942")
    clean = cost_of(ir.replace("ATTRIBUTES", '"amdgpu-agpr-alloc"="0"'), "gfx942")
    assert clean.accumulator_copies.static == 0
    assert copied.accumulator_copies.weighted >= 7 * 16
    assert clean.loops[0].trips == 7


def d(text: str, generation: int = 9) -> Instruction:
    return decode(text, generation)


@pytest.mark.parametrize(
    ("text", "vector", "accumulator", "scalar"),
    [
        ("v_mov_b32_e32 v1, v2", 1, 0, 0),
        ("v_mov_b32_e32 v1, s2", 1, 0, 0),
        ("v_mov_b32_e32 v1, 0", 0, 0, 0),
        ("v_mov_b32_dpp v1, v2 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf", 0, 0, 0),
        ("v_mov_b64_e32 v[0:1], v[2:3]", 1, 0, 0),
        ("v_pk_mov_b32 v[0:1], v[2:3], v[2:3] op_sel:[0,1]", 1, 0, 0),
        ("v_pk_mov_b32 v[0:1], v[2:3], v[4:5] op_sel:[0,1]", 0, 0, 0),
        ("v_dual_mov_b32 v0, v1 :: v_dual_mov_b32 v3, 0", 1, 0, 0),
        ("v_dual_mov_b32 v0, v1 :: v_dual_mov_b32 v3, v4", 2, 0, 0),
        ("v_dual_add_f32 v0, v1, v2 :: v_dual_mul_f32 v3, v4, v5", 0, 0, 0),
        ("v_accvgpr_read_b32 v0, a1", 0, 1, 0),
        ("v_accvgpr_write_b32 a0, v1", 0, 1, 0),
        ("v_accvgpr_write_b32 a0, 0", 0, 0, 0),
        ("v_accvgpr_mov_b32 a0, a1", 0, 1, 0),
        ("s_mov_b32 s0, s1", 0, 0, 1),
        ("s_mov_b64 s[0:1], vcc", 0, 0, 1),
        ("s_mov_b64 exec, s[0:1]", 0, 0, 0),
        ("s_mov_b32 m0, s1", 0, 0, 0),
        ("s_mov_b32 s0, 7", 0, 0, 0),
    ],
)
def test_copies(text: str, vector: int, accumulator: int, scalar: int) -> None:
    found = d(text)
    assert counting.vector_copies(found) == vector
    assert counting.accumulator_copies(found) == accumulator
    assert counting.scalar_copies(found) == scalar


def test_bank_conflicts_are_counted_on_rdna_alone() -> None:
    clash, apart = d("v_add_f32_e32 v0, v4, v8"), d("v_add_f32_e32 v0, v4, v9")
    assert counting.bank_conflicts(clash, target("gfx1100")) == 1
    assert counting.bank_conflicts(apart, target("gfx1100")) == 0
    assert counting.bank_conflicts(clash, target("gfx942")) == 0
    assert counting.bank_conflicts(d("v_mul_f32_e32 v0, v4, v4"), target("gfx1100")) == 0


@pytest.mark.parametrize(
    ("text", "defs", "uses"),
    [
        ("v_add_f32_e32 v0, v1, v2", {0}, {1, 2, EXEC}),
        ("v_fmac_f32_e32 v0, v1, v2", {0}, {0, 1, 2, EXEC}),
        ("v_add_co_u32_e32 v0, vcc, v1, v2", {0, VCC, VCC + 1}, {1, 2, EXEC}),
        ("v_cmp_lt_u32_e64 s[4:5], v0, v1", {SGPR + 4, SGPR + 5}, {0, 1, EXEC}),
        (
            "v_mfma_f32_4x4x4f16 a[0:3], v[0:1], v[2:3], a[4:7]",
            {*range(AGPR, AGPR + 4)},
            {0, 1, 2, 3, EXEC, *range(AGPR + 4, AGPR + 8)},
        ),
        ("ds_write_b64 v0, v[2:3] offset:8", set(), {0, 2, 3, EXEC}),
        ("ds_read_b64 v[2:3], v0", {2, 3}, {0, EXEC}),
        ("global_store_dword v[0:1], v2, off", set(), {0, 1, 2, EXEC}),
        ("global_load_dwordx4 v[4:7], v[0:1], off", {4, 5, 6, 7}, {0, 1, EXEC}),
        ("global_atomic_add v0, v1, s[2:3]", set(), {0, 1, SGPR + 2, SGPR + 3, EXEC}),
        ("global_atomic_add v4, v0, v1, s[2:3] sc0", {4}, {0, 1, SGPR + 2, SGPR + 3, EXEC}),
        ("s_add_u32 s0, s1, s2", {SGPR, SCC}, {SGPR + 1, SGPR + 2}),
        ("s_addc_u32 s0, s1, s2", {SGPR, SCC}, {SGPR + 1, SGPR + 2, SCC}),
        ("s_cmp_lt_u32 s0, s1", {SCC}, {SGPR, SGPR + 1}),
        ("v_readlane_b32 s0, v1, 3", {SGPR}, {1}),
        ("v_mov_b32_e32 v0 /*v256*/, v1", {256}, {1, EXEC}),
    ],
)  # fmt: skip
def test_operands(text: str, defs: set[int], uses: set[int]) -> None:
    found = d(text)
    assert set(found.defs) == defs
    assert set(found.uses) == uses


def test_kinds_and_rates() -> None:
    assert (d("v_exp_f32_e32 v0, v1").kind, d("v_exp_f32_e32 v0, v1").rate) == (Kind.VALU, Rate.TRANS)
    assert d("v_fma_f64 v[0:1], v[2:3], v[4:5], v[6:7]").rate is Rate.DOUBLE
    assert d("v_lshlrev_b64 v[0:1], v2, v[4:5]").rate is Rate.WIDE
    assert d("s_delay_alu instid0(VALU_DEP_1)", 11).kind is Kind.FREE
    assert d("s_waitcnt vmcnt(0)").kind is Kind.WAIT
    assert units("-|v3|") == (3,)
    assert units("0x40") == ()
    assert (dwords("ds_read2_b64"), dwords("global_load_dwordx4"), dwords("ds_load_u16_d16")) == (4, 4, 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s_waitcnt vmcnt(3) lgkmcnt(0)", (("vmcnt", 3), ("lgkmcnt", 0))),
        ("s_waitcnt_vscnt null, 0x2", (("vscnt", 2),)),
        ("s_wait_loadcnt 0x5", (("loadcnt", 5),)),
        ("s_wait_loadcnt_dscnt 0x301", (("loadcnt", 3), ("dscnt", 1))),
        ("s_wait_alu depctr_va_vdst(0)", ()),
    ],
)
def test_waits(text: str, expected: tuple[tuple[str, int], ...]) -> None:
    assert waits(text) == expected


@pytest.mark.parametrize(
    ("text", "generation", "expected"),
    [
        ("global_load_dword v0, v[1:2], off", 9, ("vmcnt",)),
        ("global_store_dword v[1:2], v0, off", 9, ("vmcnt",)),
        ("global_store_b32 v[1:2], v0, off", 11, ("vscnt",)),
        ("global_store_b32 v[1:2], v0, off", 12, ("storecnt",)),
        ("ds_load_b32 v0, v1", 12, ("dscnt",)),
        ("ds_read_b32 v0, v1", 9, ("lgkmcnt",)),
        ("s_load_b32 s0, s[2:3], 0x0", 12, ("kmcnt",)),
        ("flat_load_b32 v0, v[1:2]", 11, ("vmcnt", "lgkmcnt")),
        ("v_add_f32_e32 v0, v1, v2", 9, ()),
    ],
)
def test_counters(text: str, generation: int, expected: tuple[str, ...]) -> None:
    assert counters(d(text, generation), generation) == expected


def private_accesses(cpu: str, *code: str) -> int:
    body = "".join(f"\t{line}\n" if not line.endswith(":") else f"{line}\n" for line in code)
    text = f'\t.amdgcn_target "amdgcn-amd-amdhsa--{cpu}"\n\t.type\tk,@function\nk:\n{body}\ts_endpgm\n'
    text += ".Lfunc_end0:\n\t.size\tk, .Lfunc_end0-k\n; Kernel info:\n; ScratchSize: 16\n"
    return cost_of_assembly(text, target(cpu))["k"].scratch.static


MOVED = ("s_mov_b64 s[26:27], s[2:3]", "s_mov_b64 s[24:25], s[0:1]", "s_mov_b64 exec, s[0:1]")
PRELOADED = ("s_load_dwordx2 s[6:7], s[4:5], 0x0", "s_waitcnt lgkmcnt(0)", "s_branch .LBB0_0", ".LBB0_0:")
THROUGH = "buffer_store_dword v1, off, s[{}], 0"


def test_private_memory_of_gfx90a_is_what_goes_through_its_resource() -> None:
    """It is in s[0:3], or where the start of the kernel moves it, behind the loads of preloaded arguments too."""
    own, other = THROUGH.format("24:27"), THROUGH.format("0:3")
    assert private_accesses("gfx90a", own, other) == 1
    assert private_accesses("gfx90a", *MOVED, own, own, other) == 2
    assert private_accesses("gfx90a", *PRELOADED, *MOVED, own, own, other) == 2


@pytest.mark.parametrize("cpu", ["gfx942", "gfx950", "gfx1100", "gfx1201"])
def test_with_flat_scratch_a_buffer_is_no_private_memory(cpu: str) -> None:
    """IREE's kernels store to buffers whose resource is in s[0:3]."""
    assert private_accesses(cpu, THROUGH.format("0:3"), "scratch_store_dword off, v1, off") == 1
