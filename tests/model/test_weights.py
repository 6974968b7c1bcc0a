"""The model that comes with the package: it is small, loads, answers, and its answers are proved."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from model_support import answered, kernel
from support import long

import verilocc_model
from smt_verifier.outcome import Outcome
from smt_verifier.prove import prove
from verilocc_mlir.allocators import allocator
from verilocc_mlir.cli.main import cli
from verilocc_model.card import read_card

WEIGHTS = Path(verilocc_model.__file__).parent / "weights"


def test_the_weights_are_small_and_say_what_they_are() -> None:
    assert sum(path.stat().st_size for path in WEIGHTS.rglob("*") if path.is_file()) < 60e6
    card = read_card(WEIGHTS / "base")
    assert card["kind"] == "base"
    assert card["tokens"] > 0
    assert card["commit"]


@pytest.mark.parametrize("name", ["gemm_mma_lds.gfx942", *long("gemm_mma_lds.gfx1100", "attn_d64.gfx950")])
@pytest.mark.parametrize("phase", ["sgpr", "vgpr"])
def test_its_first_answer_is_proved(name: str, phase: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VERILOCC_MODEL", raising=False)
    problem, _ = answered(name, "sgpr" if phase == "sgpr" else "vgpr")
    assert prove(problem, allocator("model").allocate(problem)).outcome is Outcome.PROVED


def test_compile_asks_it_and_says_so(tmp_path: Path) -> None:
    out = tmp_path / "k.hsaco"
    arguments = ["compile", str(kernel("gemm_mma_lds.gfx942")), "--allocator=model", "-o", str(out)]
    result = CliRunner().invoke(cli, arguments, catch_exceptions=False, standalone_mode=False)
    assert result.return_value == 0
    assert out.exists()
    assert "model" in result.output + result.stderr
