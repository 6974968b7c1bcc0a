"""The drivers: the same work over both, and what is Triton's alone. Its tests are skipped where there is no Triton."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from process_support import gone, lines_of
from support import HEARING, REPOSITORY, cpu_of, kernel_paths, long
from toolchain_support import source, tools

from smt_verifier.outcome import Outcome
from verilocc_mlir.cli.main import run
from verilocc_mlir.errors import InputError, ToolchainError, UnsupportedError
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.mir.printer import print_mir
from verilocc_mlir.pipeline.audit import audit_llvm
from verilocc_mlir.pipeline.key import Keys
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.toolchain import choose, find
from verilocc_mlir.toolchain.checked import check_object
from verilocc_mlir.toolchain.choice import TOOLCHAIN_VARIABLE, ToolchainChoice
from verilocc_mlir.toolchain.choose import choose_tools
from verilocc_mlir.toolchain.drivers import triton, triton_probe
from verilocc_mlir.toolchain.drivers.called_functions import refuse_called_functions
from verilocc_mlir.toolchain.drivers.inlining import without_marks
from verilocc_mlir.toolchain.drivers.job import CompileOptions, LlvmJob, Point, split_target_id
from verilocc_mlir.toolchain.drivers.lane_spills import said_to_spill_scalars, with_lowered_spills
from verilocc_mlir.toolchain.drivers.repeated import first_difference
from verilocc_mlir.toolchain.drivers.triton_library import TritonTools
from verilocc_mlir.toolchain.drivers.undefined import define_everywhere, is_about_undefined
from verilocc_mlir.toolchain.find import LlvmTools
from verilocc_mlir.toolchain.metadata import read_code_object
from verilocc_mlir.toolchain.optimise import optimise
from verilocc_mlir.toolchain.run import RunningTools, ToolFailure
from verilocc_mlir.toolchain.staged import LlvmPhase, StagedCompiler, goes_on_as_it_is

CPUS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")


def tritons() -> TritonTools:
    """The LLVM of Triton; skips where there is none."""
    try:
        return triton_probe.find_triton()
    except ToolchainError as error:
        pytest.skip(error.what)


def by_triton(cpu: str, name: str = "") -> StagedCompiler:
    return StagedCompiler(tritons(), CompileOptions(cpu, timeout=120.0, input_name=name))


@pytest.fixture(params=["llc", "triton"])
def llvm(request: pytest.FixtureRequest) -> LlvmTools:
    """Each LLVM in turn."""
    return tools() if request.param == "llc" else tritons()


def staged(llvm: LlvmTools, cpu: str, name: str = "") -> StagedCompiler:
    return StagedCompiler(llvm, CompileOptions(cpu, timeout=120.0, input_name=name))


def instructions(assembly: bytes) -> list[str]:
    return [line.partition(";")[0].strip() for line in re.findall(r"^\t[a-z]\w+.*", assembly.decode(), re.MULTILINE)]


# The same over both.


@pytest.mark.parametrize("cpu", ["gfx942", "gfx1201", *long("gfx90a", "gfx950", "gfx1100")])
@pytest.mark.parametrize("name", ["sgpr_spills.ll", "mmra.ll"])
def test_three_phases_one_by_one(name: str, cpu: str, llvm: LlvmTools) -> None:
    driven = staged(llvm, cpu, name)
    pre = driven.to_pre_ra(source(name))
    scalar = driven.llvm_allocate(pre, LlvmPhase.SGPR)
    vector = driven.resume(scalar, done=LlvmPhase.SGPR, until=LlvmPhase.VGPR)
    done = driven.llvm_allocate(vector, LlvmPhase.VGPR)
    assert "noVRegs:         true" in done
    checked = check_object(driven.finish(done), mir=pre, cpu=cpu, reference=driven.direct(source(name)))
    assert read_code_object(driven.link(checked.data)).machine == cpu
    between = [] if goes_on_as_it_is(scalar) else ["resume-vgpr"]
    assert [run.stage for run in driven.runs] == [
        "pre-ra", "greedy-sgpr", *between, "greedy-vgpr", "finish", "direct", "link",
    ]  # fmt: skip
    assert all(run.cpu_seconds > 0 and run.max_rss_kib > 0 for run in driven.runs)


@pytest.mark.parametrize("cpu", CPUS)
def test_finished_from_text_it_is_the_kernel_of_a_compile_in_one_go(cpu: str, llvm: LlvmTools) -> None:
    path = next(p for p in kernel_paths() if p.name.startswith("attn_d64.") and cpu_of(p) == cpu)
    driven = staged(llvm, cpu, path.name)
    done = driven.direct_after(path.read_text(), LlvmPhase.VGPR)
    assert instructions(driven.finish(done, "asm")) == instructions(driven.direct(path.read_text(), "asm"))


@pytest.mark.parametrize("regalloc", ["basic", "fast"])
def test_llvm_s_other_allocators(regalloc: str, llvm: LlvmTools) -> None:
    driven = staged(llvm, "gfx942")
    pre = driven.to_pre_ra(source("mmra.ll"))
    scalar = driven.llvm_allocate(pre, LlvmPhase.SGPR, regalloc)  # type: ignore[arg-type]
    assert ":sreg" not in scalar.partition("\n---\nname:")[2].partition("body:")[2]


def test_what_cannot_be_read_is_the_input_s_fault_with_its_place(llvm: LlvmTools) -> None:
    driven = staged(llvm, "gfx942", "k.ll")
    ir = source("mmra.ll")
    with pytest.raises(InputError, match=r"k\.ll:\d+.*expected") as caught:
        driven.to_pre_ra(ir.replace("ret void", "rat void"))
    assert "rejects it" in caught.value.what
    pre = driven.to_pre_ra(ir)
    with pytest.raises(InputError, match=r"k\.ll:\d+.*unknown machine instruction name 'S_ENDPGMX'"):
        driven.accept_mir(pre.replace("S_ENDPGM 0", "S_ENDPGMX 0"))
    assert driven.accept_mir(pre) == pre, "the next work is done"


def test_bad_machine_code_is_said_and_the_next_work_is_done(llvm: LlvmTools) -> None:
    driven = staged(llvm, "gfx942", "k.mir")
    pre = driven.to_pre_ra(source("mmra.ll"))
    wrong = re.sub(r"S_ENDPGM 0", "S_ENDPGM 0\n    S_NOP 0", pre, count=1)
    with pytest.raises((ToolFailure, InputError), match=r"[Nn]on-terminator instruction after the first terminator"):
        driven.accept_mir(wrong)
    assert driven.finish_from(pre, LlvmPhase.SGPR)


@pytest.mark.parametrize(
    ("target", "kind"), [("gfx99", "processor gfx99"), ("gfx942:nonsense+", r"feature \+nonsense")]
)
def test_an_unknown_processor_or_feature_is_refused_not_ignored(target: str, kind: str, llvm: LlvmTools) -> None:
    driven = StagedCompiler(llvm, CompileOptions(*split_target_id(target), input_name="k.ll"))
    with pytest.raises(InputError, match=kind):
        driven.to_pre_ra(source("mmra.ll"))


def test_work_that_takes_too_long_is_ended(llvm: LlvmTools) -> None:
    path = next(p for p in kernel_paths() if p.name.startswith("attn_d64.") and cpu_of(p) == "gfx1100")
    late = StagedCompiler(llvm, CompileOptions("gfx1100", timeout=0.001))
    with pytest.raises(ToolchainError, match=r"\(pre-ra\) did not finish within 0\.001 s"):
        late.to_pre_ra(path.read_text())
    assert staged(llvm, "gfx942").to_pre_ra(source("mmra.ll"))


def test_an_undefined_symbol_is_not_linked(llvm: LlvmTools) -> None:
    driven = staged(llvm, "gfx942")
    ir = "declare void @gone()\ndefine amdgpu_kernel void @k() {\n  call void @gone()\n  ret void\n}\n"
    with pytest.raises(ToolchainError, match="undefined symbol: gone"):
        driven.link(driven.direct(ir))


# Triton's driver.


@pytest.mark.parametrize(
    ("kernel", "cpu"),
    [
        *[("gemm_mma_lds", cpu) for cpu in CPUS],
        ("attn_d64", "gfx942"),
        *[pytest.param("attn_d64", cpu, marks=pytest.mark.long) for cpu in CPUS if cpu != "gfx942"],
    ],
)
def test_a_kernel_is_compiled_and_every_phase_of_it_proved(kernel: str, cpu: str, tmp_path: Path) -> None:
    tritons()
    path = next(p for p in kernel_paths() if p.name.startswith(f"{kernel}.{cpu}."))
    out, report = tmp_path / "k.hsaco", tmp_path / "k.json"
    arguments = [str(path), f"--mcpu={cpu}", "-o", str(out), "--report", str(report), "--quiet"]
    assert run(["compile", *arguments, "--toolchain=triton", "--no-fallback"]) == 0
    assert read_code_object(out.read_bytes()).machine == cpu
    data = json.loads(report.read_text())
    assert "Triton" in data["tool"]["llvm"]
    assert {phase["outcome"] for f in data["functions"] for phase in f["phases"]} == {"proved"}
    assert not any(phase["fallback"] for f in data["functions"] for phase in f["phases"])


_NOT_ON_GFX942 = """declare <8 x float> @llvm.amdgcn.wmma.f32.16x16x16.f16(<16 x half>, <16 x half>, <8 x float>)
define amdgpu_kernel void @k(<16 x half> %a, <8 x float> %c, ptr addrspace(1) %p) {
  %r = call <8 x float> @llvm.amdgcn.wmma.f32.16x16x16.f16(<16 x half> %a, <16 x half> %a, <8 x float> %c)
  store <8 x float> %r, ptr addrspace(1) %p
  ret void
}
"""


def test_an_abort_of_llvm_ends_one_process_and_one_piece_of_work() -> None:
    driven = by_triton("gfx942", "k.ll")
    driven.to_pre_ra(source("mmra.ll"))
    before = triton._workers(str(tritons().library), False).pids()
    with pytest.raises(ToolFailure, match=r"Triton's LLVM \(pre-ra\) crashed with SIGABRT: .*Cannot select") as caught:
        driven.to_pre_ra(_NOT_ON_GFX942)
    assert "replay with: " in caught.value.hint
    assert "LLVM ERROR: Cannot select" in caught.value.stderr
    assert driven.to_pre_ra(source("mmra.ll"))
    assert before[-1] not in triton._workers(str(tritons().library), False).pids()


def test_the_replay_of_a_failure_fails_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERILOCC_KEEP", str(tmp_path))
    with pytest.raises(InputError) as caught:
        by_triton("gfx942", "k.ll").to_pre_ra("define void @f() { rat void }")
    command = caught.value.hint.removeprefix("replay with: ")
    done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=REPOSITORY, check=False)
    assert done.returncode < 0 or done.returncode > 128
    assert "failed to parse IR: expected instruction opcode" in done.stderr


def test_another_thread_can_end_the_work() -> None:
    path = next(p for p in kernel_paths() if p.name.startswith("attn_d64.") and cpu_of(p) == "gfx1100")
    driven = by_triton("gfx1100")
    driven.to_pre_ra(path.read_text())
    ended = threading.Event()

    def kill() -> None:
        while not ended.wait(0.001):
            driven.running.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        with pytest.raises(ToolFailure) as caught:
            _again_and_again(driven, path.read_text())
    finally:
        ended.set()
        killer.join()
    assert caught.value.status == -signal.SIGKILL


def _again_and_again(driven: StagedCompiler, ir: str) -> None:
    while True:
        driven.to_pre_ra(ir)


def test_an_error_beside_a_result_is_a_failure() -> None:
    asm = 'call void asm sideeffect "; $0 $1 $2", "v,v,v"(<8 x i32> %a, <8 x i32> %b, <8 x i32> %c)'
    loads = "".join(f"  %{n} = load <8 x i32>, ptr addrspace(1) %p{n}\n" for n in "abc")
    ir = (
        "define amdgpu_kernel void @k(ptr addrspace(1) %pa, ptr addrspace(1) %pb, ptr addrspace(1) %pc) #0 {\n"
        f'{loads}  {asm}\n  ret void\n}}\nattributes #0 = {{ "amdgpu-num-vgpr"="16" }}\n'
    )
    with pytest.raises(ToolFailure, match="requires more registers than available") as caught:
        by_triton("gfx1100").direct(ir)
    assert caught.value.status == 1


def test_two_programs_at_once(tmp_path: Path) -> None:
    tritons()
    path = next(p for p in kernel_paths() if p.name.startswith("gemm_mma_lds.") and cpu_of(p) == "gfx90a")
    command = [sys.executable, "-m", "verilocc_mlir.cli.main", "compile", str(path), "--mcpu=gfx90a", "--quiet"]
    programs = [
        subprocess.Popen([*command, "--toolchain=triton", "-o", str(tmp_path / f"{n}.hsaco")], cwd=REPOSITORY)
        for n in range(2)
    ]
    assert [program.wait(120) for program in programs] == [0, 0]
    assert (tmp_path / "0.hsaco").read_bytes() == (tmp_path / "1.hsaco").read_bytes()


def test_an_interrupt_leaves_no_worker(tmp_path: Path) -> None:
    note = tmp_path / "pids"
    script = textwrap.dedent(f"""
        import time
        from verilocc_mlir.toolchain.drivers import triton
        library = {str(tritons().library)!r}
        with triton._workers(library, False).worker() as one:
            with triton._workers(library, True).worker() as other:
                pass
            with open({str(note)!r}, "w") as stream:
                stream.write(f"{{one.pid}}\\n{{other.pid}}\\n")
            time.sleep(600)
    """)
    process = subprocess.Popen([*HEARING, sys.executable, "-c", script], stderr=subprocess.PIPE, cwd=REPOSITORY)
    pids = lines_of(note, 2)
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert b"KeyboardInterrupt" in errors
    assert all(gone(int(pid)) for pid in pids)


def test_machine_ir_s_workers_leave_out_what_ir_needs() -> None:
    """LLVM's list of passes to leave out only grows: IR that is compiled after machine IR is compiled as before it."""
    driven = by_triton("gfx942")
    before = driven.direct(source("sgpr_spills.ll"), "asm")
    assert driven.finish_from(driven.to_pre_ra(source("sgpr_spills.ll")), LlvmPhase.SGPR)
    assert driven.direct(source("sgpr_spills.ll"), "asm") == before


