"""The MLIR pass: what becomes of a gpu.module, in every bindings package at hand."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mlir_support import Session, all_bindings, elf_header, installed, lowered, lowering_bindings
from support import REPOSITORY, few, llc, long

from verilocc_mlir.crew.copied import Ended, call_isolated
from verilocc_mlir.errors import InputError
from verilocc_mlir.hooks.mlir_pipeline import (
    AllocatePass,
    Bindings,
    MissingBindingsError,
    PassOptions,
    parse_options,
    parse_pipeline,
    split_elements,
)
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.target.processors import PROCESSORS
from verilocc_mlir.toolchain.descriptor import parse_descriptors, read_code_object

HOST = """
module attributes {gpu.container_module} {
  gpu.module @kernels <#gpu.select_object<0>> [#rocdl.target<O = 3, chip = "gfx1100">] {
    gpu.func @root(%from: memref<256xf32>, %to: memref<256xf32>) kernel
        attributes {known_block_size = array<i32: 256, 1, 1>} {
      %i = gpu.thread_id x
      %value = memref.load %from[%i] : memref<256xf32>
      %root = math.sqrt %value : f32
      memref.store %root, %to[%i] : memref<256xf32>
      gpu.return
    }
  }
  func.func @main(%from: memref<256xf32>, %to: memref<256xf32>) {
    %one = arith.constant 1 : index
    %lanes = arith.constant 256 : index
    gpu.launch_func @kernels::@root blocks in (%one, %one, %one) threads in (%lanes, %one, %one)
        args(%from : memref<256xf32>, %to : memref<256xf32>)
    return
  }
}
"""
LOWER = (
    "gpu.module(convert-gpu-to-rocdl{chipset=gfx1100 runtime=HIP index-bitwidth=64 use-bare-ptr-memref-call-conv=true},"
    "reconcile-unrealized-casts)"
)
HOST_LOWER = (
    "gpu-to-llvm{use-bare-pointers-for-host=true use-bare-pointers-for-kernels=true},reconcile-unrealized-casts"
)


def run(session: Session, module: Any, options: PassOptions | None = None) -> AllocatePass:
    allocate = AllocatePass(options)
    with session.context:
        manager = session.bindings.passmanager.PassManager("builtin.module")
        allocate.add_to(manager)
        manager.run(module.operation)
    return allocate


def operations(module: Any) -> dict[str, Any]:
    return {str(op.operation.name): op.operation for op in module.body.operations}


@pytest.mark.parametrize("package", all_bindings())
@pytest.mark.parametrize("chip", few(("gfx1201",), ("gfx942", "gfx1201")))
def test_a_gpu_module_becomes_a_binary_with_the_proved_object(package: str, chip: str) -> None:
    session = Session(package)
    module = session.parse(lowered(f'chip = "{chip}", O = 3'))
    allocate = run(session, module)
    (result,) = allocate.results
    assert (result.name, result.verdict, result.reason) == ("kernels", "proved", "")
    assert result.location == 'loc("kernel.py":5:1)'
    assert [f.name for f in result.reports[0].functions] == ["scale"]
    (data,) = result.code_objects
    assert elf_header(data)[2] == PROCESSORS[chip].elf_mach
    assert list(read_code_object(data).kernels) == ["scale"]
    assert list(operations(module)) == ["gpu.binary"]
    binary = operations(module)["gpu.binary"]
    assert f'chip = "{chip}"' in str(binary)
    assert str(binary.location) == 'loc("kernel.py":5:1)'
    with session.context:
        (stored,) = session.bindings.ir.ArrayAttr(binary.attributes["objects"])
        gpu = __import__(f"{package}.dialects.gpu", fromlist=["ObjectAttr"])
        assert bytes(gpu.ObjectAttr(stored).object) == data
    assert not session.diagnostics


@pytest.mark.parametrize("package", lowering_bindings())
def test_the_host_side_lowers_on_around_the_binary_by_pipeline_name(package: str) -> None:
    llc()  # opt lies beside it.
    session = Session(package)
    module = session.parse(HOST)
    pipeline = parse_pipeline(
        f"builtin.module({LOWER}, verilocc-allocate{{fallback=false}}, {HOST_LOWER})", session.context
    )
    assert "verilocc-allocate" in str(pipeline.pass_manager)
    pipeline.run(module)
    (result,) = pipeline.passes[0].results
    assert result.verdict == "proved"
    assert not result.reports[0].functions[0].phases[0].fallback
    assert "optimised: opt -O3" in result.reports[0].notes
    assert list(operations(module)) == ["gpu.binary", "llvm.func"]
    llvm = __import__(f"{package}.dialects.llvm", fromlist=["translate_module_to_llvmir"])
    host = llvm.translate_module_to_llvmir(module.operation)
    (line,) = [line for line in host.splitlines() if line.startswith("@kernels_") and ' c"\\7FELF' in line]
    literal = line[line.index(' c"') + 3 : line.rindex('"')]
    assert _llvm_string(literal).rstrip(b"\0") == result.code_objects[0].rstrip(b"\0")
    assert "@mgpuModuleLoad" in host
    assert "@mgpuLaunchKernel" in host


def _llvm_string(text: str) -> bytes:
    out = bytearray()
    position = 0
    while position < len(text):
        if text.startswith("\\\\", position):
            out += b"\\"
            position += 2
        elif text[position] == "\\":
            out.append(int(text[position + 1 : position + 3], 16))
            position += 3
        else:
            out += text[position].encode()
            position += 1
    return bytes(out)


@pytest.mark.parametrize("package", all_bindings())
@pytest.mark.parametrize(
    ("attribute", "reason"),
    [
        ('#nvvm.target<chip = "sm_90">', "it has a target that is no #rocdl.target"),
        ('#rocdl.target<chip = "gfx942">, #nvvm.target', "it has a target that is no #rocdl.target"),
        ('#rocdl.target<chip = "gfx942", flags = {turbo}>', "unknown flags in #rocdl.target: turbo"),
        ('#rocdl.target<chip = "gfx942", flags = {no_wave64}>', "flag no_wave64, but code for gfx942"),
        ('#rocdl.target<chip = "gfx1100", features = "+wavefrontsize64">', "gfx1100 with waves of 64 lanes"),
        ('#rocdl.target<chip = "gfx942", O = 0>', "O = 0"),
        ('#rocdl.target<chip = "gfx942", triple = "amdgcn-amd-amdpal">', "triple = 'amdgcn-amd-amdpal'"),
    ],
)
def test_what_is_not_handled_stays_as_it_is_with_the_reason(package: str, attribute: str, reason: str) -> None:
    text = lowered("").replace("#rocdl.target<>", attribute)
    session = Session(package)
    module = session.parse(text)
    before = str(module)
    allocate = run(session, module)
    assert str(module) == before
    assert allocate.results[0].verdict == "untouched"
    assert reason in allocate.results[0].reason
    if package != "iree.compiler":
        (severity, message, location) = session.diagnostics[0]
        assert severity == "remark"
        assert reason in message
        assert location == 'loc("kernel.py":5:1)'
    with pytest.raises(session.bindings.ir.MLIRError, match=r"kernel\.py.*@kernels"):
        run(session, module, PassOptions(unhandled="error"))
    assert str(module) == before


@pytest.mark.parametrize("package", all_bindings())
def test_a_module_without_targets_stays(package: str) -> None:
    session = Session(package)
    module = session.parse(lowered("").replace("[#rocdl.target<>]", ""))
    assert "it has no targets" in run(session, module).results[0].reason


@pytest.mark.parametrize("package", lowering_bindings())
def test_an_operation_that_is_not_lowered_is_named_and_nothing_crashes(package: str) -> None:
    session = Session(package)
    result = run(session, session.parse(HOST)).results[0]
    assert result.verdict == "untouched"
    assert "'gpu.func' is not lowered" in result.reason
    assert "convert-gpu-to-rocdl" in result.reason


@pytest.mark.parametrize("package", all_bindings())
def test_an_external_call_is_refused_by_name(package: str) -> None:
    text = lowered('chip = "gfx942"').replace(
        "%result = llvm.fmul %value, %value", "%result = llvm.call @helper(%value) : (f32) ->"
    )
    text = text.replace("    llvm.func @scale", "    llvm.func @helper(f32) -> f32\n    llvm.func @scale").replace(
        "-> : f32", "-> f32"
    )
    session = Session(package)
    result = run(session, session.parse(text)).results[0]
    assert result.verdict == "untouched"
    assert "no code for the external function helper" in result.reason
    assert "link = " in result.reason


@pytest.mark.parametrize("package", all_bindings())
def test_a_failure_is_an_error_at_the_operation_and_leaves_the_module(package: str) -> None:
    session = Session(package)
    module = session.parse(lowered('chip = "gfx942"'))
    options = PassOptions(settings=Settings(llvm=Path("/nonexistent/llvm")))
    before = str(module)
    with pytest.raises(session.bindings.ir.MLIRError, match=r'"kernel\.py":5:1.*no suitable llc found'):
        run(session, module, options)
    assert str(module) == before


DEBUG_INFO = """
#file = #llvm.di_file<"kernel.py" in "/src">
#unit = #llvm.di_compile_unit<
  id = distinct[0]<>, sourceLanguage = DW_LANG_C, file = #file, isOptimized = false, emissionKind = Full>
