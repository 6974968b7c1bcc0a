"""Certificates written by hand: each checker alone refuses the wrong pair, and accepts the nearest right one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from case_support import CASES
from checker_support import builds_the_second_checker, rule_of_first, rule_of_second
from support import TEST_DATA

from smt_verifier.certificate.verdict import certify_texts

FORGED = TEST_DATA / "audit" / "forged"
"""Pairs of several blocks, each with a certificate, for function ``f`` of gfx942."""
HEAD = """--- |
{module}  define {convention}void @f() {attributes}{{
    ret void
  }}
...
---
name:            f
tracksRegLiveness: true
registers:{registers}
frameInfo:
  maxAlignment:    4
{frame}stack:{stack}
machineFunctionInfo:
  isEntryFunction: {entry}
  stackPtrOffsetReg: '$sgpr32'
{info}body:             |
  bb.0:
    liveins: {liveins}
"""


@dataclass(frozen=True)
class Pair:
    """A pair of texts of one block, with the certificate's steps and repeats.

    Attributes:
        classes: of P's virtual registers, from number 0 on.
        liveins: of the block, in both texts.
        before: P's instructions, one a line.
        after: Q's.
        steps: the certificate's lines behind ``block 0``.
        stack: rows of the stack objects of P, and of Q.
        info: lines of ``machineFunctionInfo``, in both texts.
        module: lines before the function, in both texts.
        attributes: of the function.
        ends: the last instruction; the function is a kernel, or one that is called.
        frame: further rows of ``frameInfo``; of a function that is called.
        left: classes of virtual registers that Q still has, from number 0 on.
    """

    classes: tuple[str, ...]
    liveins: str
    before: str
    after: str
    steps: str
    cpu: str = "gfx942"
    stack: tuple[str, str] = ("", "")
    info: str = ""
    module: str = ""
    attributes: str = ""
    ends: str = "S_ENDPGM 0"
    left: tuple[str, ...] = ()
    frame: str = ""

    def texts(self) -> tuple[str, str]:
        rows, left = (
            "".join(f"\n  - {{ id: {n}, class: {cls} }}" for n, cls in enumerate(classes))
            for classes in (self.classes, self.left)
        )
        called = self.ends == "SI_RETURN" or bool(self.frame)
        of_p, of_q = (
            HEAD.format(
                module=self.module,
                registers=registers,
                stack=stack or " []",
                info=self.info,
                frame=self.frame,
                liveins=self.liveins,
                attributes=self.attributes,
                convention="" if called else "amdgpu_kernel ",
                entry="false" if called else "true",
            )
            + "".join(
                f"{'' if line.strip().startswith('bb.') else '  '}  {line.strip()}\n"
                for line in body.strip().split("\n")
            )
            + f"    {self.ends}\n...\n"
            for registers, stack, body in (
                (rows, self.stack[0], self.before),
                (left or " []", self.stack[1], self.after),
            )
        )
        return of_p, of_q

    def certificate(self) -> str:
        return f"verilocc-certificate 2\nfunction f\nblock 0\n{self.steps}\nend\n"


def _object(*numbers: int, kind: str = "default") -> str:
    return "".join(f"\n  - {{ id: {n}, type: {kind}, size: 4, alignment: 4 }}" for n in numbers)


USE = "S_NOP 0, implicit {}"
CONSTANT_BUS = Pair(
    ("sreg_32_xm0_xexec", "vgpr_32"), "$sgpr4, $vgpr0",
    """%0:sreg_32_xm0_xexec = COPY $sgpr4
    %1:vgpr_32 = V_MAD_U32_U24_e64 %0, %0, $vgpr0, 0, implicit $exec
    S_NOP 0, implicit %1""",
    """$sgpr5 = COPY $sgpr4
    $vgpr1 = V_MAD_U32_U24_e64 $sgpr4, $sgpr5, $vgpr0, 0, implicit $exec
    S_NOP 0, implicit $vgpr1""",
    "steps 1- 1+ 3=",
)  # fmt: skip
INDEXED = Pair(
    ("vreg_128", "vgpr_32"), "$vgpr4_vgpr5_vgpr6_vgpr7, $m0",
    """%0:vreg_128 = COPY $vgpr4_vgpr5_vgpr6_vgpr7
    %1:vgpr_32 = V_MOVRELS_B32_e32 %0.sub0, implicit $m0, implicit $exec, implicit %0
    S_NOP 0, implicit %1""",
    """$vgpr20 = COPY $vgpr4
    $vgpr1 = V_MOVRELS_B32_e32 $vgpr20, implicit $m0, implicit $exec, implicit $vgpr4_vgpr5_vgpr6_vgpr7
    S_NOP 0, implicit $vgpr1""",
    "steps 1- 1+ 3=", "gfx1100",
)  # fmt: skip
IN_PARTS = Pair(
    ("vreg_64", "vreg_64"), "$vgpr0_vgpr1",
    """%0:vreg_64 = COPY $vgpr0_vgpr1
    %1:vreg_64 = V_MOV_B64_PSEUDO %0, implicit $exec
    S_NOP 0, implicit %1""",
    """$vgpr1_vgpr2 = V_MOV_B64_PSEUDO $vgpr0_vgpr1, implicit $exec
    S_NOP 0, implicit $vgpr1_vgpr2""",
    "steps 1- 3=", "gfx1100",
)  # fmt: skip
FMA = "{} = nofpexcept V_FMA_F16_gfx9_e64 0, $vgpr0, 0, $vgpr0, 0, $vgpr0, 0, 0, 0, implicit $mode, implicit $exec"
HALF_WRITTEN = Pair(
    ("vgpr_32",), "$vgpr0",
    FMA.format("%0:vgpr_32") + "\n" + USE.format("%0"),
    FMA.format("$vgpr1") + "\n" + USE.format("$vgpr1"),
    "steps 1- 1+ 2=\nrepeat 0 0 0",
)  # fmt: skip
EXEC_MOVED = Pair(
    ("sreg_64",), "$sgpr4_sgpr5",
    """%0:sreg_64 = S_MOV_B64 $exec
    $exec = S_AND_B64 $exec, $sgpr4_sgpr5, implicit-def dead $scc
    S_NOP 0, implicit %0""",
    """$exec = S_AND_B64 $exec, $sgpr4_sgpr5, implicit-def dead $scc
    $sgpr6_sgpr7 = S_MOV_B64 $exec
    S_NOP 0, implicit $sgpr6_sgpr7""",
    "steps 1- 1= 1+ 2=\nrepeat 1 0 0",
)  # fmt: skip
SLOT = "%stack.0, $sgpr32, 0, implicit $exec :: ({} (s32) {} %stack.0, addrspace 5)"
SPILLED = Pair(
    ("vgpr_32",), "$vgpr0",
    "%0:vgpr_32 = COPY $vgpr0\n" + USE.format("%0"),
    f"""SI_SPILL_V32_SAVE $vgpr0, {SLOT.format("store", "into")}
    $vgpr1 = SI_SPILL_V32_RESTORE {SLOT.format("load", "from")}
    S_NOP 0, implicit $vgpr1""",
    "steps 1- 2+ 2=", stack=(_object(0, kind="spill-slot"), _object(0, kind="spill-slot")),
)  # fmt: skip
OBJECT = Pair(
    ("vgpr_32", "vgpr_32"), "$vgpr0",
    """%0:vgpr_32 = V_MOV_B32_e32 %stack.1, implicit $exec
    %1:vgpr_32 = V_MOV_B32_e32 @"a%stack.1", implicit $exec
    S_NOP 0, implicit %0, implicit %1""",
    """$vgpr1 = V_MOV_B32_e32 %stack.0, implicit $exec
    $vgpr2 = V_MOV_B32_e32 @"a%stack.1", implicit $exec
    S_NOP 0, implicit $vgpr1, implicit $vgpr2""",
    "steps 4=", stack=(_object(1), _object(0)),
    module='  @"a%stack.0" = external addrspace(1) global i32\n  @"a%stack.1" = external addrspace(1) global i32\n',
)  # fmt: skip
ADDED = Pair(
    ("av_32", "vgpr_32"), "$vgpr0, $agpr0",
    """%0:av_32 = COPY $vgpr0
    %1:vgpr_32 = V_ADD_U32_e32 1, %0, implicit $exec
    S_NOP 0, implicit %1""",
    """$vgpr1 = V_ADD_U32_e32 1, $vgpr0, implicit $exec
    S_NOP 0, implicit $vgpr1""",
    "steps 1- 3=",
)  # fmt: skip
ASM = 'INLINEASM &"v_mov_b32 v5, $0", 1, 1769481 /* reguse:VGPR_32 */, {}, 12 /* clobber */, implicit-def dead {}$vgpr5'
CLOBBERED = Pair(
    ("vgpr_32",), "$vgpr0",
    "%0:vgpr_32 = COPY $vgpr0\n" + ASM.format("%0", ""),
    "$vgpr6 = COPY $vgpr0\n" + ASM.format("$vgpr6", ""),
    "steps 1- 1+ 2=",
)  # fmt: skip
CELLS = Pair(
    ("sreg_32",), "$sgpr4",
    """%0:sreg_32 = COPY $sgpr4
    $sgpr33 = S_MOV_B32 64
    S_NOP 0, implicit %0""",
    f"""$vgpr40 = SI_SPILL_S32_TO_VGPR $sgpr4, 0, undef $vgpr40
    SI_SPILL_WWM_V32_SAVE $vgpr40, {SLOT.format("store", "into")}
    $sgpr33 = S_MOV_B32 64
    $vgpr41 = SI_SPILL_WWM_V32_RESTORE {SLOT.format("load", "from")}
    $sgpr4 = SI_RESTORE_S32_FROM_VGPR $vgpr41, 0
    S_NOP 0, implicit $sgpr4""",
    "steps 1- 2+ 1= 2+ 2=", stack=("", _object(0, kind="spill-slot")),
    info="  frameOffsetReg: '$sgpr33'\n  sgprForEXECCopy: '$sgpr34_sgpr35'\n",
)  # fmt: skip
NARROW = "{} = S_AND_SAVEEXEC_B64 $sgpr10_sgpr11, implicit-def $exec, implicit-def dead $scc, implicit $exec"
WIDEN = "$exec = S_OR_B64 $exec, {}, implicit-def dead $scc"
FIRST_OF_NOTHING = Pair(
    ("vgpr_32", "sreg_32_xm0", "sreg_64", "sreg_64", "sreg_32_xm0"), "$vgpr0, $vgpr1",
    """%0:vgpr_32 = COPY $vgpr0
    %1:sreg_32_xm0 = V_READFIRSTLANE_B32 undef %0, implicit $exec
    %2:sreg_64 = V_CMP_EQ_U32_e64 %1, %0, implicit $exec
    %3:sreg_64 = S_AND_SAVEEXEC_B64 %2, implicit-def $exec, implicit-def dead $scc, implicit $exec
    %4:sreg_32_xm0 = V_READFIRSTLANE_B32 %0, implicit $exec
    S_NOP 0, implicit %4""",
    """$vgpr2 = COPY $vgpr0
    $sgpr4 = V_READFIRSTLANE_B32 undef $vgpr1, implicit $exec
    $sgpr6_sgpr7 = V_CMP_EQ_U32_e64 $sgpr4, $vgpr2, implicit $exec
    $sgpr8_sgpr9 = S_AND_SAVEEXEC_B64 $sgpr6_sgpr7, implicit-def $exec, implicit-def dead $scc, implicit $exec
    $sgpr5 = V_READFIRSTLANE_B32 $vgpr2, implicit $exec
    S_NOP 0, implicit $sgpr5""",
    "steps 1- 1+ 6=",
)  # fmt: skip
INDEXED_RESULT = Pair(
    ("sgpr_128",), "$sgpr4, $m0",
    """S_MOVRELD_B32 undef %0.sub0, $sgpr4, implicit $m0, implicit-def %0
    S_NOP 0, implicit %0""",
    """S_MOVRELD_B32 undef $sgpr20, $sgpr4, implicit $m0, implicit-def $sgpr8_sgpr9_sgpr10_sgpr11
    S_NOP 0, implicit $sgpr8_sgpr9_sgpr10_sgpr11""",
    "steps 3=", "gfx1100",
)  # fmt: skip
ABOVE = Pair(
    ("vgpr_32", "vreg_64"), "$vgpr4",
    """%0:vgpr_32 = COPY $vgpr4
    %1:vreg_64 = SUBREG_TO_REG 0, %0, %subreg.sub0
    S_NOP 0, implicit %1""",
    """$vgpr8_vgpr9 = SUBREG_TO_REG 0, $vgpr4, %subreg.sub0
    S_NOP 0, implicit $vgpr8_vgpr9""",
    "steps 1- 3=", "gfx1100",
)  # fmt: skip
HIDDEN = {
    "a result that keeps what it held": ("S_CMOV_B32 $sgpr4, implicit $scc", "$sgpr4, $scc"),
    "a jump that sets EXEC": ("S_CBRANCH_JOIN $sgpr4_sgpr5", "$sgpr4_sgpr5"),
}
ONE_WAVE = '"amdgpu-flat-work-group-size"="1,64" "amdgpu-waves-per-eu"="1,1" '
MODE = Pair(
    ("vgpr_32",), "$vgpr0",
    """%0:vgpr_32 = COPY $vgpr0
    S_SETREG_IMM32_B32 255, 15105, implicit-def $mode, implicit $mode
    S_NOP 0, implicit %0""",
    """$vgpr300 = COPY $vgpr0
    S_SETREG_IMM32_B32 255, 15105, implicit-def $mode, implicit $mode
    S_NOP 0, implicit $vgpr300""",
    "steps 1- 1+ 3=", "gfx1250", attributes=ONE_WAVE,
)  # fmt: skip
DYNAMIC = Pair(
    ("vgpr_32",), "$vgpr0",
    "%0:vgpr_32 = COPY $vgpr0\n" + USE.format("%0"),
    "$vgpr200 = COPY $vgpr0\n" + USE.format("$vgpr200"),
    "steps 1- 1+ 2=", "gfx1201", attributes=ONE_WAVE, info="  dynamicVGPRBlockSize: 16\n",
)  # fmt: skip
DELETED = Pair(
    ("vgpr_32", "sreg_64"), "$vgpr0, $sgpr10_sgpr11",
    f"""%0:vgpr_32 = COPY $vgpr0
    {NARROW.format("%1:sreg_64")}
    {WIDEN.format("%1")}
    S_NOP 0, implicit %0""",
    f"""renamable $vgpr3 = COPY $vgpr0
    renamable $vgpr2 = COPY $vgpr0
    {NARROW.format("$sgpr8_sgpr9")}
    renamable $vgpr2 = COPY renamable $vgpr3
    {WIDEN.format("$sgpr8_sgpr9")}
    S_NOP 0, implicit $vgpr2""",
    "steps 1- 2+ 1= 1+ 3=",
)  # fmt: skip
OVERWRITTEN = Pair(
    ("vgpr_32", "sreg_64", "vgpr_32"), "$vgpr0, $vgpr1, $sgpr10_sgpr11",
    f"""%0:vgpr_32 = COPY $vgpr0
    SCRATCH_STORE_DWORD_SADDR $vgpr1, %stack.0, 0, 0, implicit $exec, implicit $flat_scr
    {NARROW.format("%1:sreg_64")}
    {WIDEN.format("%1")}
    S_NOP 0, implicit %0""",
    f"""$vgpr2 = COPY $vgpr0
    S_NOP 0, implicit $vgpr2
    SCRATCH_STORE_DWORD_SADDR $vgpr1, %stack.0, 0, 0, implicit $exec, implicit $flat_scr
    {NARROW.format("$sgpr8_sgpr9")}
    $vgpr2 = COPY $vgpr0
    {WIDEN.format("$sgpr8_sgpr9")}
    S_NOP 0, implicit $vgpr2""",
    "steps 1- 1+ 3= 1+ 3=", stack=(_object(0), _object(0)),
)  # fmt: skip
OVERWRITTEN = replace(
    OVERWRITTEN, before=OVERWRITTEN.before.replace("SCRATCH", USE.format("%0") + "\n    SCRATCH", 1),
)  # fmt: skip
TAKEN = Pair(
    ("vgpr_32", "sreg_64", "vgpr_32"), "$vgpr0, $sgpr10_sgpr11",
    f"""%0:vgpr_32 = COPY $vgpr0
    S_NOP 0, implicit %0
    %2:vgpr_32 = V_MOV_B32_e32 1, implicit $exec
    {NARROW.format("%1:sreg_64")}
    {WIDEN.format("%1")}
    S_NOP 0, implicit %0, implicit %2""",
    f"""%0:vgpr_32 = COPY $vgpr0
    S_NOP 0, implicit %0
    %1:vgpr_32 = V_MOV_B32_e32 1, implicit $exec
    {NARROW.format("$sgpr8_sgpr9")}
    %0:vgpr_32 = COPY $vgpr0
    {WIDEN.format("$sgpr8_sgpr9")}
    S_NOP 0, implicit %0, implicit %1""",
    "steps 1- 1+ 3= 1+ 3=", left=("vgpr_32", "vgpr_32"),
)  # fmt: skip
WAITING = """\
entry
class 0 T on
class 1 T off
class 2 O off
class 3 P on
mask 0 %1.0 2
member 0 +0
member 1 +0
member 2 -0
in wave
h %1.0 $8208 1
h %1.2 $8210 1
h $12292 $12292 2
in 0 1 3
"""
"""Claims of the masks where threads wait for ``%1``, in ``$sgpr8_sgpr9``; the claims of the classes follow."""
LEFT = "    S_CBRANCH_SCC1 %bb.2, implicit undef $scc\n  bb.1:\n"
ELSEWHERE = "\n    S_ENDPGM 0\n  bb.2:"
NO_STEPS = "\nblock 1\nsteps"
NOTHING = "entry\nclass 0 T on\nclass 1 T off\nclass 2 O off\nclass 3 P on\nin wave\n"
AHEAD = Pair(
    ("vgpr_32", "sreg_64", "vgpr_32"), "$vgpr0, $sgpr10_sgpr11",
    TAKEN.before.replace("    $exec =", LEFT + "    $exec =") + ELSEWHERE,
    TAKEN.after.replace("    %0:vgpr_32 = COPY $vgpr0\n    $exec", MOVED := f"""{LEFT}    liveins: $vgpr0, $sgpr8_sgpr9
    %0:vgpr_32 = COPY $vgpr0
    $exec""") + ELSEWHERE,
    f"""steps 1- 1+ 4=
