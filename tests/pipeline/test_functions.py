"""Several functions in a file: one that is not proved costs that one, and never what the others have."""

from __future__ import annotations

import re

import pytest
from support import long

from smt_verifier.audit import Finding, FunctionAudit, MoveCounts, audit_function
from smt_verifier.outcome import Outcome
from verilocc_mlir.allocators import AllocationFailure, allocator
from verilocc_mlir.errors import ToolchainError
from verilocc_mlir.mir.model import MachineFunction, MirFile
from verilocc_mlir.pipeline import phase as phase_module
from verilocc_mlir.pipeline.compile import Compiled, compile_module
from verilocc_mlir.pipeline.recording import Recording
from verilocc_mlir.pipeline.settings import Effort, Emit, Settings
from verilocc_mlir.problem.model import AllocationProblem, Proposal
from verilocc_mlir.toolchain.descriptor import read_code_object
from verilocc_mlir.toolchain.drivers.job import RegAlloc
from verilocc_mlir.toolchain.staged import LlvmPhase, StagedCompiler

CPU = "gfx942"
TWO = """
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @good(ptr addrspace(1) %p, i32 %n) {
  %id = call i32 @llvm.amdgcn.workitem.id.x()
  %q = getelementptr i32, ptr addrspace(1) %p, i32 %id
  %v = load i32, ptr addrspace(1) %q
  %w = mul i32 %v, %n
  store i32 %w, ptr addrspace(1) %q
  ret void
}
define amdgpu_kernel void @bad(ptr addrspace(1) %p) {
  %id = call i32 @llvm.amdgcn.workitem.id.x()
  %q = getelementptr <4 x i32>, ptr addrspace(1) %p, i32 %id
  %v = load <4 x i32>, ptr addrspace(1) %q
  %s = shufflevector <4 x i32> %v, <4 x i32> poison, <4 x i32> <i32 3, i32 2, i32 1, i32 0>
  %w = add <4 x i32> %v, %s
  store <4 x i32> %w, ptr addrspace(1) %q
  ret void
}
"""


class FailsOn:
    """The deterministic allocator, which has no answer for one function."""

    name = "fails"
    version = "1"

    def __init__(self, function: str = "bad") -> None:
        self.function = function

    def allocate(self, problem: AllocationProblem) -> Proposal:
        if problem.function == self.function:
            raise AllocationFailure("seeded", reason="defect")
        return allocator("deterministic").allocate(problem)


def wrong_from_text(monkeypatch: pytest.MonkeyPatch, phase: LlvmPhase) -> None:
    """LLVM's allocation of a text reads another argument, or stores elsewhere, in ``bad``; a plain compile does not."""
    right = StagedCompiler.llvm_allocate

    def wrong(self: StagedCompiler, mir: str, asked: LlvmPhase, regalloc: RegAlloc = "greedy") -> str:
        done = right(self, mir, asked, regalloc)
        if asked is not phase:
            return done
        at = done.index("\nname:            bad")
        opcode = "S_LOAD_DWORDX2_IMM " if phase is LlvmPhase.SGPR else "GLOBAL_STORE_DWORDX4"
        offset = rf"(?<={opcode})(.*?), 0,"
        changed, count = re.subn(offset, r"\1, 64,", done[at:], count=1)
        assert count
        return done[:at] + changed

    monkeypatch.setattr(StagedCompiler, "llvm_allocate", wrong)


