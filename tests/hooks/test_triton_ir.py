"""The Triton hook without Triton: its text rules, and what it says where Triton is missing."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support import REPOSITORY, run_opt
from toolchain_support import compiler

from verilocc_mlir.errors import InputError
from verilocc_mlir.hooks.triton.hook import install_from_environment, installed
from verilocc_mlir.hooks.triton.native import as_code_generated, kernel_names

MODULE = """
define internal float @helper(float %x) local_unnamed_addr #1 {
  %y = fmul nnan float %x, 3.0
  %z = fadd float %y, 1.0
  ret float %z
}

define internal float @kept(float %x) #2 {
  %y = fsub fast float %x, 3.0
  ret float %y
}

define amdgpu_kernel void @k(ptr addrspace(1) inreg %out, <2 x half> %v, double %d) local_unnamed_addr #0 {
  %a = call float @helper(float 2.0)
  %b = call float @kept(float %a)
  %w = fmul <2 x half> %v, %v
  %u = fsub contract double %d, %d
  %q = fdiv float %b, %a
  store float %q, ptr addrspace(1) %out
  store <2 x half> %w, ptr addrspace(1) %out
  store double %u, ptr addrspace(1) %out
  ret void
}

attributes #0 = { "amdgpu-flat-work-group-size"="1,64" }
attributes #1 = { nounwind }
attributes #2 = { noinline nounwind }
"""


def test_fusion_becomes_a_flag_of_the_operations_it_concerns() -> None:
    text = as_code_generated(MODULE, fp_fusion=True)
    for line in (
        "%y = fmul nnan contract float %x, 3.0",
        "%z = fadd contract float %y, 1.0",
        "%y = fsub fast float %x, 3.0",
        "%w = fmul contract <2 x half> %v, %v",
        "%u = fsub contract double %d, %d",
        "%q = fdiv float %b, %a",
    ):
        assert f"  {line}\n" in text
    assert "fadd contract" not in as_code_generated(MODULE, fp_fusion=False)
    assert run_opt(text, "gfx942", "-passes=verify")


def test_fusion_reaches_the_machine_code() -> None:
    source = """
    define amdgpu_kernel void @k(ptr addrspace(1) %p, float %x, float %y) {
      %a = load float, ptr addrspace(1) %p
      %m = fmul float %a, %x
      %s = fadd float %m, %y
      store float %s, ptr addrspace(1) %p
      ret void
    }
    """
    fused = compiler("gfx942").direct(as_code_generated(source, fp_fusion=True), "asm").decode()
    apart = compiler("gfx942").direct(as_code_generated(source, fp_fusion=False), "asm").decode()
    assert "v_fma" in fused
    assert "v_mul" not in fused
    assert "v_fma" not in apart
    assert "v_mul" in apart


def test_what_may_be_inlined_is_and_what_may_not_is_not() -> None:
    text = as_code_generated(MODULE, fp_fusion=False)
    assert "@helper(float %x) local_unnamed_addr alwaysinline #1 {" in text
    assert "@kept(float %x) #2 {" in text
    assert "alwaysinline" not in text[text.index("amdgpu_kernel") :]
    assembly = compiler("gfx942").direct(text, "asm").decode()
    assert "helper:" not in assembly
    assert "kept:" in assembly


def test_kernels_are_found_by_their_convention() -> None:
    assert kernel_names(MODULE) == ["k"]
    assert kernel_names("define void @f() {\n  ret void\n}\n") == []


def in_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, check=True)
    return done.stdout


def test_importing_the_hook_does_not_import_triton() -> None:
    assert in_python("import sys, verilocc_mlir.hooks.triton; print('triton' in sys.modules)") == "False\n"


def test_without_triton_one_error_says_which_extra_to_install() -> None:
    code = """
import sys
sys.modules["triton"] = None
import verilocc_mlir.hooks.triton as hook
try:
    hook.install()
except Exception as error:
    print(type(error).__name__, error)
print(hook.installed())
"""
    message = in_python(code)
    assert message.startswith("UnsupportedError Triton is not installed\n")
    assert "pip install 'verilocc-mlir[triton]'" in message
    assert message.endswith("False\n")


@pytest.mark.parametrize("value", ["", "0", "off"])
def test_the_variable_can_say_no(value: str) -> None:
    assert not install_from_environment({"VERILOCC_TRITON": value})
    assert not installed()


def test_the_variable_names_targets_or_is_refused() -> None:
    with pytest.raises(InputError, match="'mi300' is no target"):
        install_from_environment({"VERILOCC_TRITON": "gfx942,mi300"})
    assert not installed()