def test_llvm_s_own_allocation_is_proved_phase_by_phase() -> None:
    tritons()
    path = next(p for p in kernel_paths() if p.name.startswith("gemm_mma_lds.") and cpu_of(p) == "gfx90a")
    settings = Settings(cpu="gfx90a", toolchain=ToolchainChoice.TRITON)
    done = audit_llvm(path.read_bytes(), path.name, settings)
    assert {pair.phase: pair.report.outcome for pair in done.pairs} == dict.fromkeys(
        ("sgpr", "vgpr", "all"), Outcome.PROVED
    )


def test_triton_s_mark_is_no_part_of_the_module() -> None:
    pre = by_triton("gfx942").to_pre_ra(source("mmra.ll"))
    assert "alwaysinline nocallback" not in pre
    assert "attributes #0 = { alwaysinline }" in pre, "on what is no intrinsic it is left"
    line = "  attributes #0 = { alwaysinline nounwind }\n"
    assert without_marks(f"--- |\n{line}  alwaysinline x\n...\n---\nname: k\n") == (
        "--- |\n  attributes #0 = { nounwind }\n  alwaysinline x\n...\n---\nname: k\n"
    )


# What it cannot do is refused by name.


def test_options_that_its_llvm_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    driven = by_triton("gfx942", "k.ll")

    def with_extra(*flags: str) -> StagedCompiler:
        return StagedCompiler(driven.toolchain, replace(driven.options, extra=flags))

    with pytest.raises(InputError, match="has no option -nonsense=3"):
        with_extra("-nonsense=3").to_pre_ra(source("mmra.ll"))
    with pytest.raises(UnsupportedError, match="no -fp-contract=off"):
        with_extra("-fp-contract=off").to_pre_ra(source("mmra.ll"))
    with pytest.raises(UnsupportedError, match="no -O0"):
        StagedCompiler(driven.toolchain, replace(driven.options, opt_level=0)).to_pre_ra(source("mmra.ll"))
    fused = "define amdgpu_kernel void @k(ptr addrspace(1) %p, float %a, float %b) {\n  %m = fmul float %a, %b\n"
    fused += "  %s = fadd float %m, 1.5\n  store float %s, ptr addrspace(1) %p\n  ret void\n}\n"
    assert "v_fma" in with_extra("-fp-contract=fast").direct(fused, "asm").decode()
    assert "v_fma" not in driven.direct(fused, "asm").decode()
    assert with_extra("-amdgpu-schedule-metric-bias=5").to_pre_ra(source("mmra.ll"))


