"""What a model learns from after the first training: better labels, refuted answers, preferences; each is proved."""

from __future__ import annotations

import gzip
import itertools
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from allocators_support import violations
from click.testing import CliRunner
from model_support import answered
from support import late
from training_support import PHASES, SMALL, write_labelled

from smt_verifier.outcome import Outcome
from smt_verifier.prove import prove
from verilocc_mlir.cli.main import cli
from verilocc_mlir.errors import ExitCode, InputError
from verilocc_mlir.pipeline.attempt import refutation_of
from verilocc_mlir.problem.model import PROBLEM_VERSION, Proposal
from verilocc_model.card import read_card
from verilocc_model.decoding import RandomChoice, decode
from verilocc_model.encoding.canonical import canonical
from verilocc_model.encoding.episode import Episode
from verilocc_model.encoding.examples import cells_of
from verilocc_model.encoding.table import Price, Table, price_of
from verilocc_model.encoding.vocabulary import VOCABULARY
from verilocc_model.training import entries as written
from verilocc_model.training.data import encoded, plans
from verilocc_model.training.entries import entries, write_file

lm = late("verilocc_model.lm")
loop = late("verilocc_model.training.loop")
training = late("verilocc_model.training.run")


def poisoned(name: str) -> list[str]:
    """An assignment in which two ranges overlap, as cheap as the right one."""
    problem, proposal = answered(name, "sgpr")
    form = canonical(problem)
    table = Table(form.problem)
    right = proposal.registers
    for one, other in itertools.permutations(problem.ranges, 2):
        wrong = [right[one.id] if r is other else s for r, s in zip(problem.ranges, right, strict=True)]
        cost, same = (price_of(table, cells_of(table, form.permuted(tuple(r)))) for r in (wrong, right))
        if cost <= same and violations(problem, Proposal(PROBLEM_VERSION, "wrong", tuple(wrong))):
            return wrong
    raise AssertionError("no two ranges overlap")


@pytest.mark.long
def test_better_labels_are_proved_and_poisoned_ones_refused(trained: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    # Random choice's answer is proved, and dear. The other label is wrong: two ranges that live at once share one.
    problem, _ = answered("gemm_mma_lds.gfx90a", "vgpr")
    form = canonical(problem)
    poor = form.restored(decode(Episode(Table(form.problem)), RandomChoice(1)).registers)
    for name, phase in (("gemm_mma_lds.gfx90a", "vgpr"), ("gemm_mma_lds.gfx950", "sgpr")):
        path = write_labelled(data, name, phase)
        row = json.loads(gzip.decompress(path.read_bytes()))
        row["registers"] = list(poor) if phase == "vgpr" else poisoned(name)
        path.write_bytes(gzip.compress(json.dumps(row).encode()))
    arguments = ["train", "labels", str(data), "--model", str(trained / "model"), "--samples", "1", "--attempts", "2",
                 "--out", str(tmp_path / "better")]  # fmt: skip
    result = CliRunner().invoke(cli, arguments, catch_exceptions=False, standalone_mode=False)
    assert "refused 1" in result.output + result.stderr
    found = [e.read() for e in entries([tmp_path / "better"], 0.0)]
    assert len(found) == 2
    for one in found:
        assert prove(one.problem, Proposal(PROBLEM_VERSION, "label", one.registers)).outcome is Outcome.PROVED
        if one.phase == "vgpr":
            table = Table(form.problem)
            costs = [price_of(table, cells_of(table, form.permuted(r))) for r in (one.registers, poor)]
            assert costs[0] < costs[1]
    # What is there is left: the same command again does nothing.
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "better").iterdir()}
    CliRunner().invoke(cli, arguments, catch_exceptions=False, standalone_mode=False)
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "better").iterdir()} == before


def test_an_interrupted_search_for_labels_says_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, out = tmp_path / "data", tmp_path / "better"
    data.mkdir()
    for phase in PHASES:
        write_labelled(data, "gemm_mma_lds.gfx90a", phase)
    arguments = ["train", "labels", str(data), "--attempts", "1", "--out", str(out)]

    def interrupted(*given: Any) -> None:
        if list(out.iterdir()):
            raise KeyboardInterrupt
        write_file(*given)

    with monkeypatch.context() as patch:
        patch.setattr(written, "write_file", interrupted)
        stopped = CliRunner().invoke(cli, arguments, catch_exceptions=False, standalone_mode=False)
    assert stopped.return_value == ExitCode.INTERRUPTED
    assert f"what is done is kept in {out}" in stopped.stderr
    assert len(list(out.iterdir())) == 1
    assert CliRunner().invoke(cli, arguments, catch_exceptions=False, standalone_mode=False).return_value == 0
    assert len(list(out.iterdir())) == 2


