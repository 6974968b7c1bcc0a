"""MIR is read as LLVM reads it, or not at all: successors, header, operands and lines that LLVM takes otherwise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support import allocated_by_llvm, cpu_of, each_kernel, pre_ra, readable, run_llc

from verilocc_mlir.errors import InputError, UnsupportedError, VeriloccError
from verilocc_mlir.mir.header import header_field
from verilocc_mlir.mir.model import MachineFunction, OperandKind
from verilocc_mlir.mir.operands import parse_operand
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.mir.printer import print_mir
from verilocc_mlir.mir.successors import is_barrier
from verilocc_mlir.target.instructions import instruction

HEADER = """---
name:            f
tracksRegLiveness: true
registers:
  - { id: 0, class: vgpr_32 }
liveins:
  - { reg: '$vgpr0', virtual-reg: '%0' }
frameInfo:
  maxAlignment:    4
stack:
  - { id: 0, type: spill-slot, size: 4, alignment: 4 }
machineFunctionInfo:
  isEntryFunction: true
  argumentInfo:
    workItemIDX:     { reg: '$vgpr0' }
  mode:
    ieee:            false
  occupancy:       8
  wwmReservedRegs:
    - '$vgpr40'
body:             |
"""
BODY = """  bb.0:
    liveins: $vgpr0
  
    %0:vgpr_32 = COPY $vgpr0
    S_CBRANCH_EXECZ %bb.2, implicit $exec
  
  bb.1:
    %0:vgpr_32 = V_ADD_U32_e32 1, %0, implicit $exec
  
  bb.2:
    SCRATCH_STORE_DWORD_SADDR %0, %stack.0, 0, 0, implicit $exec, implicit $flat_scr :: (store (s32) into %stack.0, addrspace 5)
    S_ENDPGM 0
