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


_LOAD = """--- |
  target triple = "amdgcn-amd-amdhsa"
  define amdgpu_kernel void @k() #0 { ret void }
  attributes #0 = { "target-cpu"="gfx950" }
...
---
name: k
tracksRegLiveness: true
liveins:
  - { reg: '$vgpr0' }
machineFunctionInfo:
  isEntryFunction: true
body: |
  bb.0:
    liveins: $vgpr0, $sgpr0_sgpr1_sgpr2_sgpr3
    BUFFER_LOAD_DWORDX4_LDS_OFFEN $vgpr0, $sgpr0_sgpr1_sgpr2_sgpr3, 0, 0, 0, 0%s, implicit $exec, implicit $m0
    ASYNCMARK
    S_ENDPGM 0
...
"""


@pytest.mark.parametrize(("operands", "outcome"), [("", "PROVED"), (", -1", "PROVED"), (", -1, 0", "INVALID")])
def test_loads_into_lds_have_an_operand_more(operands: str, outcome: str) -> None:
    text = parse_mir(_LOAD % operands)
    assert audit(text, text, target("gfx950")).outcome is Outcome[outcome]


def test_marks_of_asynchronous_loads_stay_in_order() -> None:
    text = _LOAD % ", -1"
    dropped = text.replace("    ASYNCMARK\n", "")
    assert audit(parse_mir(text), parse_mir(dropped), target("gfx950")).outcome is Outcome.REFUTED


def test_a_form_that_is_not_described_is_unknown() -> None:
    product = "$vgpr0_vgpr1 = V_WMMA_F32_16X16X4_F32_w32_twoaddr " + ", ".join(["0"] * 8) + ", implicit $exec"
    text = parse_mir((_LOAD % "").replace("    ASYNCMARK", f"    {product}").replace("gfx950", "gfx1250"))
    report = audit(text, text, target("gfx1250"))
    assert report.outcome is Outcome.UNKNOWN
    assert "another form than is followed" in str(report)
