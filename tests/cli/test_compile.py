"""``verilocc compile`` end to end with the real LLVM: results, exit codes, wrong input, interruption."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from msgspec.structs import replace
from process_support import lines_of
from support import HEARING, REPOSITORY, few, llc, long, pre_ra, readable, run_llc

from smt_verifier.audit import Finding, FunctionAudit, MoveCounts
from smt_verifier.outcome import Outcome
from verilocc_mlir.allocators import allocator
from verilocc_mlir.cli.main import run
from verilocc_mlir.mir.model import MachineFunction, MirFile
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.pipeline import chosen_allocators
from verilocc_mlir.pipeline import phase as phase_module
from verilocc_mlir.problem.model import AllocationProblem, Proposal
from verilocc_mlir.results.compile_document import schema
from verilocc_mlir.target.processors import PROCESSORS
from verilocc_mlir.target.targets import TARGETS
from verilocc_mlir.toolchain.descriptor import read_code_object

jsonschema = pytest.importorskip("jsonschema")

VERILOCC = [sys.executable, "-m", "verilocc_mlir.cli.main"]
SMALL = """
target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @small(ptr addrspace(1) %p, i32 %n) {
  %id = call i32 @llvm.amdgcn.workitem.id.x()
  %q = getelementptr i32, ptr addrspace(1) %p, i32 %id
  %v = load i32, ptr addrspace(1) %q
  %w = mul i32 %v, %n
  store i32 %w, ptr addrspace(1) %q
  ret void
}
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A kernel of a few instructions, in a directory of its own."""
    path = tmp_path / "in" / "small.ll"
    path.parent.mkdir()
    path.write_text(SMALL)
    return path


def others(path: Path) -> list[str]:
    """What lies beside ``path``."""
    return sorted(p.name for p in path.parent.iterdir() if p != path)


@pytest.mark.parametrize("cpu", ["gfx942", *long("gfx1100", "gfx90a", "gfx950", "gfx1201")])
def test_a_gemm_comes_out_proved(cpu: str, demo_kernels: Path, tmp_path: Path) -> None:
    out, report = tmp_path / "k.hsaco", tmp_path / "k.json"
    source = demo_kernels / f"gemm_mma_lds.{cpu}.opt.ll"
    assert run(["compile", str(source), f"-mcpu={cpu}", "-o", str(out), f"--report={report}", "-q"]) == 0
    found = read_code_object(out.read_bytes())
    assert found.e_flags & 0xFF == PROCESSORS[cpu].elf_mach
    assert list(found.kernels) == ["gemm"]
    data = json.loads(report.read_text())
    jsonschema.validate(data, schema())
    assert (data["outcome"], data["exit_code"], data["output"]) == ("proved", 0, str(out))
    (function,) = data["functions"]
    assert [p["phase"] for p in function["phases"]] == ["sgpr", "vgpr"]
    for phase in function["phases"]:
        assert phase["allocator"] == "deterministic"
        assert phase["attempts"][0]["proof"]["outcome"] == phase["attempts"][0]["audit"]["outcome"] == "proved"
    assert function["resources"]["vgprs"] == found.kernels["gemm"].vgpr_count
    assert function["greedy"]["waves"] > 0


def test_the_result_goes_beside_the_input(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compile", str(small), "-mcpu=gfx942"]) == 0
    assert others(small) == ["small.hsaco"]
    shown = capsys.readouterr().out
    assert "small.hsaco" in shown
    assert re.search(r"small +SGPR +deterministic +1 +proved", shown)


def test_stdin_to_stdout_with_the_table_on_stderr() -> None:
    done = subprocess.run(
        [*VERILOCC, "compile", "-mcpu=gfx1201", "-O3", "-mtriple=amdgcn-amd-amdhsa", "-"],
        input=SMALL.encode(),
        capture_output=True,
        check=False,
        cwd=REPOSITORY,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert list(read_code_object(done.stdout).kernels) == ["small"]
    assert b"VGPR" in done.stderr


def test_the_target_comes_from_the_ir_where_none_is_given(demo_kernels: Path, tmp_path: Path) -> None:
    text = (demo_kernels / "gemm_mma_lds.gfx942.opt.ll").read_text()
    assert '"target-cpu"="gfx942"' in text
    source, out = tmp_path / "k.ll", tmp_path / "k.o"
    source.write_text(text)
    assert run(["compile", str(source), "--emit=obj", "-o", str(out), "-q"]) == 0
    assert read_code_object(out.read_bytes()).e_flags & 0xFF == PROCESSORS["gfx942"].elf_mach


def test_emitted_machine_ir_is_allocated_and_llvm_takes_it(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "done.mir"
    assert run(["compile", str(small), "-mcpu=gfx942", "--emit=mir", "-o", str(out), "-q"]) == 0
    (function,) = parse_mir(out.read_text()).functions
    assert not any(o.vreg >= 0 for b in function.blocks for i in b.instructions for o in i.all_operands)
    run_llc(out.read_text(), "gfx942", "-start-after=virtregrewriter,2", "-verify-machineinstrs")


def contents(path: Path, section: str) -> bytes:
    """Bytes of a section of an ELF file."""
    with path.open("rb") as stream:
        found = ELFFile(stream).get_section_by_name(section)
        assert found is not None
        return found.data()


@pytest.mark.long
@pytest.mark.parametrize("cpu", few(("gfx1100",), ("gfx942", "gfx1100")))
def test_emitted_assembly_assembles_to_the_emitted_object(cpu: str, small: Path, tmp_path: Path) -> None:
    assembly, obj = tmp_path / "k.s", tmp_path / "k.o"
    assert run(["compile", str(small), f"-mcpu={cpu}", "--emit=asm", "-o", str(assembly), "-q"]) == 0
    assert run(["compile", str(small), f"-mcpu={cpu}", "--emit=obj", "-o", str(obj), "-q"]) == 0
    again = tmp_path / "again.o"
    mc = Path(llc()).resolve().with_name("llvm-mc")
    subprocess.run(
        [mc, "-triple=amdgcn-amd-amdhsa", f"-mcpu={cpu}", "-filetype=obj", str(assembly), "-o", str(again)], check=True
    )
    for section in (".text", ".rodata"):
        assert contents(again, section) == contents(obj, section)


def test_bitcode_and_text_give_the_same_code(small: Path, tmp_path: Path) -> None:
    bitcode = tmp_path / "small.bc"
    assembler = Path(llc()).resolve().with_name("llvm-as")
    subprocess.run([assembler, str(small), "-o", str(bitcode)], check=True)
    outs = [tmp_path / "a.hsaco", tmp_path / "b.hsaco"]
    for source, out in zip((small, bitcode), outs, strict=True):
        assert run(["compile", str(source), "-mcpu=gfx90a", "-o", str(out), "-q"]) == 0
    assert outs[0].read_bytes() == outs[1].read_bytes()


@pytest.mark.long
@pytest.mark.parametrize("cpu", ["gfx942", *long("gfx1100")])
def test_pre_ra_machine_ir_gives_what_its_ir_gives(cpu: str, demo_kernels: Path, tmp_path: Path) -> None:
    source = demo_kernels / f"gemm_mma_lds.{cpu}.opt.ll"
    machine = tmp_path / "k.mir"
    machine.write_text(readable(pre_ra(source)))
    outs = [tmp_path / "a.hsaco", tmp_path / "b.hsaco"]
    for given, out in zip((source, machine), outs, strict=True):
        assert run(["compile", str(given), f"-mcpu={cpu}", "-o", str(out), "-q"]) == 0
    assert outs[0].read_bytes() == outs[1].read_bytes()


def test_llvms_own_allocation_is_audited_on_request(small: Path, tmp_path: Path) -> None:
    report = tmp_path / "r.json"
    command = ["compile", str(small), "-mcpu=gfx942", "--allocator=llvm", f"--report={report}", "-o", os.devnull, "-q"]
    assert run(command) == 0
    phases = json.loads(report.read_text())["functions"][0]["phases"]
    assert {(p["allocator"], p["fallback"], p["outcome"]) for p in phases} == {("llvm", False, "proved")}


@pytest.mark.parametrize("cpu", few(("gfx1201",), TARGETS))
def test_device_functions_have_resources_too(cpu: str, tmp_path: Path, small: Path) -> None:
    llc()  # Triton's LLVM takes up no function that is called.
    small.write_text(
        SMALL.replace("%w = mul i32 %v, %n", "%w = call i32 @helper(i32 %v, i32 %n)")
        + "define i32 @helper(i32 %a, i32 %b) noinline {\n  %r = mul i32 %a, %b\n  ret i32 %r\n}\n"
    )
    report = tmp_path / "r.json"
    assert run(["compile", str(small), f"-mcpu={cpu}", f"--report={report}", "-o", os.devnull, "-q"]) == 0
    data = json.loads(report.read_text())
    jsonschema.validate(data, schema())
    by_name = {f["name"]: f for f in data["functions"]}
    assert by_name["helper"]["kind"] == "device"
    assert by_name["small"]["kind"] == "kernel"
    assert by_name["helper"]["resources"]["vgprs"] >= 2
    assert by_name["helper"]["greedy"]["vgprs"] >= 2
    whole_wave = [p for p in by_name["small"]["phases"] if p["phase"] == "wwm"]
    assert all((p["allocator"], p["fallback"], p["outcome"]) == ("llvm", True, "proved") for p in whole_wave)


class Clashing:
    """Puts every range of a class into one register."""

    name = "clashing"
    version = "1"

    def allocate(self, problem: AllocationProblem) -> Proposal:
        proposal = allocator("deterministic").allocate(problem)
        first: dict[str, str] = {}
        registers = [first.setdefault(r.register_class, proposal.registers[r.id]) for r in problem.ranges]
        return replace(proposal, registers=tuple(registers))


def test_refuted_is_exit_code_1_and_writes_nothing(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(chosen_allocators, "allocator", lambda _, **limits: Clashing())
    out, report = tmp_path / "k.hsaco", tmp_path / "k.json"
    command = ["compile", str(small), "-mcpu=gfx942", "-o", str(out), f"--report={report}"]
    assert run([*command, "--no-fallback"]) == 1
    assert not out.exists()
    data = json.loads(report.read_text())
    jsonschema.validate(data, schema())
    assert (data["outcome"], data["output"]) == ("refuted", None)
    shown = " ".join(capsys.readouterr().out.split())
    assert re.search(r"refuted: small, [SV]GPR: clashing: (interference|fixed): ", shown)
    near = next(a for p in data["functions"][0]["phases"] for a in p["attempts"] if a["outcome"] == "refuted")[
        "nearest"
    ]
    assert (near["fewest"], near["reason"]) == (True, None)
    moves = ", ".join(f"{move['name']} to ${move['register']}" for move in near["moves"])
    assert f"clashing: the nearest valid assignment moves {moves}" in shown

    assert run(command) == 0
    data = json.loads(report.read_text())
    jsonschema.validate(data, schema())
    (phase,) = [p for p in data["functions"][0]["phases"] if p["fallback"]]
    assert (phase["allocator"], len(phase["attempts"])) == ("llvm", 2)
    assert phase["fallback_reason"].startswith("refuted by ")
    assert out.exists()


@pytest.mark.long
def test_giving_up_without_fallback_is_exit_code_3(demo_kernels: Path, tmp_path: Path) -> None:
    """Eight waves leave 64 VGPRs, and this kernel needs more at once."""
    text = (demo_kernels / "attn_d64.gfx942.opt.ll").read_text()
    agprs = '"amdgpu-agpr-alloc"="0"'
    assert agprs in text
    source, out, report = tmp_path / "k.ll", tmp_path / "k.hsaco", tmp_path / "k.json"
    source.write_text(text.replace(agprs, f'{agprs} "amdgpu-waves-per-eu"="8,8"'))
    command = ["compile", str(source), "-mcpu=gfx942", "-o", str(out), f"--report={report}", "-q"]
    assert run([*command, "--no-fallback", "--no-spill"]) == 3
    assert not out.exists()
    assert json.loads(report.read_text())["outcome"] == "unknown"
    assert run([*command, "--no-spill"]) == 0
    phase = json.loads(report.read_text())["functions"][0]["phases"][-1]
    assert (phase["allocator"], phase["fallback"]) == ("llvm", True)
    assert "VGPRs are needed at once" in phase["fallback_reason"]


def test_unknown_is_exit_code_3_and_written_only_on_request(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def undecided(_file: MirFile, function: MachineFunction, *_: object, **__: object) -> FunctionAudit:
        finding = Finding("solver", Outcome.UNKNOWN, "time-out")
        return FunctionAudit(function.name, Outcome.UNKNOWN, 7, (finding,), MoveCounts())

    monkeypatch.setattr(phase_module, "audit_function", undecided)
    out = tmp_path / "k.hsaco"
    command = ["compile", str(small), "-mcpu=gfx942", "-o", str(out), "-q"]
    assert run(command) == 3
    assert not out.exists()
    assert run([*command, "--allow-unproved"]) == 3
    assert list(read_code_object(out.read_bytes()).kernels) == ["small"]


WRONG = {
    "unknown target": (SMALL, "-mcpu=gfx1", "gfx1"),
    "no target": (SMALL, "", "-mcpu"),
    "another triple": (SMALL, "-mcpu=gfx942 -mtriple=x86_64-linux-gnu", "x86_64"),
    "another architecture": (SMALL.replace("amdgcn-amd-amdhsa", "x86_64-unknown-linux-gnu"), "-mcpu=gfx942", "x86_64"),
    "not IR": ("hello\n", "-mcpu=gfx942", ""),
    "empty": ("", "-mcpu=gfx942", "empty"),
    "truncated IR": (SMALL[:-20], "-mcpu=gfx942", ""),
    "no body": ("declare void @f()\n", "-mcpu=gfx942", "bod"),
    "unknown allocator": (SMALL, "-mcpu=gfx942 --allocator=oracle", "oracle"),
    "unknown feature of a target id": (SMALL, "-mcpu=gfx942:nonsense", "gfx942:nonsense"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_ir_is_one_error(case: str, small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, options, says = WRONG[case]
    small.write_text(text)
    assert run(["compile", str(small), *options.split(), f"--report={small.parent / 'r.json'}"]) == 2
    one_error(small, says, capsys)


def one_error(source: Path, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One message on standard error that names the fault; nothing on standard output, no file."""
    shown = capsys.readouterr()
    assert shown.out == ""
    assert len(re.findall(r"^verilocc: error: ", shown.err, re.MULTILINE)) == 1, shown.err
    assert says in shown.err
    assert "Traceback" not in shown.err
    assert others(source) == []


