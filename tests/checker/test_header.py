"""The headers of both texts, and their stack objects: what may change, and what may not."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from case_support import all_cases
from checker_support import AFTER, BEFORE, SMALL

from smt_verifier.audit.core import header as audited
from smt_verifier.audit.core.brackets import without_brackets
from smt_verifier.audit.core.fields import with_numbers_of
from smt_verifier.checker.header import compare_blocks, compare_headers, unreserved_cells
from smt_verifier.checker.model import Function
from smt_verifier.checker.objects import fixed_numbers, object_numbers
from smt_verifier.checker.outcome import Refused
from smt_verifier.checker.tables import tables
from smt_verifier.checker.text import read
from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.mir.model import MachineFunction
from verilocc_mlir.mir.parser import parse_mir

SGPRS_BELOW_96 = frozenset(range(8192, 8192 + 2 * 96))
SLOT = "type: spill-slot, offset: 0, size: 4, alignment: 4"
STACK = "  - { id: 0, name: x, type: default, offset: 0, size: 8, alignment: 8 }\n"
FIXED = "  - { id: 0, type: default, offset: 0, size: 4, alignment: 16, stack-id: default }\n"
OTHER_FIXED = "  - { id: 1, type: default, offset: 4, size: 4, alignment: 4, stack-id: default }\n"
SAVE = (
    "    SI_SPILL_V32_SAVE $vgpr2, %stack.1, $sgpr32, 0, implicit $exec :: (store (s32) into %stack.1, addrspace 5)\n"
    "    SI_RETURN"
)
SAVE_SCALAR = (
    "    SI_SPILL_S32_SAVE $sgpr4, %stack.1, implicit $exec, implicit $sgpr32 :: "
    "(store (s32) into %stack.1, addrspace 5)\n    SI_RETURN"
)
SAVE_IN_LANE = "    $vgpr40 = SI_SPILL_S32_TO_VGPR $sgpr4, 0, $vgpr40\n    SI_RETURN"
WITH_SLOT = (STACK, f"{STACK}  - {{ id: 1, {SLOT} }}\n")
RESERVED = ("wwmReservedRegs: []", "wwmReservedRegs:\n    - '$vgpr40'")

Edit = tuple[str, str]
MAY: dict[str, list[Edit]] = {
    "nothing": [],
    "a field with its default": [("isSSA:           false", "isSSA:           false\nlegalized:       false")],
    "debug values tracked": [("isSSA:           false", "isSSA:           false\ntracksDebugUserValues: true")],
    "a slot": [WITH_SLOT],
    "a slot and its alignment": [WITH_SLOT, ("maxAlignment:    4", "maxAlignment:    16")],
    "a slot that is used": [WITH_SLOT, ("    SI_RETURN", SAVE)],
    "marked scalar spill": [
        WITH_SLOT, ("    SI_RETURN", SAVE_SCALAR), ("hasSpilledSGPRs: false", "hasSpilledSGPRs: true")
    ],
    "a lower register for EXEC": [("'$sgpr100_sgpr101'", "'$sgpr10_sgpr11'")],
    "no register for EXEC": [("'$sgpr100_sgpr101'", "''")],
    "a whole-wave register": [RESERVED],
    "a reserved register with a scalar in its lane": [RESERVED, ("    SI_RETURN", SAVE_IN_LANE)],
    "saves are known": [("maxAlignment:    4", "maxAlignment:    4\n  isCalleeSavedInfoValid: true")],
    "the live-in register has no name": [],
}  # fmt: skip
MUST_NOT: dict[str, list[Edit]] = {
    "live-ins": [("'$vgpr0', virtual-reg", "'$vgpr1', virtual-reg")],
    "a live-in left out": [("liveins:\n  - { reg: '$vgpr0', virtual-reg: '' }\n", "")],
    "a field of the frame": [("maxAlignment:    4", "maxAlignment:    4\n  hasCalls:        true")],
    "an alignment without need": [("maxAlignment:    4", "maxAlignment:    32")],
    "a smaller alignment": [("maxAlignment:    4", "maxAlignment:    2")],
    "a kernel": [("isEntryFunction: false", "isEntryFunction: true")],
    "occupancy": [("occupancy:       8", "occupancy:       7")],
    "occupancy left out": [("  occupancy:       8\n", "")],
    "stack pointer": [("'$sgpr32'", "'$sgpr33'")],
    "SSA": [("isSSA:           false", "isSSA:           true")],
    "alignment of the function": [("isSSA:           false", "isSSA:           false\nalignment:       4")],
    "an object's size": [("size: 8, alignment: 8", "size: 16, alignment: 8")],
    "an object is gone": [(STACK, "  - { id: 1, name: x, type: default, offset: 0, size: 4, alignment: 8 }\n")],
    "an object that is no slot": [(STACK, STACK + "  - { id: 1, type: default, offset: 0, size: 4, alignment: 4 }\n")],
    "a slot of another alignment": [WITH_SLOT, (SLOT, SLOT.replace("alignment: 4", "alignment: 8"))],
    "a slot too large": [WITH_SLOT, (SLOT, SLOT.replace("size: 4", "size: 256"))],
    "a fixed object is gone": [(FIXED, "")],
    "a fixed object": [("size: 4, alignment: 16", "size: 8, alignment: 16")],
    "a fixed object more": [(FIXED, FIXED + FIXED.replace("id: 0", "id: 7"))],
    "scalars are spilled without the mark": [WITH_SLOT, ("    SI_RETURN", SAVE_SCALAR)],
    "the mark is taken back": [("hasSpilledVGPRs: false", "hasSpilledVGPRs: true")],
    "a register for EXEC that is used": [("'$sgpr100_sgpr101'", "'$sgpr4_sgpr5'")],
    "a register for EXEC that is not allocatable": [("'$sgpr100_sgpr101'", "'$sgpr96_sgpr97'")],
    "a wider register for EXEC": [("'$sgpr100_sgpr101'", "'$sgpr8_sgpr9_sgpr10_sgpr11'")],
    "no register for EXEC, which whole-wave code needs": [
        WITH_SLOT, ("'$sgpr100_sgpr101'", "''"), ("    SI_RETURN", SAVE.replace("_V32_", "_WWM_V32_"))
    ],
    "a whole-wave register that an argument comes in": [("wwmReservedRegs: []", "wwmReservedRegs:\n    - '$vgpr0'")],
    "a shifted register that is used": [
        ("wwmReservedRegs: []", "wwmReservedRegs: []\n  spillPhysVGPRs:\n    - '$vgpr2'")
    ],
    "a scalar in a lane that is not reserved": [("    SI_RETURN", SAVE_IN_LANE)],
}  # fmt: skip


def edited(text: str, edits: list[Edit]) -> str:
    for old, new in edits:
        assert old in text
        text = text.replace(old, new, 1)
    return text


Numbers = Mapping[int, int]


def compare(old: Function, new: Function, allocatable: frozenset[int]) -> tuple[Numbers, Numbers]:
    """What is refused, or the numbers before of stack objects and fixed ones after."""
    numbers = object_numbers(old, new), fixed_numbers(old, new)
    compare_headers(old, new, allocatable, tables())
    return numbers


def check(before: str, after: str) -> tuple[Numbers, Numbers]:
    (old,), (new,) = read(before).functions, read(after).functions
    numbers = compare(old, new, SGPRS_BELOW_96)
    unreserved_cells(new, tables())
    return numbers


@pytest.mark.parametrize("edits", MAY.values(), ids=MAY)
def test_what_may_change(edits: list[Edit]) -> None:
    check(BEFORE, edited(AFTER, edits))


@pytest.mark.parametrize("edits", MUST_NOT.values(), ids=MUST_NOT)
def test_what_must_not_change(edits: list[Edit]) -> None:
    before = BEFORE
    if edits == MUST_NOT["the mark is taken back"]:
        before, edits = edited(BEFORE, edits), []
    with pytest.raises(Refused) as refused:
        check(before, edited(AFTER, edits))
    assert refused.value.rule in ("header", "object")


def test_virtual_registers_are_not_gone_before_they_are() -> None:
    check(BEFORE, BEFORE)
    with pytest.raises(Refused, match="noVRegs"):
        check(BEFORE, BEFORE.replace("noVRegs:         false", "noVRegs:         true"))


def test_an_unmarked_register_with_scalars_in_its_lanes_is_refused() -> None:
    row = "registers:\n  - {{ id: 5, class: vgpr_32, preferred-register: '', flags: [ {}] }}\nliveins:"
    save = "    %5:vgpr_32 = SI_SPILL_S32_TO_VGPR $sgpr4, 0, %5\n    SI_RETURN"
    text = edited(AFTER, [("noVRegs:         true", "noVRegs:         false"), ("    SI_RETURN", save)])
    check(BEFORE, text.replace("liveins:", row.format("WWM_REG "), 1))
    with pytest.raises(Refused, match="WWM_REG"):
        check(BEFORE, text.replace("liveins:", row.format(" "), 1))


def test_objects_get_the_numbers_of_the_first_text() -> None:
    after = AFTER.replace("%stack.0", "%stack.3").replace("id: 0, name: x", "id: 3, name: x")
    after = after.replace(OTHER_FIXED, "").replace(
        FIXED, OTHER_FIXED.replace("id: 1", "id: 0") + FIXED.replace("id: 0", "id: 1")
    )
    after = after.replace("%fixed-stack.1", "%fixed-stack.0")
    assert check(BEFORE, after) == ({3: 0}, {0: 1, 1: 0})


def test_added_slots_get_numbers_that_are_free() -> None:
    after = edited(AFTER, [(STACK, f"{STACK.replace('id: 0', 'id: 1')}  - {{ id: 0, {SLOT} }}\n")])
    assert check(BEFORE, after.replace("%stack.0.x", "%stack.1.x"))[0] == {1: 0, 0: 1}


def audit_refuses(before: MachineFunction, after: MachineFunction) -> bool:
    """Whether today's audit finds a fault in the header of the second text."""
    try:
        audited.require_rows(before)
        audited.require_rows(after)
        before, after = without_brackets(before, 64), without_brackets(with_numbers_of(before, after), 64)
        return bool(audited.compare_headers(before, after, frozenset(range(1 << 14))))
    except VeriloccError:
        return True


