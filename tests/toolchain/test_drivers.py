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
from itertools import product
from pathlib import Path

import pytest
from checker_support import needs_both
from msgspec.structs import replace
from process_support import gone, lines_of
from support import HEARING, REPOSITORY, cpu_of, few, kernel_paths, long
from toolchain_support import by_triton, instructions, source, tools, tritons

from smt_verifier.outcome import Outcome
from verilocc_mlir.cli.main import run
from verilocc_mlir.errors import InputError, ToolchainError, UnsupportedError
from verilocc_mlir.hooks.mlir_compile import optimise
from verilocc_mlir.pipeline.audit import audit_llvm
from verilocc_mlir.pipeline.compile import compile_module
from verilocc_mlir.pipeline.key import Keys
from verilocc_mlir.pipeline.settings import Emit, Settings
from verilocc_mlir.toolchain import TOOLCHAIN_VARIABLE, ToolchainChoice, choose, find
from verilocc_mlir.toolchain.checked import check_object
from verilocc_mlir.toolchain.choose import choose_tools
from verilocc_mlir.toolchain.descriptor import read_code_object
from verilocc_mlir.toolchain.drivers import triton, triton_probe
from verilocc_mlir.toolchain.drivers.job import CompileOptions, split_target_id
from verilocc_mlir.toolchain.drivers.triton import without_marks
from verilocc_mlir.toolchain.find import LlvmTools
from verilocc_mlir.toolchain.mir_repairs import reads_mmra, same_but_waits, with_frame_marks, without_frame_marks
from verilocc_mlir.toolchain.run import ToolFailure
from verilocc_mlir.toolchain.staged import LlvmPhase, StagedCompiler, goes_on_as_it_is

CPUS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")


@pytest.fixture(params=["llc", "triton"])
def llvm(request: pytest.FixtureRequest) -> LlvmTools:
    """Each LLVM in turn."""
    return tools() if request.param == "llc" else tritons()


def staged(llvm: LlvmTools, cpu: str, name: str = "") -> StagedCompiler:
    return StagedCompiler(llvm, CompileOptions(cpu, tool_seconds=120.0, input_name=name))


# The same over both.


@pytest.mark.parametrize(
    ("name", "cpu"),
    few((("sgpr_spills.ll", "gfx942"), ("mmra.ll", "gfx1201")), product(("sgpr_spills.ll", "mmra.ll"), CPUS)),
)
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


@pytest.mark.parametrize("cpu", few(("gfx942", "gfx1100"), CPUS))
def test_finished_from_text_it_is_the_kernel_of_a_compile_in_one_go(cpu: str, llvm: LlvmTools) -> None:
    path = next(p for p in kernel_paths() if p.name.startswith("attn_d64.") and cpu_of(p) == cpu)
    driven = staged(llvm, cpu, path.name)
    done = driven.direct_after(path.read_text(), LlvmPhase.VGPR)
    assert instructions(driven.finish(done, "asm")) == instructions(driven.direct(path.read_text(), "asm"))


@pytest.mark.parametrize("cpu", ["gfx1201", *long("gfx942", "gfx1100")])
def test_annotations_of_fences_go_through_text_where_llvm_reads_them(cpu: str, llvm: LlvmTools) -> None:
    driven = staged(llvm, cpu, "lds_fences.ll")
    pre = driven.to_pre_ra(source("lds_fences.ll"))
    done = driven.llvm_allocate(
        driven.resume(driven.llvm_allocate(pre, LlvmPhase.SGPR), done=LlvmPhase.SGPR, until=LlvmPhase.VGPR),
        LlvmPhase.VGPR,
    )
    finished, direct = driven.finish(done, "asm"), driven.direct(source("lds_fences.ll"), "asm")
    assert same_but_waits(finished.decode(), direct.decode())
    if reads_mmra(llvm.version):
        assert len(re.findall(r"ATOMIC_FENCE \d, \d, mmra !\d+\n", done)) == 4
        assert instructions(finished) == instructions(direct)
    else:
        assert len(re.findall(r"ATOMIC_FENCE \d, \d\n", done)) == 4
        # On CDNA a fence of a work-group waits for the LDS alone in any case.
        assert (instructions(finished) == instructions(direct)) == (cpu == "gfx942")


