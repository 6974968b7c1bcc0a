"""The checker's reader: it reads what LLVM prints, as the other reader does, and nothing else."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping

import pytest
from checker_support import SMALL, stored_texts, texts_of_llc

from smt_verifier.audit.core.fields import fields_of, row_fields
from smt_verifier.checker.model import File, Function, Instruction, Kind, Row
from smt_verifier.checker.model import Operand as CheckedOperand
from smt_verifier.checker.outcome import Refused
from smt_verifier.checker.text import read
from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.mir import model as other
from verilocc_mlir.mir.parser import parse_mir

SEPARATE = frozenset({"registers", "liveins", "stack", "fixedStack", "body"})
"""Fields of the header that are no ``fields`` of a function."""


def compare(new: File, old: other.MirFile) -> int:
    """How many operands two readers read alike."""
    assert [f.name for f in new.functions] == [f.name for f in old.functions]
    return sum(compare_functions(a, b) for a, b in zip(new.functions, old.functions, strict=True))


def compare_functions(new: Function, old: other.MachineFunction) -> int:
    compare_fields(new, old)
    assert new.liveins == tuple((r.reg, r.vreg) for r in old.liveins)
    assert {n: (r.cls, r.preferred, r.flags) for n, r in new.registers.items()} == {
        n: (r.cls, r.preferred, r.flags) for n, r in old.registers.items()
    }
    compare_objects(new.stack, old.stack)
    compare_objects(new.fixed_stack, old.fixed_stack)
    place = {block.number: n for n, block in enumerate(old.blocks)}
    operands = 0
    for a, b in zip(new.blocks, old.blocks, strict=True):
        assert (a.number, a.has_successors) == (b.number, b.has_successors)
        assert a.successors == tuple((place[number], text) for number, text in b.successors)
        assert a.liveins == tuple((r.reg, r.mask) for r in b.liveins)
        operands += sum(compare_instructions(i, j) for i, j in zip(a.instructions, b.instructions, strict=True))
    return operands


def compare_fields(new: Function, old: other.MachineFunction) -> None:
    expected = {key: value for key, value in fields_of(old).items() if key not in SEPARATE}
    arguments = {key: expected.pop(key) for key in list(expected) if ".argumentInfo." in key}
    if arguments:
        text = ", ".join(f"{key.rpartition('.')[2]}: {value}" for key, value in arguments.items())
        expected["machineFunctionInfo.argumentInfo"] = text
    listed = {key: value.removeprefix("- ").replace(" - ", ", ") for key, value in expected.items()}
    assert new.fields == listed


def compare_objects(new: Mapping[int, Row], old: Mapping[int, other.StackObject]) -> None:
    assert list(new) == list(old)
    for number, row in new.items():
        assert {"id": str(number), **row} == row_fields(old[number].text)


def compare_instructions(new: Instruction, old: other.Instruction) -> int:
    assert (new.opcode, new.definitions, new.line) == (old.opcode, len(old.defs), old.line)
    assert new.flags == frozenset(old.flags)
    assert tuple(m.text for m in new.memory) == old.memory
    assert ", ".join(new.tail) == old.tail.lstrip(", ")
    brackets = (old.bundled, old.opens_bundle, old.closes_bundle)
    assert (new.in_bundle, new.opens_bundle, new.closes_bundle) == brackets
    for a, b in zip(new.operands, old.all_operands, strict=True):
        compare_operands(a, b)
    return len(new.operands)


def compare_operands(new: CheckedOperand, old: other.Operand) -> None:
    assert (new.register, new.vreg, new.sub, new.cls, new.llt, new.tied) == (
        (old.phys, old.vreg, old.sub, old.cls, old.llt, old.tied)
    )
    assert (new.is_register, new.is_use) == (old.is_reg, old.is_use)
    flags = {word for flag in old.flags for word in flag.replace("implicit-def", "implicit def").split()}
    assert new.flags == (flags | {"def"} if old.is_def else flags)
    same = {Kind.FIXED_FRAME: Kind.FRAME_INDEX, Kind.ASM_STRING: Kind.EXTERNAL}
    assert same.get(new.kind, new.kind).name == old.kind.name
    assert re.sub(r" /\*.*", "", old.text).endswith(new.text)


def test_stored_texts_are_read_as_the_other_reader_reads_them() -> None:
    read_by_both = operands = 0
    for path in stored_texts():
        text = path.read_bytes().decode()
        try:
            new, old = read(text), parse_mir(text)
        except (Refused, VeriloccError):
            continue
        operands += compare(new, old)
        read_by_both += 1
    assert read_by_both >= 880
    assert operands >= 35_000


def test_what_the_other_reader_refuses_is_refused() -> None:
    """But for branches that are no successors, which ``well_formed`` refuses; stack objects are named rightly here, and
    debug instructions do no more than read.
    """
    ours: set[str] = set()
    theirs: set[str] = set()
    for path in stored_texts():
        text = path.read_bytes().decode()
        try:
            read(text)
        except Refused:
            ours.add(path.name)
        try:
            parse_mir(text)
        except VeriloccError as error:
            if not error.what.startswith("control goes"):
                theirs.add(path.name)
    assert theirs <= ours
    others = {name for name in ours - theirs if not name.startswith("parser_debug_")}
    assert others == {"header_objects_swapped.after.mir", "header_stack_object_missing.after.mir"}


@pytest.mark.long
def test_texts_of_llc_are_read_as_the_other_reader_reads_them() -> None:
    for name, text in texts_of_llc():
        assert compare(read(text), parse_mir(text)) > 500, name


def test_a_text_says_what_it_says() -> None:
    file = read(SMALL)
    (function,) = file.functions
    assert file.module.startswith('target triple = "amdgcn-amd-amdhsa"\ndefine amdgpu_kernel')
    assert function.fields["machineFunctionInfo.wwmReservedRegs"] == "'$vgpr40', '$vgpr41'"
    assert function.fields["machineFunctionInfo.mode.ieee"] == "true"
    arguments = "workGroupIDX: { reg: '$sgpr8' }, workItemIDX: { reg: '$vgpr0', mask: 1023 }"
    assert function.fields["machineFunctionInfo.argumentInfo"] == arguments
    assert function.registers[1].flags == ("WWM_REG",)
    assert function.liveins == (("vgpr0", 0),)
    assert function.stack[0]["name"] == "x"
    first, second, third = function.blocks
    assert first.successors == ((1, "0x40000000"), (2, "0x40000000"))
    assert first.liveins == (("vgpr0", -1), ("sgpr4_sgpr5", 15))
    assert not second.successors
    assert [i.opcode for i in third.instructions] == ["INLINEASM", "S_TEST", "S_TEST", "S_ENDPGM"]
    test, store = first.instructions[1:3]
    assert test.definitions == 2
    assert test.flags == {"nofpexcept"}
    assert test.operands[0].flags == {"def", "dead", "early-clobber"}
    assert test.operands[4].tied == 0
    assert store.operands[1].kind is Kind.FRAME_INDEX
    memory = store.memory[0]
    assert (memory.stores, memory.loads, memory.volatile, memory.offset) == (True, False, True, 4)
    assert (memory.pointer, memory.stack_object, memory.rest) == ("%stack.0.x", 0, ", align 8, addrspace 5")
    assert first.instructions[-1].operands[0].number == 2
    assert [(i.opens_bundle, i.in_bundle, i.closes_bundle) for i in first.instructions[3:6]] == (
        [(True, False, False), (False, True, False), (False, True, True)]
    )


MALFORMED = [
    ("---\nname", "--- \nname", "text"),
    ("S_ENDPGM 0\n...", "S_ENDPGM 0", "text"),
    ("S_ENDPGM 0\n...", "S_ENDPGM 0\nnoPhis: true\n...", "text"),
    ("S_ENDPGM 0\n...\n", "S_ENDPGM 0\n...\nname: g\n", "text"),
    ("body:             |", "body:             >", "text"),
    ("0, -5", "0,\t-5", "text"),
    ("0, -5", "0,\r-5", "text"),
    ("--- |\n", "", "text"),
    ("name:            k\n", "", "header"),
    ("name:            k\n", "name: k\nname: k\n", "header"),
    ("tracksRegLiveness: true", "tracksRegLiveness: on", "header"),
    ("tracksRegLiveness: true", "tracksRegLiveness: true # it is", "header"),
    ("tracksRegLiveness: true", "someField: true", "header"),
    ("  maxAlignment:    4", "   maxAlignment:    4", "header"),
    ("  maxAlignment:    4", "  maxAlignment:    04", "header"),
    ("flags: [ WWM_REG ]", "flags: [ WWM_REG, OTHER ]", "header"),
    ("{ id: 1, class: sreg_64", "{ class: sreg_64, id: 1", "header"),
    ("{ id: 1,", "{ id: 0,", "header"),
    ("frameInfo:", "frameInfo: { maxAlignment: 8 }", "header"),
    ("    - '$vgpr41'", "    - $vgpr41", "header"),
    ("type: default, offset: 0, size: 8", "type: default, size: 8, size: 8", "header"),
    ("  bb.2:", "  bb.0:", "block"),
    ("  bb.0 (%ir-block.0):", "  bb.0 (landing-pad):", "block"),
    ("body:             |\n", "body:             |\n    S_NOP 0\n", "text"),
    ("%bb.2(0x40000000), ", "%bb.1(0x40000000), ", "block"),
    ("%bb.2(0x40000000), ", "%bb.3(0x40000000), ", "block"),
    ("S_CBRANCH_EXECZ %bb.1", "S_CBRANCH_EXECZ %bb.9", "block"),
    ("    liveins: $vgpr0,", "    liveins: $vgpr1\n    liveins: $vgpr0,", "block"),
    ("    successors: %bb.2", "    successors: %bb.1\n    successors: %bb.2", "block"),
    ("liveins: $vgpr0,", "liveins: %0,", "instruction"),
    ("liveins: $vgpr0, $sgpr4_sgpr5:0x000000000000000F", "liveins: $vgpr0, $sgpr4_sgpr5:15", "instruction"),
    ("killed renamable $sgpr4", "renamable killed $sgpr4", "instruction"),
    ("killed renamable $sgpr4", "killed killed $sgpr4", "instruction"),
    ("renamable $sgpr6 =", "killed $sgpr6 =", "operand"),
    ("renamable $sgpr6 =", "implicit-def $sgpr6 =", "operand"),
    ("killed renamable $sgpr4", "dead $sgpr4", "operand"),
    ("killed renamable $sgpr4", "killed $sgpr4.sub0", "instruction"),
    ("killed renamable $sgpr4", "debug-use $sgpr4", "instruction"),
    ("killed renamable $sgpr4", "%name", "instruction"),
    ("killed renamable $sgpr4", "renamable %1.sub0", "operand"),
    ("killed renamable $sgpr4", "%7", "register"),
    ("killed renamable $sgpr4", "%1:vgpr_32", "register"),
    ("nofpexcept V_TEST", "nofpexcept nofpexcept V_TEST", "instruction"),
    ("nofpexcept V_TEST", "fast V_TEST", "instruction"),
    ("nofpexcept V_TEST", "v_test", "instruction"),
    ("-5", "18446744073709551616", "operand"),
    ("-5", "5.0", "instruction"),
    ("-5", "5 5", "instruction"),
    ("-5", "%stack.1", "object"),
    ("-5", "%stack.0.y", "object"),
    ("-5", "%fixed-stack.0", "object"),
    ("(tied-def 0)", "(tied-def 3)", "instruction"),
    ("-5, %0(tied-def 0), implicit $exec", "%0(tied-def 0), %0(tied-def 0)", "instruction"),
    ("-5, %0(tied-def 0), implicit $exec", "implicit $exec, -5", "instruction"),
    ("-5", "clobber", "instruction"),
    ("(volatile store", "(store volatile", "instruction"),
    ("into %stack.0.x", "from %stack.0.x", "memory"),
    ("into %stack.0.x", "into %stack.3", "object"),
    (", align 8, addrspace 5", ", align 8, align 4, addrspace 5", "instruction"),
    (", align 8, addrspace 5)", ", align 8, addrspace 5) S_NOP 0", "instruction"),
    ("V_MOV_B32_e32 1, implicit $exec", "V_MOV_B32_e32 1, implicit $exec {", "instruction"),
    ("    }\n", "", "instruction"),
    ("    }\n", "    }\n    }\n", "instruction"),
    ("BUNDLE implicit-def $vgpr1, implicit $exec {", "BUNDLE implicit-def $vgpr1, implicit $exec", "instruction"),
    ("debug-location !7", "debug-location !7, mmra !3", "instruction"),
    ('INLINEASM &"v_nop ; %bb.7"', "INLINEASM 0", "instruction"),
    ("S_TEST @f + 8", "S_TEST @f + 8 /* */", "instruction"),
    ("1 /* sideeffect attdialect */", "1 /* sideeffect attdialect", "instruction"),
]


@pytest.mark.parametrize(("old", "new", "rule"), MALFORMED, ids=range(len(MALFORMED)))
def test_malformed_texts_are_refused(old: str, new: str, rule: str) -> None:
    assert old in SMALL
    with pytest.raises(Refused) as refused:
        read(SMALL.replace(old, new, 1))
    assert refused.value.rule == rule
    assert refused.value.where or "no machine function" in refused.value.message


def test_a_function_twice_is_refused() -> None:
    document = SMALL[SMALL.index("---\nname") :]
    with pytest.raises(Refused, match="a second function"):
        read(SMALL + document)


@pytest.mark.parametrize("text", ["", "\n", "--- |\n", "---", "---\n...", "\ufeff---\n"])
def test_what_is_no_text_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        read(text)


def test_what_llvm_24_prints_is_read() -> None:
    row = "{ id: 0, class: vgpr_32, preferred-register: '$vgpr5', flags: [  ] }"
    hints = row.replace("] }", "], anti-hints: [ \n" + " " * 80 + "'%1', '$vgpr3' ] }")
    words = SMALL.replace("1 /* sideeffect attdialect */, 2228234 /* regdef:VGPR_32 */", "attdialect, regdef:VGPR_32")
    (function,) = read(words.replace(row, hints).replace("nofpexcept V_TEST", "lr-split V_TEST")).functions
    assert function.registers == read(SMALL).functions[0].registers
    assert function.blocks[0].instructions[1].flags == {"lr-split"}
    assert [op.kind for op in function.blocks[2].instructions[0].operands[1:3]] == [Kind.ASM_FLAG, Kind.ASM_FLAG]


def test_missing_successors_are_those_that_llvm_infers() -> None:
    text = re.sub(r"    successors:.*\n", "", SMALL)
    first, second, third = read(text).functions[0].blocks
    assert not first.has_successors
    assert first.successors == ((2, ""), (1, ""))
    assert not second.successors
    assert not third.successors


def without_remarks(text: str) -> str:
    """A text without comments, empty lines and what has no meaning: several blanks, and how a line ends."""
    text = re.sub(r"(?m)^#.*\n", "", text.replace("\r\n", "\n"))
    text = re.sub(r'"[^"\n]*"|;.*|/\*[^*\n]*\*/', lambda m: m[0] if m[0].startswith('"') else "", text)
    text = re.sub(r"(?m)^ +| +$", "", text)
    return re.sub(r"\n+", "\n", re.sub(r" +", " ", text)).strip("\n")


def mutants(text: str, count: int, generator: random.Random) -> Iterable[str]:
    """Texts with one character left out, put in, replaced or exchanged with the next one."""
    start = text.index("\n---\n") if "\n---\n" in text else 0
    for _ in range(count):
        at = generator.randrange(start, len(text))
        char = generator.choice(text[start:] + "\t\r\0#;{}\"'`")
        yield generator.choice(
            (
                text[:at] + text[at + 1 :],
                text[:at] + char + text[at:],
                text[:at] + char + text[at + 1 :],
                text[:at] + text[at + 1 : at + 2] + text[at : at + 1] + text[at + 2 :],
            )
        )


def check_mutants(text: str, count: int, seed: int) -> int:
    """How many mutants are refused. Those that are not mean something else, or differ in what has no meaning."""
    original = read(text)
    refused = 0
    for mutant in mutants(text, count, random.Random(seed)):
        try:
            changed = read(mutant)
        except Refused:
            refused += 1
            continue
        if changed == original:
            assert without_remarks(mutant) == without_remarks(text)
    return refused


def test_no_character_is_skipped() -> None:
    assert check_mutants(SMALL, 6000, 1) > 3000


@pytest.mark.long
def test_no_character_of_a_stored_text_is_skipped() -> None:
    for number, path in enumerate(stored_texts()):
        text = path.read_bytes().decode()
        try:
            read(text)
        except Refused:
            continue
        check_mutants(text, 40, number)