block 1
{WAITING}h %0.0 $0 1
h %0.0 %0.0 1
h %2.0 %1.0 1
steps 1+ 3=
block 2
{NOTHING}steps 1=""",
    left=("vgpr_32", "vgpr_32"),
)  # fmt: skip
ITSELF = Pair(
    ("vgpr_32",), "$vgpr0, $vgpr1",
    "%0:vgpr_32 = COPY $vgpr0\n    S_NOP 0\n    S_NOP 0, implicit %0",
    "$vgpr1 = COPY $vgpr1\n    S_NOP 0\n    $vgpr5 = COPY $vgpr1\n    S_NOP 0, implicit $vgpr5",
    "steps 1- 1+ 1= 1+ 2=",
)  # fmt: skip
MISSED = Pair(
    ("vgpr_32", "sreg_64", "sreg_32_xm0"), "$vgpr0, $sgpr10_sgpr11",
    f"""%0:vgpr_32 = COPY $vgpr0
    {NARROW.format("%1:sreg_64")}
    S_CBRANCH_EXECZ %bb.2, implicit $exec
  bb.1:
    liveins: $vgpr0
    %2:sreg_32_xm0 = V_READLANE_B32 %0, 5
    S_NOP 0, implicit %2
  bb.2:
    {WIDEN.format("%1")}
    S_NOP 0, implicit %0""",
    f"""$vgpr2 = COPY $vgpr0
    {NARROW.format("$sgpr8_sgpr9")}
    S_CBRANCH_EXECZ %bb.2, implicit $exec
  bb.1:
    liveins: $vgpr0, $vgpr2, $sgpr8_sgpr9
    $vgpr3 = COPY $vgpr0
    $vgpr2 = COPY $vgpr3
    $sgpr5 = V_READLANE_B32 $vgpr2, 5
    S_NOP 0, implicit $sgpr5
  bb.2:
    liveins: $vgpr2, $sgpr8_sgpr9
    {WIDEN.format("$sgpr8_sgpr9")}
    S_NOP 0, implicit $vgpr2""",
    """steps 1- 1+ 2=
