"""Function attributes read from the IR module inside a MIR file."""

from __future__ import annotations

import pytest
from support import run_llc

from verilocc_mlir.errors import InputError, UnsupportedError
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.target.attributes import function_attributes, unquote
from verilocc_mlir.target.targets import target, with_features

IR = """\
target triple = "amdgcn-amd-amdhsa"
define amdgpu_kernel void @k(ptr addrspace(1) align 4 dereferenceable(16) %p) #1 !dbg !9 {
  ret void
}
define fastcc noundef <2 x i32> @"a (odd) \\22name\\22"(<2 x i32> %v) "amdgpu-num-vgpr"="32" #0 { ret <2 x i32> %v }
define coldcc void @plain() {
  ret void
}
define void @c.conv() noinline "amdgpu-waves-per-eu"="2,4" "bare" {
  ret void
}
attributes #0 = { noinline "target-cpu"="gfx942" "amdgpu-agpr-alloc"="0" "target-features"="+xnack,-cumode" }
attributes #1 = { "amdgpu-flat-work-group-size"="64,256" "amdgpu-waves-per-eu"="3" "amdgpu-lds-size"="4096,8192" }
!llvm.dbg.cu = !{!1}
!llvm.module.flags = !{!3}
!1 = distinct !DICompileUnit(language: DW_LANG_C, file: !2, emissionKind: FullDebug)
!2 = !DIFile(filename: "x", directory: "y")
!3 = !{i32 2, !"Debug Info Version", i32 3}
!9 = distinct !DISubprogram(name: "k", file: !2, unit: !1, type: !10, spFlags: DISPFlagDefinition)
!10 = !DISubroutineType(types: !11)
!11 = !{null}
"""


@pytest.mark.parametrize("as_printed", [False, True])
def test_attributes(as_printed: bool) -> None:
    """Both as written by hand and as llc prints the module in MIR."""
    module = parse_mir(run_llc(IR, "gfx942", "-stop-before=greedy,0", mir=False)).preamble if as_printed else IR
    kernel = function_attributes(module, "k")
    assert kernel.calling_convention == "amdgpu_kernel"
    assert kernel.is_kernel
    assert kernel.is_entry
    assert kernel.integer_pair("amdgpu-flat-work-group-size") == (64, 256)
    with pytest.raises(InputError, match="amdgpu-waves-per-eu"):
        kernel.integer_pair("amdgpu-waves-per-eu")
    assert kernel.integer_pair("amdgpu-waves-per-eu", only_first_required=True) == (3, None)
    assert kernel.lds_bytes == 4096
    odd = function_attributes(module, 'a (odd) "name"')
    assert odd.calling_convention == "fastcc"
    assert not odd.is_entry
    assert odd.integer("amdgpu-num-vgpr") == 32
    assert odd.strings["amdgpu-agpr-alloc"] == "0"
    assert odd.target_cpu == "gfx942"
    assert odd.target_features >= {"+xnack", "-cumode"}
    assert "noinline" in odd.words
    assert function_attributes(module, "plain").calling_convention == "coldcc"
    inline = function_attributes(module, "c.conv")
    assert inline.calling_convention == "ccc"
    assert inline.integer_pair("amdgpu-waves-per-eu") == (2, 4)
    assert inline.strings["bare"] == ""


def test_functions_of_a_mir_file_are_found() -> None:
    file = parse_mir(run_llc(IR, "gfx942", "-stop-before=greedy,0", mir=False))
    assert {f.name for f in file.functions} >= {"k", 'a (odd) "name"', "c.conv"}
    for function in file.functions:
        assert function_attributes(file.preamble, function.name).name == function.name


def test_missing_function_is_an_input_error() -> None:
    with pytest.raises(InputError, match="defines no function other"):
        function_attributes(IR, "other")


def test_numbers_that_llvm_refuses_are_input_errors() -> None:
    module = 'define void @f() #0 {\n}\nattributes #0 = { "amdgpu-num-vgpr"="x" "amdgpu-waves-per-eu"="1,y" }\n'
    attributes = function_attributes(module, "f")
    with pytest.raises(InputError, match="amdgpu-num-vgpr"):
        attributes.integer("amdgpu-num-vgpr")
    with pytest.raises(InputError, match="amdgpu-waves-per-eu"):
        attributes.integer_pair("amdgpu-waves-per-eu", only_first_required=True)


@pytest.mark.parametrize(
    ("text", "number"),
    [("0x10", 16), ("0X1f", 31), ("010", 8), ("0b101", 5), ("0o17", 15), ("0", 0), ("24", 24), ("\\30x8", 8)],
)
def test_numbers_have_the_base_that_llvm_reads(text: str, number: int) -> None:
    """``StringRef::getAsInteger(0, …)``; escapes are the IR's."""
    module = f'define void @f() #0 {{\n}}\nattributes #0 = {{ "amdgpu-num-vgpr"="{text}" }}\n'
    assert function_attributes(module, "f").integer("amdgpu-num-vgpr") == number


@pytest.mark.parametrize(
    "module",
    [
        'define void @f()\n  "amdgpu-num-vgpr"="8" {\n}\n',
        "define void @f() #0 {\n}\nattributes #0 = {\n  noinline }\n",
        "define void @f() #7 {\n}\n",
    ],
)
def test_layouts_that_llvm_does_not_print_are_input_errors(module: str) -> None:
    with pytest.raises(InputError, match="LLVM prints"):
        function_attributes(module, "f")


def test_a_second_group_of_a_number_is_added_to_the_first() -> None:
    groups = 'attributes #0 = { "amdgpu-num-vgpr"="8" }\nattributes #0 = { "amdgpu-num-sgpr"="24" }\n'
    assert len(function_attributes("define void @f() #0 {\n}\n" + groups, "f").strings) == 2


def test_unquote() -> None:
    assert unquote("plain") == "plain"
    assert unquote('"a b"') == "a b"
    assert unquote('"\\C3\\A4\\5C"') == "ä\\"


@pytest.mark.parametrize(
    ("cpu", "feature"),
    [
        ("gfx942", "+sgpr-init-bug"),
        ("gfx942", "-trap-handler"),
        ("gfx1100", "+mai-insts"),
        ("gfx90a", "-gfx90a-insts"),
        ("gfx942", "xnack"),
    ],
)
def test_features_that_change_the_register_file_are_not_supported(cpu: str, feature: str) -> None:
    with pytest.raises(UnsupportedError, match="feature"):
        with_features(target(cpu), {feature})


def test_features_that_a_target_has_anyway_change_nothing() -> None:
    for cpu, features in (("gfx90a", {"+mai-insts", "+gfx90a-insts", "+gfx9"}), ("gfx1100", {"+allocate1_5xvgprs"})):
        assert with_features(target(cpu), features | {"+trap-handler", "+dot7-insts"}) == target(cpu)
