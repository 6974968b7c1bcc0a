"""What a model learns from after the first training: answers of its own that were refuted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support import late
from training_support import SMALL, write_labelled

from smt_verifier.outcome import Outcome
from smt_verifier.prove import prove
from verilocc_mlir.cli.main import cli
from verilocc_mlir.errors import ExitCode
from verilocc_mlir.pipeline.attempt import refutation_of
from verilocc_model.card import read_card
from verilocc_model.encoding.vocabulary import VOCABULARY
from verilocc_model.training import entries as written
from verilocc_model.training.data import encoded
from verilocc_model.training.entries import entries

lm = late("verilocc_model.lm")
loop = late("verilocc_model.training.loop")
training = late("verilocc_model.training.run")


@pytest.mark.long
def test_refuted_answers_are_collected_and_trained_on(trained: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    write_labelled(data, "gemm_mma_lds.gfx90a", "vgpr")
    arguments = ["train", "feedback", str(data), "--model", str(trained / "model"), "--temperature", "3",
                 "--out", str(tmp_path / "refuted")]  # fmt: skip
    result = CliRunner().invoke(cli, arguments, catch_exceptions=False, standalone_mode=False)
    assert "refuted 2" in result.output + result.stderr
    (entry,) = entries([tmp_path / "refuted"])
    asked = entry.read()
    assert not asked.registers
    for one in asked.refuted:
        said = prove(asked.problem, one.proposal)
        assert said.outcome is Outcome.REFUTED
        assert one == refutation_of(asked.problem, one.proposal, said)
        assert one.moves
    windows = encoded(entry, 1024, None)
    prompts = [VOCABULARY.decode(w.tokens) for w in windows]
    # What must move is asked about, and the whole.
    assert len([p for p in prompts if "planning" in p]) == 2 * len(asked.refuted)
    assert all("refuted" in p for p in prompts if "planning" in p)
    # A run goes on from the model, its words included.
    config = replace(SMALL, init=str(trained / "model"), tokens=2000, seed=3)
    lines: list[str] = []
    assert training.train([data, tmp_path / "refuted"], config, tmp_path / "second", lines.append)
    assert read_card(tmp_path / "second" / "model")["init"] == read_card(trained / "model")["name"]
    loss = json.loads((tmp_path / "second" / "metrics.json").read_text())["rows"][-1]["loss"]
    scratch = replace(config, init="")
    assert training.train([data, tmp_path / "refuted"], scratch, tmp_path / "scratch", lines.append)
    assert loss < json.loads((tmp_path / "scratch" / "metrics.json").read_text())["rows"][-1]["loss"]


@pytest.mark.long
def test_an_interrupted_collection_says_what_is_kept(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, out = tmp_path / "data", tmp_path / "refuted"
    data.mkdir()
    write_labelled(data, "gemm_mma_lds.gfx90a", "vgpr")
    arguments = ["train", "feedback", str(data), "--model", str(trained / "model"), "--temperature", "3",
                 "--out", str(out)]  # fmt: skip

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(written, "refutation_of", interrupted)
        stopped = CliRunner().invoke(cli, arguments, catch_exceptions=False, standalone_mode=False)
    assert stopped.return_value == ExitCode.INTERRUPTED
    assert f"what is done is kept in {out}" in stopped.stderr
    assert not entries([out])
    assert CliRunner().invoke(cli, arguments, catch_exceptions=False, standalone_mode=False).return_value == 0
    assert len(entries([out])) == 1
    # What was asked is not asked again.
    assert CliRunner().invoke(cli, arguments, catch_exceptions=False, standalone_mode=False).return_value == 0
    assert len(entries([out])) == 1