block 1
ENTRY
h %0.0 $0 1
steps 2+ 2=
block 2
ENTRY
steps 3=""".replace(
        "ENTRY",
        f"{WAITING}h %0.0 $4 1",
    ),
)  # fmt: skip
RESTORED = Pair(
    ("sreg_32",), "$sgpr4, $sgpr48",
    """%0:sreg_32 = S_ADD_I32 $sgpr4, 1, implicit-def dead $scc
    S_NOP 0, implicit %0""",
    """renamable $sgpr5 = COPY renamable $sgpr48
    renamable $sgpr48 = S_ADD_I32 $sgpr4, 1, implicit-def dead $scc
    S_NOP 0, implicit killed renamable $sgpr48
    renamable $sgpr48 = COPY killed renamable $sgpr5""",
    "steps 1+ 2= 1+ 1=", ends="SI_RETURN", info="  frameOffsetReg: '$sgpr33'\n",
)  # fmt: skip
SAMPLE = 'INLINEASM &"image_sample v[0:3], $0, s[0:7], s[8:11]", 1, 1769481 /* reguse:VGPR_32 */, {}'
SAMPLED = Pair(
    ("vgpr_32", "sreg_64"), "$vgpr0, $sgpr10_sgpr11",
    f"%0:vgpr_32 = COPY $vgpr0\n{NARROW.format('%1:sreg_64')}\n{SAMPLE.format('%0')}",
    f"{NARROW.format('$sgpr8_sgpr9')}\n$vgpr1 = COPY $vgpr0\n{SAMPLE.format('$vgpr1')}",
    "steps 1- 1= 1+ 2=",
)  # fmt: skip
LOD = "{} = IMAGE_GET_LOD_V1_V1_gfx11 {}, undef $sgpr0_sgpr1_sgpr2_sgpr3_sgpr4_sgpr5_sgpr6_sgpr7, "
LOD += "undef $sgpr8_sgpr9_sgpr10_sgpr11, 1, 0, 0, 0, 0, 0, 0, 0, implicit $exec"
NARROW_32 = "{} = S_AND_SAVEEXEC_B32 $sgpr12, implicit-def $exec_lo, implicit-def dead $scc, implicit $exec_lo"
DERIVED = Pair(
    ("vgpr_32", "sreg_32", "vgpr_32"), "$vgpr0, $sgpr12",
    f"%0:vgpr_32 = COPY $vgpr0\n{NARROW_32.format('%1:sreg_32')}\n{LOD.format('%2:vgpr_32', '%0')}\n"
    "S_NOP 0, implicit %2",
    f"{NARROW_32.format('$sgpr13')}\n$vgpr1 = COPY $vgpr0\n{LOD.format('$vgpr2', '$vgpr1')}\nS_NOP 0, implicit $vgpr2",
    "steps 1- 1= 1+ 3=", "gfx1100",
)  # fmt: skip

BLOCK = "$" + "_".join(f"vgpr{n}" for n in range(40, 72))
KEPT_OF_A_BLOCK = Pair(
    ("vgpr_32",), "$vgpr0, $m0",
    f"""%0:vgpr_32 = COPY $vgpr0
    $vgpr41 = COPY %0
    {BLOCK} = SCRATCH_LOAD_BLOCK_SADDR $sgpr32, 0, 0, implicit $exec, implicit $flat_scr, implicit $m0
    S_NOP 0, implicit $vgpr41""",
    f"""{BLOCK} = SCRATCH_LOAD_BLOCK_SADDR $sgpr32, 0, 0, implicit $exec, implicit $flat_scr, implicit $m0
    S_NOP 0, implicit $vgpr41""",
    "steps 2- 3=", "gfx1250",
)  # fmt: skip
ROUNDED = Pair(
    ("vgpr_32",), "$vgpr0, $vgpr1",
    """%0:vgpr_32 = nofpexcept V_CVT_PK_F16_F32_e64 0, $vgpr0, 0, $vgpr1, 0, 0, implicit $exec
    S_ROUND_MODE 1, implicit-def $mode, implicit $mode
    S_NOP 0, implicit %0""",
    """S_ROUND_MODE 1, implicit-def $mode, implicit $mode
    $vgpr2 = nofpexcept V_CVT_PK_F16_F32_e64 0, $vgpr0, 0, $vgpr1, 0, 0, implicit $exec
    S_NOP 0, implicit $vgpr2""",
    "steps 1- 1= 1+ 2=\nrepeat 1 0 0", "gfx950",
)  # fmt: skip
CHAINED = Pair(
    ("vgpr_32", "sreg_32"), "$vgpr8, $vgpr9, $sgpr12, $sgpr0, $sgpr4_sgpr5",
    f"$vgpr8 = COPY $vgpr9\n{NARROW_32.format('%1:sreg_32')}\nS_NOP 0",
    f"{NARROW_32.format('$sgpr13')}\nS_NOP 0\n$vgpr8 = COPY $vgpr9",
    "steps 1- 2= 1+ 1=", "gfx1100",
    ends="SI_CS_CHAIN_TC_W32 killed $sgpr4_sgpr5, 0, 0, -1, csr_amdgpu_cs_chainpreserve, implicit $sgpr0, "
    "implicit $vgpr8",
)  # fmt: skip
SAVED_SCALAR = "%stack.1, implicit $exec, implicit $sgpr32 :: ({} (s32) {} %stack.1, addrspace 5)"
REALIGNED = Pair(
    ("sreg_32",), "$vgpr0, $sgpr34, $sgpr30_sgpr31",
    """%0:sreg_32 = S_MOV_B32 7
    SCRATCH_STORE_DWORD_SADDR $vgpr0, %stack.0, 0, 0, implicit $exec, implicit $flat_scr
    S_NOP 0, implicit %0""",
    f"""SI_SPILL_S32_SAVE $sgpr34, {SAVED_SCALAR.format("store", "into")}
    $sgpr34 = S_MOV_B32 7
    SCRATCH_STORE_DWORD_SADDR $vgpr0, %stack.0, 0, 0, implicit $exec, implicit $flat_scr
    S_NOP 0, implicit $sgpr34
    $sgpr34 = SI_SPILL_S32_RESTORE {SAVED_SCALAR.format("load", "from")}""",
    "steps 1+ 3= 1+ 1=", ends="SI_RETURN", stack=(_object(0), _object(0) + _object(1, kind="spill-slot")),
    info="  hasSpilledSGPRs: true\n  frameOffsetReg: '$sgpr33'\n",
)  # fmt: skip
ALIGNED_MORE = (_object(0).replace("alignment: 4", "alignment: 64"),) * 2
ALIGNED_MORE = (ALIGNED_MORE[0], ALIGNED_MORE[1] + _object(1, kind="spill-slot"))
FIXED = "\nfixedStack:\n  - {{ id: 0, type: default, offset: 0, size: 4, alignment: {}, stack-id: default }}"
FIXED_16, FIXED_64 = (tuple(row + FIXED.format(n) for row in REALIGNED.stack) for n in (16, 64))
IN_ACCUMULATORS = Pair(
    ("vgpr_32", "sreg_64"), "$vgpr40, $sgpr30_sgpr31",
    """%0:vgpr_32 = COPY $vgpr40
    S_NOP 0, implicit %0""",
    f"""SI_SPILL_WWM_V32_SAVE $vgpr40, {SLOT.format("store", "into")}
    S_NOP 0, implicit $vgpr40""",
    "steps 1- 1+ 2=", ends="SI_RETURN", stack=("", _object(0, kind="spill-slot")),
    info="  hasSpilledVGPRs: true\n  sgprForEXECCopy: '$sgpr100_sgpr101'\n",
)  # fmt: skip
KEEPS_EXEC = Pair(
    ("vgpr_32",), "$vgpr0",
    """%0:vgpr_32 = COPY $vgpr0
    $sgpr100 = S_MOV_B32 7
    S_NOP 0, implicit $sgpr100, implicit %0""",
    """$vgpr1 = COPY $vgpr0
    $sgpr100 = S_MOV_B32 7
    $vgpr2 = WWM_COPY $vgpr1, implicit $exec
    S_NOP 0, implicit $sgpr100, implicit $vgpr2""",
    "steps 1- 1+ 1= 1+ 2=", info="  sgprForEXECCopy: '$sgpr100_sgpr101'\n",
)  # fmt: skip
TO_LANES = Pair(
    ("sreg_32", "vgpr_32"), "$sgpr4, $vgpr0",
    """%0:sreg_32 = COPY $sgpr4
    %1:vgpr_32 = V_MOV_B32_e32 1, implicit $exec
    $sgpr100 = S_MOV_B32 7
    S_NOP 0, implicit $sgpr100, implicit %0, implicit %1""",
    f"""SI_SPILL_S32_SAVE $sgpr4, {SAVED_SCALAR.format("store", "into").replace("stack.1", "stack.0")}
    %0:vgpr_32 = V_MOV_B32_e32 1, implicit $exec
    $sgpr100 = S_MOV_B32 7
    $sgpr5 = SI_SPILL_S32_RESTORE {SAVED_SCALAR.format("load", "from").replace("stack.1", "stack.0")}
    S_NOP 0, implicit $sgpr100, implicit $sgpr5, implicit %0""",
    "steps 1- 1+ 2= 1+ 2=", stack=("", _object(0, kind="spill-slot")), left=("vgpr_32",),
    info="  hasSpilledSGPRs: true\n  sgprForEXECCopy: '$sgpr100_sgpr101'\n",
)  # fmt: skip
OF_THE_FRAME = Pair(
    ("vgpr_32",), "$vgpr0, $sgpr33, $sgpr30_sgpr31",
    """%0:vgpr_32 = COPY $vgpr0
    S_NOP 0, implicit $sgpr33
    S_NOP 0, implicit %0""",
    f"""SI_SPILL_V32_SAVE $vgpr0, {SLOT.format("store", "into")}
    S_NOP 0, implicit $sgpr33
    $vgpr1 = SI_SPILL_V32_RESTORE {SLOT.format("load", "from")}
    S_NOP 0, implicit $vgpr1""",
    "steps 1- 1+ 1= 1+ 2=", "gfx1100", ends="SI_RETURN", stack=("", _object(0, kind="spill-slot")),
    info="  hasSpilledVGPRs: true\n  frameOffsetReg: '$sgpr33'\n",
)  # fmt: skip
EIGHT = "$" + "_".join(f"sgpr{n}" for n in range(8, 16))
LOADED_AGAIN = Pair(
    ("sreg_64_xexec", "sgpr_256"), "$sgpr4_sgpr5",
    """%0:sreg_64_xexec = COPY $sgpr4_sgpr5
    %1:sgpr_256 = S_LOAD_DWORDX8_IMM %0, 0, 0 :: (load (s256) from %ir.p, align 4, addrspace 4)
    S_NOP 0, implicit %1""",
    f"""$sgpr8_sgpr9 = COPY $sgpr4_sgpr5
    {EIGHT} = S_LOAD_DWORDX8_IMM $sgpr8_sgpr9, 0, 0 :: (load (s256) from %ir.p, align 4, addrspace 4)
    S_NOP 0, implicit {EIGHT}""",
    "steps 1- 1+ 3=",
)  # fmt: skip
MOV = "{} = V_MOV_B32_e32 {}, implicit $exec"
EXCHANGED = Pair(
    ("vgpr_32", "vgpr_32", "sreg_64", "vgpr_32"), "$vgpr0, $vgpr1, $sgpr10_sgpr11",
    f"""%0:vgpr_32 = COPY $vgpr0
    %3:vgpr_32 = COPY $vgpr0
    %1:vgpr_32 = COPY $vgpr1
    {NARROW.format("%2:sreg_64")}
    {MOV.format("%3:vgpr_32", "%1")}
    {WIDEN.format("%2")}
    S_NOP 0, implicit %3, implicit %0""",
    f"""$vgpr2 = COPY $vgpr0
    {NARROW.format("$sgpr8_sgpr9")}
    {MOV.format("$vgpr0", "$vgpr1")}
    {WIDEN.format("$sgpr8_sgpr9")}
    $vgpr1 = COPY $vgpr2
    S_NOP 0, implicit $vgpr0, implicit $vgpr1""",
    "steps 3- 1+ 3= 1+ 2=",
)  # fmt: skip
JOINED = replace(
    DELETED,
    before=DELETED.before.replace("    $exec", "  bb.1:\n    $exec"),
    after=DELETED.after.replace("    renamable $vgpr2 = COPY renamable $vgpr3", """  bb.1:
    liveins: $vgpr0, $vgpr2, $vgpr3, $sgpr8_sgpr9
    renamable $vgpr2 = COPY renamable $vgpr3"""),
    steps=DELETED.steps + NO_STEPS,
)  # fmt: skip
UNDECLARED = replace(
    DELETED,
    before=JOINED.before,
    after=f"""{NARROW.format("$sgpr8_sgpr9")}
  bb.1:
    liveins: $sgpr8_sgpr9
    {WIDEN.format("$sgpr8_sgpr9")}
    S_NOP 0, implicit $vgpr0""",
    steps="steps 1- 4=" + NO_STEPS,
)  # fmt: skip
OF_STORE = WAITING.replace("%1", "%2") + "h %0.0 $0 1\nh $8 $8 2\n"
STORED = "GLOBAL_STORE_DWORD $vgpr4_vgpr5, {value}, 0, 0, implicit $exec"
ALL_ON = NOTHING.replace("class 1 T off\n", "").replace("class 2", "class 1").replace("class 3", "class 2")
ALL_ON += "h $12292 $12292 2\nin 0 2\nh %0.0 $0 1\nh $8 $8 2\n"


def _forwarded(body: str, *blocks: str) -> Pair:
    """A copy into ``%0`` that other threads miss, and a store that reads it in another block.

    Args:
        blocks: claims and steps of each block.
    """
    texts: list[str] = []
    for first, value, mask, live in (
        ("%0:vgpr_32 = COPY $vgpr0\n", "%0", "%2:sreg_64", "$vgpr1, $vgpr4_vgpr5"),
        ("", "$vgpr0", "$sgpr8_sgpr9", "$vgpr0, $vgpr1, $vgpr4_vgpr5, $sgpr8_sgpr9"),
    ):
        to = f"{value}:vgpr_32" if first else value
        text = f"{first}{{narrow}}\n{body}".format(
            copy=f"{to} = COPY $vgpr1",
            other=f"{to} = COPY $vgpr4",
            made=f"{'' if first else 'renamable '}{to} = V_MOV_B32_e32 7, implicit $exec",
            moved="" if first else "renamable $vgpr2 = COPY killed renamable $vgpr0",
            narrow=NARROW.format(mask),
            widen=WIDEN.format(mask.split(":")[0]),
            live=live,
            value=value,
            there=value if first else "$vgpr2",
        )
        texts.append("\n".join(line for line in text.split("\n") if line.strip()))
    classes = ("vgpr_32", "vgpr_32", "sreg_64")
    steps = "\n".join(f"block {n}\n{block}" for n, block in enumerate(blocks)).removeprefix("block 0\n")
    before, after = texts
    return Pair(classes, "$vgpr0, $vgpr1, $vgpr4_vgpr5, $sgpr10_sgpr11", before, after, steps)


SKIPPED = f"""{{copy}}
    S_CBRANCH_SCC1 %bb.2, implicit undef $scc
  bb.1:
    liveins: {{live}}
  bb.2:
    liveins: {{live}}
    {{widen}}
    S_NOP 0
    S_NOP 0
    {STORED}"""
VANISHED = _forwarded(SKIPPED, "steps 1- 1= 1- 1+ 1=", OF_STORE + "steps", OF_STORE + "steps 5=")
SKIPPING = _forwarded(
    SKIPPED.replace("  bb.2", "    S_NOP 0\n  bb.2"),
    "steps 1- 1= 1- 1+ 1=", OF_STORE + "steps 1=", OF_STORE + "steps 5=",
)  # fmt: skip
BRANCHES = f"""{{copy}}
    {{widen}}
    S_CBRANCH_SCC1 %bb.2, implicit undef $scc
  bb.1:
    liveins: {{live}}
    {STORED}
    S_NOP 0
    S_NOP 1
    S_ENDPGM 0
  bb.2:
    liveins: {{live}}
    {STORED}
    S_NOP 0"""
HOISTED = _forwarded(BRANCHES, "steps 1- 1= 1- 1+ 2=", ALL_ON + "steps 4=", ALL_ON + "steps 3=")
NOT_HOISTED = _forwarded(
    BRANCHES.replace(STORED, "S_NOP 3\n    " + STORED, 1),
    "steps 1- 1= 1- 1+ 2=", ALL_ON + "steps 5=", ALL_ON + "steps 3=",
)  # fmt: skip
ARMS = f"""S_CBRANCH_SCC1 %bb.2, implicit undef $scc
  bb.1:
    successors: %bb.3
    liveins: {{live}}
    S_NOP 1
    {{copy}}
    S_BRANCH %bb.3
  bb.2:
    liveins: {{live}}
    S_NOP 2
    {{copy}}
  bb.3:
    liveins: {{live}}
    {{widen}}
    S_NOP 0
    S_NOP 0
    {STORED}"""
OF_ARM = OF_STORE + "h $2 $2 1\n"
MERGED = _forwarded(
    ARMS, "steps 1- 2=", OF_ARM + "steps 1= 1- 1+ 1=", OF_ARM + "steps 1= 1- 1+", OF_STORE + "steps 5=",
)  # fmt: skip
NOT_MERGED = _forwarded(
    ARMS.replace("  bb.3:", "    S_NOP 4\n  bb.3:"),
    "steps 1- 2=", OF_ARM + "steps 1= 1- 1+ 1=", OF_ARM + "steps 1= 1- 1+ 1=", OF_STORE + "steps 5=",
)  # fmt: skip
ONE = f"""S_CBRANCH_SCC1 %bb.2, implicit undef $scc
  bb.1:
    successors: %bb.3
    liveins: {{live}}
    {{copy}}
    {{widen}}
    S_BRANCH %bb.3
  bb.2:
    liveins: {{live}}
    {{widen}}
    S_NOP 1
    S_CBRANCH_SCC1 %bb.4, implicit undef $scc
  bb.3:
    liveins: {{live}}
    {{small}}
  bb.4:
    liveins: {{live}}
    {STORED}
    S_NOP 3
    S_NOP 3"""
OF_ONE = ("steps 1- 2=", OF_ARM + "steps 1- 1+ 2=", OF_ARM + "steps 3=")
FORWARDED = _forwarded(ONE.replace("{small}", STORED), *OF_ONE, ALL_ON + "steps 1=", ALL_ON + "steps 4=")
NOT_SMALL = _forwarded(
    ONE.replace("{small}", "S_NOP 2\n    " + STORED), *OF_ONE, ALL_ON + "steps 2=", ALL_ON + "steps 4="
)
ENDS = ONE.replace("{small}", STORED + "\n    S_NOP 7\n    S_BRANCH %bb.5").replace(
    "  bb.3:", "  bb.3:\n    successors: %bb.5"
)
ENDS += "\n    S_NOP 7\n  bb.5:\n    S_NOP 8\n    S_NOP 8\n    S_NOP 8"
OF_ENDS = (*OF_ONE, ALL_ON + "steps 3=", ALL_ON + "steps 4=", ALL_ON[: ALL_ON.index("in 0")] + "steps 4=")
SHORTENED = _forwarded(ENDS, *OF_ENDS)
NOT_SHORTENED = _forwarded(ENDS.replace("S_NOP 7\n  bb.5", "S_NOP 9\n  bb.5"), *OF_ENDS)
AGAIN = _forwarded(ONE.replace("{small}", "{copy}"), *OF_ONE, ALL_ON + "h $2 $2 1\nsteps 1- 1+", ALL_ON + "steps 4=")
NOT_AGAIN = _forwarded(
    ONE.replace("{small}", "{other}"), *OF_ONE, ALL_ON.replace("h %0.0 $0 1\n", "") + "steps 1- 1+", ALL_ON + "steps 4="
)
OVER = ONE.replace("{live}", "{live}, $sgpr10_sgpr11", 1).replace(STORED, "{widen}\n    " + STORED)
OVER = OVER.replace("{copy}\n    {widen}", "{widen}\n    {copy}\n    {narrow}").replace("{small}", "{other}")
OVER = OVER.replace("{widen}\n    S_NOP 1", "S_NOP 1")
REPLACED = _forwarded(
    OVER,
    "steps 1- 2=",
    OF_ARM.replace("wave\n", "wave\nh $8212 $8212 2\n") + "steps 1= 1- 1+ 2=",
    OF_ARM + "steps 2=",
    OF_STORE + "steps 1- 1+",
    OF_STORE + "steps 5=",
)
BACKWARD = f"""S_CBRANCH_SCC1 %bb.2, implicit undef $scc
  bb.1:
    successors: %bb.3
    liveins: {{live}}
    {{made}}
    {{widen}}
    S_BRANCH %bb.3
  bb.2:
    liveins: {{live}}
    {{widen}}
    {{moved}}
    S_NOP 1
    S_CBRANCH_SCC1 %bb.4, implicit undef $scc
  bb.3:
    liveins: {{live}}
    {{moved}}
  bb.4:
    liveins: {{live}}, $vgpr2
    {STORED.replace("value", "there")}
    S_NOP 3
    S_NOP 3"""
BACKWARDS = _forwarded(
    BACKWARD, "steps 1- 2=", OF_STORE + "steps 3=", OF_STORE + "steps 1= 1+ 2=", ALL_ON + "steps 1+",
    ALL_ON.replace("%0.0 $0", "%0.0 $4") + "steps 4=",
)  # fmt: skip
CALLER = """entry
class 0 T on
class 1 O off
class 2 P on
in wave
h ^8252 $8252 2
h ^8260 $8260 6
h ^8290 $8290 7
h ^8320 $8320 8
h ^8352 $8352 8
h ^8384 $8384 10
h ^8288 """
RESTORED_BEFORE = replace(
    RESTORED,
    before=RESTORED.before + """
    S_CBRANCH_SCC1 %bb.2, implicit undef $scc
  bb.1:
    successors: %bb.3
    S_BRANCH %bb.3
  bb.2:
    liveins: $sgpr48
    S_NOP 0, implicit $sgpr48
  bb.3:
    S_NOP 0""",
    after=RESTORED.after.removesuffix("renamable $sgpr48 = COPY killed renamable $sgpr5") + """
    S_CBRANCH_SCC1 %bb.2, implicit undef $scc
  bb.1:
    successors: %bb.3
    liveins: $sgpr5
    renamable $sgpr48 = COPY killed renamable $sgpr5
    S_BRANCH %bb.3
  bb.2:
    liveins: $sgpr5
    renamable $sgpr48 = COPY killed renamable $sgpr5
    S_NOP 0, implicit $sgpr48
  bb.3:
    liveins: $sgpr48
    S_NOP 0""",
    steps=f"""steps 1+ 3=
