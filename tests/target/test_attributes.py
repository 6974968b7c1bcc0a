"""Function attributes read from the IR module inside a MIR file."""

from __future__ import annotations

import pytest
from support import run_llc

from verilocc_mlir.errors import InputError
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.target.attributes import function_attributes, unquote

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
    assert kernel.integer_pair("amdgpu-waves-per-eu") is None
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


def test_malformed_numbers_count_as_absent() -> None:
    module = 'define void @f() #0 {\n}\nattributes #0 = { "amdgpu-num-vgpr"="x" "amdgpu-waves-per-eu"="1,y" }\n'
    attributes = function_attributes(module, "f")
    assert attributes.integer("amdgpu-num-vgpr") is None
    assert attributes.integer_pair("amdgpu-waves-per-eu", only_first_required=True) is None


def test_unquote() -> None:
    assert unquote("plain") == "plain"
    assert unquote('"a b"') == "a b"
    assert unquote('"\\C3\\A4\\5C"') == "ä\\"