#type = #llvm.di_subroutine_type<callingConvention = DW_CC_normal>
#function = #llvm.di_subprogram<
  id = distinct[1]<>, compileUnit = #unit, scope = #file, name = "scale", file = #file, line = 7, scopeLine = 7,
  subprogramFlags = Definition, type = #type>
"""


def with_debug_info(head: str) -> str:
    located = lowered('chip = "gfx942"').replace('loc("kernel.py":7:3)', 'loc(fused<#function>["kernel.py":7:3])')
    return head + re.sub(r"^(      (?:%|llvm\.store|llvm\.return).*)$", r'\1 loc("kernel.py":8:1)', located, flags=re.M)


@pytest.mark.parametrize("package", lowering_bindings())
def test_debug_info_comes_through(package: str) -> None:
    session = Session(package)
    (result,) = run(session, session.parse(with_debug_info(DEBUG_INFO))).results
    assert result.verdict == "proved"
    assert b".debug_line" in result.code_objects[0]


@pytest.mark.parametrize("package", lowering_bindings())
def test_a_translation_that_ends_the_process_is_an_error(package: str) -> None:
    session = Session(package)
    module = session.parse(with_debug_info(DEBUG_INFO.replace(", type = #type", "")))
    before = str(module)
    # LLVM 24 refuses it, LLVM 22 does not see it and its llc crashes.
    expected = "cannot translate the module to LLVM IR: DISubprogram requires|crashed with SIGSEGV"
    with pytest.raises(session.bindings.ir.MLIRError, match=expected):
        run(session, module)
    assert str(module) == before


def test_a_copy_of_the_process_answers_or_says_how_it_ended() -> None:
    assert call_isolated(lambda: "ä" * 100_000) == "ä" * 100_000
    with pytest.raises(Ended, match="SIGSEGV"):
        call_isolated(lambda: str(os.kill(os.getpid(), signal.SIGSEGV)))
    with pytest.raises(Ended, match="ValueError: no"):
        call_isolated(_raise)


def _raise() -> str:
    raise ValueError("no")


@pytest.mark.parametrize("package", all_bindings())
def test_on_a_gpu_module_itself_the_pass_fails(package: str) -> None:
    session = Session(package)
    module = session.parse(lowered('chip = "gfx942"'))
    with session.context:
        manager = session.bindings.passmanager.PassManager("any")
        AllocatePass().add_to(manager)
        with pytest.raises(session.bindings.ir.MLIRError, match="run it on what holds them"):
            manager.run(operations(module)["gpu.module"])


@pytest.mark.long
@pytest.mark.parametrize("package", all_bindings()[:1])
def test_what_the_target_asks_for_reaches_the_code_object(package: str) -> None:
    session = Session(package)
    found = {}
    for name, body in {
        "plain": 'chip = "gfx1100"',
        "one CU": 'chip = "gfx1100", features = "+cumode", flags = {no_wave64, fast}',
        "version 5": 'chip = "gfx1100", abi = "500"',
    }.items():
        (result,) = run(session, session.parse(lowered(body))).results
        assert result.verdict == "proved", result.reason
        assert "optimised: opt -O2" in result.reports[0].notes
        found[name] = result.code_objects[0]
    modes = {name: parse_descriptors(data)["scale"].fields["wgp_mode"] for name, data in found.items()}
    assert modes == {"plain": 1, "one CU": 0, "version 5": 1}
    # AMDGPUUsage: ELFABIVERSION_AMDGPU_HSA_V5 is 3, V6 is 4.
    assert {name: elf_header(data)[1] for name, data in found.items()} == {"plain": 4, "one CU": 4, "version 5": 3}


@pytest.mark.parametrize("package", all_bindings()[:1])
def test_two_targets_give_two_objects(package: str) -> None:
    session = Session(package)
    module = session.parse(
        lowered("").replace("#rocdl.target<>", '#rocdl.target<chip = "gfx90a">, #rocdl.target<chip = "gfx1201">')
    )
    (result,) = run(session, module).results
    assert [elf_header(data)[2] for data in result.code_objects] == [
        PROCESSORS["gfx90a"].elf_mach,
        PROCESSORS["gfx1201"].elf_mach,
    ]
    assert str(module).count("#gpu.object<") == 2


def test_pipeline_elements_are_split_outside_brackets() -> None:
    assert split_elements("a, b{x=1,2 y=(a,b)}, c(d,e{f=g})") == ["a", "b{x=1,2 y=(a,b)}", "c(d,e{f=g})"]
    with pytest.raises(InputError, match="do not match"):
        split_elements("a, b(c")


def test_pass_options_by_name() -> None:
    options = parse_options("allocator=llvm fallback=false unhandled=error opt=never solver-seconds=3")
    assert options.settings.allocator == "llvm"
    assert not options.settings.fallback
    assert options.settings.solver_seconds == 3
    assert (options.unhandled, options.ir.opt) == ("error", "never")
    for wrong in (
        "speed=11",
        "fallback=perhaps",
        "unhandled=shout",
        "allocator=nobody",
        "solver-seconds=x",
        "fallback",
    ):
        with pytest.raises(InputError):
            parse_options(wrong)


@pytest.mark.parametrize("package", all_bindings()[:1])
def test_the_name_inside_another_element_is_refused(package: str) -> None:
    session = Session(package)
    with pytest.raises(InputError, match=r"stands inside gpu\.module"):
        parse_pipeline("builtin.module(gpu.module(verilocc-allocate))", session.context)
    with pytest.raises(InputError, match="not a pipeline"):
        parse_pipeline("verilocc-allocate", session.context)


def test_without_bindings_the_module_imports_and_use_names_the_extra() -> None:
    code = """
