"""What an allocation may change in the header, in spill code's operands and in the IR module, and what not."""

from __future__ import annotations

import pytest
from support import REPOSITORY

from smt_verifier.audit import audit
from smt_verifier.audit.core.fields import header_fields, row_fields
from smt_verifier.audit.core.header import MAY_CHANGE
from smt_verifier.audit.core.semantics import spill_slot
from smt_verifier.audit.core.spills import memory_operand
from smt_verifier.audit.core.wellformed import module_difference
from smt_verifier.outcome import Outcome
from verilocc_mlir.errors import InputError
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.target.targets import target

CASES = REPOSITORY / "tests" / "cases"
VECTORS, SCALARS = "right_vector_spill", "right_scalar_spill"
CALLEE, PLAIN = "right_callee_saves_scalars", "right_two_functions"


def verdict(case: str, *edits: tuple[str, str], before: tuple[tuple[str, str], ...] = ()) -> tuple[Outcome, str]:
    """Outcome and messages for a right pair, its texts edited; what is replaced must be there."""
    texts: list[str] = []
    for side, changes in (("before", before), ("after", edits)):
        text = (CASES / f"{case}.{side}.mir").read_text()
        for old, new in changes:
            assert old in text, f"{old!r} is not in {case}"
            text = text.replace(old, new)
        texts.append(text)
    report = audit(parse_mir(texts[0], "before"), parse_mir(texts[1], "after"), target("gfx942"))
    return report.outcome, "; ".join(f.message for d in report.functions for f in d.findings)


@pytest.mark.parametrize("case", [VECTORS, SCALARS, CALLEE, PLAIN])
def test_right_pairs_are_proved(case: str) -> None:
    assert verdict(case) == (Outcome.PROVED, "")


MAY = {
    "noVRegs": (VECTORS, (), ()),
    "isSSA": (VECTORS, (), (("isSSA:           false", "isSSA:           true"),)),
    "tracksDebugUserValues": (SCALARS, (), ()),
    "frameInfo.maxAlignment": (VECTORS, (("maxAlignment:    4", "maxAlignment:    1"),), ()),
    "frameInfo.isCalleeSavedInfoValid": (CALLEE, (), ()),
    "machineFunctionInfo.hasSpilledSGPRs": (PLAIN, (("hasSpilledSGPRs: false", "hasSpilledSGPRs: true"),), ()),
    "machineFunctionInfo.hasSpilledVGPRs": (PLAIN, (("hasSpilledVGPRs: false", "hasSpilledVGPRs: true"),), ()),
    "machineFunctionInfo.sgprForEXECCopy": (
        CALLEE,
        (("sgprForEXECCopy: ''", "sgprForEXECCopy: '$sgpr40_sgpr41'"),),
        (),
    ),
    "machineFunctionInfo.wwmReservedRegs": (CALLEE, (), ()),
    "machineFunctionInfo.spillPhysVGPRs": (CALLEE, (("  spillPhysVGPRs:\n    - '$vgpr63'\n", ""),), ()),
}
MAY_NOT = {
    "noVRegs": (SCALARS, "noVRegs:         false", "noVRegs:         true"),
    "isSSA": (VECTORS, "isSSA:           false", "isSSA:           true"),
    "tracksDebugUserValues": (PLAIN, "tracksDebugUserValues: true", "tracksDebugUserValues: false"),
    "frameInfo.maxAlignment": (CALLEE, "maxAlignment:    8", "maxAlignment:    16"),
    "frameInfo.isCalleeSavedInfoValid": (
        SCALARS,
        "isCalleeSavedInfoValid: false",
        "isCalleeSavedInfoValid: true",
    ),
    "machineFunctionInfo.hasSpilledSGPRs": (SCALARS, "hasSpilledSGPRs: true", "hasSpilledSGPRs: false"),
    "machineFunctionInfo.hasSpilledVGPRs": (PLAIN, "hasSpilledVGPRs: true", "hasSpilledVGPRs: false"),
    "machineFunctionInfo.sgprForEXECCopy": (CALLEE, "sgprForEXECCopy: ''", "sgprForEXECCopy: '$sgpr4_sgpr5'"),
    "machineFunctionInfo.wwmReservedRegs": (CALLEE, "  wwmReservedRegs:\n", "  wwmReservedRegs:\n    - '$vgpr31'\n"),
    "machineFunctionInfo.spillPhysVGPRs": (CALLEE, "  spillPhysVGPRs:\n", "  spillPhysVGPRs:\n    - '$vgpr0'\n"),
}


