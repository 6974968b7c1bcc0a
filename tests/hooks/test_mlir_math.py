"""Math functions: what LLVM's back end selects, what is renamed, what is linked, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import few
from support import llc as needs_llc
from toolchain_support import tools

from smt_verifier.outcome import Outcome
from verilocc_mlir.errors import InputError, ToolchainError, UnsupportedError
from verilocc_mlir.hooks.mlir_compile import (
    SELECTED,
    UNSELECTED,
    VARIABLE,
    IrOptions,
    compile_ir,
    external_calls,
    find_device_libraries,
    prepare,
    rename_math,
    unselected_intrinsics,
)
from verilocc_mlir.hooks.mlir_target import RocdlTarget
from verilocc_mlir.toolchain.run import run_tool

TYPES = {"f16": "half", "f32": "float", "f64": "double"}
needs_libraries = pytest.mark.skipif(find_device_libraries() is None, reason="no ocml.bc: no triton, iree or ROCm here")


def kernel(*names: tuple[str, str, int]) -> str:
    """A kernel that calls each (function, type, operands) once."""
    declares, calls = [], []
    for number, (name, kind, operands) in enumerate(names):
        declares.append(f"declare {kind} @{name}({', '.join([kind] * operands)})")
        calls += [
            f"  %x{number} = load {kind}, ptr %p",
            f"  %y{number} = call {kind} @{name}({', '.join([f'{kind} %x{number}'] * operands)})",
            f"  store {kind} %y{number}, ptr %q",
        ]
    body = "\n".join([*declares, "define amdgpu_kernel void @k(ptr %p, ptr %q) {", *calls, "  ret void", "}"])
    return f'target triple = "amdgcn-amd-amdhsa"\n{body}\n'


def llc(ir: str, cpu: str) -> None:
    run_tool([tools().llc, "-mtriple=amdgcn-amd-amdhsa", f"-mcpu={cpu}", "-o", "-"], stdin=ir.encode())


@pytest.mark.parametrize("cpu", ["gfx90a", "gfx1201"])
def test_llvm_selects_what_stands_for_the_library(cpu: str) -> None:
    calls = [
        (f"llvm.{intrinsic}.{suffix}", TYPES[suffix], operands)
        for intrinsic, operands, kinds in SELECTED.values()
        for suffix in kinds
    ]
    llc(kernel(*calls), cpu)


@pytest.mark.long
def test_llvm_has_no_code_for_what_is_turned_into_calls() -> None:
    for name, (operands, kinds) in UNSELECTED.items():
        for suffix in kinds:
            with pytest.raises(ToolchainError):
                llc(kernel((f"llvm.{name}.{suffix}", TYPES[suffix], operands)), "gfx942")


def test_names_change_both_ways_and_types_are_kept() -> None:
    ir = kernel(
        ("__ocml_exp2_f32", "float", 1),
        ("llvm.exp2.f32", "float", 1),
        ("__ocml_fmax_f64", "double", 2),
        ("__ocml_sin_f32", "float", 1),
        ("__ocml_exp_f64", "double", 1),
        ("llvm.tanh.f32", "float", 1),
    )
    without = rename_math(ir, library=False)
    assert without.changes == ("__ocml_exp2_f32 -> llvm.exp2.f32", "__ocml_fmax_f64 -> llvm.maxnum.f64")
    assert without.text.count("declare float @llvm.exp2.f32") == 1
    assert without.text.count("call float @llvm.exp2.f32(") == 2
    assert external_calls(without.text) == ("__ocml_sin_f32", "__ocml_exp_f64")
    assert unselected_intrinsics(without.text) == ("llvm.tanh.f32",)
    linked = rename_math(ir, library=True)
    assert "llvm.tanh.f32 -> __ocml_tanh_f32" in linked.changes
    assert unselected_intrinsics(linked.text) == ()


def test_another_signature_is_not_renamed() -> None:
    ir = kernel(("__ocml_exp2_f32", "double", 1))
    with pytest.raises(UnsupportedError, match=r"declared as double \(double\), .* has float \(float\)"):
        rename_math(ir, library=False)


def test_without_the_library_the_call_is_refused_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    ir = kernel(("__ocml_sin_f32", "float", 1), ("llvm.tanh.f32", "float", 1))
    with pytest.raises(UnsupportedError, match=r"external function __ocml_sin_f32, llvm\.tanh\.f32") as caught:
        prepare(ir, RocdlTarget("gfx942"), tools(), IrOptions(), 60, "k")
    assert VARIABLE in caught.value.hint


@needs_libraries
@pytest.mark.parametrize("chip", few(("gfx942",), ("gfx942", "gfx1100")))
def test_library_functions_are_linked_optimised_and_proved(chip: str) -> None:
    needs_llc()  # llvm-link and opt lie beside it.
    ir = kernel(("__ocml_sin_f32", "float", 1), ("llvm.tanh.f32", "float", 1), ("__ocml_exp_f64", "double", 1))
    compiled = compile_ir(ir, RocdlTarget(chip, opt_level=3), where="k")
    assert compiled.report.outcome is Outcome.PROVED
    assert any(note.startswith("linked: ") and note.endswith("ocml.bc") for note in compiled.report.notes)


@needs_libraries
def test_the_fast_flag_reaches_the_library() -> None:
    ir = kernel(("__ocml_sin_f32", "float", 1))
    texts = {
        flags: prepare(ir, RocdlTarget("gfx942", flags=frozenset(flags)), tools(), IrOptions(), 60, "k").ir
        for flags in ((), ("fast",))
    }
    # With finite_only the library leaves out its test for infinities.
    assert "is.fpclass" in texts[()] or "fcmp" in texts[()]
    assert len(texts[("fast",)].splitlines()) < len(texts[()].splitlines())
    assert not any("@__oc" in text for text in texts.values())


def test_a_linked_file_is_used_and_a_missing_one_is_an_error(tmp_path: Path) -> None:
    library = tmp_path / "helper.ll"
    library.write_text(
        'target triple = "amdgcn-amd-amdhsa"\n'
        "define float @helper(float %x) {\n  %y = fadd float %x, 1.0\n  ret float %y\n}\n"
        "define float @unused(float %x) {\n  ret float %x\n}\n"
    )
    ir = kernel(("helper", "float", 1))
    linked = prepare(ir, RocdlTarget("gfx942", link=(str(library),)), tools(), IrOptions(), 60, "k")
    assert "fadd" in linked.ir
    assert "unused" not in linked.ir
    assert f"linked: {library}" in linked.notes
    with pytest.raises(InputError, match="does not exist"):
        prepare(ir, RocdlTarget("gfx942", link=(str(tmp_path / "none.bc"),)), tools(), IrOptions(), 60, "k")


def test_optimising_can_be_switched_off_and_is_noted() -> None:
    ir = kernel(("llvm.sqrt.f32", "float", 1))
    target = RocdlTarget("gfx942", opt_level=1)
    assert prepare(ir, target, tools(), IrOptions(), 60, "k").notes == ("optimised: opt -O1",)
    assert prepare(ir, target, tools(), IrOptions(opt="never"), 60, "k").notes == (
        "not optimised: opt is switched off",
    )