def test_functions_that_are_called() -> None:
    driven = by_triton("gfx942", "k.ll")
    pre = driven.to_pre_ra(source("callee_saved.ll"))
    with pytest.raises(UnsupportedError, match=r"k\.ll: helper is called, not a kernel.*\n.*--toolchain=llc"):
        driven.llvm_allocate(pre, LlvmPhase.SGPR)
    refuse_called_functions(driven.to_pre_ra(source("mmra.ll")))


def test_whole_wave_code_that_a_pass_would_change_again() -> None:
    driven = by_triton("gfx942", "wwm.ll")
    done = driven.direct_after(source("wwm.ll"), LlvmPhase.VGPR)
    with pytest.raises(UnsupportedError, match=r"changes the text before it goes on.*V_SET_INACTIVE_B32.*COPY"):
        driven.finish(done)
    with pytest.raises(UnsupportedError, match=r"changes the text before it goes on.*V_SET_INACTIVE_B32.*COPY"):
        driven.llvm_allocate(driven.to_pre_ra(source("wwm.ll")), LlvmPhase.SGPR)


def test_the_first_difference() -> None:
    text = (
        "--- |\n  x\n...\n---\nname: k\nbody:             |\n  bb.0:\n    successors: %bb.2\n    liveins: $vgpr0\n"
        "    renamable $vgpr1 = COPY killed %5\n\n  bb.2:\n    S_ENDPGM 0, implicit %5, implicit %7\n...\n"
    )
    again = text.replace("%5", "%0").replace("%7", "%3").replace("bb.2", "bb.1").replace("killed ", "")
    assert first_difference(text, again.replace("liveins: $vgpr0", "liveins: $vgpr0, $vgpr1")) is None
    assert first_difference(text, again.replace("$vgpr1 =", "$vgpr2 =")) == ("$vgpr1 = COPY %v0", "$vgpr2 = COPY %v0")
    assert first_difference(text, again.replace("implicit %3", "implicit %0")) is not None
    assert first_difference(text, again.replace("%3\n", "%3\n    S_NOP 0\n")) == ("", "S_NOP 0")


