"""Small pairs of texts: what the search finds for them, and which rule the checker names where they are wrong."""

from __future__ import annotations

import pytest

from smt_verifier.certificate.produce import certify
from smt_verifier.certificate.write import write_certificate
from smt_verifier.checker.certificate import read_certificate
from smt_verifier.checker.check import check, prepare
from smt_verifier.checker.outcome import Refused
from smt_verifier.checker.text import read

CPU = "gfx942"
HEAD = """--- |
  define amdgpu_kernel void @f() #0 {
    ret void
  }
  attributes #0 = { "target-cpu"="gfx942" }
...
---
name:            f
tracksRegLiveness: true
"""
REST = """liveins:
  - { reg: '$vgpr0' }
  - { reg: '$vgpr1' }
machineFunctionInfo:
  isEntryFunction: true
  scratchRSrcReg:  '$sgpr96_sgpr97_sgpr98_sgpr99'
  stackPtrOffsetReg: '$sgpr32'
body:             |
"""


def before(body: str, registers: int) -> str:
    """A text whose virtual registers are 32-bit vectors."""
    rows = (f"  - {{ id: {n}, class: vgpr_32, preferred-register: '', flags: [  ] }}\n" for n in range(registers))
    listed = "".join(rows)
    return HEAD + (f"registers:\n{listed}" if registers else "registers:       []\n") + REST + body + "...\n"


def after(body: str) -> str:
    return HEAD + "noVRegs:         true\nregisters:       []\n" + REST + body + "...\n"


def rule_of(p: str, q: str) -> str:
    """The rule that a pair breaks; empty where it is accepted, the certificate written and read again."""
    try:
        both = prepare(read(p), read(q), "f", CPU)
        made = certify(both)
        if made.refused is not None:
            raise made.refused
        text = write_certificate(made.certificate, both.before.grain)
        assert write_certificate(read_certificate(text, both.before.grain), both.before.grain) == text
        check(p, q, text, CPU)
    except Refused as error:
        return error.rule
    return ""


STORE = "    EXP_DONE 0, {0}, {0}, {0}, undef $vgpr9, 0, 0, 1, implicit $exec\n"
EXIT = "    S_ENDPGM 0\n"


def copied(*, again: bool, store: str) -> tuple[str, str]:
    """A copy while some threads wait, and, where that is asked for, the same copy when they are back.

    Args:
        store: where the target is read: ``block``, behind the copies; ``joined``, in a block that is joined to that; or
            ``next``, in one that is not.
    """
    texts: list[str] = []
    for source, target in (("%0", "%1"), ("$vgpr0", "$vgpr1")):
        virtual = source.startswith("%")
        names = (f"{source}:vgpr_32", f"{target}:vgpr_32") if virtual else (source, target)
        copy = f"    {names[1] if virtual else 'renamable ' + target} = COPY {source}\n"
        text = "  bb.0:\n    liveins: $vgpr0, $vgpr1, $sgpr4_sgpr5\n"
        text += "    %0:vgpr_32 = COPY $vgpr0\n    %1:vgpr_32 = COPY $vgpr1\n" if virtual else ""
        text += "    $sgpr6_sgpr7 = S_AND_SAVEEXEC_B64 $sgpr4_sgpr5, implicit-def $exec, "
        text += "implicit-def $scc, implicit $exec\n"
        text += copy + "    $exec = S_OR_B64 $exec, $sgpr6_sgpr7, implicit-def $scc\n" + (copy if again else "")
        text += STORE.format(target) if store == "block" else ""
        live = "" if virtual else "    liveins: $vgpr1\n"
        if store == "next":
            text += f"    S_CBRANCH_SCC1 %bb.2, implicit undef $scc\n  bb.1:\n{live}    S_NOP 0\n  bb.2:\n{live}"
        else:
            text += f"    S_BRANCH %bb.1\n  bb.1:\n{live}"
        text += (STORE.format(target) if store != "block" else "") + EXIT
        texts.append(before(text, 2) if virtual else after(text))
    return texts[0], texts[1]


def test_a_copy_that_some_threads_missed_is_not_read_in_its_block() -> None:
    assert rule_of(*copied(again=False, store="block")) == "value"


def test_behind_its_block_it_is_unless_that_is_joined_with_the_next_one() -> None:
    assert rule_of(*copied(again=False, store="joined")) == "value"
    assert rule_of(*copied(again=False, store="next")) == ""


@pytest.mark.parametrize("store", ["block", "joined", "next"])
def test_the_same_copy_again_may_be_deleted(store: str) -> None:
    assert rule_of(*copied(again=True, store=store)) == "value"


