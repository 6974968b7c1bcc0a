"""IR of newer LLVMs: brought down with the same meaning, numbers bit for bit, or refused with the reason."""

from __future__ import annotations

import random
import re
import struct
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolchain_support import DATA, compiler, source, tools

from verilocc_mlir.errors import InputError, UnsupportedError
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.target.callingconv import calls_in
from verilocc_mlir.toolchain.checked import check_object
from verilocc_mlir.toolchain.descriptor import parse_descriptors, read_code_object
from verilocc_mlir.toolchain.inputs import load_input
from verilocc_mlir.toolchain.ir_compat import (
    convert_line,
    downgrade,
    encode_decimal,
    to_pre_ra,
    without_unread_arguments,
)
from verilocc_mlir.toolchain.staged import LlvmPhase

WIDTH = {"half": 16, "bfloat": 16, "float": 32, "double": 64}
needs_llvm_22 = pytest.mark.skipif(tools().version[0] != 22, reason="the forms that LLVM 22 lacks; this llc is newer")


def emitted(kind: str, literals: list[str]) -> list[int]:
    """The bits that llc writes for literals, each a global of its own."""
    lines = [f"@g{i} = addrspace(1) global {kind} {literal}" for i, literal in enumerate(literals)]
    asm = compiler("gfx942").direct("\n".join(map(convert_line, lines)) + "\n", "asm").decode()
    size = {16: "short", 32: "long", 64: "quad"}[WIDTH[kind]]
    values = re.findall(rf"^g(\d+):\n\s+\.{size}\s+(0x[0-9a-f]+|\d+)", asm, re.MULTILINE)
    assert [int(index) for index, _ in values] == list(range(len(literals)))
    return [int(value, 0) for _, value in values]


@pytest.mark.parametrize("kind", WIDTH)
def test_every_bit_pattern_survives(kind: str) -> None:
    rng = random.Random(7)
    width = WIDTH[kind]
    edges = [0, 1, (1 << width) - 1, 1 << width - 1, (1 << width - 1) - 1]
    patterns = edges + [rng.getrandbits(width) for _ in range(2000)]
    assert emitted(kind, [f"f0x{bits:0{width // 4}X}" for bits in patterns]) == patterns


@pytest.mark.parametrize("kind", WIDTH)
def test_names_mean_what_llvm_means(kind: str) -> None:
    fraction = {"half": 10, "bfloat": 7, "float": 23, "double": 52}[kind]
    infinity = (1 << WIDTH[kind] - 1) - (1 << fraction)
    sign, quiet = 1 << WIDTH[kind] - 1, 1 << fraction - 1
    names = ["+inf", "-inf", "+qnan", "-qnan", "+nan(0x5)", "-nan(0x5)", "+snan(0x1)", "-snan(0x1)"]
    assert emitted(kind, names) == [
        infinity,
        sign | infinity,
        infinity | quiet,
        sign | infinity | quiet,
        infinity | quiet | 5,
        sign | infinity | quiet | 5,
        infinity | 1,
        sign | infinity | 1,
    ]


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_shortest_decimals_of_float_round_to_it(value: float) -> None:
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    assert encode_decimal(f"{value:.8e}", "float") == bits


@given(st.floats(width=16, allow_nan=False, allow_infinity=False))
def test_shortest_decimals_of_half_round_to_it(value: float) -> None:
    (bits,) = struct.unpack("<H", struct.pack("<e", value))
    assert encode_decimal(repr(value), "half") == bits


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_decimals_of_double_round_to_it(value: float) -> None:
    (bits,) = struct.unpack("<Q", struct.pack("<d", value))
    assert encode_decimal(repr(value), "double") == bits


def test_ties_go_to_even_and_large_values_to_infinity() -> None:
    one = 0x3F800000
    half_step = Fraction(1, 1 << 24)
    assert encode_decimal(f"{float(1 + half_step):.30f}", "float") == one
    assert encode_decimal(f"{float(1 + 3 * half_step):.30f}", "float") == one + 2
    # Rounding by way of a double would give the next float up.
    assert encode_decimal("1.00000005960464477540", "float") == one + 1
    assert encode_decimal("1.0e39", "float") == 0x7F800000
    assert encode_decimal("-0.0", "float") == 0x80000000
    assert encode_decimal("1.0e-46", "float") == 0


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("  %y = fadd float %x, 0.1", "  %y = fadd float %x, 0x3FB99999A0000000"),
        ("  %y = fadd double %x, 0.1", "  %y = fadd double %x, 0.1"),
        ("  %y = fadd float %x, 0.5", "  %y = fadd float %x, 0.5"),
        ("  %p = phi half [ f0x3C00, %a ], [ %v, %b ]", "  %p = phi half [ 0xH3C00, %a ], [ %v, %b ]"),
        ("  call void @f(double 0.1, bfloat 0.1)", "  call void @f(double 0.1, bfloat 0xR3DCD)"),
        ('  %"float 0.1" = load float, ptr %double.0.1 ; 0.1', '  %"float 0.1" = load float, ptr %double.0.1 ; 0.1'),
        ('!0 = !{!"float 0.1"}', '!0 = !{!"float 0.1"}'),
        ("  %q = getelementptr float, ptr %p, i64 1", "  %q = getelementptr float, ptr %p, i64 1"),
    ],
)
def test_only_literals_are_touched(line: str, expected: str) -> None:
    assert convert_line(line) == expected