def test_a_function_that_is_left_out_is_not_printed_again_and_any_other_is() -> None:
    bodies = [f"---\nname: {name}\nbody:             |\n  bb.0:\n    S_ENDPGM 0\n...\n" for name in "kl"]
    module = "--- |\n  define {}amdgpu_kernel void @k() {{\n  define amdgpu_kernel void @l() {{\n...\n"
    text, left_out = (module.format(linkage) + "".join(bodies) for linkage in ("", "available_externally "))
    assert first_difference(text, text) is None
    assert first_difference(text, bodies[1]) == ("name: k", "name: l")
    assert first_difference(left_out, bodies[1]) is None
    assert first_difference(left_out, bodies[0]) == ("name: l", "")


# Registers that are undefined on some path.

_UNDEFINED = """--- |
  define amdgpu_kernel void @k() { ret void }
...
---
name:            k
tracksRegLiveness: true
machineFunctionInfo:
  isEntryFunction: true
body:             |
  bb.0:
    successors: %bb.1, %bb.2
    liveins: $sgpr4

    S_CMP_EQ_U32 killed renamable $sgpr4, 0, implicit-def $scc
    S_CBRANCH_SCC1 %bb.2, implicit killed $scc

  bb.1:
    successors: %bb.2

    $sgpr6_sgpr7 = S_MOV_B64 5

  bb.2:
    successors: %bb.3

    S_NOP 0

  bb.3:
    liveins: $sgpr6_sgpr7

    S_NOP 0, implicit $sgpr6_sgpr7, implicit undef $sgpr9, implicit $exec
    S_ENDPGM 0
...
"""


