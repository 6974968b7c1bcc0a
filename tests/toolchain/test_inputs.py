"""Every unusable input is one InputError that says what it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support import cpu_of, kernel_paths
from toolchain_support import compiler, source, tools

from verilocc_mlir.errors import ExitCode, InputError
from verilocc_mlir.toolchain.drivers.job import CompileOptions
from verilocc_mlir.toolchain.inputs import load_input
from verilocc_mlir.toolchain.run import run_tool
from verilocc_mlir.toolchain.staged import LlvmPhase, StagedCompiler

KERNEL = 'target triple = "amdgcn-amd-amdhsa"\ndefine amdgpu_kernel void @k() #0 {\n  ret void\n}\n'
ATTRIBUTES = 'attributes #0 = { "target-cpu"="gfx942" }\n'


def test_text_bitcode_and_machine_ir_are_recognised() -> None:
    text = (KERNEL + ATTRIBUTES).encode()
    loaded = load_input(text, path="k.ll")
    assert (loaded.kind, loaded.cpu, loaded.mattr, loaded.functions) == ("ir", "gfx942", "", ("k",))
    assert tools().opt is not None
    bitcode = run_tool([str(tools().opt), "-o", "-", "-"], stdin=text).stdout
    assert bitcode.startswith(b"BC\xc0\xde")
    disassembled = load_input(bitcode, path="k.bc", toolchain=tools())
    assert (disassembled.kind, disassembled.cpu, disassembled.functions) == ("ir", "gfx942", ("k",))
    mir = compiler("gfx942").to_pre_ra(KERNEL + ATTRIBUTES)
    machine = load_input(mir.encode(), path="k.mir")
    assert (machine.kind, machine.cpu, machine.functions, machine.text) == ("mir", "gfx942", ("k",), mir)
    assert compiler("gfx942").accept_mir(mir) == mir


@pytest.mark.parametrize("path", kernel_paths()[::7], ids=lambda path: path.stem)
def test_kernels_are_usable(path: Path) -> None:
    assert load_input(path.read_bytes(), cpu=cpu_of(path)).cpu == cpu_of(path)


X86 = 'target triple = "x86_64-unknown-linux-gnu"\ndefine void @f() {\n  ret void\n}\n'


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the input is empty"),
        (b" \n\t\n", "the input is empty"),
        (b"\x7fELF\x02\x01\x01", "an ELF file, compiled already"),
        (b"\x1f\x8b\x08", "gzip data"),
        (b"ML\xefR\x00", "MLIR bytecode"),
        (b"define void @f() {\n  ret void ; \xff\n}\n", "byte 32 is not UTF-8"),
        (b"define void @f() {\0}", "byte 18 is zero"),
        (bytes(range(1, 200)), "not UTF-8"),
        (b"hello, world\n", "neither LLVM IR nor machine IR"),
        (b"module {\n  func.func @f() { return }\n}\n", "this is MLIR, not LLVM IR"),
        (b"declare void @f()\n", "no function has a body"),
        (b'target triple = "amdgcn-amd-amdhsa"\n', "no function has a body"),
        (X86.encode(), "is for 'x86_64-unknown-linux-gnu', not for amdgcn-amd-amdhsa"),
        (X86.replace("x86_64-unknown-linux-gnu", "nvptx64-nvidia-cuda").encode(), "'nvptx64-nvidia-cuda'"),
        (X86.replace("x86_64-unknown-linux-gnu", "amdgcn-amd-amdpal").encode(), "only the amdhsa environment"),
        (X86.replace("x86_64-unknown-linux-gnu", "amdgcn--mesa3d").encode(), "only the amdhsa environment"),
        (b'target datalayout = "e-m:e-i64:64-n32:64-S128"\ndefine void @f() {\n  ret void\n}\n', "not AMDGPU's"),
        (KERNEL.encode(), "it names no processor"),
        (KERNEL.encode()[:-3], "the text ends inside function 'k': it is truncated"),
        (b"--- |\n  define void @f() {\n", "this machine IR has no function"),
    ],
)
def test_what_cannot_be_compiled_is_said(data: bytes, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        load_input(data, path="input.ll")
    assert caught.value.where.startswith("input.ll")
    assert caught.value.exit_code is ExitCode.BAD_INPUT


def test_the_line_of_a_foreign_triple_is_given() -> None:
    with pytest.raises(InputError) as caught:
        load_input(b"; a comment\n" + X86.encode(), path="k.ll")
    assert caught.value.where == "k.ll:2"


@pytest.mark.parametrize("triple", ["amdgcn-amd-amdhsa", "amdgcn--amdhsa", "amdgcn-unknown-unknown", "amdgcn"])
def test_triples_that_are_ours(triple: str) -> None:
    text = (KERNEL + ATTRIBUTES).replace("amdgcn-amd-amdhsa", triple)
    assert load_input(text.encode()).cpu == "gfx942"


def test_the_processor_comes_from_the_option_the_attributes_or_the_triple() -> None:
    assert load_input(KERNEL.encode(), cpu="gfx942:xnack-").mattr == "-xnack"
    newer = KERNEL.replace("amdgcn-amd-amdhsa", "amdgpu9.0a-amd-amdhsa").encode()
    assert load_input(newer).cpu == "gfx90a"
    with pytest.raises(InputError, match="it is compiled for gfx942, not for gfx90a"):
        load_input((KERNEL + ATTRIBUTES).encode(), cpu="gfx90a")
    with pytest.raises(InputError, match="it is compiled for gfx90a, not for gfx1100"):
        load_input(newer, cpu="gfx1100")
    two = KERNEL + ATTRIBUTES + 'attributes #1 = { "target-cpu"="gfx950" }\n'
    with pytest.raises(InputError, match="several processors: gfx942, gfx950"):
        load_input(two.encode())


def test_bitcode_without_llvm_dis_or_truncated() -> None:
    assert tools().opt is not None
    bitcode = run_tool([str(tools().opt), "-o", "-", "-"], stdin=(KERNEL + ATTRIBUTES).encode()).stdout
    with pytest.raises(InputError, match="bitcode needs llvm-dis"):
        load_input(bitcode, path="k.bc")
    with pytest.raises(InputError, match="the bitcode cannot be read"):
        load_input(bitcode[: len(bitcode) // 2 & ~3], path="k.bc", toolchain=tools())


def machine_ir() -> str:
    return compiler("gfx942").to_pre_ra(source("abi.ll"))


def test_machine_ir_that_is_not_ours_to_allocate() -> None:
    staged = compiler("gfx942")
    pre = machine_ir()
    done = staged.llvm_allocate(
        staged.resume(staged.llvm_allocate(pre, LlvmPhase.SGPR), done=LlvmPhase.SGPR, until=LlvmPhase.VGPR),
        LlvmPhase.VGPR,
    )
    with pytest.raises(InputError, match=r"function 'helper' is allocated already") as caught:
        load_input(done.encode(), path="k.mir", cpu="gfx942")
    assert re.fullmatch(r"k\.mir:\d+", caught.value.where)
    with pytest.raises(InputError, match="still in SSA form"):
        load_input(pre.replace("isSSA:           false", "isSSA:           true").encode(), cpu="gfx942")
    with pytest.raises(InputError, match="'empty' is truncated"):
        load_input(pre[: pre.rindex("...")].encode(), cpu="gfx942")
    with pytest.raises(InputError, match="'empty' is truncated"):
        load_input(pre[: pre.rindex("body:")].encode(), cpu="gfx942")
    with pytest.raises(InputError, match="'empty' has no body"):
        load_input((pre[: pre.rindex("  bb.0")] + "...\n").encode(), cpu="gfx942")
    foreign = pre.replace('triple = "amdgcn-amd-amdhsa"', 'triple = "aarch64-linux-gnu"')
    with pytest.raises(InputError, match="'aarch64-linux-gnu'"):
        load_input(foreign.encode(), cpu="gfx942")


@pytest.mark.parametrize("fraction", [0.2, 0.5, 0.8, 0.97])
def test_truncated_machine_ir_is_refused_wherever_it_ends(fraction: float) -> None:
    pre = machine_ir()

    def use(data: bytes) -> None:
        compiler("gfx942", "k.mir").accept_mir(load_input(data, path="k.mir", cpu="gfx942").text)

    use(pre.encode())
    with pytest.raises(InputError):
        use(pre[: int(len(pre) * fraction)].encode())


@pytest.mark.parametrize("fraction", [0.3, 0.6, 0.9])
def test_truncated_ir_is_refused_wherever_it_ends(fraction: float) -> None:
    text = source("abi.ll")

    def use(data: bytes) -> None:
        compiler("gfx942", "k.ll").to_pre_ra(load_input(data, path="k.ll", cpu="gfx942").text)

    use(text.encode())
    with pytest.raises(InputError):
        use(text[: int(len(text) * fraction)].encode())


def test_a_syntax_error_is_the_inputs_fault_and_has_its_place() -> None:
    staged = StagedCompiler(tools(), CompileOptions("gfx942", input_name="k.ll"))
    with pytest.raises(InputError) as caught:
        staged.to_pre_ra(KERNEL.replace("ret void", "return"))
    assert caught.value.where == "k.ll:3:3"
    assert "LLVM 22" in caught.value.what
    assert "expected instruction opcode" in caught.value.what
    with pytest.raises(InputError, match="result type"):
        staged.to_pre_ra(KERNEL.replace("ret void", "ret i32 0"))


def test_machine_ir_that_the_verifier_refuses_is_the_inputs_fault() -> None:
    pre = machine_ir()
    wrong = re.sub(r"(%\d+):vgpr_32( = V_\w+ )", r"\1:sgpr_32\2", pre, count=1)
    if wrong == pre:
        wrong = re.sub(r"(%\d+):vgpr_32( = )", r"\1:sgpr_32\2", pre, count=1)
    assert wrong != pre
    with pytest.raises(InputError):
        compiler("gfx942", "k.mir").accept_mir(wrong)


@pytest.mark.parametrize("body", ["{ ret void }", "{ ret void } ; done", "{\nret void }", "{\n  ret void\n}"])
def test_a_body_may_end_anywhere(body: str) -> None:
    text = f'target triple = "amdgcn-amd-amdhsa"\ndefine amdgpu_kernel void @k() {body}\n'
    assert load_input(text.encode(), path="k.ll", cpu="gfx942").functions == ("k",)
