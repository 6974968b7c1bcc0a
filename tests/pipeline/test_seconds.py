"""``--seconds``: what a compile still does when they are over."""

from __future__ import annotations

from itertools import count

import pytest
from builders import kernel, loads, loop, stores
from msgspec.structs import replace

from smt_verifier.outcome import Outcome
from verilocc_mlir.pipeline import portfolio
from verilocc_mlir.pipeline.compile import compile_module
from verilocc_mlir.pipeline.recording import Recording
from verilocc_mlir.pipeline.runs import RESUMED
from verilocc_mlir.pipeline.settings import Effort, Settings
from verilocc_mlir.toolchain.staged import StagedCompiler

NAMES = [f"%v{k}" for k in range(24)]
PRESSED = kernel([*loads(24), *loop(stores(NAMES[:5])), *stores(NAMES)], 16)
"""24 values around a loop, and 16 registers."""


def test_behind_its_seconds_nothing_further_is_tried_and_the_best_that_is_proved_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    to_pre_ra, texts = StagedCompiler.to_pre_ra, count()

    def counted(self: StagedCompiler, ir: str) -> str:
        next(texts)
        return to_pre_ra(self, ir)

    monkeypatch.setattr(StagedCompiler, "to_pre_ra", counted)
    ir = PRESSED.encode()
    settings = Settings("gfx1100", effort=Effort.BALANCED)
    brief = compile_module(ir, "k.ll", replace(settings, seconds=0.001))
    assert brief.report.outcome is Outcome.PROVED
    assert brief.report.notes.count(portfolio.OVER) == 1
    assert next(texts) == 1  # LLVM makes the text of no plan.
    at_leisure = compile_module(ir, "k.ll", replace(settings, seconds=10_000))
    assert portfolio.OVER not in at_leisure.report.notes
    assert at_leisure.report.outcome is Outcome.PROVED


def test_behind_its_seconds_llvms_phases_are_not_audited_alone_and_its_allocation_of_our_text_is_next() -> None:
    """A run that is recorded audits phases alone, so LLVM's plain allocation has no proof when its seconds are over."""
    settings = Settings("gfx1100", seconds=0.001)
    brief = compile_module(PRESSED.encode(), "k.ll", settings, recording=Recording())
    assert brief.report.outcome is Outcome.PROVED
    (function,) = brief.report.functions
    assert function.variant == RESUMED.name
    assert {phase.allocator for phase in function.phases} == {"llvm"}