def test_what_is_undefined_on_a_path_is_defined_without_code() -> None:
    text = define_everywhere(_UNDEFINED, wave32=False)
    blocks = parse_mir(text).functions[0].blocks
    assert [str(i) for i in blocks[0].instructions[:2]] == ["$sgpr6 = IMPLICIT_DEF", "$sgpr7 = IMPLICIT_DEF"]
    assert [[live.reg for live in block.liveins] for block in blocks] == [
        ["sgpr4"], [], ["sgpr6", "sgpr7"], ["sgpr6_sgpr7"],
    ]  # fmt: skip
    assert define_everywhere(text, wave32=False) == text, "once is enough"
    assert text.count("S_NOP") == 2
    defined = _UNDEFINED.replace("$sgpr6_sgpr7 = S_MOV_B64 5", "S_NOP 0").replace(
        "implicit $sgpr6_sgpr7", "implicit $vcc"
    )
    firsts = [
        [str(i) for i in parse_mir(define_everywhere(defined, wave32=wave32)).functions[0].blocks[0].instructions]
        for wave32 in (True, False)
    ]
    assert [f[0] for f in firsts] == ["$vcc_lo = IMPLICIT_DEF", "$vcc_hi = IMPLICIT_DEF"]
    assert "IMPLICIT_DEF" not in firsts[0][1]