block 1
{CALLER}$8202 1
steps 1+ 1=
block 2
{CALLER}$8202 1
h $8288 $8202 1
steps 1+ 1=
block 3
{CALLER}$8288 1
steps 2=""",
)  # fmt: skip

AT_ENTRY = CALLER[: CALLER.index("h ")]
IN_SCC = Pair(
    ("sreg_32",), "$sgpr4",
    f"""S_CMP_EQ_U32 $sgpr4, 0, implicit-def $scc
{LEFT}    liveins: $scc
    S_NOP 0, implicit $scc{ELSEWHERE}""",
    f"""S_CMP_EQ_U32 $sgpr4, 0, implicit-def $scc
{LEFT}    S_NOP 0, implicit $scc{ELSEWHERE}""",
    f"""steps 2=
block 1
{AT_ENTRY}h $12298 $12298 1
steps 2=
block 2
{AT_ENTRY}steps 1=""",
)  # fmt: skip

ON = "entry\nclass 0 T on\nclass 1 O off\nclass 2 P on\n"
OF_EXEC = ON + "in wave\nh $12292 $12292 2\n"
VCC_BRANCH = f"""{{of}} = V_CMP_EQ_U32_e64 $vgpr0, $vgpr1, implicit $exec
    $vcc = S_AND_B64 $exec, {{read}}, implicit-def $scc
    {{to}} = S_CSELECT_B32 1, 0, implicit $scc
    S_NOP 0, implicit {{value}}
    S_CBRANCH_VCCNZ %bb.2, implicit $vcc
  bb.1:
    S_NOP 1{ELSEWHERE}"""
AND_DELETED = Pair(
    ("sreg_64", "sreg_32"), "$vgpr0, $vgpr1, $sgpr4",
    VCC_BRANCH.format(of="%0:sreg_64", read="%0", to="%1:sreg_32", value="%1"),
    VCC_BRANCH.format(of="$vcc", read="$vcc", to="$sgpr5", value="$sgpr5"),
    f"steps 5=\nblock 1\n{ON}steps 2=\nblock 2\n{ON}steps 1=",
)  # fmt: skip
SAVED_MASK = f"""{{of}} = V_CMP_EQ_U32_e64 $vgpr0, $vgpr1, implicit $exec
    {{to}} = S_AND_SAVEEXEC_B32 {{read}}, implicit-def $exec, implicit-def $scc, implicit $exec
    S_CBRANCH_SCC1 %bb.2, implicit $scc
  bb.1:
    S_NOP 1{ELSEWHERE}
    {{live}}S_NOP 0, implicit {{value}}"""
COMPARED_AT_ONCE = Pair(
    ("sreg_32", "sreg_32"), "$vgpr0, $vgpr1",
    SAVED_MASK.format(of="%0:sreg_32", read="%0", to="%1:sreg_32", value="%1", live=""),
    SAVED_MASK.format(of="$sgpr4", read="$sgpr4", to="$sgpr5", value="$sgpr5", live="liveins: $sgpr5\n    "),
    f"steps 3=\nblock 1\n{NOTHING}steps 2=\nblock 2\n{NOTHING}h %1.0 $8202 1\nsteps 2=", "gfx1100",
)  # fmt: skip
MASK_IN_PARTS = f"""{{of}} = V_CMP_EQ_U32_e64 $vgpr0, $vgpr1, implicit $exec
    {{old}} = S_MOV_B32 $exec_lo
    {{to}} = S_AND_B32 {{saved}}, {{read}}, implicit-def $scc
    $exec_lo = S_MOV_B32_term {{mask}}
    S_CBRANCH_SCC1 %bb.2, implicit $scc
  bb.1:
    S_NOP 1{ELSEWHERE}
    {{live}}S_NOP 0, implicit {{saved}}"""
COMPARED_IN_PARTS = Pair(
    ("sreg_32", "sreg_32", "sreg_32"), "$vgpr0, $vgpr1",
    MASK_IN_PARTS.format(of="%0:sreg_32", read="%0", old="%1:sreg_32", saved="%1", to="%2:sreg_32", mask="%2", live=""),
    MASK_IN_PARTS.format(
        of="$sgpr4", read="$sgpr4", old="$sgpr5", saved="$sgpr5", to="$sgpr6", mask="$sgpr6",
        live="liveins: $sgpr5\n    ",
    ),
    f"steps 5=\nblock 1\n{NOTHING}steps 2=\nblock 2\n{NOTHING}h %1.0 $8202 1\nsteps 2=", "gfx1100",
)  # fmt: skip
WIDENED = """{first}{narrow}
    S_NOP 0
    $exec = {widens} {saved}
  bb.1:
    successors: %bb.1, %bb.2
    liveins: $vgpr4_vgpr5
    {again}GLOBAL_STORE_DWORD $vgpr4_vgpr5, {value}, 0, 0, implicit $exec
    S_CBRANCH_SCC1 %bb.1, implicit undef $scc
  bb.2:"""
REPEATED_IN_LOOP = Pair(
    ("vgpr_32", "sreg_64"), "$vgpr4_vgpr5, $sgpr10_sgpr11",
    WIDENED.format(
        first=MOV.format("%0:vgpr_32", 7) + "\n    ", narrow=NARROW.format("%1:sreg_64"), widens="S_MOV_B64_term",
        saved="%1", again="", value="%0",
    ),
    WIDENED.format(
        first="", narrow=NARROW.format("$sgpr8_sgpr9"), widens="S_MOV_B64_term", saved="$sgpr8_sgpr9",
        again=MOV.format("$vgpr1", 7) + "\n    ", value="$vgpr1",
    ),
    f"""steps 1- 3=