def test_every_field_that_may_change_has_both_tests() -> None:
    assert MAY.keys() == MAY_NOT.keys() == MAY_CHANGE.keys()


@pytest.mark.parametrize("field", MAY)
def test_a_field_may_change(field: str) -> None:
    case, edits, before = MAY[field]
    assert verdict(case, *edits, before=before) == (Outcome.PROVED, "")


@pytest.mark.parametrize("field", MAY_NOT)
def test_a_field_may_not_change_otherwise(field: str) -> None:
    case, old, new = MAY_NOT[field]
    raised = ((new, old),) if field.endswith("hasSpilledVGPRs") else ()
    outcome, message = verdict(case, *raised, (old, new), before=raised)
    assert outcome is Outcome.REFUTED
    assert field.removeprefix("machineFunctionInfo.") in message or "became a whole-wave register" in message


def test_a_field_without_known_default_is_on_both_sides() -> None:
    line = "  isWholeWaveFunction: false\n"
    outcome, message = verdict(PLAIN, (line, ""))
    assert (outcome, "isWholeWaveFunction is not on both sides" in message) == (Outcome.REFUTED, True)


def test_an_absent_field_has_the_default_of_llvm() -> None:
    assert verdict(PLAIN, ("  hasCalls:        false\n", ""))[0] is Outcome.PROVED
    assert verdict(CALLEE, ("  hasCalls:        true\n", ""))[0] is Outcome.REFUTED


def test_a_virtual_register_of_a_live_in_may_go_but_not_become_of_another_class() -> None:
    old = "reg: '$sgpr4_sgpr5', virtual-reg: '%3'"
    assert verdict(SCALARS, (old, "reg: '$sgpr4_sgpr5', virtual-reg: ''"))[0] is Outcome.PROVED
    assert verdict(SCALARS, (old, "reg: '$sgpr4_sgpr5', virtual-reg: '%13'"))[0] is Outcome.REFUTED


def test_objects_of_the_stack_may_be_numbered_anew() -> None:
    slot = "  - { id: 0, name: '', type: spill-slot"
    assert verdict(VECTORS, (slot, slot.replace("0", "5")), ("%stack.0", "%stack.5"))[0] is Outcome.PROVED


def test_objects_that_are_mentioned_must_be_there() -> None:
    outcome, message = verdict(VECTORS, ("%stack.0", "%stack.5"))
    assert (outcome, "%stack.5 is mentioned" in message) == (Outcome.INVALID, True)


def test_a_slot_may_be_for_spills_alone() -> None:
    """The text before has the slot, and takes its address: what is there is not known to be the allocator's."""
    after = (CASES / f"{VECTORS}.after.mir").read_text()
    rows = after[after.index("\nstack:") : after.index("\nentry_values:")]
    address = "V_MOV_B32_e32 %stack.0, implicit $exec"
    old = "V_MOV_B32_e32 0, implicit $exec"
    before = (("\nstack:           []", rows), ("maxAlignment:    1", "maxAlignment:    4"), (old, address))
    outcome, message = verdict(VECTORS, (old, address), before=before)
    assert (outcome, "is not a slot for spills alone" in message) == (Outcome.REFUTED, True)


def test_spill_code_may_have_more_implicit_operands_that_are_judged_as_such() -> None:
    """Our rewriter defines a tuple whose other parts are undefined with the part that is reloaded."""
    reload = "renamable $vgpr0_vgpr1 = SI_SPILL_AV64_RESTORE %stack.0, $sgpr32, 0, implicit $exec"
    assert verdict(VECTORS, (reload, f"{reload}, implicit-def $vgpr0_vgpr1_vgpr2"))[0] is Outcome.PROVED
    assert verdict(VECTORS, (reload, f"{reload}, implicit-def $m0"))[0] is Outcome.REFUTED


def test_memory_operands_are_what_llvm_prints() -> None:
    """All spill code of the right cases, and the forms with an offset and with greater alignment."""
    seen = 0
    for path in CASES.glob("right_*.after.mir"):
        for function in parse_mir(path.read_text(), str(path)).functions:
            for instruction in (i for b in function.blocks for i in b.instructions):
                slot = spill_slot(instruction)
                if slot is not None:
                    seen += 1
                    assert instruction.memory == (memory_operand(slot, function.stack[slot.number].alignment),)
    assert seen >= 4


