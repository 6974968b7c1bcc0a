"""Parsing and printing MIR loses nothing: the bytes come back, for real files of every target and stage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support import allocated_by_llvm, cpu_of, each_kernel, pre_ra, run_llc

from verilocc_mlir.errors import InputError, UnsupportedError
from verilocc_mlir.mir.header import header_field
from verilocc_mlir.mir.model import Instruction, MachineFunction, OperandKind
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.mir.printer import print_mir

TWO_FUNCTIONS = """
target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
define internal fastcc i32 @helper(i32 %a, ptr addrspace(1) %p) noinline {
  %q = getelementptr i32, ptr addrspace(1) %p, i32 %a
  %v = load i32, ptr addrspace(1) %q
  %s = alloca [16 x i32], addrspace(5)
  %i = and i32 %v, 15
  %e = getelementptr [16 x i32], ptr addrspace(5) %s, i32 0, i32 %i
  store volatile i32 %a, ptr addrspace(5) %e
  ret i32 %v
}
define amdgpu_kernel void @"a kernel"(ptr addrspace(1) %p, i32 %n) {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %r = call fastcc i32 @helper(i32 %t, ptr addrspace(1) %p)
  %x = call i32 asm "v_add_u32 $0, $1, $2", "=&v,v,v,~{vcc}"(i32 %r, i32 %n)
  store i32 %x, ptr addrspace(1) %p
  ret void
}
"""


def functions(text: str) -> tuple[MachineFunction, ...]:
    return parse_mir(text).functions


def instructions(function: MachineFunction) -> list[Instruction]:
    return [i for block in function.blocks for i in block.instructions]


@pytest.mark.parametrize("path", each_kernel())
def test_same_bytes_before_and_after_allocation(path: Path) -> None:
    pre = pre_ra(path)
    assert print_mir(parse_mir(pre)) == pre
    for last in (0, 2):
        post = allocated_by_llvm(pre, cpu_of(path), 0, last)
        assert print_mir(parse_mir(post)) == post


@pytest.mark.parametrize("cpu", ["gfx90a", "gfx1100", "gfx1250"])
def test_several_functions_calls_stack_and_inline_assembly(cpu: str) -> None:
    text = run_llc(TWO_FUNCTIONS, cpu, "-stop-before=greedy,0", mir=False)
    file = parse_mir(text)
    assert print_mir(file) == text
    assert [f.name for f in file.functions] == ["helper", "a kernel"]
    helper, kernel = file.functions
    assert helper.stack[0].size == 64
    assert header_field(helper, "stackPtrOffsetReg") == "$sgpr32"
    call = next(i for i in instructions(kernel) if i.opcode == "SI_CALL")
    assert [o.kind for o in call.operands][:3] == [
        OperandKind.REGISTER,
        OperandKind.GLOBAL,
        OperandKind.REGMASK,
    ]
    assert [o.phys for o in call.defs] == ["sgpr30_sgpr31"]
    asm = next(i for i in instructions(kernel) if i.opcode == "INLINEASM")
    assert any(o.early_clobber and o.is_def and o.vreg >= 0 for o in asm.operands)
    assert any(o.phys.startswith("vcc") and o.is_def for o in asm.operands)


def test_operand_details() -> None:
    body = (
        "    undef %5.sub1:vreg_64(s32), dead $sgpr_null = nofpexcept nsw V_X "
        "%3.sub0_sub1:vreg_128(tied-def 0), undef %4:vgpr_32, -1, "
        "implicit $exec, implicit-def dead early-clobber $vcc, debug-location !7 :: (load (s64) from %ir.p, align 4), "
        "(store (s32) into %stack.0)"
    )
    text = f"---\nname:            f\nbody:             |\n  bb.0:\n{body}\n...\n"
    (function,) = functions(text)
    (instruction,) = instructions(function)
    assert print_mir(parse_mir(text)) == text
    first, second = instruction.defs
    assert (first.vreg, first.sub, first.cls, first.llt, first.undef) == (
        5,
        "sub1",
        "vreg_64",
        "s32",
        True,
    )
    assert (second.phys, second.dead) == ("sgpr_null", True)
    tied, undef, imm, implicit, clobber = instruction.operands
    assert (tied.tied, tied.sub) == (0, "sub0_sub1")
    assert undef.undef
    assert undef.is_use
    assert imm.kind is OperandKind.IMMEDIATE
    assert implicit.implicit
    assert implicit.is_use
    assert (clobber.is_def, clobber.dead, clobber.early_clobber) == (True, True, True)
    assert instruction.flags == ("nofpexcept", "nsw")
    assert instruction.tail == ", debug-location !7"
    assert len(instruction.memory) == 2


def test_bundles_and_comments_come_back() -> None:
    text = (
        "---\nname:            f\nbody:             |\n  bb.0.entry:\n"
        "    liveins: $sgpr0_sgpr1:0x000000000000000F\n  \n    ; a note\n"
        "    BUNDLE implicit-def $sgpr2 {\n      $sgpr2 = S_MOV_B32 1\n      S_NOP internal $sgpr2\n    }\n"
        "    S_ENDPGM 0 ; the end\n...\n"
    )
    (function,) = functions(text)
    assert print_mir(parse_mir(text)) == text
    assert [i.bundled for i in instructions(function)] == [False, True, True, False]
    assert function.blocks[0].liveins[0].mask == 15


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t[: t.rindex("...")], "complete body"),
        (lambda t: t[: t.rindex("S_ENDPGM")] + "%%%\n...\n", "not an instruction"),
        (lambda t: t.replace("body:", "bdy:"), "complete body"),
        (lambda t: "; only IR", "no machine function"),
        (lambda t: t.replace("  bb.0", "  bb.zero"), "block"),
    ],
)
def test_broken_text_is_one_clear_error(change: Callable[[str], str], message: str) -> None:
    good = "---\nname:            f\nbody:             |\n  bb.0:\n    S_ENDPGM 0\n...\n"
    with pytest.raises(InputError, match=message):
        parse_mir(change(good), "k.mir")


def test_named_virtual_registers_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"k\.mir:5: named virtual register"):
        parse_mir(
            "---\nname:            f\nbody:             |\n  bb.0:\n    %foo:vgpr_32 = COPY $vgpr0\n...\n",
            "k.mir",
        )


@pytest.mark.parametrize(
    ("written", "name"), [("'a ''b'''", "a 'b'"), (r'"a \"n\" \x01"', 'a "n" \x01'), ("plain", "plain")]
)
def test_quoted_function_names(written: str, name: str) -> None:
    text = f"---\nname:            {written}\nbody:             |\n  bb.0:\n    S_ENDPGM 0\n...\n"
    assert functions(text)[0].name == name
    assert print_mir(parse_mir(text)) == text