def test_a_literal_without_such_a_form_is_refused() -> None:
    for line in ("store fp128 f0x0, ptr %p", "store float f0x112345678, ptr %p", "f0x1"):
        with pytest.raises(ValueError, match="literal f0x"):
            convert_line(line)
    with pytest.raises(UnsupportedError, match="literal f0x0 of type fp128") as caught:
        downgrade("\nstore fp128 f0x0, ptr %p", where="k.ll")
    assert caught.value.where == "k.ll:2"


@pytest.mark.parametrize(
    ("newer", "older"),
    [
        ("denormal_fpenv(ieee)", '"denormal-fp-math"="ieee,ieee"'),
        ("denormal_fpenv(dynamic)", '"denormal-fp-math"="dynamic,dynamic"'),
        ("denormal_fpenv(preservesign|ieee)", '"denormal-fp-math"="preserve-sign,ieee"'),
        ("denormal_fpenv(float: positivezero)", '"denormal-fp-math-f32"="positive-zero,positive-zero"'),
        (
            "denormal_fpenv(ieee, float: preservesign|ieee)",
            '"denormal-fp-math"="ieee,ieee" "denormal-fp-math-f32"="preserve-sign,ieee"',
        ),
    ],
)
def test_denormal_modes(newer: str, older: str) -> None:
    text = f"attributes #0 = {{ nounwind {newer} memory(none) }}\n"
    lowered = downgrade(text)
    assert lowered.text == f"attributes #0 = {{ nounwind {older} memory(none) }}\n"
    assert lowered.changes == ("denormal_fpenv",)


@pytest.mark.parametrize(
    ("newer", "older"),
    [
        ("memory(target_mem: read)", "memory(target_mem0: read, target_mem1: read)"),
        (
            "memory(write, argmem: readwrite, target_mem: none)",
            "memory(write, argmem: readwrite, target_mem0: none, target_mem1: none)",
        ),
    ],
)
def test_target_memory_keeps_its_access(newer: str, older: str) -> None:
    text = "attributes #0 = {{ nounwind {} }}\n"
    lowered = downgrade(text.format(newer))
    assert lowered.text == text.format(older)
    assert lowered.changes == ("target_mem",)
    # LLVM 22 reads it, and prints what it understood.
    assert older in compiler("gfx942").to_pre_ra(f"define void @f() {older} {{\n  ret void\n}}\n")


def test_each_of_the_targets_memories_is_left_as_it_is() -> None:
    text = "attributes #0 = { memory(argmem: read, target_mem0: read, target_mem1: none) }\n"
    assert downgrade(text).text == text


def test_denormal_modes_reach_the_descriptor() -> None:
    kernel = "define amdgpu_kernel void @k() #0 {\n  ret void\n}\n"
    text = kernel + "attributes #0 = { denormal_fpenv(ieee, float: preservesign) }\n"
    fields = parse_descriptors(compiler("gfx942").direct(downgrade(text).text))["k"].fields
    assert (fields["float_denorm_mode_32"], fields["float_denorm_mode_16_64"]) == (0, 3)


def test_buffer_lengths_are_widened_unsigned() -> None:
    name = "@llvm.amdgcn.make.buffer.rsrc.p7.p1.i32"
    call = f"  %r = tail call ptr addrspace(7) {name}(ptr addrspace(1) %p, i16 0, {{}}, i32 %f)"
    assert "i16 0, i64 4000, i32 %f)" in downgrade(call.format("i32 4000")).text
    lowered = downgrade(call.format("i32 -1")).text
    assert "%verilocc.length.0 = zext i32 -1 to i64\n" in lowered
    assert "i16 0, i64 %verilocc.length.0, i32 %f)" in lowered
    assert ".p7.p1(" in lowered
    nested = call.format("i32 7").replace(
        "ptr addrspace(1) %p", "ptr addrspace(1) getelementptr (i8, ptr addrspace(1) @g, i64 4)"
    )
    assert "(i8, ptr addrspace(1) @g, i64 4), i16 0, i64 7, i32 %f)" in downgrade(nested).text


def test_what_has_no_equivalent_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"addrspace\(12\) does not exist in LLVM 22"):
        downgrade("define void @f(ptr addrspace(12) %p) {\n  ret void\n}\n")


@needs_llvm_22
@pytest.mark.parametrize(
    "name", ["iree_gelu.gfx942.ll", "iree_gelu.gfx1100.opt.ll", "iree_t5_reduction.gfx942.opt.ll", "newer_forms.ll"]
)
def test_newer_ir_compiles(name: str) -> None:
    loaded = load_input((DATA / name).read_bytes(), path=name)
    staged = compiler(loaded.cpu, name)
    with pytest.raises(InputError):
        staged.to_pre_ra(loaded.text)
    pre = to_pre_ra(staged, loaded.text)
    assert "target triple" in pre.changes
    assert "floating-point literals" in pre.changes
    obj = staged.finish_from(pre.mir, LlvmPhase.SGPR)
    checked = check_object(obj, mir=pre.mir, cpu=loaded.cpu, reference=staged.direct(pre.ir))
    assert read_code_object(staged.link(checked.data)).machine == loaded.cpu