def undecided_on(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The audit has no answer for one function, whosever allocation it is."""

    def audit(file: MirFile, function: MachineFunction, *rest: object, **options: object) -> FunctionAudit:
        if function.name == name:
            finding = Finding("solver", Outcome.UNKNOWN, "time-out")
            return FunctionAudit(name, Outcome.UNKNOWN, 7, (finding,), MoveCounts())
        return audit_function(file, function, *rest, **options)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(phase_module, "audit_function", audit)


def used(done: Compiled) -> dict[str, list[tuple[str, str, Outcome]]]:
    """Phase, allocator and verdict of each function."""
    return {f.name: [(p.phase, p.allocator, p.outcome) for p in f.phases] for f in done.report.functions}


def code_of(done: Compiled, name: str) -> str:
    """Instructions of a kernel in assembly."""
    assert done.data
    text = done.data.decode()
    return text[text.index(f"\n{name}:") : text.index(".section\t.rodata", text.index(f"\n{name}:"))]


@pytest.mark.long
@pytest.mark.parametrize("phase", [LlvmPhase.SGPR, *long(LlvmPhase.VGPR)])
def test_a_plain_compile_stands_in_for_the_one_function_that_no_text_proves(
    monkeypatch: pytest.MonkeyPatch, phase: LlvmPhase
) -> None:
    undisturbed = compile_module(TWO.encode(), "k.ll", Settings(CPU, emit=Emit.ASM))
    wrong_from_text(monkeypatch, phase)
    recording = Recording()
    done = compile_module(
        TWO.encode(), "k.ll", Settings(CPU, emit=Emit.ASM), allocators=(FailsOn(),), recording=recording
    )
    assert done.report.outcome is Outcome.PROVED
    assert used(done) == {
        "good": [("sgpr", "fails", Outcome.PROVED), ("vgpr", "fails", Outcome.PROVED)],
        "bad": [("sgpr", "llvm", Outcome.PROVED), ("vgpr", "llvm", Outcome.PROVED)],
    }
    (bad,) = [f for f in done.report.functions if f.name == "bad"]
    assert all(p.fallback and p.fallback_reason == "seeded" for p in bad.phases)
    assert any("LLVM's allocation of bad is that of a plain compile" in note for note in done.report.notes)
    assert code_of(done, "good") == code_of(undisturbed, "good")
    assert sorted((r.function, r.phase) for r in recording.phases) == [
        ("bad", "sgpr"), ("bad", "vgpr"), ("good", "sgpr"), ("good", "vgpr"),
    ]  # fmt: skip


@pytest.mark.long
def test_what_nobody_proves_is_written_only_on_request_and_the_rest_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """And is no reason to lose the rest."""
    undisturbed = compile_module(TWO.encode(), "k.ll", Settings(CPU, emit=Emit.ASM))
    undecided_on(monkeypatch, "bad")
    refused = compile_module(TWO.encode(), "k.ll", Settings(CPU, emit=Emit.ASM))
    assert refused.report.outcome is Outcome.UNKNOWN
    assert refused.report.left_out == ("bad",)
    assert code_of(refused, "good") == code_of(undisturbed, "good")
    assert "\nbad:" not in (refused.data or b"").decode()
    written = compile_module(TWO.encode(), "k.ll", Settings(CPU, emit=Emit.ASM), allow_unproved=True)
    assert written.report.outcome is Outcome.UNKNOWN
    for done in (refused, written):
        assert used(done) == {
            "good": [("sgpr", "deterministic", Outcome.PROVED), ("vgpr", "deterministic", Outcome.PROVED)],
            "bad": [("sgpr", "llvm", Outcome.UNKNOWN), ("vgpr", "llvm", Outcome.UNKNOWN)],
        }
    assert code_of(written, "good") == code_of(undisturbed, "good")
    assert "\nbad:" in (written.data or b"").decode()


def test_without_fallback_the_first_phase_that_is_not_proved_is_the_end() -> None:
    settings = Settings(CPU, fallback=False)
    done = compile_module(TWO.encode(), "k.ll", settings, allocators=(FailsOn(),))
    assert done.data is None
    assert used(done) == {
        "good": [("sgpr", "fails", Outcome.PROVED)],
        "bad": [("sgpr", "fails", Outcome.UNKNOWN)],
    }


@pytest.mark.long
@pytest.mark.parametrize("effort", [Effort.FAST, *long(Effort.BALANCED)])
def test_a_kernel_that_spills_scalars_beside_one_that_is_unknown(
    monkeypatch: pytest.MonkeyPatch, effort: Effort
) -> None:
    """Seen as an AssertionError: something was spilled, so that ours was to be compared, and there was no text."""
    undecided_on(monkeypatch, "bad")
    made = [f'  %v{n} = call i32 asm sideeffect "s_mov_b32 $0, {n}", "=s"()' for n in range(60)]
    read = [f'  call void asm sideeffect "; use $0", "s"(i32 %v{n})' for n in range(60)]
    spilling = ['define amdgpu_kernel void @spilling() "amdgpu-num-sgpr"="40" {', *made, *read, "  ret void", "}"]
    text = "\n".join([TWO[: TWO.index("define")], *spilling, TWO[TWO.index("define amdgpu_kernel void @bad") :]])
    settings = Settings(CPU, emit=Emit.OBJ, effort=effort)
    refused = compile_module(text.encode(), "k.ll", settings)
    assert (refused.report.left_out, refused.report.outcome) == (("bad",), Outcome.UNKNOWN)
    assert list(read_code_object(refused.data or b"").kernels) == ["spilling"]
    assert any(p.moves.saves for f in refused.report.functions for p in f.phases)
    written = compile_module(text.encode(), "k.ll", settings, allow_unproved=True)
    assert written.report.outcome is Outcome.UNKNOWN
    assert written.data
    assert "bad" in read_code_object(written.data).kernels


def test_where_llvm_fails_on_the_text_its_plain_compile_is_audited(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> str:
        raise ToolchainError("llc crashed on this text")

    monkeypatch.setattr(StagedCompiler, "llvm_allocate", fails)
    done = compile_module(TWO.encode(), "k.ll", Settings(CPU), allocators=(FailsOn(),))
    assert done.report.outcome is Outcome.PROVED
    assert done.data
    assert {p.fallback_reason for f in done.report.functions for p in f.phases} == {"llc crashed on this text"}
    assert any("ours was left out: llc crashed on this text" in note for note in done.report.notes)
    with pytest.raises(ToolchainError, match="llc crashed"):
        compile_module(TWO.encode(), "k.ll", Settings(CPU, allocator="llvm"))
