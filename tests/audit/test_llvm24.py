"""What LLVM 24 writes and LLVM 22 does not know."""

from __future__ import annotations

import pytest
from support import REPOSITORY

from smt_verifier.audit import audit
from smt_verifier.outcome import Outcome
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.target.targets import target

_CASE = REPOSITORY / "tests" / "cases" / "right_copy_after_exec_is_restored"
_ADDED = "renamable $vgpr2 = COPY killed renamable $vgpr1"


def judged(added: str) -> tuple[Outcome, set[str]]:
    """The verdict where the copy that was added is another instruction, and the rules of its findings."""
    before, after = (_CASE.with_suffix(f".{side}.mir").read_text() for side in ("before", "after"))
    assert _ADDED in after
    report = audit(parse_mir(before), parse_mir(after.replace(_ADDED, added)), target("gfx942"))
    return report.outcome, {f.rule for f in report.functions[0].findings}


def test_the_copy_of_a_split_live_range_is_a_copy() -> None:
    assert judged(_ADDED.replace("COPY", "lr-split COPY")) == (Outcome.PROVED, set())


@pytest.mark.parametrize(
    "added", [_ADDED.replace("COPY", "frame-setup COPY"), _ADDED.replace("COPY", "frame-setup lr-split COPY")]
)
def test_other_flags_are_refuted(added: str) -> None:
    assert judged(added) == (Outcome.REFUTED, {"instruction-flags"})


def test_the_value_that_such_a_copy_brings_is_asked_as_any_other() -> None:
    outcome, rules = judged("renamable $vgpr2 = lr-split COPY renamable $vgpr0")
    assert outcome is Outcome.REFUTED
    assert "value" in rules
