"""Certificates written by hand: each checker alone refuses the wrong pair, and accepts the nearest right one."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from case_support import CASES
from checker_support import builds_the_second_checker

from smt_verifier.certificate.second import second_program
from smt_verifier.certificate.verdict import certify_texts
from smt_verifier.checker.check import check
from smt_verifier.checker.outcome import Refused

HEAD = """--- |
{module}  define amdgpu_kernel void @f() {{
    ret void
  }}
...
---
name:            f
tracksRegLiveness: true
registers:{registers}
frameInfo:
  maxAlignment:    4
stack:{stack}
machineFunctionInfo:
  isEntryFunction: true
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

    def texts(self) -> tuple[str, str]:
        rows = "".join(f"\n  - {{ id: {n}, class: {cls} }}" for n, cls in enumerate(self.classes))
        of_p, of_q = (
            HEAD.format(
                module=self.module, registers=registers, stack=stack or " []", info=self.info, liveins=self.liveins
            )
            + "".join(f"    {line.strip()}\n" for line in body.strip().split("\n"))
            + "    S_ENDPGM 0\n...\n"
            for registers, stack, body in ((rows, self.stack[0], self.before), (" []", self.stack[1], self.after))
        )
        return of_p, of_q

    def certificate(self) -> str:
        return f"verilocc-certificate 1\nfunction f\nblock 0\n{self.steps}\nend\n"


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

WRONG: dict[str, tuple[Pair, str]] = {
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
}  # fmt: skip
RIGHT = {
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


def rule_of_first(before: str, after: str, certificate: str, cpu: str) -> str:
    try:
        check(before, after, certificate, cpu)
    except Refused as refused:
        return refused.rule
    return ""


def rule_of_second(before: str, after: str, certificate: str, cpu: str, directory: Path) -> str:
    names = [directory / name for name in ("before.mir", "after.mir", "certificate")]
    for path, text in zip(names, (before, after, certificate), strict=True):
        path.write_text(text)
    command = [str(second_program()), *map(str, names), f"--mcpu={cpu}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return "" if done.returncode == 0 else done.stdout.split(": ")[1]


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
        KILLS, "memory_save_before_the_next_block_where_given_text_kills", ("2- 3=", "2- 1= 2+ 2="), "relation",
    ),
    "what the next block does not declare": (
        KILLS, "registers_not_live_in_where_given_text_kills", ("", ""), "live-in",
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