def test_registers_of_the_frame_are_not_defined() -> None:
    """LLVM reserves them and asks for no definition; one would seem to overwrite the stack pointer."""
    frame = "  stackPtrOffsetReg: '$sgpr6'\n  scratchRSrcReg: '$private_rsrc_reg'\n"
    text = define_everywhere(_UNDEFINED.replace("body: ", frame + "body: "), wave32=False)
    blocks = parse_mir(text).functions[0].blocks
    assert [str(i) for i in blocks[0].instructions[:2]] == ["$sgpr7 = IMPLICIT_DEF", str(blocks[0].instructions[1])]
    assert text.count("IMPLICIT_DEF") == 1


def test_llvm_wants_it_so_and_the_driver_gives_it() -> None:
    driven = by_triton("gfx942", "k.mir")
    text = _UNDEFINED.replace("liveins: $sgpr4\n", "liveins: $sgpr4, $sgpr6_sgpr7\n")
    job = LlvmJob("finish", text.encode(), True, driven.options, Point("after", "virtregrewriter,2"), kind="asm")
    with pytest.raises(ToolFailure) as caught:
        triton.TritonDriver(tritons())._compile(job, RunningTools())
    assert is_about_undefined(caught.value.stderr)
    assembly = driven.finish(text, "asm").decode()
    assert assembly.count("s_nop 0") == 2
    assert instructions(assembly.encode())[:2] == ["s_cmp_eq_u32 s4, 0", "s_cbranch_scc1 .LBB0_2"]
    assert print_mir(parse_mir(_UNDEFINED)) == _UNDEFINED


# Scalar spills that are lowered before.