def refuses(before: Function, after: Function) -> bool:
    try:
        compare(before, after, frozenset(range(1 << 14)))
    except Refused:
        return True
    return False


STRICTER = {
    "added_whole_wave_copy_of_scalar",
    "added_wwm_copy_implicit_def",
    "lanes_whole_wave_copy_in_a_callee",
    "registers_whole_wave_copy_without_code",
    "header_slot_of_the_scavenger",
    "registers_banks_of_a_paired_move",
    "registers_d16_load_keeps_the_lower_half",
    "registers_dpp_old_untied",
    "registers_pk_fmac_adds_to_its_result",
    "ties_mfma_opcode_of_the_machine",
    "ties_half_loaded_by_an_opcode_of_the_machine",
    "ties_four_bits_rounded_at_random",
    "places_copy_in_a_clause",
    "repeat_behind_a_conversion_that_rounds_up",
}
"""Cases that the checker alone refuses, for a field of the header and for an opcode."""


def test_all_cases_are_judged_as_the_audit_judges_them() -> None:
    compared = 0
    for case in all_cases():
        texts = [path.read_bytes().decode() for path in (case.before, case.after)]
        try:
            (new_before, new_after), (old_before, old_after) = map(read, texts), map(parse_mir, texts)
        except (Refused, VeriloccError):
            continue
        for functions in zip(
            new_before.functions, new_after.functions, old_before.functions, old_after.functions, strict=False
        ):
            assert refuses(*functions[:2]) == (audit_refuses(*functions[2:]) or case.name in STRICTER), case.name
            compared += 1
    assert compared > 400


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("%bb.2(0x40000000), %bb.1(0x40000000)", "%bb.1(0x40000000), %bb.2(0x40000000)"),
        ("%bb.2(0x40000000), %bb.1(0x40000000)", "%bb.1"),
        ("(%ir-block.0)", "(%ir-block.0, align 64)"),
        ("  bb.2:\n    S_ENDPGM 0\n\n", "  bb.2:\n    S_ENDPGM 0\n\n  bb.3:\n    S_ENDPGM 0\n\n"),
    ],
)
def test_blocks_stay_as_they_are(old: str, new: str) -> None:
    (function,) = read(SMALL).functions
    compare_blocks(function, function)
    assert old in SMALL
    with pytest.raises(Refused) as refused:
        compare_blocks(function, read(SMALL.replace(old, new, 1)).functions[0])
    assert refused.value.rule == "control-flow"


def test_blocks_may_have_other_numbers() -> None:
    (function,) = read(SMALL).functions
    compare_blocks(function, read(SMALL.replace("bb.1", "bb.7")).functions[0])