import sys
for name in ("torch_mlir", "mlir", "iree", "iree.compiler"):
    sys.modules[name] = None
import verilocc_mlir.hooks.mlir_pipeline, verilocc_mlir.hooks.mlir_pipeline
from verilocc_mlir.crew.copied import Ended, call_isolated
from verilocc_mlir.hooks.mlir_pipeline import Bindings, MissingBindingsError
try:
    Bindings.find()
except MissingBindingsError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "no MLIR Python bindings found" in done.stdout
    assert "pip install 'verilocc-mlir[mlir]'" in done.stdout


@pytest.mark.skipif("iree.compiler" not in installed(), reason="iree.compiler is not usable here")
def test_bindings_that_do_not_translate_name_those_that_do(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("torch_mlir", "mlir"):
        monkeypatch.setitem(sys.modules, f"{package}.ir", None)
    session = Session("iree.compiler")
    module = session.parse(lowered('chip = "gfx942"'))
    with pytest.raises(session.bindings.ir.MLIRError, match=r"verilocc-mlir\[mlir\]"):
        run(session, module)
    with pytest.raises(MissingBindingsError):
        Bindings.find()


@pytest.mark.skipif("iree.compiler" not in installed(), reason="iree.compiler is not usable here")
@pytest.mark.parametrize("package", lowering_bindings())
def test_what_one_mlir_prints_and_another_does_not_read_is_carried_over(package: str) -> None:
    """``llvm.load {alignment = 4}`` has another syntax in newer versions, and constants are of their result's type."""
    session, other = Session(package), Session("iree.compiler")
    aligned = (
        lowered('chip = "gfx942"')
        .replace("%arg0[%index]", "%arg0[%at]")
        .replace("%value = llvm.load %from :", "%value = llvm.load %from {alignment = 4 : i64} :")
    )
    zero = "%zero = llvm.mlir.constant(0 : index) : i64\n      %at = llvm.add %index, %zero : i64\n      %from"
    module = session.parse(aligned.replace("%from", zero, 1))
    with pytest.raises(other.bindings.ir.MLIRError, match=r"alignment|different integer types"):
        other.parse(str(module))
    carried = other.bindings.carry(module, other.context)
    assert run(other, carried).results[0].verdict == "proved"


def test_an_object_of_no_bindings_is_a_type_error() -> None:
    with pytest.raises(TypeError, match=r"builtins\.int is no object of MLIR"):
        Bindings.of(3)


@pytest.mark.long
@pytest.mark.parametrize("package", lowering_bindings()[:1])
@pytest.mark.parametrize("chip", ["gfx942", *long("gfx1100")])
def test_the_example_runs(package: str, chip: str, tmp_path: Path) -> None:
    command = [sys.executable, str(REPOSITORY / "examples/mlir_pass.py"), chip, "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr
    assert f"@kernels::@add_root for {chip}, VGPR: proved" in done.stdout
    assert (tmp_path / f"kernels.{chip}.hsaco").read_bytes()[:4] == b"\x7fELF"
    assert "gpu.binary, llvm.func" in done.stdout