block 1
{OF_EXEC}in 0 2
h $8 $8 2
h %0.0 !0.0.0 1
steps 1+ 2=
repeat 0 0 0
block 2
{OF_EXEC}steps 1=""",
)  # fmt: skip
NARROWED = f"""{{first}}{{saved}} = S_MOV_B64 $exec
    S_NOP 0, implicit {{value}}
    {{mask}} = S_AND_B64 {{read}}, $sgpr10_sgpr11, implicit-def dead $scc
    $exec = {{narrows}} {{narrow}}
  bb.1:
    successors: %bb.1, %bb.2
    liveins: {{live}}
    {MOV.format("{one}", 7)}
    GLOBAL_STORE_DWORD $vgpr4_vgpr5, {{other}}, 0, 0, implicit $exec
    S_CBRANCH_SCC1 %bb.1, implicit undef $scc
  bb.2:
    liveins: {{live}}
    {{last}}{WIDEN.format("{read}")}
    GLOBAL_STORE_DWORD $vgpr4_vgpr5, {{value}}, 0, 0, implicit $exec"""
WAIT_FOR_LOOP = WAITING.replace("%1", "%2").replace("in 0 1 3\n", "")
WAIT_FOR_LOOP += "in 0 3\nh %0.0 $0 1\nh $8 $8 2\nin 1\nh %0.0 $0 1\nh %0.0 $2 1\nh $8 $8 2\n"
INDEX = """$m0 = S_MOV_B32 1
    S_NOP 0
    $m0 = {moves} $sgpr4
  bb.1:
    successors: %bb.1, %bb.2
    {of} = S_MOV_B32 $m0
    S_NOP 0, implicit {value}
    S_CBRANCH_SCC1 %bb.1, implicit undef $scc
  bb.2:"""
INDEX_IN_LOOP = Pair(
    ("sreg_32",), "$sgpr4", INDEX.format(of="%0:sreg_32", value="%0", moves="S_MOV_B32_term"),
    INDEX.format(of="$sgpr5", value="$sgpr5", moves="S_MOV_B32_term"),
    f"steps 3=\nblock 1\n{ON}in wave\nh $M0 $M0 1\nsteps 3=\nblock 2\n{ON}steps 1=".replace("$M0", "$12296"),
)  # fmt: skip
IN_LOOP = Pair(
    ("vgpr_32", "vgpr_32", "sreg_64", "sreg_64"), "$vgpr0, $vgpr4_vgpr5, $sgpr10_sgpr11",
    NARROWED.format(
        first="%0:vgpr_32 = COPY $vgpr0\n    ", saved="%2:sreg_64", value="%0", mask="%3:sreg_64", read="%2",
        narrow="%3", live="$vgpr4_vgpr5", one="%1:vgpr_32", other="%1", last="", narrows="S_MOV_B64_term",
    ),
    NARROWED.format(
        first="$vgpr1 = COPY $vgpr0\n    ", saved="$sgpr8_sgpr9", value="$vgpr1", mask="$sgpr12_sgpr13",
        read="$sgpr8_sgpr9", narrow="$sgpr12_sgpr13", live="$vgpr0, $vgpr4_vgpr5, $sgpr8_sgpr9", one="$vgpr1",
        other="$vgpr1", last="$vgpr1 = COPY $vgpr0\n    ", narrows="S_MOV_B64_term",
    ),
    f"steps 1- 1+ 4=\nblock 1\n{WAIT_FOR_LOOP}steps 3=\nblock 2\n{WAIT_FOR_LOOP}steps 1+ 3=",
)  # fmt: skip
MASKED = """{old} = S_MOV_B64 $exec
    {one} = S_NOT_B64 $sgpr10_sgpr11, implicit-def dead $scc
    {two} = S_AND_B64 {one_read}, $sgpr4_sgpr5, implicit-def dead $scc
    $exec = S_MOV_B64_term {two_read}
  bb.1:
    liveins: $vgpr0, $vgpr4_vgpr5
    GLOBAL_STORE_DWORD $vgpr4_vgpr5, $vgpr0, 0, 0, implicit $exec"""
TAKEN_FOR_EXEC = Pair(
    ("sreg_64", "sreg_64", "sreg_64"), "$sgpr4_sgpr5, $vgpr0, $vgpr4_vgpr5, $sgpr10_sgpr11",
    MASKED.format(old="%0:sreg_64", one="%1:sreg_64", one_read="%1", two="%2:sreg_64", two_read="%2"),
    MASKED.format(
        old="dead $sgpr6_sgpr7", one="$sgpr6_sgpr7", one_read="$sgpr6_sgpr7", two="$sgpr8_sgpr9",
        two_read="$sgpr8_sgpr9",
    ),
    f"steps 6={NO_STEPS}",
)  # fmt: skip
READ_BEHIND = (
    """{old} = S_MOV_B64 $exec
    {mask} = S_AND_B64 {old_read}, $sgpr4_sgpr5, implicit-def dead $scc
    $exec = S_MOV_B64 {mask_read}
    {copy}S_CBRANCH_SCC1 %bb.2, implicit undef $scc
  bb.1:
    {live}S_NOP 0, implicit {value}, implicit {old_read}"""
    + ELSEWHERE
)
SOURCE_OF_EXEC = Pair(
    ("sreg_64", "sreg_64"), "$sgpr4_sgpr5",
    READ_BEHIND.format(
        old="%0:sreg_64", old_read="%0", mask="%1:sreg_64", mask_read="%1", copy="", value="%1", live="",
    ),
    READ_BEHIND.format(
        old="$sgpr6_sgpr7", old_read="$sgpr6_sgpr7", mask="$sgpr8_sgpr9", mask_read="$sgpr8_sgpr9",
        copy="$sgpr12_sgpr13 = COPY $sgpr8_sgpr9\n    ", value="$sgpr12_sgpr13",
        live="liveins: $sgpr6_sgpr7, $sgpr12_sgpr13\n    ",
    ),
    f"""steps 3= 1+ 1=