...
"""  # noqa: W293, E501
TEXT = HEADER + BODY


def replaced(*changes: tuple[str, str]) -> str:
    text = TEXT
    for before, after in changes:
        assert before in text
        text = text.replace(before, after, 1)
    return text


def function(text: str) -> MachineFunction:
    (only,) = parse_mir(text, "k.mir").functions
    return only


def successors(text: str) -> list[list[int]]:
    return [[number for number, _ in block.successors] for block in function(text).blocks]


def refused(text: str, message: str, kind: type[VeriloccError] = InputError) -> None:
    with pytest.raises(kind, match=message):
        parse_mir(text, "k.mir")


def test_the_text_itself_is_read_and_printed_back() -> None:
    assert print_mir(parse_mir(TEXT)) == TEXT


@pytest.mark.parametrize("path", each_kernel())
def test_simplified_text_says_what_the_plain_text_says(path: Path) -> None:
    pre, cpu = pre_ra(path), cpu_of(path)
    texts = [pre, *(allocated_by_llvm(pre, cpu, 0, last) for last in (0, 2))]
    for text in texts:
        plain = run_llc(readable(text), cpu, "-run-pass=none")
        simple = run_llc(readable(text), cpu, "-run-pass=none", "-simplify-mir")
        assert print_mir(parse_mir(simple)) == simple
        for one, other in zip(parse_mir(plain).functions, parse_mir(simple).functions, strict=True):
            assert [[n for n, _ in b.successors] for b in one.blocks] == [
                [n for n, _ in b.successors] for b in other.blocks
            ]
            assert [b.liveins for b in one.blocks] == [b.liveins for b in other.blocks]
            assert {r.id: r.cls for r in one.registers.values()} == {r.id: r.cls for r in other.registers.values()}
            assert one.liveins == other.liveins
            for stack in ("stack", "fixed_stack"):
                rows = [[(s.id, s.size, s.alignment, s.type) for s in getattr(f, stack).values()] for f in (one, other)]
                assert rows[0] == rows[1]
            listed = [
                [(i.opcode, i.flags, i.all_operands, i.memory, i.tail) for b in f.blocks for i in b.instructions]
                for f in (one, other)
            ]
            assert listed[0] == listed[1]


def test_successors_are_the_branches_and_the_next_block() -> None:
    assert successors(TEXT) == [[2, 1], [2], []]
    assert not any(block.has_successors for block in function(TEXT).blocks)


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ("S_BRANCH %bb.0", [0]),
        ("S_SETPC_B64_return $sgpr30_sgpr31", []),
        ("SI_RETURN", []),
        ("S_NOP 0", [2]),
        ("S_CBRANCH_SCC0 %bb.1, implicit $scc", [1, 2]),
        ("S_CBRANCH_SCC0 %bb.2, implicit $scc", [2]),
        ("S_BRANCH %bb.0\n    DBG_LABEL !1", [0]),
        ("BUNDLE {\n      S_NOP 0\n      S_ENDPGM 0\n    }", []),
        ("BUNDLE {\n      S_NOP 0\n      S_NOP 0\n    }", [2]),
    ],
)
def test_what_ends_a_block(last: str, expected: list[int]) -> None:
    assert successors(replaced(("V_ADD_U32_e32 1, %0, implicit $exec", f"COPY %0\n    {last}")))[1] == expected


@pytest.mark.parametrize("opcode", ["S_ENDPGM_LATER 0", "SI_NEW_RETURN", "S_SETPC_I64 0"])
def test_whether_control_passes_a_branch_of_another_llvm_is_unknown(opcode: str) -> None:
    refused(replaced(("%0:vgpr_32 = V_ADD_U32_e32 1, %0, implicit $exec", opcode)), "control passes", UnsupportedError)


@pytest.mark.parametrize("path", each_kernel())
def test_what_control_does_not_pass_is_what_llvm_says(path: Path) -> None:
    ends = ("S_ENDPGM", "SI_RETURN", "SI_TCRETURN", "S_SETPC_B64_return", "S_CBRANCH_SCC0", "SI_CS_CHAIN_TC_W64")
    for name in {
        *ends,
        *(i.opcode for f in parse_mir(pre_ra(path)).functions for b in f.blocks for i in b.instructions),
    }:
        table = instruction(name)
        assert table is not None
        assert is_barrier(name) is ("barrier" in table.properties), name


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%bb.1(0x80000000)", "from bb.0 to bb.2"),
        ("%bb.2(0x80000000)", "from bb.0 to bb.1"),
        ("", "from bb.0 to bb.2"),
        ("%bb.2, %bb.1, %bb.2", "named twice"),
        ("%bb.2, %bb.1\n    successors: %bb.1", "a second 'successors:'"),
        ("%bb.2, %bb.1, %bb.7", "bb.7 does not exist"),
    ],
)
def test_successors_that_are_named_are_those_of_the_branches(line: str, message: str) -> None:
    refused(replaced(("  bb.0:\n", f"  bb.0:\n    successors: {line}\n")), message)


def test_control_does_not_leave_the_text() -> None:
    refused(
        replaced(
            ("    S_ENDPGM 0", "    S_CBRANCH_SCC0 %bb.1, implicit $scc"), ("bb.2:\n", "bb.2:\n    successors: %bb.1\n")
        ),
        "the end of the function",
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("    liveins: $vgpr0\n", "    liveins: $vgpr0\n    liveins: $vgpr1\n"), "a second 'liveins:'"),
        (("    liveins: $vgpr0\n", "    liveins:\n"), "without a register"),
        (("    liveins: $vgpr0\n", "    liveins: $vgpr0:3\n"), "not a live-in"),
        (("    liveins: $vgpr0\n", "    liveins: $vgpr0:0x3\n"), "not a live-in"),
        (("  bb.1:", "  bb.1 (landing-pad):"), "not a block header"),
        (("  bb.1:", "  bb.1 (ir-block-address-taken %ir-block.a):"), "not a block header"),
        (("  bb.1:", "  bb.1: S_NOP 0"), "not a block header"),
        (("  bb.1:", "  bb.0:"), "two blocks"),
        (("    %0:vgpr_32 = V_ADD", " # no\n    %0:vgpr_32 = V_ADD"), "ends the body"),
        (("    S_ENDPGM 0\n", "    S_ENDPGM 0\nconstants:       []\n"), "ends the body"),
        (("    S_ENDPGM 0\n", "    S_ENDPGM 0\n...\n"), "ends the body"),
        (("    S_ENDPGM 0\n...\n", "    S_ENDPGM 0\n...\nname: g\n"), "after the end"),
        (("---\n", "--- # f\n---\n"), "before the first"),
        (("---\n", "\N{BYTE ORDER MARK}---\n---\n"), "before the first"),
        (("---\n", "; a comment\n---\n"), "before the first"),
        (("---\n", "--- |\n  ; one\n...\n; a comment\n---\n"), "before the first"),
        (("---\n", "%YAML 1.2\n---\n"), "before the first"),
        (("---\n", "--- |\n  ; one\n...\n--- |\n  ; two\n...\n---\n"), "before the first"),
        (("---\n", "--- |\n; not indented\n...\n---\n"), "before the first"),
        (("body:             |", "body:             >"), "laid out"),
        (("body:             |", "body:             |-"), "laid out"),
        (("S_ENDPGM 0", "S_ENDPGM 0 /*\n    */"), "not an operand|not an instruction"),
        (("S_ENDPGM 0", "BUNDLE {\n      BUNDLE {\n        S_NOP 0\n      }\n    }"), "bundle within"),
        (("S_ENDPGM 0", "BUNDLE {\n    }\n    S_ENDPGM 0"), "open bundle"),
    ],
)
def test_lines_that_llvm_takes_otherwise(change: tuple[str, str], message: str) -> None:
    refused(replaced(change), message, VeriloccError)


def test_what_newer_llvms_print_is_read() -> None:
    """IREE's comments before the module, and fields of LLVM 24's headers."""
    with_module = TEXT.replace("---\n", "; To reproduce the .rocmasm\n\n--- |\n  ; ModuleID = 'm'\n...\n---\n", 1)
    assert parse_mir(with_module).preamble.startswith("; To reproduce")
    for section, field in (
        ("frameInfo:\n", "framePointerPolicy: non-leaf"),
        ("machineFunctionInfo:\n", "hasNoWWMPoolSGPRSpillFallback: true"),
    ):
        parse_mir(TEXT.replace(section, f"{section}  {field}\n", 1))
        refused(TEXT.replace(section, f"{section}  {field}x\n", 1), "is no value of the field")


def test_a_carriage_return_ends_a_line_only_with_a_line_feed() -> None:
    assert parse_mir(TEXT.replace("\n", "\r\n")) == parse_mir(TEXT)
    refused(replaced(("S_ENDPGM 0", "S_NOP 0\r    S_ENDPGM 0")), "carriage return", UnsupportedError)


def test_a_function_stands_there_once() -> None:
    refused(TEXT + TEXT, "a second machine function 'f'")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("frameInfo:\n", "frameInfo: { hasCalls: true }\n#"), "laid out"),
        (("isEntryFunction: true", "isEntryFunction: yes"), "no value"),
        (("isEntryFunction: true", "isEntryFunction: 'true'"), "no value"),
        (("isEntryFunction: true", '"isEntryFunction": true'), "laid out"),
        (("maxAlignment:    4", "maxAlignment:    0x40"), "no value"),
        (("maxAlignment:    4", "maxAlignment:    010"), "no value"),
        (("maxAlignment:    4", "maxAlignment:    4 # bytes"), "no value"),
        (("maxAlignment:    4", "maxAlignment:\n    4"), "no value|laid out"),
        (("maxAlignment:    4", "maxAlignment:    4\n  maxAlignment:    8"), "twice"),
        (("name:            f\n", "name:            f\nname:            g\n"), "twice"),
        (("name:            f\n", "name:            f # g\n"), "no value"),
        (("name:            f\n", "name:            f\n  g\n"), "laid out"),
        (("name:            f\n", "name:            f\n# a comment\n"), "laid out"),
        (("  maxAlignment:    4", "   maxAlignment:    4"), "laid out"),
        (("  maxAlignment:    4", "  maxAlignment:\t4"), "laid out|no value"),
        (("{ id: 0, class: vgpr_32 }", "{ class: vgpr_32, id: 0 }"), "not a row"),
        (("{ id: 0, class: vgpr_32 }", "{ id: 0, class: vgpr_32, class: av_32 }"), "not a row"),
        (("{ id: 0, class: vgpr_32 }\n", "{ id: 0, class: vgpr_32 }\n  - { id: 0, class: av_32 }\n"), "second row"),
        (("{ id: 0, class: vgpr_32 }\n", "{ id: 0, class: vgpr_32 }\n  - id: 1\n    class: av_32\n"), "does not end"),
        (("{ reg: '$vgpr0', virtual-reg: '%0' }", "{ reg: $vgpr0 }"), "not a row"),
        (("{ id: 0, type: spill-slot,", "{ id: 0, id: 1, type: spill-slot,"), "not a row"),
        (("{ id: 0, type: spill-slot,", "{ id: 0, type: odd,"), "not a row"),
        (("alignment: 4 }\n", "alignment: 4 }\n  - { id: 0, size: 8 }\n"), "second row"),
        (("ieee:            false", "IEEE:            false"), "not known"),
        (("tracksRegLiveness: true\n", "tracksRegLiveness: true\nverySpecial:     1\n"), "not known"),
        (("stack:\n", "constants:\n  - { id: 0 }\nstack:\n"), "not handled|not known"),
        (("    - '$vgpr40'", "    - $vgpr40"), "laid out"),
    ],
)
def test_header_fields_that_are_not_as_llvm_prints_them(change: tuple[str, str], message: str) -> None:
    refused(replaced(change), message, VeriloccError)


def test_a_name_in_a_stack_object_is_no_field() -> None:
    text = replaced(
        ("{ id: 0, type: spill-slot, size: 4,", "{ id: 0, name: 'size: 64, id: 7', type: default, size: 4,")
    )
    (row,) = function(text).stack.values()
    assert (row.id, row.size, row.type) == (0, 4, "default")


def test_absent_fields() -> None:
    text = replaced(("{ id: 0, type: spill-slot, size: 4, alignment: 4 }", "{ id: 0, size: 4 }"))
    read = function(text)
    (row,) = read.stack.values()
    assert (row.size, row.alignment, row.type) == (4, 1, "default")
    assert header_field(read, "hasCalls") is None


@pytest.mark.parametrize("written", ["  - { id: 0, class: vgpr_32, anti-hints: [ '%334',\n      '%335' ] }"])
def test_hints_of_newer_llvm_are_read(written: str) -> None:
    assert function(replaced(("  - { id: 0, class: vgpr_32 }", written))).registers[0].cls == "vgpr_32"


def test_a_register_has_the_class_that_any_operand_gives() -> None:
    bare = (("registers:\n  - { id: 0, class: vgpr_32 }\n", ""), ("%0:vgpr_32 = COPY", "%0 = COPY"))
    assert (
        function(replaced(*bare, ("%0:vgpr_32 = V_ADD", "%0 = V_ADD"), ("1, %0,", "1, %0:av_32,"))).registers[0].cls
        == "av_32"
    )
    refused(replaced(*bare, ("%0:vgpr_32 = V_ADD", "%0 = V_ADD")), "nothing gives the class of %0")
    refused(replaced(("%0:vgpr_32 = V_ADD", "%0:av_32 = V_ADD")), "of class vgpr_32 and of class av_32")


@pytest.mark.parametrize(
    "text",
    [
        "dead $vgpr0", "implicit killed killed $vgpr0", "implicit implicit-def $vgpr0", "implicit-def killed $vgpr0",
        "debug-use $vgpr0", "early-clobber %1", "$vgpr0.sub0", "$vgpr0:vgpr_32", "$vgpr0(s32)",
        "implicit-def %1(tied-def 0)",
        "%1(tied-def 0)(tied-def 1)", "%1(s32)(tied-def 0)", "%1.", "%1:", "%bb.x", "%stack.x", "%fixed-stack.1.a",
        "%const.x",
        "$vgpr0 ", "%subreg.", "99999999999999999999", "-9223372036854775809",
    ],
)  # fmt: skip
def test_operands_that_llvm_refuses_or_takes_otherwise(text: str) -> None:
    with pytest.raises(InputError):
        parse_operand(text, is_def=False)


@pytest.mark.parametrize(
    "text", ["killed $vgpr0", "implicit-def $vgpr0", "def $vgpr0", "internal $vgpr0", "%1(tied-def 0)", "7", "@f"]
)
def test_what_stands_left_of_the_equals_sign_is_defined(text: str) -> None:
    with pytest.raises(InputError):
        parse_operand(text, is_def=True)


@pytest.mark.parametrize(
    "text",
    [
        "", "very-special(0)", "5 /* a */, $vgpr1 /* b */", "0x10", "@", "@a b", '@"a', "&x + y",
        "target-flags(a) $vgpr0",
        "target-flags() @x", "<mcsymbol a b>", "intpred(eq", "i32", "float x", "!x", "<regmask $vgpr0>", "csr_amdgpu x",
        "_",
        "implicit", "5;", "$", "blockaddress(@f, %bb.1)", "CustomRegMask($vgpr0, $vgpr1)",
    ],
)  # fmt: skip
def test_operands_that_are_not_known(text: str) -> None:
    with pytest.raises(VeriloccError):
        parse_operand(text, is_def=False)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("18446744073709551615", OperandKind.IMMEDIATE),
        ("-9223372036854775808", OperandKind.IMMEDIATE),
        ("25 /* sideeffect attdialect */", OperandKind.IMMEDIATE),
        ("%bb.3.loop", OperandKind.BLOCK),
        ("%stack.0.a", OperandKind.FRAME_INDEX),
        ('@"a, b" + 4', OperandKind.GLOBAL),
        ('&"s_nop 0 ; x", '.rstrip(", "), OperandKind.EXTERNAL),
        ("csr_amdgpu_gfx90ainsts", OperandKind.REGMASK),
        ("CustomRegMask($sgpr4,$sgpr5)", OperandKind.REGMASK),
        ("target-flags(amdgpu-gotprel32-lo) @f + 4", OperandKind.OTHER),
        ("<mcsymbol .Ltmp0>", OperandKind.OTHER),
        ("%subreg.sub0_sub1", OperandKind.OTHER),
        ("%const.0 + 4", OperandKind.OTHER),
        ("float 1.000000e+00", OperandKind.OTHER),
        ("half 0xH3C00", OperandKind.OTHER),
        ("i1 true", OperandKind.OTHER),
        ("!DIExpression(DW_OP_constu, 4, DW_OP_minus)", OperandKind.OTHER),
        ("dbg-instr-ref(1, 0)", OperandKind.OTHER),
        ("intpred(eq)", OperandKind.OTHER),
        ("intrinsic(@llvm.amdgcn.s.barrier)", OperandKind.OTHER),
        ("shufflemask(0, undef, 2)", OperandKind.OTHER),
        ("blockaddress(@f, %ir-block.1)", OperandKind.OTHER),
        (".id0_VALU_DEP_1", OperandKind.OTHER),
    ],
)
def test_every_form_has_its_kind(text: str, kind: OperandKind) -> None:
    assert parse_operand(text, is_def=False).kind is kind


@pytest.mark.parametrize(
    ("instruction", "kind", "message"),
    [
        ("V_ADD_U32_e32 1, implicit $exec, $vgpr0", InputError, "after an implicit one"),
        ("$vgpr1 = V_X $vgpr0(tied-def 2), 0", InputError, "tied to nothing"),
        ("$vgpr1 = V_X $vgpr0(tied-def 0), $vgpr1(tied-def 0)", InputError, "tied to nothing"),
        ("very-special V_X 0", UnsupportedError, "flag 'very-special'"),
        ("v_mov_b32 $vgpr0", InputError, "not an instruction"),
        ("S_NOP 0 S_NOP 0", VeriloccError, "not an operand"),
        ("S_NOP 0,", VeriloccError, "not an operand"),
        ("S_NOP 0,1", VeriloccError, "not an operand"),
        ("S_NOP  0", VeriloccError, "not an operand"),
        ("S_NOP 0, debug-location !7, $vgpr0", UnsupportedError, "attributes"),
        ("S_NOP 0, debug-location !7, debug-location !8", UnsupportedError, "attributes"),
        ("S_NOP 0, mmra", VeriloccError, "not an operand"),
        ("S_NOP 0 :: (load (s32)) $vgpr0", UnsupportedError, "memory operand"),
        ("S_NOP 0 :: (load (s32) from %ir.p, align 4, align 8)", UnsupportedError, "memory operand"),
        ("S_NOP 0 :: (load (s32) from %ir.p, addrspace 1, align 4)", UnsupportedError, "memory operand"),
        ("S_NOP 0 :: (invariant dereferenceable load (s32) from %ir.p)", UnsupportedError, "memory operand"),
        ("S_NOP 0 :: (load (s32) from nowhere)", UnsupportedError, "memory operand"),
        ("S_NOP 0 :: (load (s32) from %ir.p, !odd !1)", UnsupportedError, "memory operand"),
        ("S_NOP 0 :: ()", UnsupportedError, "memory operand"),
        ("S_NOP 0 ::(load (s32))", VeriloccError, "not an operand"),
        ("S_NOP\t0", VeriloccError, "not an instruction"),
        ('INLINEASM &"s_nop 0', VeriloccError, "not an operand"),
    ],
)
def test_instructions_that_are_not_as_llvm_prints_them(
    instruction: str, kind: type[VeriloccError], message: str
) -> None:
    refused(replaced(("S_ENDPGM 0", f"{instruction}\n    S_ENDPGM 0")), message, kind)


@pytest.mark.parametrize(
    ("instruction", "check"),
    [
        ('INLINEASM &"a :: (b), c ; d {", 1 /* x, y */, 10, def $vgpr1', lambda i: len(i.operands) == 4),
        ("S_NOP 0;, implicit-def $vgpr0", lambda i: len(i.operands) == 1 and i.comment == ";, implicit-def $vgpr0"),
        ("S_NOP 0 ; it's \"odd", lambda i: len(i.operands) == 1 and i.comment == " ; it's \"odd"),
        ('S_NOP 0 :: (load (s32) from %ir."a, (b", addrspace 5), (load 4 from @"c ; d")', lambda i: len(i.memory) == 2),
        ("S_NOP 0 :: (load (s32) from `ptr addrspace(1) null`)", lambda i: len(i.memory) == 1),
        (
            'S_NOP 0 :: (volatile non-temporal dereferenceable invariant "amdgpu-noclobber" load store '
            'syncscope("agent") acq_rel monotonic (<2 x s32>) on %stack.0 - 4, align 4, basealign 8, !tbaa !1, '
            "!alias.scope !2, !noalias !3, !noalias.addrspace !4, !range !5, addrspace 5)",
            lambda i: len(i.memory) == 1,
        ),
        ('S_NOP 0 :: (load unknown-size from custom "GWSResource")', lambda i: len(i.memory) == 1),
        ("S_NOP 0 :: (load 4 from call-entry @f), (store (s8) into unknown-address)", lambda i: len(i.memory) == 2),
        (
            'S_NOP pre-instr-symbol <mcsymbol "a, b">, pcsections !1, debug-instr-number 3, debug-location !DILocation('
            "line: 1, column: 2, scope: !3)",
            lambda i: not i.operands and i.tail.startswith(" pre-instr-symbol"),
        ),
        ("frame-setup nnan S_NOP 0", lambda i: i.flags == ("frame-setup", "nnan")),
    ],
)  # fmt: skip
def test_quotes_comments_and_attributes(instruction: str, check: Callable[..., bool]) -> None:
    text = replaced(("S_ENDPGM 0", f"{instruction}\n    S_ENDPGM 0"))
    assert check(function(text).blocks[2].instructions[1])
    assert print_mir(parse_mir(text)) == text


def test_a_row_that_llvm_breaks_before_its_flag_is_read() -> None:
    """LLVM's YAML writer does so from register numbers of five digits on, as PeleC's kernels have them."""
    row = "  - { id: 0, class: vgpr_32, preferred-register: '%45031', flags: [ \n" + " " * 72 + "WWM_REG ] }"
    text = replaced(("  - { id: 0, class: vgpr_32 }", row))
    register = parse_mir(text).functions[0].registers[0]
    assert (register.cls, register.flags) == ("vgpr_32", ("WWM_REG",))
    assert print_mir(parse_mir(text)) == text
