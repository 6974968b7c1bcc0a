"""All phases in one audit: what it proves, what it refutes though each phase is right, and what it leaves to them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from audit_support import LLVM_FAULTS
from msgspec.structs import replace
from support import DEMO_KERNELS, llc, long

from smt_verifier.audit import Finding, FunctionAudit
from smt_verifier.outcome import Outcome
from verilocc_mlir.allocators import AllocationFailure
from verilocc_mlir.pipeline import phase as phase_module
from verilocc_mlir.pipeline.compile import Compiled, compile_module
from verilocc_mlir.pipeline.recording import Recording
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.problem.model import AllocationProblem, Proposal
from verilocc_mlir.toolchain.staged import LlvmPhase, StagedCompiler


class Declines:
    """An allocator without an answer."""

    name = "declines"
    version = "1"

    def allocate(self, problem: AllocationProblem) -> Proposal:
        raise AllocationFailure("seeded", reason="defect")


def compiled(path: Path, cpu: str, **more: Any) -> Compiled:
    return compile_module(path.read_bytes(), path.name, Settings(cpu), **more)


def audits_of(monkeypatch: pytest.MonkeyPatch, change: Callable[[int, FunctionAudit], FunctionAudit]) -> list[Outcome]:
    """The outcomes of the audits, each changed first."""
    audit, outcomes = phase_module.audit_function, list[Outcome]()

    def seen(*given: Any, **more: Any) -> FunctionAudit:
        result = change(len(outcomes), audit(*given, **more))
        outcomes.append(result.outcome)
        return result

    monkeypatch.setattr(phase_module, "audit_function", seen)
    return outcomes


@pytest.mark.parametrize("cpu", ["gfx942", *long("gfx1100")])
def test_a_kernel_takes_one_audit_which_its_last_phase_reports(monkeypatch: pytest.MonkeyPatch, cpu: str) -> None:
    path = DEMO_KERNELS / f"gemm_mma_lds.{cpu}.opt.ll"
    outcomes = audits_of(monkeypatch, lambda _, audit: audit)
    done = compiled(path, cpu)
    assert outcomes == [Outcome.PROVED]
    alone = compiled(path, cpu, recording=Recording())
    assert len(outcomes) == 3  # Each phase alone, as its page shows it.
    assert done.data == alone.data
    (function,), (other,) = done.report.functions, alone.report.functions
    scalar, vector = function.phases
    assert (scalar.audited_with, vector.audited_with) == ("vgpr", None)
    assert scalar.attempts[-1].audit is not None
    assert scalar.attempts[-1].audit.obligations == 0
    assert vector.obligations > scalar.obligations > 0  # Both have the obligations of their proofs.
    assert [p.audited_with for p in other.phases] == [None, None]
    assert [p.moves for p in function.phases] == [p.moves for p in other.phases]


@pytest.mark.parametrize("fallback", [True, False])
def test_what_llvm_would_break_between_the_phases_is_not_proved(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fallback: bool
) -> None:
    """LLVM 22 gives up scalars in lanes in a loop (``tests/audit/test_llvm.py``)."""
    stressed = tmp_path / "llc"
    stressed.write_text(f'#!/bin/sh\nexec {llc()} -stress-regalloc=3 "$@"\n')
    stressed.chmod(0o755)
    monkeypatch.setenv("VERILOCC_LLC", str(stressed))
    outcomes = audits_of(monkeypatch, lambda _, audit: audit)
    path = LLVM_FAULTS / "lane_register_defined_in_loop.mir"
    settings = Settings("gfx1100", fallback=fallback)
    allocators = (Declines(),) if fallback else ()
    done = compile_module(path.read_bytes(), path.name, settings, allocators=allocators)
    # Of the scalars, by LLVM; with another allocator, of all its phases at once.
    assert outcomes == [Outcome.UNKNOWN, *[Outcome.REFUTED] * fallback]
    assert done.report.outcome is Outcome.UNKNOWN
    assert done.data is None
    assert "python: spill-slot" in done.report.functions[0].phases[-1].attempts[-1].reason


def changes_the_text_between_the_phases(monkeypatch: pytest.MonkeyPatch) -> None:
    resume = StagedCompiler.resume

    def wrong(self: StagedCompiler, mir: str, *, done: LlvmPhase, until: LlvmPhase) -> str:
        text = resume(self, mir, done=done, until=until)
        assert ", 64, 0, implicit $exec :: (store" in text
        return text.replace(", 64, 0, implicit $exec :: (store", ", 68, 0, implicit $exec :: (store", 1)

    monkeypatch.setattr(StagedCompiler, "resume", wrong)


def test_what_llvm_breaks_between_the_phases_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    changes_the_text_between_the_phases(monkeypatch)
    path = DEMO_KERNELS / "gemm_mma_lds.gfx942.opt.ll"
    done = compile_module(path.read_bytes(), path.name, Settings("gfx942", fallback=False))
    assert done.report.outcome is Outcome.REFUTED
    assert done.data is None
    last = done.report.functions[0].phases[-1].attempts[-1]
    assert last.reason.startswith("each phase is proved, but with what LLVM does between them: refuted by ")


def test_where_llvm_changes_the_text_between_the_phases_its_own_compile_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changes_the_text_between_the_phases(monkeypatch)
    outcomes = audits_of(monkeypatch, lambda _, audit: audit)
    done = compiled(DEMO_KERNELS / "gemm_mma_lds.gfx942.opt.ll", "gfx942")
    assert outcomes[0] is Outcome.REFUTED
    assert done.report.outcome is Outcome.PROVED
    (function,) = done.report.functions
    assert {p.allocator for p in function.phases} == {"llvm"}
    assert function.resources == function.greedy


def test_where_all_at_once_is_undecided_each_phase_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    doubt = Finding("solver", Outcome.UNKNOWN, "time-out")
    outcomes = audits_of(
        monkeypatch,
        lambda number, audit: audit if number else replace(audit, outcome=Outcome.UNKNOWN, findings=(doubt,)),
    )
    done = compiled(DEMO_KERNELS / "gemm_mma_lds.gfx942.opt.ll", "gfx942")
    assert outcomes == [Outcome.UNKNOWN, Outcome.PROVED, Outcome.PROVED]
    assert done.report.outcome is Outcome.PROVED
    assert {p.allocator for p in done.report.functions[0].phases} == {"deterministic"}
    assert [p.audited_with for p in done.report.functions[0].phases] == [None, None]
