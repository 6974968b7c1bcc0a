"""A few small functions that LLVM allocates, chosen so that every class of mutants has a place in two of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from allocation import Pair, allocated, phases_of_ir
from support import TEST_DATA

from mutants.subject import Subject
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.target.targets import target

_DATA = TEST_DATA / "mutants"
_PHASES = {
    "102.gfx90a": (2,), "116.gfx950": (2,), "39.gfx1100": (0, 2), "199.gfx942": (2,), "46.gfx1201": (2,),
    "228.gfx90a": (0,), "166.gfx1201": (2,), "195.gfx1100": (2,),
}  # fmt: skip
"""Texts that ``random_mir`` made, and the phases that are used: between them every class finds a place."""
_LOADS = "\n".join(
    f"  %q{k} = getelementptr i32, ptr addrspace(1) %p, i32 {97 * k}\n"
    f"  %v{k} = load volatile i32, ptr addrspace(1) %q{k}"
    for k in range(12)
)
_SUMS = "\n".join(f"  %s{k + 1} = mul i32 %s{k}, %v{k}" for k in range(12))
STACK = f"""target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @k(ptr addrspace(1) %p) "amdgpu-num-vgpr"="9" "amdgpu-agpr-alloc"="0" {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %a = alloca [8 x i32], addrspace(5)
  %i = and i32 %t, 7
  %e = getelementptr [8 x i32], ptr addrspace(5) %a, i32 0, i32 %i
{_LOADS}
  store volatile i32 %t, ptr addrspace(5) %e
  %s0 = load volatile i32, ptr addrspace(5) %e
{_SUMS}
  store volatile i32 %s12, ptr addrspace(1) %p
  ret void
}}
"""
"""A kernel with a stack object of its own and spill slots beside it; a bundle is put into both sides."""

CALLER = """target triple = "amdgcn-amd-amdhsa"
declare void @other(i32)
define void @f(ptr addrspace(1) %p, i32 %n) {
  %c = icmp eq i32 %n, 0
  br i1 %c, label %none, label %some
some:
  call void @other(i32 %n)
  br label %none
none:
  %m = phi i32 [1, %0], [%n, %some]
  store i32 %m, ptr addrspace(1) %p
  ret void
}
"""
"""A function that is called and calls: its callee-saved scalars are kept in lanes of a vector register."""

SPECIAL = """target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.set.inactive.i32(i32, i32)
declare i32 @llvm.amdgcn.strict.wwm.i32(i32)
declare i32 @llvm.amdgcn.update.dpp.i32(i32, i32, i32, i32, i32, i1)
declare float @llvm.fma.f32(float, float, float)
declare void @llvm.amdgcn.s.sendmsg(i32, i32)
declare i32 @llvm.amdgcn.readfirstlane.i32(i32)
@table = internal addrspace(4) constant [4 x i32] [i32 1, i32 2, i32 3, i32 5]
declare void @other(i32)
define void @f(ptr addrspace(1) %p, i32 %n, [40 x i32] %many) {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %late = extractvalue [40 x i32] %many, 39
  %q = getelementptr i32, ptr addrspace(1) %p, i32 %t
  %v = load volatile i32, ptr addrspace(1) %q
  %a = call {i32, i32} asm sideeffect "; $0 $1 $2 $3", "=&v,=v,v,1,~{v7},~{s9},~{vcc}"(i32 %v, i32 %late)
  %a0 = extractvalue {i32, i32} %a, 0
  %a1 = extractvalue {i32, i32} %a, 1
  %i = call i32 @llvm.amdgcn.set.inactive.i32(i32 %a0, i32 0)
  %d = call i32 @llvm.amdgcn.update.dpp.i32(i32 %i, i32 %i, i32 273, i32 15, i32 15, i1 false)
  %s = add i32 %i, %d
  %w = call i32 @llvm.amdgcn.strict.wwm.i32(i32 %s)
  %h = bitcast i32 %a1 to <2 x half>
  %e = extractelement <2 x half> %h, i32 1
  %f32 = fpext half %e to float
  %g = bitcast i32 %w to float
  %x = call contract float @llvm.fma.f32(float %f32, float %g, float %f32)
  %y = fptrunc float %x to half
  %z = insertelement <2 x half> %h, half %y, i32 1
  %zi = bitcast <2 x half> %z to i32
  call void @llvm.amdgcn.s.sendmsg(i32 1, i32 %n)
  %l = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %a0)
  %idx = and i32 %l, 3
  %tp = getelementptr [4 x i32], ptr addrspace(4) @table, i32 0, i32 %idx
  %tv = load i32, ptr addrspace(4) %tp, !invariant.load !0
  %c = icmp eq i32 %n, 0
  br i1 %c, label %none, label %some
some:
  call void @other(i32 %tv)
  br label %none
none:
  %m = phi i32 [1, %0], [%tv, %some]
  store volatile i32 %m, ptr addrspace(1) %q
  store volatile i32 %zi, ptr addrspace(1) %q
  ret void
}
!0 = !{}
"""
"""A called function with stack arguments, inline assembly, whole-wave code, mixed precision, a constant and a call."""

ATOMIC = """target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
@lds = internal addrspace(3) global i32 poison
define amdgpu_kernel void @k(ptr addrspace(1) %p) {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %q = getelementptr i32, ptr addrspace(1) %p, i32 %t
  %v = load volatile i32, ptr addrspace(1) %q
  %old = atomicrmw add ptr addrspace(3) @lds, i32 %v monotonic
  store volatile i32 %old, ptr addrspace(1) %q
  ret void
}
"""
"""LLVM makes a loop over the threads of it, with a result that nothing defines at first."""


def _pairs() -> Iterator[Pair]:
    for name, phases in _PHASES.items():
        text = (_DATA / f"{name}.mir").read_text()
        for phase in phases:
            yield allocated(text, name.partition(".")[2], phase)
    for cpu in ("gfx90a", "gfx1201"):
        yield phases_of_ir(CALLER, cpu)[1]
    for cpu in ("gfx942", "gfx1201"):
        yield from phases_of_ir(SPECIAL, cpu)
    yield phases_of_ir(ATOMIC, "gfx942")[1]
    for cpu in ("gfx942", "gfx1250"):
        pair = phases_of_ir(STACK, cpu)[1]
        yield replace(pair, pre=_with_bundle(pair.pre), post=_with_bundle(pair.post))


def _with_bundle(text: str) -> str:
    bundle = "    BUNDLE {\n      S_NOP 0\n      S_NOP 1\n    }\n"
    return text.replace("    S_ENDPGM 0", f"{bundle}    S_ENDPGM 0")


@lru_cache(maxsize=1)
def samples() -> tuple[Subject, ...]:
    """The functions, before and after a phase."""
    return tuple(
        Subject(pre, pre.functions[0], post.functions[0], target(pair.cpu), post.preamble)
        for pair in _pairs()
        for pre, post in [(parse_mir(pair.pre, "pre.mir"), parse_mir(pair.post, "post.mir"))]
    )
