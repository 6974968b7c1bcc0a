"""What the allocator and the rewriter make, read back by the real llc with its machine verifier on, and audited."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet
from allocators_support import Compiled, as_read, compile_phases, finish, violations
from analysis_support import random_body
from builders import mir_text, preamble
from support import TEST_DATA, few, llc, run_llc

from smt_verifier.audit import audit
from smt_verifier.audit.wording import render
from smt_verifier.outcome import Outcome
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.target.targets import target

DATA = TEST_DATA / "rewrite"
TARGETS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201", "gfx1250")
ONLY_CDNA = {"mfma"}
NOT_AUDITED = {"whole_wave"}
"""EXEC is set in ways that the audit answers UNKNOWN to."""
SEEDS = (0, 5, 6, 8, 10, 11, 12, 15, 16, 18, 19, 22, 23, 24, 26, 29, 30, 31, 35, 36)
"""Of ``random_body``: those whose functions LLVM's verifier accepts; the others read lanes that no path defines."""


QUICK = ("gfx942",)


def cases() -> list[ParameterSet]:
    return [
        pytest.param(path, cpu, marks=() if cpu in QUICK else pytest.mark.long)
        for path in sorted(DATA.glob("*.ll"))
        for cpu in TARGETS
        if path.stem not in ONLY_CDNA or cpu in ("gfx90a", "gfx942", "gfx950")
    ]


def check_audits(compiled: Compiled) -> None:
    for phase, after in compiled.after.items():
        pre = parse_mir(as_read(compiled.before[phase], compiled.cpu))
        report = audit(pre, parse_mir(as_read(after, compiled.cpu)), target(compiled.cpu))
        assert report.outcome is Outcome.PROVED, [render(f) for d in report.functions for f in d.findings]


@pytest.mark.parametrize(("path", "cpu"), cases(), ids=lambda v: v if isinstance(v, str) else v.stem)
def test_features_are_accepted_and_proved(path: Path, cpu: str) -> None:
    pre = run_llc(path.read_text(), cpu, "-stop-before=greedy,0", mir=False)
    compiled = compile_phases(pre, cpu, ("sgpr", "wwm", "vgpr"))
    for runs in compiled.runs.values():
        for run in runs:
            assert run.proposal is not None, run.failure
            assert violations(run.problem, run.proposal) == []
    assert "s_endpgm" in finish(compiled)
    if path.stem not in NOT_AUDITED:
        check_audits(compiled)


@pytest.mark.parametrize("cpu", TARGETS)
def test_whole_wave_registers_of_scalar_spills(cpu: str) -> None:
    """LLVM's scalar spills leave virtual whole-wave registers, which our WWM phase places."""
    ir = SCALAR_SPILLS
    pre = run_llc(ir, cpu, "-stop-before=greedy,1", mir=False)
    assert "WWM_REG" in pre
    compiled = compile_phases(pre, cpu, ("wwm", "vgpr"))
    assert any(run.problem.ranges for run in compiled.runs["wwm"])
    assert "SI_SPILL_S32_TO_VGPR" in compiled.after["wwm"]
    assert "v_writelane_b32" in finish(compiled)


@pytest.mark.parametrize("path", sorted(DATA.glob("*.ll")), ids=lambda p: p.stem)
def test_an_object_file_comes_out(path: Path, tmp_path: Path) -> None:
    cpu = "gfx942"
    pre = run_llc(path.read_text(), cpu, "-stop-before=greedy,0", mir=False)
    compiled = compile_phases(pre, cpu, ("sgpr", "wwm", "vgpr"))
    out = tmp_path / "k.o"
    command = [
        llc(), "-mtriple=amdgcn-amd-amdhsa", f"-mcpu={cpu}", "-x", "mir", "-verify-machineinstrs",
        "-start-after=virtregrewriter,2", "-filetype=obj", "-o", str(out), "-",
    ]  # fmt: skip
    subprocess.run(command, input=compiled.after["vgpr"], text=True, check=True, capture_output=True, timeout=120)
    assert out.read_bytes().startswith(b"\x7fELF")


@pytest.mark.parametrize("seed", few(SEEDS[:2], SEEDS))
def test_random_functions_are_accepted_and_proved(seed: int) -> None:
    """Any control flow, partial and missing definitions, IMPLICIT_DEF, early-clobber: what LLVM itself accepts."""
    body = random_body(seed, blocks=3 + seed % 7, registers=4 + seed % 9, length=3 + seed % 6)
    pre = run_llc(preamble() + mir_text(body), "gfx942", "-start-before=greedy,0", "-stop-before=greedy,0")
    compiled = compile_phases(pre, "gfx942", ("sgpr", "vgpr"))
    finish(compiled)
    check_audits(compiled)


SCALAR_SPILLS = """
target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @scalar_spills(ptr addrspace(4) %p, ptr addrspace(1) %q) #0 {
  %a = load volatile <16 x i32>, ptr addrspace(4) %p
  %g = getelementptr <16 x i32>, ptr addrspace(4) %p, i32 1
  %b = load volatile <16 x i32>, ptr addrspace(4) %g
  call void asm sideeffect "; clobber", "~{s0},~{s1},~{s2},~{s3},~{s4},~{s5},~{s6},~{s7}"()
  call void asm sideeffect "; use $0", "s"(<16 x i32> %a)
  call void asm sideeffect "; use $0", "s"(<16 x i32> %b)
  call void asm sideeffect "; use $0", "s"(<16 x i32> %a)
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %o = getelementptr i32, ptr addrspace(1) %q, i32 %t
  store i32 %t, ptr addrspace(1) %o
  ret void
}
attributes #0 = { "amdgpu-num-sgpr"="40" }
"""
