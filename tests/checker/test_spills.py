"""Spill code, and reads of what is left for a later phase."""

from __future__ import annotations

import pytest
from case_support import all_cases
from checker_support import AFTER, BEFORE, MODULE, texts_of_llc

from smt_verifier.audit.core.brackets import scratch_register
from smt_verifier.audit.core.numbering import with_numbers_of
from smt_verifier.audit.core.places import read_undefined
from smt_verifier.audit.core.spills import wrong_spills
from smt_verifier.checker.defined import reads_are_defined
from smt_verifier.checker.model import Function
from smt_verifier.checker.objects import renumbered
from smt_verifier.checker.outcome import Refused
from smt_verifier.checker.spills import check_spills
from smt_verifier.checker.tables import tables
from smt_verifier.checker.text import read
from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.mir.parser import parse_mir

STACK = "  - { id: 0, name: x, type: default, offset: 0, size: 8, alignment: 8 }\n"
SLOTS = (
    STACK
    + "  - { id: 1, type: spill-slot, offset: 0, size: 8, alignment: 4 }\n"
    + "  - { id: 2, type: spill-slot, offset: 0, size: 4, alignment: 4, stack-id: sgpr-spill }\n"
)
SPILLS = """    SI_SPILL_V64_SAVE $vgpr2_vgpr3, %stack.1, $sgpr32, 0, implicit $exec :: (store (s64) into %stack.1, align 4, addrspace 5)
    SI_SPILL_S32_SAVE killed $sgpr4, %stack.2, implicit $exec, implicit $sgpr32 :: (store (s32) into %stack.2, addrspace 5)
    $vgpr4 = SI_SPILL_V32_RESTORE %stack.1, $sgpr32, 4, implicit $exec :: (load (s32) from %stack.1 + 4, addrspace 5)
    $sgpr4 = SI_SPILL_S32_RESTORE %stack.2, implicit $exec, implicit $sgpr32 :: (load (s32) from %stack.2, addrspace 5)
    SI_RETURN
"""  # noqa: E501
SPILLED = AFTER.replace(STACK, SLOTS).replace("    SI_RETURN\n", SPILLS)
FAULTS = [
    ("id: 1, type: spill-slot", "id: 1, type: default"),
    ("SAVE $vgpr2_vgpr3, %stack.1, $sgpr32, 0", "SAVE $vgpr2_vgpr3, %stack.1, $sgpr33, 0"),
    ("%stack.1, $sgpr32, 0", "%stack.1, undef $sgpr32, 0"),
    ("%stack.1, $sgpr32, 0", "%stack.1, $sgpr32, 4"),
    ("%stack.1, $sgpr32, 0, implicit $exec", "%stack.1, $sgpr32, 0, implicit killed $exec"),
    ("%stack.1, $sgpr32, 0, implicit $exec", "%stack.1, $sgpr32, 0, 0, implicit $exec"),
    ("%stack.1, $sgpr32, 0, implicit $exec", "%stack.1, $sgpr32, 0"),
    ("store (s64)", "volatile store (s64)"),
    ("store (s64)", "store (s32)"),
    ("align 4, addrspace 5", "align 8, addrspace 5"),
    ("align 4, addrspace 5", "align 4"),
    ("from %stack.1 + 4", "from %stack.1"),
    (" :: (load (s32) from %stack.1 + 4, addrspace 5)", ""),
    ("(load (s32) from %stack.2, addrspace 5)", "(load (s32) from %stack.2, addrspace 5), (load (s32))"),
    ("%stack.2, implicit $exec, implicit $sgpr32 ::", "%stack.2, implicit $sgpr32, implicit $exec ::"),
    ("S_MOV_B32 %stack.0.x", "S_MOV_B32 %stack.1"),
    ("(store (s32) into %stack.0.x)", "(store (s32) into %stack.2)"),
    ("size: 8, alignment: 4 }", "size: 8, alignment: 4, stack-id: sgpr-spill }"),
    (
        "%stack.1, $sgpr32, 0, implicit $exec :: (store (s64) into %stack.1",
        "%stack.0.x, $sgpr32, 0, implicit $exec :: (store (s64) into %stack.0.x",
    ),
    ("$vgpr4 = SI_SPILL_V32_RESTORE %stack.1", "SI_SPILL_V32_RESTORE $vgpr4, %stack.1"),
    ("SI_SPILL_V64_SAVE $vgpr2_vgpr3, %stack.1, $sgpr32, 0", "SI_SPILL_V64_SAVE %stack.1, $sgpr32, 0"),
    (
        "%stack.2, implicit $exec, implicit $sgpr32 :: (store (s32) into %stack.2",
        "%stack.1, implicit $exec, implicit $sgpr32 :: (store (s32) into %stack.1",
    ),
]
LOOP = (
    MODULE
    + """---
name:            k
body:             |
  bb.0:
    successors: %bb.1, %bb.2

    %0:vreg_64 = IMPLICIT_DEF
    S_CBRANCH_SCC0 %bb.2, implicit $scc

  bb.1:
    successors: %bb.1, %bb.2

    %1:vgpr_32 = COPY %0.sub0
    S_NOP 0, implicit %1
    S_CBRANCH_SCC0 %bb.1, implicit $scc

  bb.2:
    S_NOP 0, implicit %0
    S_ENDPGM 0
...
"""
)