block 1
{NOTHING}h %0.0 $8204 1
h %0.2 $8206 1
h %1.0 $8216 1
h %1.2 $8218 1
steps 2=
block 2
{NOTHING}steps 1=""",
)  # fmt: skip
HALVES_LIVE = replace(
    SOURCE_OF_EXEC,
    after=SOURCE_OF_EXEC.after.replace("    $sgpr12_sgpr13 = COPY $sgpr8_sgpr9\n", "").replace(
        "$sgpr12_sgpr13\n    S_NOP 0, implicit $sgpr12_sgpr13", "$sgpr8, $sgpr9\n    S_NOP 0, implicit $sgpr8_sgpr9",
    ),
    steps=SOURCE_OF_EXEC.steps.replace("3= 1+ 1=", "4=").replace("$8216", "$8208").replace("$8218", "$8210"),
)  # fmt: skip
WRITTEN_BACK = Pair(
    ("vreg_64", "vreg_64"), "$vgpr0_vgpr1", IN_PARTS.before,
    """renamable $vgpr4_vgpr5 = V_MOV_B64_PSEUDO $vgpr0_vgpr1, implicit $exec
    renamable $vgpr1_vgpr2 = COPY killed renamable $vgpr4_vgpr5
    S_NOP 0, implicit $vgpr1_vgpr2""",
    "steps 1- 1= 1+ 2=", "gfx1100",
)  # fmt: skip
OVER_ADDRESS = "$" + "_".join(f"sgpr{n}" for n in range(4, 12))
BESIDE_ADDRESS = "$" + "_".join(f"sgpr{n}" for n in range(16, 24))
LOADED_BACK = replace(
    LOADED_AGAIN,
    after=LOADED_AGAIN.after.replace("$sgpr8_sgpr9 = COPY $sgpr4_sgpr5\n", "").replace("$sgpr8_sgpr9,", "$sgpr4_sgpr5,")
    .replace(f"S_NOP 0, implicit {EIGHT}", f"renamable {OVER_ADDRESS} = COPY killed renamable {EIGHT}")
    + f"\n    S_NOP 0, implicit {OVER_ADDRESS}",
    steps="steps 1- 1= 1+ 2=",
)  # fmt: skip
LOADED_FORWARD = replace(
    LOADED_AGAIN,
    after=LOADED_AGAIN.after.replace(EIGHT, OVER_ADDRESS).replace("$sgpr8_sgpr9", "renamable $sgpr20_sgpr21"),
)  # fmt: skip
SKIPPED_BLOCK = """{first}{narrow}
    S_CBRANCH_EXECZ %bb.2, implicit $exec
  bb.1:
    liveins: $vgpr0{live}
    {of} = S_MOV_B32 7
    {nothing}{sum} = V_ADD_U32_e32 {read}, $vgpr0, implicit $exec
  bb.2:
    {liveins}S_NOP 0, implicit {value}
    {widen}"""
OF_NOBODY = WAITING.removesuffix("in 0 1 3\n")
GONE_THROUGH = Pair(
    ("sreg_32", "sreg_64", "sreg_32", "vgpr_32"), "$sgpr10_sgpr11, $sgpr4, $vgpr0",
    SKIPPED_BLOCK.format(
        first="%0:sreg_32 = COPY $sgpr4\n    ", narrow=NARROW.format("%1:sreg_64"), live="", of="%2:sreg_32",
        nothing="%0:sreg_32 = IMPLICIT_DEF\n    ", sum="%3:vgpr_32", read="%2", liveins="", value="%0",
        widen=WIDEN.format("%1"),
    ),
    SKIPPED_BLOCK.format(
        first="", narrow=NARROW.format("$sgpr8_sgpr9"), live=", $sgpr8_sgpr9", of="$sgpr4", nothing="", sum="$vgpr1",
        read="killed $sgpr4", liveins="liveins: $sgpr4, $sgpr8_sgpr9\n    ", value="$sgpr4",
        widen=WIDEN.format("$sgpr8_sgpr9"),
    ),
    f"""steps 1- 2=
block 1
{OF_NOBODY}in 0 3
h $0 $0 1
steps 1= 1- 1=
block 2
{OF_NOBODY}h %0.0 $8200 1
d %0.0 1
steps 3=""",
)  # fmt: skip

MANY = tuple("$" + "_".join(f"sgpr{n}" for n in range(first, first + 32)) for first in (36, 68))
SLOT_OF = "%stack.{0}, implicit $exec, implicit $sgpr32 :: ({1} %stack.{0}{2}, addrspace 5)"
INTO, FROM = (
    [
        SLOT_OF.format(n, f"{way[0]} (s{bits}) {way[1]}", ", align 4" * (bits > 32))
        for n, bits in enumerate((1024, 1024, 32))
    ]
    for way in (("store", "into"), ("load", "from"))
)
AROUND = """{first}S_NOP 0
  bb.1:
    successors: %bb.1, %bb.2
    S_NOP 0, implicit-def {one}, implicit-def {two}
    {moved}S_NOP 0, implicit {one}, implicit {two}
    {back}S_NOP 0, implicit {value}
    {of} = S_MOV_B32 7
    {saved}S_CBRANCH_SCC1 %bb.1, implicit undef $scc
  bb.2:"""
LOST_IN_LOOP = Pair(
    ("sreg_32", "sgpr_1024", "sgpr_1024"), "$vgpr0",
    AROUND.format(
        first="%0:sreg_32 = IMPLICIT_DEF\n    ", one="%1:sgpr_1024", two="%2:sgpr_1024", moved="", back="", value="%0",
        of="%0:sreg_32", saved="",
    ).replace("implicit %1:sgpr_1024, implicit %2:sgpr_1024", "implicit %1, implicit %2"),
    AROUND.format(
        first="", one=MANY[0], two=MANY[1], value="$sgpr4", of="$sgpr4",
        moved=f"""SI_SPILL_S1024_SAVE {MANY[0]}, {INTO[0]}
    SI_SPILL_S1024_SAVE {MANY[1]}, {INTO[1]}
    {MANY[0]} = SI_SPILL_S1024_RESTORE {FROM[0]}
    {MANY[1]} = SI_SPILL_S1024_RESTORE {FROM[1]}
    """,
        back=f"$sgpr4 = SI_SPILL_S32_RESTORE {FROM[2]}\n    ", saved=f"SI_SPILL_S32_SAVE $sgpr4, {INTO[2]}\n    ",
    ),
    f"steps 1- 1=\nblock 1\n{ON}in wave\nh %0.0 #2.0 1\nd %0.0 1\nsteps 1= 4+ 1= 1+ 2= 1+ 1=\nblock 2\n{ON}steps 1=",
    stack=("", "".join(
        f"\n  - {{ id: {n}, type: spill-slot, size: {size}, alignment: 4, stack-id: sgpr-spill }}"
        for n, size in enumerate((128, 128, 4))
    )),
    info="  hasSpilledSGPRs: true\n  sgprForEXECCopy: '$sgpr100_sgpr101'\n",
)  # fmt: skip

AROUND_CALL = """{copy} = COPY $vgpr0
    ADJCALLSTACKUP 0, 0, implicit-def dead $scc, implicit-def $sgpr32, implicit $sgpr32
    dead $sgpr30_sgpr31 = SI_CALL $sgpr4_sgpr5, 0, csr_amdgpu, implicit-def dead $scc
    ADJCALLSTACKDOWN 0, 0, implicit-def dead $scc, implicit-def $sgpr32, implicit $sgpr32
    S_NOP 0, implicit $sgpr33, implicit {value}"""
SAVED_WHERE_CALLED = Pair(
    ("vgpr_32",), "$vgpr0, $sgpr33, $sgpr34, $sgpr4_sgpr5", AROUND_CALL.format(copy="%0:vgpr_32", value="%0"),
    AROUND_CALL.format(copy="$vgpr40", value="$vgpr40"), "steps 1- 1+ 5=", "gfx1100",
    info="  frameOffsetReg: '$sgpr33'\n", frame="  adjustsStack:    true\n  hasCalls:        true\n",
)  # fmt: skip

OF_A_TUPLE = Pair(
    ("vgpr_32",), "$vgpr0, $sgpr24_sgpr25",
    """%0:vgpr_32 = COPY $vgpr0
    $sgpr2 = S_MOV_B32 $sgpr20{whole}
    S_NOP 0, implicit %0""",
    """$sgpr2 = S_MOV_B32 $sgpr20{whole}
    S_NOP 0, implicit $vgpr0""",
    "steps 1- 3=",
)  # fmt: skip


def reads_beside(whole: str) -> Pair:
    """A part that nothing defines, read beside what an operand names as the whole."""
    return replace(OF_A_TUPLE, before=OF_A_TUPLE.before.format(whole=whole), after=OF_A_TUPLE.after.format(whole=whole))


SUNK = Pair(
    ("vgpr_32", "sreg_64"), "$vgpr0, $sgpr10_sgpr11, $sgpr12",
    """%0:vgpr_32 = COPY $vgpr0
    S_CMP_EQ_U32 $sgpr12, 0, implicit-def $scc
    S_CBRANCH_SCC1 %bb.2, implicit $scc
  bb.1:
    S_NOP 0, implicit %0
    S_ENDPGM 0
  bb.2:
    liveins: $sgpr10_sgpr11
    %1:sreg_64 = S_AND_SAVEEXEC_B64 $sgpr10_sgpr11, implicit-def $exec, implicit-def dead $scc, implicit $exec
    %0:vgpr_32 = V_MOV_B32_e32 1, implicit $exec
    $exec = S_OR_B64 $exec, %1, implicit-def dead $scc
    S_NOP 1, implicit %0""",
    """renamable $vgpr5 = COPY renamable $vgpr0
    S_CMP_EQ_U32 $sgpr12, 0, implicit-def $scc
    S_CBRANCH_SCC1 %bb.2, implicit $scc
  bb.1:
    liveins: $vgpr5
    S_NOP 0, implicit $vgpr5
    S_ENDPGM 0
  bb.2:
    liveins: $sgpr10_sgpr11
    $sgpr8_sgpr9 = S_AND_SAVEEXEC_B64 $sgpr10_sgpr11, implicit-def $exec, implicit-def dead $scc, implicit $exec
    $vgpr5 = V_MOV_B32_e32 1, implicit $exec
    $exec = S_OR_B64 $exec, $sgpr8_sgpr9, implicit-def dead $scc
    S_NOP 1, implicit $vgpr5""",
    """steps 1- 1+ 2=
