"""Shared by the tests of the audit: kernels of each kind, and machine IR in which EXEC and masks decide."""

from __future__ import annotations

from allocation import (
    Pair,
    allocated,
)
from support import TEST_DATA

_DATA = TEST_DATA / "audit"
DIVERGENT = (_DATA / "divergent.ll").read_text()


MIXED = (_DATA / "mixed.ll").read_text()


CALLS = (_DATA / "calls.ll").read_text()


STRAIGHT = """
target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
declare <4 x float> @llvm.amdgcn.mfma.f32.16x16x16f16(<4 x half>, <4 x half>, <4 x float>, i32, i32, i32)
define amdgpu_kernel void @straight(ptr addrspace(1) %p, ptr addrspace(1) %o, i32 %n, i32 %m) {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %q = getelementptr <4 x float>, ptr addrspace(1) %p, i32 %t
  %c = load <4 x float>, ptr addrspace(1) %q
  %a = load <4 x half>, ptr addrspace(1) %p
  %b = load <4 x half>, ptr addrspace(1) %o
  %d = call <4 x float> @llvm.amdgcn.mfma.f32.16x16x16f16(<4 x half> %a, <4 x half> %b, <4 x float> %c, i32 0, i32 0,
  i32 0) %s = sub i32 %n, %m %x = mul i32 %t, %s %y = sub i32 %x, %n %r = call i32 asm sideeffect "v_foo $0, $1, $2",
  "=&v,v,s"(i32 %y, i32 %m) store i32 %r, ptr addrspace(1) %o store <4 x float> %d, ptr addrspace(1) %q ret void
}
"""


NARROW = """--- |
  define amdgpu_kernel void @narrow() #0 {{
    ret void
  }}
  attributes #0 = {{ "target-cpu"="gfx942" }}
...
---
name:            narrow
tracksRegLiveness: true
registers:
  - {{ id: 0, class: vgpr_32, preferred-register: '', flags: [  ] }}
liveins:
  - {{ reg: '$vgpr0', virtual-reg: '{livein}' }}
machineFunctionInfo:
  isEntryFunction: true
body:             |
  bb.0:
    successors: %bb.1(0x40000000), %bb.2(0x40000000)
    liveins: $vgpr0, $sgpr4_sgpr5

    {define}
    $sgpr2_sgpr3 = COPY $exec, implicit-def $exec
    $sgpr6_sgpr7 = S_AND_B64 $sgpr2_sgpr3, $sgpr4_sgpr5, implicit-def dead $scc
    {wide}
    $exec = S_MOV_B64_term $sgpr6_sgpr7
    S_CBRANCH_EXECZ %bb.2, implicit $exec

  bb.1:
    successors: %bb.2(0x80000000)
    liveins: $sgpr2_sgpr3{live}

    {narrow}
    S_BRANCH %bb.2

  bb.2:
    liveins: $sgpr2_sgpr3{after}

    $exec = S_OR_B64 $exec, $sgpr2_sgpr3, implicit-def dead $scc
    {use}
    S_ENDPGM 0
...
"""


def moved_narrow(wide: str, narrow_copy: str, live: str, after: str, place: str) -> Pair:
    """A value defined under the full EXEC, moved under the full or a narrower one, and read under the full one."""
    pre = NARROW.format(
        livein="%0", define="%0:vgpr_32 = V_MOV_B32_e32 7, implicit $exec", wide="S_NOP 0", live="", narrow="S_NOP 0",
        after="", use="EXP_DONE 0, %0, undef $vgpr1, undef $vgpr1, undef $vgpr1, 0, 0, 1, implicit $exec",
    )  # fmt: skip
    post = NARROW.format(
        livein="", define="$vgpr0 = V_MOV_B32_e32 7, implicit $exec", wide=f"{wide}\n    S_NOP 0".strip(), live=live,
        narrow=f"{narrow_copy}\n    S_NOP 0".strip(), after=after,
        use=f"EXP_DONE 0, {place}, undef $vgpr1, undef $vgpr1, undef $vgpr1, 0, 0, 1, implicit $exec",
    )  # fmt: skip
    return Pair("gfx942", pre, post)


HEAD = """--- |
  define amdgpu_kernel void @masks() #0 {
    ret void
  }
  attributes #0 = { "target-cpu"="gfx942" }
...
---
name:            masks
tracksRegLiveness: true
registers:
  - { id: 0, class: vgpr_32, preferred-register: '', flags: [  ] }
liveins:
  - { reg: '$vgpr0' }
machineFunctionInfo:
  isEntryFunction: true
body:             |
  bb.0:
    liveins: $vgpr0

"""


TAIL = """    EXP_DONE 0, $vgpr1, undef $vgpr2, undef $vgpr2, undef $vgpr2, 0, 0, 1, implicit $exec
    S_ENDPGM 0
...
"""


PAIRS = [f"$sgpr{n}_sgpr{n + 1}" for n in range(8, 32, 2)]


COMPARE = [f"{pair} = V_CMP_LT_I32_e64 {n}, $vgpr0, implicit $exec" for n, pair in enumerate(PAIRS)]


def under(mask: str, *lines: str) -> list[str]:
    """In the threads of a mask alone."""
    narrow = f"$exec = S_AND_B64 $exec, {mask}, implicit-def dead $scc"
    return ["$sgpr2_sgpr3 = COPY $exec", narrow, *lines, "$exec = S_OR_B64 $exec, $sgpr2_sgpr3, implicit-def dead $scc"]


def in_blocks(live: str, *blocks: list[str]) -> str:
    """One block after the other, each of which has ``live`` beside what the four first masks hold."""
    found = HEAD[: HEAD.index("  bb.0")]
    for number, lines in enumerate(blocks):
        last = number + 1 == len(blocks)
        found += f"  bb.{number}:\n" + ("" if last else f"    successors: %bb.{number + 1}\n")
        found += f"    liveins: {', '.join([*PAIRS[:4], live]) if number else '$vgpr0'}\n\n"
        found += "".join(f"    {line}\n" for line in lines)
    return found + TAIL


VALUE = "$vgpr1 = V_ADD_U32_e32 1, $vgpr0, implicit $exec"


KEEP = "$vgpr9 = COPY $vgpr1"


USE = "DS_WRITE_B32_gfx9 $vgpr0, $vgpr1, 0, 0, implicit $exec :: (store (s32), addrspace 3)"


ALL_USED = [line for pair in PAIRS[:4] for line in under(pair, "S_NOP 0")]
"""Each mask may reach EXEC to the end: sixteen classes."""


def with_value(mir: str) -> str:
    """The text before allocation: ``$vgpr1`` is a virtual register."""
    return mir.replace("$vgpr1,", "%0,").replace("$vgpr1 =", "%0:vgpr_32 =")


LLVM_FAULTS = TEST_DATA / "audit" / "llvm"


def repeated_undefined_input() -> Pair:
    """LLVM 22.1 repeats an instruction that reads an undefined register: two stores of one value may store two."""
    return allocated((LLVM_FAULTS / "repeats_undefined_input.mir").read_text(), "gfx942", 2)