def check(before: str, after: str) -> None:
    (old,), (new,) = read(before).functions, read(after).functions
    check_spills(old, renumbered(old, new), tables())


def test_spill_code_as_llvm_writes_it_is_taken() -> None:
    check(BEFORE, SPILLED)
    check(BEFORE, SPILLED.replace("implicit $sgpr32 :: (store", "implicit $sgpr32, implicit $sgpr4_sgpr5 :: (store"))


@pytest.mark.parametrize(("old", "new"), FAULTS)
def test_other_spill_code_is_refused(old: str, new: str) -> None:
    assert old in SPILLED
    with pytest.raises(Refused) as refused:
        check(BEFORE, SPILLED.replace(old, new, 1))
    assert refused.value.rule in ("spill-slot", "object")


def test_spill_code_in_all_cases_is_judged_as_the_audit_judges_it() -> None:
    refused = 0
    for case in all_cases():
        texts = [path.read_bytes().decode() for path in (case.before, case.after)]
        try:
            (before, after), (pre, post) = map(read, texts), map(parse_mir, texts)
            functions = [(a, renumbered(a, b)) for a, b in zip(before.functions, after.functions, strict=True)]
            audited = [
                wrong_spills(p, with_numbers_of(p, q), scratch_register(p, "stackPtrOffsetReg"))
                for p, q in zip(pre.functions, post.functions, strict=True)
            ]
        except (Refused, VeriloccError, ValueError):
            continue
        for sides, findings in zip(functions, audited, strict=True):
            assert is_refused(*sides) == bool(findings), case.name
            refused += bool(findings)
    assert refused > 10


def is_refused(before: Function, after: Function) -> bool:
    try:
        check_spills(before, after, tables())
    except Refused:
        return True
    return False


@pytest.mark.long
def test_llvms_own_spill_code_is_taken() -> None:
    texts = dict(texts_of_llc())
    for name, text in texts.items():
        before = texts[f"{name.split(' ')[0]} -stop-before=greedy,0"]
        check(before, text)


def test_reads_that_are_defined_on_every_path() -> None:
    reads_are_defined(read(LOOP).functions[0], tables())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    %0:vreg_64 = IMPLICIT_DEF\n", ""),
        ("    %0:vreg_64 = IMPLICIT_DEF\n", "    undef %0.sub0:vreg_64 = COPY %0.sub1\n"),
        ("%0:vreg_64 = IMPLICIT_DEF", "dead %0:vreg_64 = IMPLICIT_DEF"),
        ("COPY %0.sub0", "COPY killed %0.sub0"),
        ("implicit %1", "implicit killed %1, implicit %1\n    S_NOP 0, implicit %1"),
        ("    S_NOP 0, implicit %0\n", "    S_NOP 0, implicit %1\n"),
    ],
)
def test_reads_that_are_not(old: str, new: str) -> None:
    text = LOOP if "%0:vreg_64" in new or "%0:vreg_64" not in old else LOOP.replace("%0.sub0", "%0.sub0:vreg_64")
    with pytest.raises(Refused) as refused:
        reads_are_defined(read(text.replace(old, new, 1)).functions[0], tables())
    assert refused.value.rule == "undefined"


def test_reads_in_all_cases_are_judged_as_the_audit_judges_them() -> None:
    refused = 0
    for case in all_cases():
        for text in (case.before.read_bytes().decode(), case.after.read_bytes().decode()):
            try:
                functions = zip(read(text).functions, parse_mir(text).functions, strict=True)
            except (Refused, VeriloccError):
                continue
            for new, old in functions:
                findings = list(read_undefined(old))
                try:
                    reads_are_defined(new, tables())
                except Refused:
                    assert findings, case.name
                    refused += 1
                else:
                    assert not findings, case.name
    assert refused >= 3
