"""``plan``: one answer alone is compiled, proved, and never exchanged for another."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import DEMO_KERNELS

from smt_verifier.outcome import Outcome
from verilocc_mlir.cli.main import run
from verilocc_mlir.errors import InputError, UnsupportedError
from verilocc_mlir.pipeline.compile import Compiled, compile_module
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.toolchain.descriptor import compare_metadata, read_code_object

GEMM = DEMO_KERNELS / "gemm_mma_lds.gfx942.opt.ll"


def compiled(plan: str) -> Compiled:
    return compile_module(GEMM.read_bytes(), GEMM.name, Settings(plan=plan))


@pytest.mark.long
def test_each_plan_is_a_code_of_its_own_for_one_kernel() -> None:
    made = {plan: compiled(plan) for plan in ("default", "no-clusters", "packed", "no-clusters + packed")}
    assert {one.report.outcome for one in made.values()} == {Outcome.PROVED}
    said = {plan: (f.plan, f.variant) for plan, one in made.items() for f in one.report.functions}
    assert said == {
        "default": ("default", "as it comes"),
        "no-clusters": ("no-clusters", "as it comes"),
        "packed": ("default", "packed"),
        "no-clusters + packed": ("no-clusters", "packed"),
    }
    codes = {plan: one.data for plan, one in made.items()}
    assert len(set(codes.values())) == 4
    objects = [read_code_object(code) for code in codes.values() if code is not None]
    unlike = {d.field for other in objects for d in compare_metadata(objects[0], other)}
    assert unlike <= {".vgpr_count", ".sgpr_count"}


@pytest.mark.parametrize(
    ("plan", "kind", "message"),
    [
        ("fastest", InputError, "there is no word 'fastest' of a plan"),
        ("max-ilp + iterative-ilp", InputError, "answer one question"),
        ("coexec", UnsupportedError, "the plan coexec comes to nothing: LLVM does not have it"),
    ],
)
def test_what_is_no_plan_here_is_one_error(plan: str, kind: type[Exception], message: str) -> None:
    """``coexec`` needs LLVM 24."""
    with pytest.raises(kind, match=message):
        compiled(plan)


def test_nothing_takes_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "k.hsaco"
    assert run(["compile", str(GEMM), "--plan=coexec", "-o", str(out)]) == 2
    assert "comes to nothing" in capsys.readouterr().err
    assert not out.exists()