_LANE_SPILLS = """--- |
  define amdgpu_kernel void @k() { ret void }
...
---
name:            k
tracksRegLiveness: true
noVRegs:         true
stack:
  - { id: 0, type: spill-slot, size: 4, alignment: 4 }
machineFunctionInfo:
  isEntryFunction: true
  hasSpilledSGPRs: true
  hasSpilledVGPRs: true
  scratchRSrcReg:  '$sgpr0_sgpr1_sgpr2_sgpr3'
  stackPtrOffsetReg: '$sgpr32'
  wwmReservedRegs:
    - '$vgpr63'
body:             |
  bb.0:
    liveins: $sgpr4, $vgpr0

    $vgpr63 = IMPLICIT_DEF
    $vgpr63 = SI_SPILL_S32_TO_VGPR killed $sgpr4, 0, killed $vgpr63
    SI_SPILL_V32_SAVE killed $vgpr0, %stack.0, $sgpr32, 0, implicit $exec :: (store (s32) into %stack.0, addrspace 5)
    $sgpr4 = SI_RESTORE_S32_FROM_VGPR killed $vgpr63, 0
    $vgpr0 = SI_SPILL_V32_RESTORE %stack.0, $sgpr32, 0, implicit $exec :: (load (s32) from %stack.0, addrspace 5)
    S_NOP 0, implicit killed $sgpr4, implicit killed $vgpr0
    S_ENDPGM 0
...
"""


def _finished_as_it_is(text: str) -> bytes:
    options = by_triton("gfx1100", "k.mir").options
    job = LlvmJob("finish", text.encode(), True, options, Point("after", "virtregrewriter,2"), kind="asm")
    return triton.TritonDriver(tritons())._compile(job, RunningTools()).stdout


def test_scalar_saves_in_lanes_beside_saves_on_the_stack_are_finished() -> None:
    with pytest.raises(ToolchainError, match="SIGSEGV"):
        _finished_as_it_is(_LANE_SPILLS)
    done = instructions(by_triton("gfx1100", "k.mir").finish(_LANE_SPILLS, "asm"))
    assert {"v_writelane_b32 v0, s4, 0", "v_readlane_b32 s4, v0, 0"} <= {re.sub(r"v\d+", "v0", i) for i in done}
    assert [word.split()[0] for word in done if "scratch" in word] == [
        "scratch_store_b32", "scratch_load_b32",
    ]  # fmt: skip


def test_nothing_else_asks_for_scalar_spills_then() -> None:
    """Without stack objects LLVM finishes the text with and without the field: the code is the same."""
    code = re.sub(r"(?m)^(?:stack:|  - \{ id: 0,.*|.*SI_SPILL_V32.*|  hasSpilledVGPRs:.*)\n", "", _LANE_SPILLS)
    assert code.count("SI_") == 2
    assert _finished_as_it_is(code) == _finished_as_it_is(said_to_spill_scalars(code, frozenset({"k"}), False))


def test_only_functions_whose_scalar_spills_are_all_lowered() -> None:
    assert with_lowered_spills(_LANE_SPILLS) == {"k"}
    open_spill = _LANE_SPILLS.replace("    S_NOP 0,", "    $sgpr5 = SI_SPILL_S32_RESTORE %stack.0\n    S_NOP 0,")
    assert with_lowered_spills(open_spill) == set()
    without = said_to_spill_scalars(_LANE_SPILLS, frozenset({"k"}), False)
    assert with_lowered_spills(without) == set()
    assert said_to_spill_scalars(without, frozenset({"k"}), True) == _LANE_SPILLS
    assert said_to_spill_scalars(_LANE_SPILLS, frozenset({"l"}), False) == _LANE_SPILLS


# Which LLVM is taken.


def test_what_is_asked_for_is_taken(tmp_path: Path) -> None:
    assert choose_tools() == tools()
    assert choose_tools(ToolchainChoice.LLC, env={**os.environ, TOOLCHAIN_VARIABLE: "triton"}) == tools()
    with pytest.raises(ToolchainError, match="no suitable llc"):
        choose_tools(llvm=tmp_path)
    with pytest.raises(InputError, match="VERILOCC_TOOLCHAIN=gcc is not auto, llc or triton"):
        choose_tools(env={TOOLCHAIN_VARIABLE: "gcc"})
    with pytest.raises(InputError, match="names an llc"):
        choose_tools(ToolchainChoice.TRITON, tmp_path)
    assert choose_tools(ToolchainChoice.TRITON) == tritons()
    assert choose_tools(env={**os.environ, TOOLCHAIN_VARIABLE: "triton"}) == tritons()


