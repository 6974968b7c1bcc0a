"""What is machine IR by LLVM's tables, and what is not."""

from __future__ import annotations

import pytest
from case_support import all_cases
from checker_support import AFTER, BEFORE, MODULE, texts_of_llc

from smt_verifier.checker.outcome import Refused
from smt_verifier.checker.tables import tables
from smt_verifier.checker.text import read
from smt_verifier.checker.wellformed import well_formed

BRANCHES = (
    MODULE
    + """---
name:            k
tracksRegLiveness: true
body:             |
  bb.0:
    successors: %bb.1, %bb.2
    liveins: $vgpr0, $sgpr4_sgpr5

    $vgpr1 = V_MOV_B32_e32 0, implicit $exec
    S_CBRANCH_EXECZ %bb.2, implicit $exec

  bb.1:
    successors: %bb.2

    BUNDLE implicit-def $vgpr2, implicit $exec, implicit killed $vgpr1 {
      $vgpr2 = V_MOV_B32_e32 killed $vgpr1, implicit $exec
      $vgpr2 = V_MOV_B32_e32 internal killed $vgpr2, implicit $exec
    }
    S_BRANCH %bb.2

  bb.2:
    $vgpr40 = SI_SPILL_S32_TO_VGPR $sgpr4, 0, $vgpr40, implicit-def $sgpr4_sgpr5, implicit $sgpr4_sgpr5
    $vgpr40 = SI_SPILL_S32_TO_VGPR $sgpr5, 1, $vgpr40, implicit $sgpr4_sgpr5
    %0:vreg_64 = IMPLICIT_DEF
    %1:vgpr_32 = COPY %0.sub1
    S_ENDPGM 0
...
"""
)
"""Two branches, a bundle and a tuple that is saved in lanes; what they compute means nothing."""
FAULTS = [
    ("tracksRegLiveness: true", "tracksRegLiveness: false", "header"),
    ("tracksRegLiveness: true", "tracksRegLiveness: true\nnoVRegs:         true", "header"),
    ("V_MOV_B32_e32 0,", "V_MOV_B32_e33 0,", "instruction"),
    ("V_MOV_B32_e32 0,", "V_MOV_B32_e32", "instruction"),
    ("V_MOV_B32_e32 0,", "V_MOV_B32_e32 0, 0,", "instruction"),
    ("$vgpr1 = V_MOV_B32_e32 0", "V_MOV_B32_e32 $vgpr1, 0", "instruction"),
    ("V_MOV_B32_e32 0, implicit $exec", "V_MOV_B32_e32 0", "instruction"),
    ("V_MOV_B32_e32 0, implicit $exec", "V_MOV_B32_e32 0, implicit-def $exec", "instruction"),
    ("S_ENDPGM 0", 'INLINEASM_BR &"s_branch $0", 1, 13, %bb.2\n    S_ENDPGM 0', "instruction"),
    ("S_ENDPGM 0", "dead $sgpr30_sgpr31 = SI_CALL $sgpr4_sgpr5, @k\n    S_ENDPGM 0", "instruction"),
    ("liveins: $vgpr0", "liveins: $vgpr1900", "register"),
    ("$vgpr1 = V_MOV", "$vgpr1_vgpr3 = V_MOV", "register"),
    ("$vgpr1 = V_MOV_B32_e32 0", "$vgpr1 = V_MOV_B32_e32 $src_vccz", "register"),
    ("%0:vreg_64", "%0:vreg_65", "register"),
    ("%0.sub1", "%0.sub2", "register"),
    ("%0.sub1", "%0.sub1_sub0", "register"),
    ("successors: %bb.1, %bb.2", "successors: %bb.1", "control-flow"),
    ("successors: %bb.1, %bb.2", "successors: %bb.2", "control-flow"),
    ("successors: %bb.1, %bb.2", "successors:", "control-flow"),
    ("    successors: %bb.2\n", "    successors: %bb.1\n", "control-flow"),
    ("    S_ENDPGM 0\n", "    S_CBRANCH_EXECZ %bb.2, implicit $exec\n", "control-flow"),
    ("    S_ENDPGM 0\n", "    S_ENDPGM 0\n    S_NOP 0\n", "control-flow"),
    ("S_CBRANCH_EXECZ %bb.2, implicit $exec\n", "S_CBRANCH_EXECZ %bb.2, implicit $exec\n    S_NOP 0\n", "control-flow"),
    ("    %0:vreg_64 = IMPLICIT_DEF\n", "    %0:vreg_64 = PHI %0, %bb.1\n", "control-flow"),
    ("BUNDLE implicit-def $vgpr2,", "BUNDLE implicit-def $vgpr3,", "bundle"),
    ("BUNDLE implicit-def $vgpr2,", "BUNDLE implicit-def dead $vgpr2,", "bundle"),
    (", implicit killed $vgpr1 {", " {", "bundle"),
    ("internal killed $vgpr2", "killed $vgpr3", "bundle"),
    ("implicit killed $vgpr1 {", "implicit $vgpr1, implicit killed $vgpr7 {", "bundle"),
    ("V_MOV_B32_e32 killed $vgpr1", "V_MOV_B32_e32 $vgpr1", "bundle"),
    ("    $vgpr40 = SI_SPILL_S32_TO_VGPR $sgpr5, 1, $vgpr40, implicit $sgpr4_sgpr5\n", "", "spill-slot"),
    ("TO_VGPR $sgpr5, 1", "TO_VGPR $sgpr6, 1", "spill-slot"),
    (
        "    $vgpr40 = SI_SPILL_S32_TO_VGPR $sgpr5",
        "    S_NOP 0\n    $vgpr40 = SI_SPILL_S32_TO_VGPR $sgpr5",
        "spill-slot",
    ),
]


def check(text: str) -> None:
    for function in read(text).functions:
        well_formed(function, tables())


@pytest.mark.parametrize("text", [BEFORE, AFTER, BRANCHES], ids=["before", "after", "branches"])
def test_what_is_well_formed(text: str) -> None:
    check(text)


@pytest.mark.parametrize(("old", "new", "rule"), FAULTS, ids=range(len(FAULTS)))
def test_what_is_not(old: str, new: str, rule: str) -> None:
    assert old in BRANCHES
    with pytest.raises(Refused) as refused:
        check(BRANCHES.replace(old, new, 1))
    assert refused.value.rule == rule


def test_successors_that_are_not_printed_are_inferred() -> None:
    check(BRANCHES.replace("    successors: %bb.1, %bb.2\n", "").replace("    successors: %bb.2\n", ""))


def test_a_block_may_end_without_a_terminator_where_nothing_follows() -> None:
    check(BRANCHES.replace("    S_ENDPGM 0\n", ""))


def test_right_cases_are_well_formed() -> None:
    right = [case for case in all_cases() if case.verdict == "proved"]
    assert len(right) > 90
    for case in right:
        for path in (case.before, case.after):
            check(path.read_bytes().decode())


@pytest.mark.long
def test_texts_of_llc_are_well_formed() -> None:
    for _, text in texts_of_llc():
        check(text)