@pytest.mark.parametrize("how", ["truncated", "header only", "allocated", "no body", "other target", "garbage"])
def test_wrong_machine_ir_is_one_error(how: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pre = readable(run_llc(SMALL, "gfx942", "-stop-before=greedy,0", mir=False))
    body = pre.index("body:")
    text, says = {
        "truncated": (pre[: body + (len(pre) - body) * 2 // 3], ""),
        "header only": (pre[: pre.index("\n---")], ""),
        "allocated": (run_llc(pre, "gfx942", "-start-before=greedy,0", "-stop-after=virtregrewriter,2"), "allocat"),
        "no body": (pre[:body] + "body:             |\n...\n", "no body"),
        "other target": (pre.replace("amdgcn-amd-amdhsa", "x86_64-unknown-linux-gnu"), "x86_64"),
        "garbage": (pre.replace("S_ENDPGM 0", "S_ENDPGM %%% nonsense"), ""),
    }[how]
    source = tmp_path / "in" / "k.mir"
    source.parent.mkdir()
    source.write_text(text)
    assert run(["compile", str(source), "-mcpu=gfx942"]) == 2
    one_error(source, says, capsys)


def test_a_missing_llc_is_one_error_that_says_how_to_get_it(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["compile", str(small), "-mcpu=gfx942", f"--llvm={tmp_path}"]) == 2
    one_error(small, "llc", capsys)


def test_doctor_says_what_is_there_and_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    llc()
    run(["doctor"])
    assert re.search(r"^ok +llc: ", capsys.readouterr().out, re.MULTILINE)
    assert run(["doctor", f"--llvm={tmp_path}"]) == 2
    shown = capsys.readouterr().out
    assert re.search(r"^MISSING +LLVM: ", shown, re.MULTILINE)
    assert "mend: " in shown


@pytest.mark.parametrize("stop", [signal.SIGINT, *long(signal.SIGTERM)])
def test_interruption_leaves_nothing(stop: signal.Signals, demo_kernels: Path, tmp_path: Path) -> None:
    started = tmp_path / "started"
    slow = tmp_path / "llc"
    slow.write_text(
        f'#!/bin/sh\ncase "$*" in *-o*) echo $$ >> {started}; sleep 600;; esac\nexec {llc()} "$@"\n',
    )
    slow.chmod(0o755)
    out = tmp_path / "out" / "k.hsaco"
    out.parent.mkdir()
    running = subprocess.Popen(
        [
            *HEARING,
            *VERILOCC,
            "compile",
            str(demo_kernels / "attn_d64.gfx1100.opt.ll"),
            "-mcpu=gfx1100",
            "-o",
            str(out),
        ],
        cwd=REPOSITORY,
        env={**os.environ, "VERILOCC_LLC": str(slow)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    lines_of(started)
    running.send_signal(stop)
    _, errors = running.communicate(timeout=60)
    assert running.returncode == 130, errors
    assert "Traceback" not in errors
    assert list(out.parent.iterdir()) == []
    for process in started.read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(process), 0)


def test_mir_that_llc_refuses_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mir = run_llc(SMALL, "gfx942", "-stop-before=greedy,0", mir=False)
    broken = tmp_path / "broken.mir"
    broken.write_text(mir.replace("S_ENDPGM 0", "S_NO_SUCH_OPCODE 0"))
    assert run(["compile", str(broken), "-mcpu=gfx942", "-o", str(tmp_path / "k.hsaco")]) == 2
    assert "unknown machine instruction name" in capsys.readouterr().err
    assert not (tmp_path / "k.hsaco").exists()


def test_standard_input_in_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Pipe(io.TextIOWrapper):
        def isatty(self) -> bool:
            return False

    monkeypatch.setattr(sys, "stdin", Pipe(io.BytesIO(SMALL.encode())))
    out = tmp_path / "k.o"
    assert run(["compile", "-mcpu=gfx950", "--emit=obj", "-o", str(out)]) == 0
    assert out.exists()
    assert "- for gfx950" in capsys.readouterr().out


def test_ir_of_a_newer_llvm_is_brought_down_and_said_so(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    llc()  # Triton's LLVM is the newer one.
    newer = SMALL.replace("store i32", "%f = sitofp i32 %w to float\n  %g = fadd float %f, f0x3F800000\n  store i32")
    small.write_text(newer)
    assert run(["compile", str(small), "-mcpu=gfx942"]) == 0
    assert "note: IR of a newer LLVM; rewritten for this one: " in " ".join(capsys.readouterr().out.split())


MUL_ADD = (
    SMALL.replace("i32 %n", "float %n")
    .replace("load i32", "load float")
    .replace(
        "  %w = mul i32 %v, %n\n  store i32 %w", "  %m = fmul float %v, %n\n  %w = fadd float %m, %v\n  store float %w"
    )
)


@pytest.mark.parametrize(("flags", "fused"), [([], False), (["--llc=-fp-contract=fast"], True)])
def test_flags_for_llc_reach_every_stage(flags: list[str], fused: bool, tmp_path: Path) -> None:
    """IREE and Triton compile with FMA contraction, llc by itself does not; the direct compile must follow."""
    source, out = tmp_path / "k.ll", tmp_path / "k.s"
    source.write_text(MUL_ADD)
    assert run(["compile", str(source), "-mcpu=gfx942", "--emit=asm", "-o", str(out), "-q", *flags]) == 0
    assert bool(re.search(r"v_(pk_)?fma", out.read_text())) == fused


def test_save_temps_keeps_the_machine_ir_before_and_after(small: Path, tmp_path: Path) -> None:
    out, kept = tmp_path / "k.hsaco", tmp_path / "kept" / "here"
    assert run(["compile", str(small), "-mcpu=gfx942", "-o", str(out), "-q", f"--save-temps={kept}"]) == 0
    before, after = (parse_mir((kept / f"small.{when}.mir").read_text(), when) for when in ("before", "after"))
    assert before.functions[0].registers
    assert not after.functions[0].registers
    assert after.functions[0].name == "small"


def test_the_exact_allocator_end_to_end(small: Path, tmp_path: Path) -> None:
    pytest.importorskip("ortools", reason="OR-Tools is an extra: requirements/exact.txt")
    out, report = tmp_path / "k.hsaco", tmp_path / "k.json"
    options = ["-mcpu=gfx942", "--allocator=exact", "--allocator-seconds=20", "--no-fallback", "-q"]
    assert run(["compile", str(small), *options, "-o", str(out), f"--report={report}"]) == 0
    phases = json.loads(report.read_text())["functions"][0]["phases"]
    assert {(p["allocator"], p["fallback"]) for p in phases} == {("exact", False)}