def test_a_function_that_may_unwind_goes_on_behind_allocation(llvm: LlvmTools) -> None:
    """LLVM 24 notes for debuggers where the frame of its caller is; Triton's does so again when it goes on."""
    driven = staged(llvm, "gfx942", "lds_fences.ll")
    done = driven.direct_after(source("lds_fences.ll"), LlvmPhase.VGPR)
    late = driven.before_late_order(done)
    bare, marks = without_frame_marks(late)
    if llvm.version[0] == 24:
        assert "\n    frame-setup CFI_INSTRUCTION undefined $pc_reg\n" in marks[0]
    assert "CFI_INSTRUCTION" not in bare
    assert with_frame_marks(bare, marks) == late
    ordered = driven.finish_ordered(late, "asm")
    assert sorted(instructions(ordered)) == sorted(instructions(driven.finish(done, "asm")))
    assert ordered.count(b".cfi") == driven.finish(done, "asm").count(b".cfi")
    # Elsewhere they would say something of where they stand.
    inside = late.replace("    S_ENDPGM 0", "    frame-setup CFI_INSTRUCTION undefined $pc_reg\n    S_ENDPGM 0")
    assert "CFI_INSTRUCTION" in without_frame_marks(inside)[0]


@needs_both
def test_our_order_behind_allocation_is_tried_of_a_function_that_may_unwind() -> None:
    settings = Settings("gfx942", toolchain=ToolchainChoice.TRITON, emit=Emit.ASM)
    tritons()
    done = compile_module(source("lds_fences.ll").encode(), "k.ll", settings)
    assert done.report.outcome is Outcome.PROVED
    assert not any("LLVM's order stays" in note for note in done.report.notes)
    assert any(step.name == "to-late-order" for step in done.report.steps)


@pytest.mark.parametrize("regalloc", ["basic", "fast"])
def test_llvm_s_other_allocators(regalloc: str, llvm: LlvmTools) -> None:
    driven = staged(llvm, "gfx942")
    pre = driven.to_pre_ra(source("mmra.ll"))
    scalar = driven.llvm_allocate(pre, LlvmPhase.SGPR, regalloc)  # type: ignore[arg-type]
    assert ":sreg" not in scalar.partition("\n---\nname:")[2].partition("body:")[2]


@pytest.mark.parametrize("llvm", ["llc", *long("triton")], indirect=True)
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


@pytest.mark.parametrize("llvm", ["llc", *long("triton")], indirect=True)
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
    late = StagedCompiler(llvm, CompileOptions("gfx1100", tool_seconds=0.001))
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
        *few((("gemm_mma_lds", "gfx950"), ("gemm_mma_lds", "gfx1201")), product(("gemm_mma_lds", "attn_d64"), CPUS)),
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
    workers = triton._workers(str(tritons().library), "ir")
    with workers.worker() as next_to_be_asked:
        pid = next_to_be_asked.pid
    with pytest.raises(ToolFailure, match=r"Triton's LLVM \(pre-ra\) crashed with SIGABRT: .*Cannot select") as caught:
        driven.to_pre_ra(_NOT_ON_GFX942)
    assert "replay with: " in caught.value.hint
    assert "LLVM ERROR: Cannot select" in caught.value.stderr
    assert driven.to_pre_ra(source("mmra.ll"))
    assert gone(pid)
    assert pid not in workers.pids()


@pytest.mark.long
def test_a_large_program_keeps_its_worker() -> None:
    script = textwrap.dedent(f"""
        from verilocc_mlir.toolchain.drivers import triton
        taken = bytearray(5 << 29)
        taken[::4096] = b"x" * len(taken[::4096])
        workers = triton._workers({str(tritons().library)!r}, "ir")
        pids = set()
        for _ in range(2):
            with workers.worker() as worker:
                pids.add(worker.pid)
                question = {{"do": "link", "options": []}}
                worker.ask(question, 60)
        print(len(pids))
    """)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=REPOSITORY, check=False)
    assert done.stdout == "1\n", done.stderr


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


@pytest.mark.long
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
        with triton._workers(library, "ir").worker() as one:
            with triton._workers(library, "mir").worker() as other:
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
    done = audit_llvm(path.read_bytes(), path.name, settings, each_phase=True)
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
        return StagedCompiler(driven.toolchain, replace(driven.options, llc_options=flags))

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