@pytest.mark.long
def test_refuted_answers_are_collected_and_trained_on(trained: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    write_labelled(data, "gemm_mma_lds.gfx90a", "vgpr")
    arguments = ["train", "feedback", str(data), "--model", str(trained / "model"), "--temperature", "3",
                 "--out", str(tmp_path / "refuted")]  # fmt: skip
    result = CliRunner().invoke(cli, arguments, catch_exceptions=False, standalone_mode=False)
    assert "refuted 2" in result.output + result.stderr
    (entry,) = entries([tmp_path / "refuted"], 0.0)
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
    assert training.train_base([data, tmp_path / "refuted"], config, tmp_path / "second", lines.append)
    assert read_card(tmp_path / "second" / "model")["init"] == read_card(trained / "model")["name"]
    loss = json.loads((tmp_path / "second" / "metrics.json").read_text())["rows"][-1]["loss"]
    scratch = replace(config, init="")
    assert training.train_base([data, tmp_path / "refuted"], scratch, tmp_path / "scratch", lines.append)
    assert loss < json.loads((tmp_path / "scratch" / "metrics.json").read_text())["rows"][-1]["loss"]


@pytest.mark.long
def test_preferences_are_between_proved_assignments_and_trained_on(trained: Path, tmp_path: Path) -> None:
    data, found = tmp_path / "data", tmp_path / "preferred"
    data.mkdir()
    write_labelled(data, "gemm_mma_lds.gfx90a", "vgpr")
    arguments = ["train", "preferences", str(data), "--model", str(trained / "model"), "--temperature", "3",
                 "--samples", "3", "--out", str(found)]  # fmt: skip
    result = CliRunner().invoke(cli, arguments, catch_exceptions=False, standalone_mode=False)
    assert "preference" in result.output + result.stderr
    (entry,) = entries([found], 0.0)
    asked = entry.read()
    assert asked.preferences
    assert not asked.registers
    form = canonical(asked.problem)
    table = Table(form.problem)
    for one in asked.preferences:
        prices: list[Price] = []
        for word in (one.chosen, one.rejected):
            episode = Episode(table)
            assert all(episode.answer(w) for w in (*one.before, word))
            while (question := episode.question()) is not None:
                assert episode.answer(question.draft)
            proposal = Proposal(PROBLEM_VERSION, "test", form.restored(episode.registers()))
            assert prove(asked.problem, proposal).outcome is Outcome.PROVED
            prices.append(price_of(table, episode.starts))
        assert prices[0] < prices[1]
    windows = encoded(entry, 1024, tmp_path / "cache")
    assert encoded(entry, 1024, tmp_path / "cache") == windows
    for window, one in zip(windows, asked.preferences, strict=True):
        assert VOCABULARY.decode(window.tokens)[-1] == one.chosen
        assert window.answers == (len(window.tokens) - 1,)
        assert VOCABULARY.words[window.rejected] == one.rejected
    assert plans(windows, 3, 0) == []

    # The model is moved towards them, and away from where it began no further than that.
    config = replace(
        SMALL, init=str(trained / "model"), tokens=20 * sum(len(w.tokens) for w in windows), learning_rate=1e-3
    )
    first = lm.load_model(trained / "model")
    before = loop.Trainer(first, config, tmp_path, print, reference=lambda: first).validate(windows)
    assert before["preferences"].loss == pytest.approx(math.log(2))
    assert training.train_base([found], config, tmp_path / "second", lambda line: None)
    moved = loop.Trainer(
        lm.load_model(tmp_path / "second" / "model"), config, tmp_path, print, reference=lambda: first
    ).validate(windows)  # fmt: skip
    assert moved["preferences"].loss < before["preferences"].loss
    assert moved["preferences"].accuracy >= before["preferences"].accuracy
    with pytest.raises(InputError, match="for a model that is there already"):
        training.train_base([found], replace(config, init=""), tmp_path / "scratch", lambda line: None)


def test_a_preference_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    # With nothing to join, so that the first question is one that plans.
    path = write_labelled(tmp_path, "gemm_mma_lds.gfx1100", "vgpr")
    row = json.loads(gzip.decompress(path.read_bytes()))
    for before, chosen, rejected, said in (
        ([], "split9", "order0", "'split9' is not allowed"),
        (["order0", "nonsense"], "grant0", "grant1", "'nonsense' is not allowed"),
        ([], "order0", "nonsense", "there is no word 'nonsense'"),
    ):
        row["preferences"] = [{"before": before, "chosen": chosen, "rejected": rejected}]
        path.write_bytes(gzip.compress(json.dumps(row).encode()))
        (entry,) = entries([tmp_path], 0.0)
        with pytest.raises(InputError, match=said):
            encoded(entry, 512, None)