def test_ir_that_llc_reads_is_not_touched() -> None:
    pre = to_pre_ra(compiler("gfx942"), source("abi.ll"))
    assert (pre.ir, pre.changes) == (source("abi.ll"), ())


def test_an_ordinary_error_stays_the_inputs_fault() -> None:
    with pytest.raises(InputError, match="expected instruction opcode"):
        to_pre_ra(compiler("gfx942"), "define amdgpu_kernel void @k() {\n  nonsense\n}\n")


@needs_llvm_22
def test_newer_ir_that_stays_unreadable_says_both_reasons() -> None:
    text = source("newer_forms.ll").replace("  ret void", "  brandnew\n  ret void")
    with pytest.raises(UnsupportedError, match=r"of a newer LLVM .* rewritten, .*expected instruction opcode"):
        to_pre_ra(compiler("gfx90a"), text)


@needs_llvm_22
def test_the_bare_attribute_is_read_as_it_is_meant() -> None:
    """llc 22 accepts it, but takes it for false; nothing else of the text is touched."""
    ir = 'define amdgpu_kernel void @k() #0 {\n  ret void\n}\nattributes #0 = { "uniform-work-group-size" }\n'
    pre = to_pre_ra(compiler("gfx942"), ir)
    assert pre.changes == ("uniform-work-group-size",)
    assert pre.ir == ir.replace('size"', 'size"="true"')
    obj = compiler("gfx942").direct(pre.ir)
    assert read_code_object(obj).kernels["k"].raw[".uniform_work_group_size"] == 1
    assert ".uniform_work_group_size" not in read_code_object(compiler("gfx942").direct(ir)).kernels["k"].raw


HANDED = """target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workgroup.id.y()
declare i32 @llvm.amdgcn.workitem.id.x()
define internal i32 @"odd (name"(ptr addrspace(5) byval([4 x i32]) captures(none) %p) unnamed_addr noinline {
  %v = load i32, ptr addrspace(5) %p
  ret i32 %v
}
define internal i32 @reads(i32 %a) noinline {
  %y = call i32 @llvm.amdgcn.workgroup.id.y()
  %s = add i32 %a, %y
  ret i32 %s
}
define internal i32 @hands_on(i32 %a) #0 {
  %s = call i32 @reads(i32 %a)
  %x = call i32 @elsewhere(i32 %s)
  ret i32 %x
}
define internal i32 @through(i32 %a) #0 { %s = call i32 @reads(i32 %a) ret i32 %s }
define i32 @seen(i32 %a) #0 { ret i32 %a }
declare i32 @elsewhere(i32)
define amdgpu_kernel void @k(ptr addrspace(1) %o) {
  %p = alloca [4 x i32], addrspace(5)
  %id = call i32 @llvm.amdgcn.workitem.id.x()
  store i32 %id, ptr addrspace(5) %p
  %a = call i32 @"odd (name"(ptr addrspace(5) byval([4 x i32]) %p)
  %b = call i32 @through(i32 %a)
  %c = call i32 @hands_on(i32 %b)
  %d = call i32 @seen(i32 %c)
  store i32 %d, ptr addrspace(1) %o
  ret void
}
attributes #0 = { noinline }
"""
WORK_GROUP = {"sgpr12", "sgpr13", "sgpr14"}
EVERYTHING = {"sgpr4_sgpr5", "sgpr6_sgpr7", "sgpr8_sgpr9", "sgpr10_sgpr11", "vgpr31"} | WORK_GROUP


def test_local_functions_are_handed_what_they_or_those_that_they_call_read() -> None:
    """Not what is called from elsewhere too, nor what calls what nobody knows."""
    staged = compiler("gfx942")
    inferred = staged.inferred(HANDED)
    assert inferred is not None
    less = without_unread_arguments(HANDED, inferred)
    calls = [call for f in parse_mir(staged.to_pre_ra(less)).functions for call in calls_in(f)]
    handed = {
        call.callee: EVERYTHING & {operand.phys for operand in call.instruction.operands if operand.is_use}
        for call in calls
    }
    assert handed["odd (name"] == set()
    assert handed["reads"] == handed["through"] == {"sgpr13"}
    assert handed["hands_on"] == handed["elsewhere"] == handed["seen"] == EVERYTHING
    kernel = re.compile(r"^define amdgpu_kernel.*", re.MULTILINE)
    assert kernel.findall(less) == kernel.findall(HANDED)


def test_what_is_said_already_is_not_said_again() -> None:
    staged = compiler("gfx942")
    inferred = staged.inferred(HANDED)
    assert inferred is not None
    less = without_unread_arguments(HANDED, inferred)
    assert without_unread_arguments(less, inferred) == less
    assert without_unread_arguments(HANDED, HANDED) == HANDED