block 1
entry
class 0 P on
class 1 T on
class 2 O off
some
in 0-1
h %0.0 $10 1
steps 2=
block 2
entry
class 0 P on
class 1 T on
class 2 O off
some
in wave
h $8212 $8212 2
h $12292 $12292 2
in 1
h %0.0 $10 1
steps 5=""",
)  # fmt: skip
"""A copy that LLVM moves into the one successor that declares its target (PostRA Machine Sink, run): the other one's
threads that wait meanwhile lose it.
"""
DECLARED = "  bb.2:\n    liveins: $sgpr10_sgpr11"


WRONG: dict[str, tuple[Pair, str]] = {
    "a copy that LLVM moves into the other successor": (SUNK, "live-in"),
    "a scalar that nothing defines": (reads_beside(""), "undefined"),
    "the same beside itself": (reads_beside(", implicit $sgpr20"), "undefined"),
    "the same beside another one": (reads_beside(", implicit $sgpr24_sgpr25"), "undefined"),
    "the same beside its tuple, of which nothing is defined": (
        reads_beside(", implicit $sgpr20_sgpr21_sgpr22_sgpr23"), "undefined",
    ),
    "one scalar in two registers": (CONSTANT_BUS, "operands"),
    "indexed from a copy of the first": (INDEXED, "operands"),
    "a move of two parts over its source": (IN_PARTS, "early-clobber"),
    "what leaves a half alone, repeated": (HALF_WRITTEN, ""),
    "a copy of EXEC, repeated for fewer threads": (EXEC_MOVED, ""),
    "the scavenger's slot": (replace(SPILLED, info="  scavengeFI: '%stack.0'\n"), "header"),
    "the scavenger's slot has another number": (
        replace(
            OBJECT, info="  scavengeFI: '%stack.1'\n", stack=(_object(1), _object(0) + _object(1, kind="spill-slot")),
        ),
        "header",
    ),
    "a name that looks like an object": (
        replace(OBJECT, after=OBJECT.after.replace('"a%stack.1"', '"a%stack.0"')), "operands",
    ),
    "an accumulator of the register's class": (
        replace(ADDED, before=ADDED.before.replace("$vgpr0", "$agpr0"), after=ADDED.after.replace("$vgpr0", "$agpr0")),
        "register-class",
    ),
    "an input of assembly in what it clobbers": (
        replace(CLOBBERED, after=CLOBBERED.after.replace("$vgpr6", "$vgpr5")), "early-clobber",
    ),
    "cells in a slot that has moved": (CELLS, "value"),
    "the first thread of what is undefined": (FIRST_OF_NOTHING, "inactive-lanes"),
    "a result indexed from elsewhere": (INDEXED_RESULT, "operands"),
    "the upper half of an earlier pass's instruction": (ABOVE, ""),
    **{
        name: (
            Pair((), liveins, of if "JOIN" in of else f"$sgpr6 = {of}", of if "JOIN" in of else f"$sgpr6 = {of}",
                 "steps 2="),
            "",
        )
        for name, (of, liveins) in HIDDEN.items()
    },
    "upper bits of the numbers of registers": (MODE, "not-followed"),
    "registers allocated dynamically, as the header says": (DYNAMIC, "attribute"),
    "a copy that is deleted, and some threads need": (DELETED, "value"),
    "a dead register that some threads need": (OVERWRITTEN, "value"),
    "a virtual register that may become one that some threads need": (TAKEN, "value"),
    "a virtual register that is dead ahead, and some threads need": (AHEAD, "relation"),
    "a register that is copied to itself": (ITSELF, "value"),
    "a copy that threads missed, read by a lane's number": (MISSED, "value"),
    "restored by a copy that is deleted": (RESTORED, "callee-saved"),
    "assembly that reads other threads": (SAMPLED, "inactive-lanes"),
    "a level of detail from other threads": (DERIVED, "value"),
    "what a block of registers keeps": (KEPT_OF_A_BLOCK, ""),
    "rounded in another way": (ROUNDED, ""),
    "a function that reads what waiting threads hold": (CHAINED, ""),
    "the base pointer by the alignment of a fixed object": (replace(REALIGNED, stack=FIXED_64), "reserved-register"),
    "the base pointer of a chain function by its header alone": (
        replace(REALIGNED, stack=ALIGNED_MORE, info=REALIGNED.info + "  isChainFunction: true\n"), "reserved-register",
    ),
    "a slot in accumulators, whose threads wait in the caller": (IN_ACCUMULATORS, "callee-saved"),
    "what keeps EXEC in a whole-wave move": (KEEPS_EXEC, "value"),
    "what keeps EXEC, where scalars go to lanes": (TO_LANES, "reserved-register"),
    "the frame pointer, which a slot makes one": (OF_THE_FRAME, "reserved-register"),
    "the address of a load that is done again": (LOADED_AGAIN, "early-clobber"),
    "moves that LLVM makes an exchange of": (EXCHANGED, "not-followed"),
    "a copy that is deleted where two blocks are joined": (JOINED, "value"),
    "what a block that is joined does not declare": (UNDECLARED, "value"),
    "a copy that other threads miss, forwarded in a copy of the next block": (FORWARDED, "relation"),
    "a condition that the next block does not declare": (IN_SCC, "live-in"),
    "a copy that other threads miss, forwarded over a block that vanishes": (VANISHED, "relation"),
    "a copy that other threads miss, forwarded to what is hoisted": (HOISTED, "relation"),
    "a copy that other threads miss, forwarded from a common end": (MERGED, "relation"),
    "a copy that other threads miss, forwarded to what is left of a block": (SHORTENED, "relation"),
    "a copy that stands already, ahead of its block": (AGAIN, "not-followed"),
    "a copy that is written over, behind its block": (REPLACED, "relation"),
    "what was written ahead of the block of a copy, and is written to its target": (BACKWARDS, "not-followed"),
    "restored by a copy that a copy of the next block does not read": (RESTORED_BEFORE, "relation"),
    "the condition of an AND that is deleted": (AND_DELETED, "not-followed"),
    "the condition of a mask that is compared at once": (COMPARED_AT_ONCE, "not-followed"),
    "the condition of a mask in parts that is compared at once": (COMPARED_IN_PARTS, "not-followed"),
    "hoisted over what widens EXEC": (REPEATED_IN_LOOP, "not-followed"),
    "hoisted over what narrows EXEC, and some threads need": (IN_LOOP, "not-followed"),
    "hoisted over what sets M0": (INDEX_IN_LOOP, "not-followed"),
    "taken for EXEC": (TAKEN_FOR_EXEC, "not-followed"),
    "a mask that LLVM gives EXEC alone": (SOURCE_OF_EXEC, "not-followed"),
    "a mask that LLVM gives EXEC alone, its halves live behind": (HALVES_LIVE, "not-followed"),
    "a move of two parts, over its source once a copy is gone": (WRITTEN_BACK, "not-followed"),
    "a load that is done again, over its address once a copy is gone": (LOADED_BACK, "not-followed"),
    "a load that is done again, its address copied in vain": (LOADED_FORWARD, "not-followed"),
    "the frame pointer, which a register that is saved makes one": (SAVED_WHERE_CALLED, "reserved-register"),
    "a scalar that lanes lose in a loop": (LOST_IN_LOOP, "spill-slot"),
    "a scalar of a block that LLVM does not skip": (GONE_THROUGH, "relation"),
}  # fmt: skip
RIGHT = {
    "a copy that both successors declare": replace(SUNK, after=SUNK.after.replace(DECLARED, DECLARED + ", $vgpr5")),
    "a part that nothing defines of a tuple of which something is": reads_beside(
        ", implicit $sgpr20_sgpr21_sgpr22_sgpr23_sgpr24_sgpr25_sgpr26_sgpr27"
    ),
    "one scalar in one register": replace(
        CONSTANT_BUS, after=CONSTANT_BUS.after.split("\n", 1)[1].replace("$sgpr5", "$sgpr4"), steps="steps 1- 3=",
    ),
    "indexed within its tuple": replace(
        INDEXED, after=INDEXED.after.split("\n", 1)[1].replace("$vgpr20", "$vgpr4"), steps="steps 1- 3=",
    ),
    "a move of two parts": replace(IN_PARTS, after=IN_PARTS.after.replace("$vgpr1_vgpr2", "$vgpr2_vgpr3")),
    "what writes zeros to a half, repeated": replace(
        HALF_WRITTEN,
        before=HALF_WRITTEN.before.replace("FMA_F16_gfx9", "ADD_F16").replace("0, $vgpr0, 0, 0, 0,", "0, 0,"),
        after=HALF_WRITTEN.after.replace("FMA_F16_gfx9", "ADD_F16").replace("0, $vgpr0, 0, 0, 0,", "0, 0,"),
    ),
    "a slot that nothing else names": SPILLED,
    "a name that looks like an object": OBJECT,
    "a register of the operand's class": ADDED,
    "an input of assembly beside what it clobbers": CLOBBERED,
    "the first thread of a value": replace(
        FIRST_OF_NOTHING,
        before=FIRST_OF_NOTHING.before.replace("undef ", ""),
        after=FIRST_OF_NOTHING.after.replace("undef $vgpr1", "$vgpr2"),
    ),
    "a result indexed from its first register": replace(
        INDEXED_RESULT, after=INDEXED_RESULT.after.replace("$sgpr20", "$sgpr8"),
    ),
    "other bits of MODE": replace(
        MODE, before=MODE.before.replace("15105", "6145"), after=MODE.after.replace("15105", "6145"),
    ),
    "registers that are not allocated dynamically": replace(DYNAMIC, info=""),
    "a copy that stays": replace(
        DELETED,
        after=DELETED.after.replace("    renamable $vgpr2 = COPY renamable $vgpr3\n", ""),
        steps="steps 1- 2+ 4=",
    ),
    "a register that is dead behind all writes": replace(
        OVERWRITTEN,
        after=OVERWRITTEN.after.replace("    $vgpr2 = COPY $vgpr0\n    $exec", "    $exec"),
        steps="steps 1- 1+ 6=",
    ),
    "a virtual register beside one that some threads need": replace(
        TAKEN,
        after=TAKEN.after.replace("    %0:vgpr_32 = COPY $vgpr0\n    $exec", "    $exec"),
        steps="steps 1- 1+ 6=",
    ),
    "a virtual register that is live ahead": replace(
        AHEAD, after=AHEAD.after.replace(MOVED, MOVED.replace("    %0:vgpr_32 = COPY $vgpr0\n", "")),
        steps=AHEAD.steps.replace("1+ 3=", "3="),
    ),
    "the same copied to itself behind a copy": replace(
        ITSELF,
        after=ITSELF.after.replace("$vgpr1 = COPY $vgpr1", "$vgpr1 = COPY $vgpr0\n    $vgpr1 = COPY $vgpr1"),
        steps="steps 1- 2+ 1= 1+ 2=",
    ),
    "a copy that threads missed, read by those that did not": replace(
        MISSED,
        after=MISSED.after.replace("$vgpr2 = COPY $vgpr3", "$vgpr4 = COPY $vgpr3"),
    ),
    "restored by a copy that is read": replace(
        RESTORED,
        before=RESTORED.before + "\nS_NOP 0, implicit $sgpr48",
        after=RESTORED.after + "\nS_NOP 0, implicit $sgpr48",
        steps="steps 1+ 2= 1+ 2=",
    ),
    "assembly before threads wait": replace(
        SAMPLED,
        before=f"%0:vgpr_32 = COPY $vgpr0\n{SAMPLE.format('%0')}",
        after=f"$vgpr1 = COPY $vgpr0\n{SAMPLE.format('$vgpr1')}",
        steps="steps 1- 1+ 2=",
    ),
    "a level of detail of what all threads have": replace(
        DERIVED,
        after=f"$vgpr1 = COPY $vgpr0\n{DERIVED.after.replace('$vgpr1 = COPY $vgpr0' + chr(10), '')}",
        steps="steps 1- 1+ 4=",
    ),
    "what nothing rounds": replace(
        ROUNDED,
        before=ROUNDED.before.replace("PK_F16_F32_e64 0, $vgpr0, 0, $vgpr1, 0, 0", "OFF_F32_I4_e32 $vgpr0"),
        after=ROUNDED.after.replace("PK_F16_F32_e64 0, $vgpr0, 0, $vgpr1, 0, 0", "OFF_F32_I4_e32 $vgpr0"),
    ),
    "no base pointer for a fixed object": replace(REALIGNED, stack=FIXED_16),
    "a slot in memory, whose threads wait in the caller": replace(
        IN_ACCUMULATORS, cpu="gfx1100", info=IN_ACCUMULATORS.info.replace("_sgpr101", ""),
    ),
    "a register beside what keeps EXEC": replace(
        KEEPS_EXEC, before=KEEPS_EXEC.before.replace("sgpr100", "sgpr99"),
        after=KEEPS_EXEC.after.replace("sgpr100", "sgpr99"),
    ),
    "a register beside what keeps EXEC, where scalars go to lanes": replace(
        TO_LANES, before=TO_LANES.before.replace("sgpr100", "sgpr99"),
        after=TO_LANES.after.replace("sgpr100", "sgpr99"),
    ),
    "a register beside the frame pointer": replace(
        OF_THE_FRAME, liveins="$vgpr0, $sgpr4, $sgpr30_sgpr31", before=OF_THE_FRAME.before.replace("sgpr33", "sgpr4"),
        after=OF_THE_FRAME.after.replace("sgpr33", "sgpr4"),
    ),
    "the address of a load that is aligned": replace(
        LOADED_AGAIN, before=LOADED_AGAIN.before.replace(", align 4", ""),
        after=LOADED_AGAIN.after.replace(", align 4", ""),
    ),
    "the address of a load that is never done again": replace(
        LOADED_AGAIN, attributes='"target-features"="-xnack" ',
    ),
    "moves beside each other": replace(
        EXCHANGED,
        after=EXCHANGED.after.replace("$vgpr1 = C", "$vgpr3 = C").replace(", implicit $vgpr1", ", implicit $vgpr3"),
    ),
    "a condition that the next block declares": replace(IN_SCC, after=IN_SCC.before),
    "no copy where two blocks are joined": replace(
        UNDECLARED, after=UNDECLARED.after.replace("liveins: ", "liveins: $vgpr0, "),
    ),
    "a copy that other threads miss, and a block too large for a copy": NOT_SMALL,
    "a copy that other threads miss, and a block that does not vanish": SKIPPING,
    "a copy that other threads miss, and nothing that is hoisted": NOT_HOISTED,
    "a copy that other threads miss, and no common end": NOT_MERGED,
    "a copy that other threads miss, and a block that stays as it is": NOT_SHORTENED,
    "another copy than the one ahead of its block": NOT_AGAIN,
    "what was written ahead of the block of a copy, and read behind it": replace(
        BACKWARDS, after=BACKWARDS.after.replace("COPY killed", "COPY"),
    ),
    "the condition of an AND that stays": replace(
        AND_DELETED,
        after=AND_DELETED.after.replace("$vcc = V", "$sgpr6_sgpr7 = V").replace("$exec, $vcc", "$exec, $sgpr6_sgpr7"),
    ),
    "no condition of a mask that is compared at once": replace(
        COMPARED_AT_ONCE, before=COMPARED_AT_ONCE.before.replace("implicit $scc", "implicit undef $scc"),
        after=COMPARED_AT_ONCE.after.replace("implicit $scc", "implicit undef $scc"),
    ),
    "no condition of a mask in parts that is compared at once": replace(
        COMPARED_IN_PARTS, before=COMPARED_IN_PARTS.before.replace("implicit $scc", "implicit undef $scc"),
        after=COMPARED_IN_PARTS.after.replace("implicit $scc", "implicit undef $scc"),
    ),
    "hoisted behind what widens EXEC": replace(
        REPEATED_IN_LOOP, before=REPEATED_IN_LOOP.before.replace("S_MOV_B64_term", "S_MOV_B64"),
        after=REPEATED_IN_LOOP.after.replace("S_MOV_B64_term", "S_MOV_B64"),
    ),
    "hoisted behind what narrows EXEC": replace(
        IN_LOOP, before=IN_LOOP.before.replace("S_MOV_B64_term", "S_MOV_B64"),
        after=IN_LOOP.after.replace("S_MOV_B64_term", "S_MOV_B64"),
    ),
    "hoisted behind what sets M0": replace(
        INDEX_IN_LOOP, before=INDEX_IN_LOOP.before.replace("B32_term", "B32"),
        after=INDEX_IN_LOOP.after.replace("B32_term", "B32"),
    ),
    "not taken for EXEC": replace(
        TAKEN_FOR_EXEC,
        after=TAKEN_FOR_EXEC.after.replace("dead $sgpr6_sgpr7", "dead $sgpr12_sgpr13"),
    ),
    "a mask that LLVM gives EXEC alone, copied before": replace(
        SOURCE_OF_EXEC,
        after=SOURCE_OF_EXEC.after.replace("    $sgpr12_sgpr13 = COPY $sgpr8_sgpr9\n", "").replace(
            "    $exec =", "    $sgpr12_sgpr13 = COPY $sgpr8_sgpr9\n    $exec ="
        ),
        steps=SOURCE_OF_EXEC.steps.replace("3= 1+ 1=", "2= 1+ 2="),
    ),
    "a mask that EXEC gets, live behind": replace(
        HALVES_LIVE, after=HALVES_LIVE.after.replace("$sgpr8, $sgpr9", "$sgpr8_sgpr9"),
    ),
    "a move of two parts, beside its source once a copy is gone": replace(
        WRITTEN_BACK, after=WRITTEN_BACK.after.replace("$vgpr1_vgpr2", "$vgpr2_vgpr3"),
    ),
    "a load that is done again, beside its address once a copy is gone": replace(
        LOADED_BACK, after=LOADED_BACK.after.replace(OVER_ADDRESS, BESIDE_ADDRESS),
    ),
    "a register beside the frame pointer, where one is saved": replace(
        SAVED_WHERE_CALLED, before=SAVED_WHERE_CALLED.before.replace("$sgpr33", "$sgpr34"),
        after=SAVED_WHERE_CALLED.after.replace("$sgpr33", "$sgpr34"),
    ),
    "a scalar that lanes have before a loop": replace(
        LOST_IN_LOOP, before=LOST_IN_LOOP.before.replace("= IMPLICIT_DEF", "= S_MOV_B32 1"),
        after=f"$sgpr4 = S_MOV_B32 1\n    SI_SPILL_S32_SAVE $sgpr4, {INTO[2]}\n    {LOST_IN_LOOP.after}",
        steps=LOST_IN_LOOP.steps.replace("steps 1- 1=", "steps 1= 1+ 1=", 1),
    ),
    "a scalar beside those of a block that LLVM does not skip": replace(
        GONE_THROUGH,
        after=GONE_THROUGH.after.replace("$sgpr4 = S_MOV", "$sgpr5 = S_MOV").replace("killed $sgpr4", "killed $sgpr5"),
    ),
    "cells in a slot": replace(
        CELLS,
        before=CELLS.before.replace("$sgpr33 =", "$sgpr30 ="),
        after=CELLS.after.replace("$sgpr33 =", "$sgpr30 ="),
    ),
}  # fmt: skip


def first(pair: Pair) -> str:
    return rule_of_first(*pair.texts(), pair.certificate(), pair.cpu)


def second(pair: Pair, directory: Path) -> str:
    return rule_of_second(*pair.texts(), pair.certificate(), pair.cpu, directory)


@pytest.mark.parametrize("name", WRONG)
def test_each_checker_refuses_what_is_wrong(name: str, tmp_path: Path) -> None:
    pair, rule = WRONG[name]
    answers = [first(pair), *([second(pair, tmp_path)] if builds_the_second_checker() else [])]
    assert all(answers), answers
    assert not rule or set(answers) == {rule}


@pytest.mark.parametrize("name", RIGHT)
def test_each_checker_accepts_the_nearest_right_one(name: str, tmp_path: Path) -> None:
    assert first(RIGHT[name]) == ""
    assert not builds_the_second_checker() or second(RIGHT[name], tmp_path) == ""


FIRST = "right_first_lane_where_what_exec_was_is_gone"
KILLS = "right_given_text_kills_before_the_next_block"
OF_ANOTHER = {
    "a mask of other threads": (FIRST, "lanes_first_lane_beside_another_mask", ("", ""), "relation"),
    "threads that a branch has lost": (
        FIRST, "lanes_first_lane_where_the_branch_lost_threads", ("steps 2=\n", "steps 3=\n"), "relation",
    ),
    "a slot where a dead register is live in the next block": (
        KILLS, "memory_save_before_the_next_block_where_given_text_kills", ("2- 5=", "2- 1= 2+ 4="), "value",
    ),
    "what the next block does not declare": (
        KILLS, "registers_not_live_in_where_given_text_kills", ("", ""), "value",
    ),
}  # fmt: skip
"""A right case whose certificate is shown for a wrong one, a change in it, and the rule that it breaks then."""


@pytest.mark.parametrize("name", OF_ANOTHER)
def test_each_checker_refuses_what_is_claimed_of_another_pair(name: str, tmp_path: Path) -> None:
    right, wrong, (old, new), rule = OF_ANOTHER[name]
    given, before, after = (
        (CASES / f"{case}.{side}.mir").read_text()
        for case, side in ((right, "before"), (wrong, "before"), (wrong, "after"))
    )
    of_right = (CASES / f"{right}.after.mir").read_text()
    certification = certify_texts(given, of_right, "k" if right == FIRST else "f", "gfx942")
    assert certification.accepted
    assert old in certification.text
    forged = certification.text.replace(old, new)
    answers = [rule_of_first(before, after, forged, "gfx942")]
    if builds_the_second_checker():
        answers.append(rule_of_second(before, after, forged, "gfx942", tmp_path))
    assert set(answers) == {rule}


@pytest.mark.parametrize("before", sorted(FORGED.glob("*.before.mir")), ids=lambda path: path.name.partition(".")[0])
def test_each_checker_refuses_a_claim_that_is_shown_once_and_lost(before: Path, tmp_path: Path) -> None:
    """Cells of a class of threads whose register is written; a kill of what is written since; another lane;
    registers that no block declares; what LLVM hoists or deletes, of threads that wait.
    """
    after, certificate = (before.with_name(before.name.replace("before.mir", n)) for n in ("after.mir", "certificate"))
    texts = before.read_text(), after.read_text(), certificate.read_text()
    answers = [rule_of_first(*texts, "gfx942")]
    answers += [rule_of_second(*texts, "gfx942", tmp_path)] if builds_the_second_checker() else []
    assert all(answer in ("value", "repeat", "live-in", "relation", "spill-slot") for answer in answers), answers
