"""Broken copies that LLVM 22 makes of 16-bit registers are seen, and gone round where they are."""

from __future__ import annotations

import pytest

from smt_verifier.outcome import Outcome
from verilocc_mlir.pipeline.compile import compile_module
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.toolchain.drivers.job import CompileOptions
from verilocc_mlir.toolchain.find import find_toolchain
from verilocc_mlir.toolchain.mir_repairs import copies_between_widths, has_true16, state_true16
from verilocc_mlir.toolchain.staged import StagedCompiler

FIRST_OF_FOUR = """
define amdgpu_kernel void @f(ptr addrspace(1) %p, ptr addrspace(1) %q, i1 %c) {
  br i1 %c, label %load, label %end
load:
  %x = load <1 x bfloat>, ptr addrspace(1) %p, align 2
  %v = shufflevector <1 x bfloat> %x, <1 x bfloat> poison, <4 x i32> <i32 0, i32 poison, i32 poison, i32 poison>
  br label %end
end:
  %w = phi <4 x bfloat> [ <bfloat 0xR0000, bfloat undef, bfloat undef, bfloat undef>, %0 ], [ %v, %load ]
  %y = extractelement <4 x bfloat> %w, i64 0
  %z = insertelement <4 x bfloat> zeroinitializer, bfloat %y, i64 3
  store <4 x bfloat> %z, ptr addrspace(1) %q
  ret void
}
"""
"""As Triton writes a load of one element under a mask, of a kernel of Liger's neighbourhood attention."""


CLASS = """
define amdgpu_kernel void @f(ptr addrspace(1) %p, ptr addrspace(1) %q, ptr addrspace(4) %m) {
  %x = load half, ptr addrspace(1) %p
  %mask = load i32, ptr addrspace(4) %m
  %c = call i1 @llvm.amdgcn.class.f16(half %x, i32 %mask)
  %y = zext i1 %c to i32
  store i32 %y, ptr addrspace(1) %q
  ret void
}
declare i1 @llvm.amdgcn.class.f16(half, i32)
"""


@pytest.mark.parametrize(
    ("line", "broken"),
    [
        ("%2:vreg_64 = COPY %1", True),
        ("%2:vreg_64 = COPY killed %1, debug-location !1", True),
        ("%2:vreg_64 = COPY %3", False),
        ("undef %2.sub0:vreg_64 = COPY %1", False),
        ("%2:vreg_64 = COPY %3.sub0_sub1", False),
        ("%2:vgpr_32 = COPY %1", False),
        ("%2:sreg_32 = COPY %4.lo16", True),
        ("%2:sreg_32 = COPY %4", False),
    ],
)
def test_a_copy_of_a_narrow_register_into_a_wide_one_is_seen(line: str, broken: bool) -> None:
    text = f"    undef %1.lo16:vgpr_32 = V_MOV_B16_t16_e64 0, 0, 0, implicit $exec\n    %3:vreg_64 = A\n    {line}\n"
    assert copies_between_widths(text) == broken


def test_each_function_numbers_its_registers_anew() -> None:
    wide = "---\nname: f\nbody: |\n    %1:vreg_64 = A\n    %2:vreg_64 = COPY %1\n"
    narrow = "---\nname: g\nbody: |\n    %1:vgpr_32 = A\n"
    assert not copies_between_widths(wide + narrow)
    assert copies_between_widths(wide.replace("%1:vreg_64", "%1:vgpr_32") + wide)


@pytest.mark.parametrize("ir", [FIRST_OF_FOUR, CLASS])
def test_where_llvm_makes_one_the_kernel_is_proved_without_16_bit_registers(ir: str) -> None:
    toolchain = find_toolchain(None)
    compiler = StagedCompiler(toolchain, CompileOptions("gfx1100"))
    if not copies_between_widths(compiler.to_pre_ra(ir)):
        pytest.skip("this LLVM selects it otherwise")
    compiled = compile_module(ir.encode(), "f.ll", Settings(cpu="gfx1100"))
    assert compiled.report.outcome is Outcome.PROVED
    assert [note for note in compiled.report.notes if "-mattr=-real-true16" in note]
    plain = compile_module(ir.encode(), "f.ll", Settings(cpu="gfx1201"))
    assert plain.report.outcome is Outcome.PROVED
    assert not plain.report.notes


def test_a_text_with_16_bit_registers_is_given_the_feature() -> None:
    text = """--- |
  define amdgpu_kernel void @f() local_unnamed_addr #0 {
  define void @g() #2 {
  attributes #0 = { alwaysinline "target-cpu"="gfx1201" }
  attributes #1 = { nounwind }
  attributes #2 = { "target-features"="-xnack" }
...
"""
    used = text + "    %127:vgpr_16 = COPY %122\n"
    assert (has_true16(text), has_true16(used)) == (False, True)
    stated = state_true16(used)
    assert not has_true16(stated)
    assert stated == used.replace("#0 = { ", '#0 = { "target-features"="+real-true16" ').replace(
        '"-xnack"', '"+real-true16,-xnack"'
    )