@pytest.mark.parametrize(
    ("offset", "alignment", "wanted"),
    [
        (0, 4, "load (s64) from %stack.0, align 4, addrspace 5"),
        (0, 8, "load (s64) from %stack.0, addrspace 5"),
        (4, 4, "load (s64) from %stack.0 + 4, align 4, addrspace 5"),
        (4, 16, "load (s64) from %stack.0 + 4, align 4, basealign 16, addrspace 5"),
    ],
)
def test_a_memory_operand_has_the_alignment_of_its_place(offset: int, alignment: int, wanted: str) -> None:
    after = (CASES / f"{VECTORS}.after.mir").read_text().replace("%stack.0, $sgpr32, 0", f"%stack.0, $sgpr32, {offset}")
    instructions = [i for b in parse_mir(after, "after").functions[0].blocks for i in b.instructions]
    reload = next(slot for i in instructions if (slot := spill_slot(i)) is not None and not slot.is_save)
    assert memory_operand(reload, alignment) == wanted


def lines(text: str) -> tuple[str, ...]:
    return ("---", *text.split("\n"), "body: |")


def test_fields_are_read_by_their_path() -> None:
    header = "name: f\nframeInfo:\n  hasCalls: true\nregisters:\n  - { id: 0,\n      class: a }\n  - { id: 1 }\n"
    header += "mode: [ 'a',\n  'b' ]"
    assert header_fields(lines(header), 1) == {
        "name": "f",
        "frameInfo.hasCalls": "true",
        "registers": "- { id: 0, class: a } - { id: 1 }",
        "mode": "[ 'a', 'b' ]",
        "body": "|",
    }


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\na: 2",
        "a:\n  b: 1\na:\n  c: 1",
        "a:\n  b: 1\n  b: 2",
        "a: 1 # b: 2",
        "a: &x 1",
        "a: *x",
        "a: >",
        "a: 1\n  b: 2",
        "a:\n    b: 2",
        "a: x\n  y z",
        "? a\n: 1",
        "a:\t1",
        " a: 1",
    ],
)
def test_a_header_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        header_fields(lines(text), 1)


@pytest.mark.parametrize("row", ["- { id: 0, id: 1 }", "- { id: 0, name: { a: b } }", "- id: 0", "- { id 0 }"])
def test_a_row_of_another_form_is_refused(row: str) -> None:
    with pytest.raises(InputError):
        row_fields(row)


def test_a_row_may_have_what_looks_like_a_field_in_a_name() -> None:
    assert row_fields("- { id: 0, name: 'size: 4, b', \n  size: 8 }") == {
        "id": "0",
        "name": "'size: 4, b'",
        "size": "8",
    }


MODULE = """--- |
  ; ModuleID = 'a'
  @s = constant [3 x i8] c"; #"
  define void @f() #0 {
    ret void ; preds = %0
  }
  attributes #0 = { nounwind "target-cpu"="gfx942" "target-features"="+a,-b" }
...
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("'a'", "'b'"),
        ("; preds = %0", "; preds = %1, %2"),
        ("#0", "#7"),
        (' "target-cpu"="gfx942"', ""),
        ('"+a,-b"', '"+a,-b,+a,-b"'),
        ('"+a,-b"', '"+a,-b,-b"'),
    ],
)
def test_what_llvm_writes_otherwise_is_no_difference(old: str, new: str) -> None:
    assert module_difference(MODULE, MODULE.replace(old, new), "gfx942") == ""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("; #", "; !"),
        ("gfx942", "gfx90a"),
        ("nounwind", "noreturn"),
        ('"+a,-b"', '"+a"'),
        ('"+a,-b"', '"+a,-b,+b"'),
        ("ret void", "unreachable"),
        ("...\n", "  @t = constant i8 0\n...\n"),
    ],
)
def test_anything_else_is_one(old: str, new: str) -> None:
    assert module_difference(MODULE, MODULE.replace(old, new), "gfx942")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  attributes", "  attributes #0 = { noreturn }\n  attributes"),
        ('c"; #"', 'c"\n;"'),
    ],
)
def test_a_module_that_llvm_does_not_print_is_refused(old: str, new: str) -> None:
    with pytest.raises(InputError):
        module_difference(MODULE, MODULE.replace(old, new), "gfx942")