def test_without_an_llc_it_is_triton_s(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*_: object, **__: object) -> LlvmTools:
        raise ToolchainError("no suitable llc found", hint="install one")

    monkeypatch.setattr(choose, "find_toolchain", nothing)
    with pytest.raises(ToolchainError, match="no suitable llc"):
        choose_tools(ToolchainChoice.LLC)
    with pytest.raises(ToolchainError, match="no suitable llc"):
        choose_tools(env={"VERILOCC_LLVM": "/nowhere"})
    assert choose_tools(env={}) == tritons()

    def none_there(_name: str) -> None:
        return None

    monkeypatch.setattr(triton_probe.importlib.util, "find_spec", none_there)
    with pytest.raises(ToolchainError, match=r"(?s)no suitable llc.*Triton is not installed.*install one; or pip"):
        choose_tools(env={})


def test_what_a_library_can_do_is_found_out_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library = tritons().library
    find._kept.cache_clear()
    assert triton_probe.find_triton().version >= (24,)

    def again(_library: Path) -> str:
        raise AssertionError("asked again")

    find._kept.cache_clear()
    monkeypatch.setattr(triton_probe, "_probe", again)
    assert triton_probe.find_triton().version >= (24,), "as it was kept in the user's cache"
    monkeypatch.undo()
    assert re.match(r"\d+\.\d+\.\d+", triton_probe._probe(library))
    other = tmp_path / "libtriton.so"
    other.write_bytes(b"\x7fELF and no more")
    assert triton_probe._probe(other).startswith("!no worker process starts")


def test_a_new_version_that_cannot_is_said_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    library = tritons().library
    monkeypatch.setattr(triton, "_LEAVE_OUT", ("-opt-disable=of-another-name", "-opt-bisect-verbose=0"))
    triton._workers.cache_clear()
    try:
        assert triton_probe._probe(library).startswith("!Triton's LLVM changes the text")
    finally:
        triton._workers.cache_clear()
    monkeypatch.setattr(triton_probe, "kept", lambda *_: "!it does not say which LLVM it has")
    with pytest.raises(ToolchainError, match=r"the LLVM of Triton \S+ cannot be driven: it does not say") as caught:
        triton_probe.find_triton()
    assert "use an llc" in caught.value.hint


def test_results_of_the_two_have_other_keys() -> None:
    settings = Settings(cpu="gfx942")
    assert Keys(settings, tools()).of("0" * 64) != Keys(settings, tritons()).of("0" * 64)


def test_what_only_llvm_s_tools_can_do_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tritons()
    bitcode = tmp_path / "k.bc"
    bitcode.write_bytes(b"BC\xc0\xde" + bytes(100))
    assert run(["compile", str(bitcode), "--mcpu=gfx942", "--toolchain=triton", "-o", str(tmp_path / "k")]) == 2
    assert "bitcode needs llvm-dis, which was not found in Triton's wheel" in capsys.readouterr().err
    with pytest.raises(ToolchainError, match="opt was not found in Triton's wheel"):
        optimise(tritons(), source("mmra.ll"), cpu="gfx942")


def test_ir_that_names_no_file_is_the_same_module_when_it_is_read_again() -> None:
    driven = by_triton("gfx942")
    text = 'target triple = "amdgcn-amd-amdhsa"\ndefine amdgpu_kernel void @k() {\n  ret void\n}\n'
    pre = driven.to_pre_ra(text)
    after = driven.llvm_allocate(pre, LlvmPhase.SGPR)
    modules = [
        [line for line in mir.partition("\n---\nname")[0].splitlines() if not line.startswith("  ;")]
        for mir in (pre, after)
    ]
    assert modules[0] == modules[1]
    assert modules[0].count('  source_filename = "<stdin>"') == 1
    with pytest.raises(InputError, match=r"^input:6: LLVM .* rejects it: expected type"):
        driven.to_pre_ra(text + "define\n")