def loop(mask: str) -> str:
    """A loop that threads leave one by one; behind it those in ``mask`` are active, and one of them is read."""
    return f"""  bb.0:
    successors: %bb.1(0x40000000), %bb.3(0x40000000)
    liveins: $vgpr0, $vgpr1, $sgpr4_sgpr5, $sgpr8_sgpr9, $sgpr10_sgpr11
    $sgpr12_sgpr13 = S_AND_SAVEEXEC_B64 $sgpr8_sgpr9, implicit-def $exec, implicit-def $scc, implicit $exec
    S_CBRANCH_EXECZ %bb.3, implicit $exec
    S_BRANCH %bb.1
  bb.1:
    successors: %bb.2(0x04000000), %bb.1(0x7c000000)
    liveins: $vgpr0, $vgpr1, $sgpr4_sgpr5, $sgpr10_sgpr11
    $sgpr6_sgpr7 = V_CMP_GT_U32_e64 $vgpr0, $vgpr1, implicit $exec
    $sgpr4_sgpr5 = S_OR_B64 $sgpr6_sgpr7, $sgpr4_sgpr5, implicit-def $scc
    $exec = S_ANDN2_B64_term $exec, $sgpr4_sgpr5, implicit-def $scc
    S_CBRANCH_EXECNZ %bb.1, implicit $exec
    S_BRANCH %bb.2
  bb.2:
    successors: %bb.3(0x80000000)
    liveins: $vgpr0, $sgpr4_sgpr5, $sgpr10_sgpr11
    $exec = S_OR_B64 $exec, {mask}, implicit-def $scc
    $sgpr0 = V_READFIRSTLANE_B32 $vgpr0, implicit $exec
    S_BRANCH %bb.3
  bb.3:
    S_ENDPGM 0
"""


def test_who_left_a_loop_is_somebody() -> None:
    text = after(loop("$sgpr4_sgpr5"))
    assert rule_of(text, text) == ""


def test_another_mask_may_be_empty() -> None:
    text = after(loop("$sgpr10_sgpr11"))
    assert rule_of(text, text) == "inactive-lanes"


def cells(first: str) -> str:
    """A scalar in two threads' lanes of a vector register, which a loop reads before it writes it."""
    return f"""  bb.0:
    successors: %bb.1(0x80000000)
    liveins: $vgpr0, $vgpr1, $sgpr4_sgpr5
    {first}
    S_BRANCH %bb.1
  bb.1:
    successors: %bb.2(0x04000000), %bb.1(0x7c000000)
    liveins: $vgpr0, $vgpr1, $vgpr40
    $sgpr6 = SI_RESTORE_S32_FROM_VGPR $vgpr40, 0, implicit-def $sgpr6_sgpr7
    $sgpr7 = SI_RESTORE_S32_FROM_VGPR $vgpr40, 1
    $sgpr4_sgpr5 = V_CMP_GT_U32_e64 $vgpr0, $vgpr1, implicit $exec
    $sgpr4_sgpr5 = S_OR_B64 killed $sgpr4_sgpr5, $sgpr6_sgpr7, implicit-def $scc
    $vgpr40 = SI_SPILL_S32_TO_VGPR $sgpr4, 0, $vgpr40
    $vgpr40 = SI_SPILL_S32_TO_VGPR $sgpr5, 1, $vgpr40
    $exec = S_ANDN2_B64_term $exec, $sgpr4_sgpr5, implicit-def $scc
    S_CBRANCH_EXECNZ %bb.1, implicit $exec
    S_BRANCH %bb.2
  bb.2:
    liveins: $vgpr0, $vgpr40
    $sgpr6 = SI_RESTORE_S32_FROM_VGPR $vgpr40, 0, implicit-def $sgpr6_sgpr7
    $sgpr7 = SI_RESTORE_S32_FROM_VGPR $vgpr40, 1
    $exec = S_OR_B64 $exec, $sgpr6_sgpr7, implicit-def $scc
    $sgpr0 = V_READFIRSTLANE_B32 $vgpr0, implicit $exec
    S_ENDPGM 0
"""


def reserved(text: str) -> str:
    return text.replace("body:  ", "  wwmReservedRegs:\n    - '$vgpr40'\nbody:  ")


def test_a_mask_may_be_kept_in_two_cells_that_held_nothing_at_first() -> None:
    text = reserved(after(cells("$vgpr40 = IMPLICIT_DEF")))
    assert rule_of(text, text) == ""


def test_cells_that_nobody_filled_hold_no_value() -> None:
    text = reserved(after(cells("S_NOP 0")))
    assert rule_of(text, text) == "value"
