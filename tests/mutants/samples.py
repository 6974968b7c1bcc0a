"""A few small functions that LLVM allocates, chosen so that every class of mutants has a place in two of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from allocation import Pair, allocated, phases_of_ir
from random_mir import Features, random_mir, switches

from mutants.subject import Subject
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.target.targets import target

_CALLS = "tuples undef agprs halves early_clobber matrix memory calls branches loops irreducible divergent"
_PRESSURE = "tuples undef agprs copies early_clobber matrix calls irreducible divergent inactive vector_pressure"
_DEVICE = "tuples agprs halves copies matrix device branches irreducible divergent inactive vector_pressure"
_GENERATED = (
    (102, "gfx90a", 2, "tuples agprs tied memory irreducible divergent inactive"),
    (116, "gfx950", 2, "halves early_clobber matrix memory fixed loops irreducible inactive constants"),
    (39, "gfx1100", 0, _CALLS),
    (39, "gfx1100", 2, _CALLS),
    (199, "gfx942", 2, _PRESSURE),
    (46, "gfx1201", 2, "undef copies memory fixed calls loops vector_pressure"),
    (228, "gfx90a", 0, "agprs halves copies matrix fixed irreducible divergent"),
    (166, "gfx1201", 2, _DEVICE),
    (195, "gfx1100", 2, "undef agprs tied device divergent constants"),
)
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


def _pairs() -> Iterator[Pair]:
    for seed, cpu, phase, on in _GENERATED:
        features = Features(size=6, **{name: name in on.split() for name in switches()})
        yield allocated(random_mir(seed, cpu, features), cpu, phase)
    for cpu in ("gfx942", "gfx1250"):
        pair = phases_of_ir(STACK, cpu)[1]
        yield replace(pair, pre=_with_bundle(pair.pre), post=_with_bundle(pair.post))


def _with_bundle(text: str) -> str:
    bundle = "    BUNDLE implicit $exec {\n      S_NOP 0\n      S_NOP 1\n    }\n"
    return text.replace("    S_ENDPGM 0", f"{bundle}    S_ENDPGM 0")


@lru_cache(maxsize=1)
def samples() -> tuple[Subject, ...]:
    """The functions, before and after a phase."""
    return tuple(
        Subject(pre, pre.functions[0], parse_mir(pair.post, "post.mir").functions[0], target(pair.cpu))
        for pair in _pairs()
        for pre in [parse_mir(pair.pre, "pre.mir")]
    )
