"""Training from scratch at reduced size: it learns, can be interrupted, and its model allocates; adapters; errors."""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from allocators_support import violations
from click.testing import CliRunner
from model_support import answered, disguised, kernel
from transformers import Qwen2Config, Qwen2ForCausalLM

from smt_verifier.outcome import Outcome
from smt_verifier.prove import prove
from verilocc_mlir.allocators import Counterexample, Refutation, Regenerating, allocator, registry
from verilocc_mlir.allocators.remote import RemoteAllocator
from verilocc_mlir.cli.main import cli
from verilocc_mlir.errors import InputError
from verilocc_mlir.problem.model import PROBLEM_VERSION, Proposal
from verilocc_mlir.problem.schema import to_json
from verilocc_mlir.service.client import Client
from verilocc_mlir.service.inprocess import serving
from verilocc_mlir.service.jobs import WITH_MODEL
from verilocc_model import lm
from verilocc_model.advice import advice_of
from verilocc_model.allocator import ModelAllocator, family_of
from verilocc_model.card import CARD, read_card
from verilocc_model.decoding.decoder import decode
from verilocc_model.decoding.scorer import FirstFit, RandomChoice, Scores
from verilocc_model.encoding.canonical import canonical
from verilocc_model.encoding.episode import Episode
from verilocc_model.encoding.examples import cells_of
from verilocc_model.encoding.table import Table
from verilocc_model.encoding.vocabulary import words
from verilocc_model.evaluation.evaluate import EvalConfig, Row, evaluate, pass_at, summary
from verilocc_model.evaluation.journal import Journal
from verilocc_model.price import Price, price_of
from verilocc_model.training.adapt import adapt
from verilocc_model.training.config import TrainConfig, load_config
from verilocc_model.training.data import encoded
from verilocc_model.training.entries import Labelled, entries, read_file
from verilocc_model.training.run import train_base

SMALL = TrainConfig(
    hidden=64, layers=2, heads=2, kv_heads=2, inner=128, window=512, batch_tokens=2048, learning_rate=3e-3, warmup=10,
    tokens=250_000, hold_out=0.0, advice_rate=0.0, threads=1,
)  # fmt: skip
LEARNED_FROM = ("gemm_mma_lds.gfx942", "gemm_mma_lds.gfx90a", "attn_d64.gfx942")
TESTED_ON = ("gemm_mma_lds.gfx1100", "gemm_mma_lds.gfx950")
PHASES: tuple[Any, ...] = ("sgpr", "vgpr")


def write_labelled(directory: Path, name: str, phase: Any) -> Path:
    problem, proposal = answered(name, phase)
    row = {
        "name": name, "source": "test", "family": "gemm", "target": problem.target, "phase": phase,
        "problem": json.loads(to_json(problem)), "registers": list(proposal.registers),
    }  # fmt: skip
    path = directory / f"test.{name.replace('.', '_')}.{problem.target}.{phase}.0.json.gz"
    path.write_bytes(gzip.compress(json.dumps(row).encode()))
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small base from scratch; the directory of its run."""
    data = tmp_path_factory.mktemp("data")
    for name in LEARNED_FROM:
        for phase in PHASES:
            write_labelled(data, name, phase)
    out = tmp_path_factory.mktemp("run") / "small"
    assert train_base([data], SMALL, out, lambda line: None)
    return out


def problems() -> list[Labelled]:
    return [
        Labelled(name, "test", "gemm", answered(name, phase)[0].target, phase, answered(name, phase)[0], ())
        for name in TESTED_ON
        for phase in PHASES
    ]


def prices_of(rows: list[Row], policy: str) -> list[Price]:
    found = [row.price for row in rows if row.policy == policy and row.price is not None]
    assert len(found) == len(TESTED_ON) * len(PHASES)
    return found


def test_from_scratch_it_learns(trained: Path, tmp_path: Path) -> None:
    # On kernels it has not seen, the first masked answer is always proved; with at most half of the registers of random
    # legal choice, no more waves lost anywhere, and cheaper on three of four problems. Against the same model before
    # training: nowhere worse, and cheaper on two of four.
    config = EvalConfig(modes=("masked",), policies=("model", "random"))
    rows = list(evaluate(problems(), ModelAllocator(trained / "model").scorer, config))
    untrained = tmp_path / "untrained"
    lm.new_model(SMALL).save_pretrained(untrained)
    (untrained / CARD).write_text((trained / "model" / CARD).read_text())
    before = list(evaluate(problems(), ModelAllocator(untrained).scorer, replace(config, policies=("model",))))
    assert all(row.proved for row in (*rows, *before))
    mine = prices_of(rows, "model")
    pairs = list(zip(mine, prices_of(rows, "random"), strict=True))
    assert all(one.lost_waves <= other.lost_waves for one, other in pairs)
    assert sum(one.granules for one, _ in pairs) <= sum(other.granules for _, other in pairs) / 2
    assert sum(one < other for one, other in pairs) >= 3
    pairs = list(zip(mine, prices_of(before, "model"), strict=True))
    assert all(one <= other for one, other in pairs)
    assert sum(one < other for one, other in pairs) >= 2
    rows_of_loss = json.loads((trained / "metrics.json").read_text())["rows"]
    assert rows_of_loss[-1]["validation"]["others"]["accuracy"] > 0.9


def test_the_model_allocates_and_says_who_it_is(trained: Path) -> None:
    found = allocator(f"model:{trained / 'model'}")
    problem, _ = answered(TESTED_ON[0], "vgpr")
    proposal = found.allocate(problem)
    assert found.name == "model"
    assert found.version == read_card(trained / "model")["name"]
    assert proposal.allocator == f"model/{found.version}"
    assert prove(problem, proposal).outcome is Outcome.PROVED
    assert found.allocate(problem) == proposal
    assert isinstance(found, Regenerating)
    wrong = Proposal(PROBLEM_VERSION, "model", (proposal.registers[0],) * len(problem.ranges))
    said = prove(problem, wrong).violations
    refutation = Refutation(
        wrong, tuple(Counterexample(v.rule, v.ranges, v.slot, v.lanes, v.registers, v.free) for v in said)
    )
    again = found.regenerate(problem, (refutation,))
    assert prove(problem, again).outcome is Outcome.PROVED
    assert found.regenerate(problem, (refutation,)) == again


def test_a_server_answers_with_the_model(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERILOCC_MODEL", str(trained / "model"))
    problem, _ = answered(TESTED_ON[0], "sgpr")
    version = read_card(trained / "model")["name"]
    with serving(WITH_MODEL) as address, Client(address) as client:
        first = client.capabilities().allocators[0]
        assert (first.name, first.version) == ("model", version)
        remote = RemoteAllocator(client)
        proposal = remote.allocate(problem)
    assert proposal.registers == ModelAllocator(trained / "model").allocate(problem).registers
    assert f"model {version}" in remote.version


def test_names_and_block_order_leave_the_models_answer(trained: Path) -> None:
    model = ModelAllocator(trained / "model")
    one, other, renamed = disguised("gemm_mma_lds.gfx1100", "sgpr", 7)
    first, second = model.allocate(one), model.allocate(other)
    by_name = {r.name: register for r, register in zip(other.ranges, second.registers, strict=True)}
    assert {renamed[r.name]: s for r, s in zip(one.ranges, first.registers, strict=True)} == by_name


def test_a_model_is_adapted_to_a_gpu_that_the_base_may_not_see(trained: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for name in ("gemm_mma_lds.gfx1201", "gemm_mma_lds.gfx942"):
        write_labelled(data, name, "vgpr")
    (seen,) = [e for e in entries([data], 0.0) if e.trains(())]
    assert seen.target == "gfx942"
    lines: list[str] = []
    config = replace(SMALL, tokens=4000, rank=4)
    model = adapt("gfx1201", trained / "model", [data], tmp_path / "out", lines.append, config=config)
    assert "1 of 1 problems" in " ".join(lines)
    found = ModelAllocator(model)
    assert found.version.count("+") == 1
    assert [p.name for p in (model / "adapters").iterdir()] == ["rdna4"]
    for name in ("gemm_mma_lds.gfx1201", "gemm_mma_lds.gfx942"):
        problem, _ = answered(name, "vgpr")
        assert prove(problem, found.allocate(problem)).outcome is Outcome.PROVED
    # The base answers for a family without an adapter as it does alone, also after the adapter was in place.
    problem, _ = answered("gemm_mma_lds.gfx942", "vgpr")
    assert found.allocate(problem).registers == ModelAllocator(trained / "model").allocate(problem).registers
    card = json.loads((model / "adapters" / "rdna4" / CARD).read_text())
    (model / "adapters" / "rdna4" / CARD).write_text(json.dumps({**card, "base": "another"}))
    with pytest.raises(InputError, match="the adapter is for another"):
        ModelAllocator(model)


def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    write_labelled(data, "gemm_mma_lds.gfx942", "sgpr")
    out = tmp_path / "run"
    brief = load_config(None, {**SMALL.to_data(), "tokens": 30_000, "minutes": 1e-6})
    assert not train_base([data], brief, out, lambda line: None)
    steps = json.loads((out / "checkpoint" / "progress.json").read_text())["step"]
    assert steps == 1
    lines: list[str] = []
    assert train_base([data], load_config(None, {**SMALL.to_data(), "tokens": 30_000}), out, lines.append)
    assert "going on from" in lines[0]
    assert json.loads((out / "checkpoint" / "progress.json").read_text())["step"] > steps
    with pytest.raises(InputError, match="another seed"):
        train_base([data], load_config(None, {**SMALL.to_data(), "seed": 9}), out, lines.append)


def test_another_language_model_takes_the_bases_place(tmp_path: Path) -> None:
    shape = Qwen2Config(
        vocab_size=300, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=1024,
    )  # fmt: skip
    Qwen2ForCausalLM(shape).save_pretrained(tmp_path / "qwen")
    data = tmp_path / "data"
    data.mkdir()
    write_labelled(data, "gemm_mma_lds.gfx942", "sgpr")
    config = load_config(None, {**SMALL.to_data(), "tokens": 3000, "start": str(tmp_path / "qwen")})
    assert train_base([data], config, tmp_path / "run", lambda line: None)
    assert json.loads((tmp_path / "run" / "model" / "config.json").read_text())["model_type"] == "qwen2"
    problem, _ = answered("gemm_mma_lds.gfx942", "sgpr")
    proposal = ModelAllocator(tmp_path / "run" / "model").allocate(problem)
    assert prove(problem, proposal).outcome is Outcome.PROVED
    with pytest.raises(InputError, match="no model that can be loaded"):
        train_base([data], replace(config, start=str(tmp_path / "none")), tmp_path / "run2", lambda line: None)


def test_refutations_become_facts() -> None:
    problem, proposal = answered("gemm_mma_lds.gfx942", "vgpr")
    form = canonical(problem)
    table = Table(form.problem)
    example = Counterexample("interference", (2, 3), 4, (3, 3), (proposal.registers[2], "vgpr0"), ("vgpr9", "vgpr10"))
    advice = advice_of([example], form, table)
    (number,) = advice
    assert form.original[number] == 2
    assert advice[number].refuted == table.cells.cells_of(proposal.registers[2])[:1]
    assert advice[number].free == table.cells.cells_of("vgpr9_vgpr10")


def test_a_labelled_file_is_read_and_a_poisoned_one_is_caught(tmp_path: Path) -> None:
    path = write_labelled(tmp_path, "gemm_mma_lds.gfx942", "vgpr")
    (entry,) = entries([tmp_path], 0.0)
    assert encoded(entry, 512, tmp_path / "cache") == encoded(entry, 512, tmp_path / "cache") != []
    row = json.loads(gzip.decompress(path.read_bytes()))
    row["registers"] = [row["registers"][0]] * len(row["registers"])
    path.write_bytes(gzip.compress(json.dumps(row).encode()))
    with pytest.raises(InputError, match=r"breaks a rule|no register"):
        encoded(entry, 512, None)
    path.write_bytes(b"not gzip")
    with pytest.raises(InputError, match="is no labelled problem"):
        read_file(path)


def test_the_trivial_policies_are_measured_without_a_model() -> None:
    asked = problems()[0]
    rows = list(evaluate([asked], None, EvalConfig(modes=("masked", "mask-only"))))
    assert {(r.policy, r.mode) for r in rows} == {
        ("draft", "masked"), ("first-fit", "masked"), ("random", "masked"), ("first-fit", "mask-only"),
        ("random", "mask-only"),
    }  # fmt: skip
    assert all(r.proved for r in rows if r.mode == "masked")
    cells = {(c["policy"], c["mode"]): c for c in summary(rows)}
    assert cells["draft", "masked"]["pass@1"] == 1.0
    assert cells["random", "masked"]["no_worse_than_deterministic"] == 0.0


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


def test_an_interrupted_evaluation_goes_on(tmp_path: Path) -> None:
    config = EvalConfig(modes=("masked",), policies=("draft",))
    rows = list(evaluate(problems()[:1], None, config))
    path = tmp_path / "rows"
    Journal(path, {"model": "one"}).add("a", rows)
    with path.open("a") as stream:
        stream.write('{"key": "b", "ro')
    journal = Journal(path, {"model": "one"})
    assert journal.rows_of("a") == rows
    assert journal.rows_of("b") is None
    journal.add("b", rows)
    assert Journal(path, {"model": "one"}).rows_of("b") == rows
    with pytest.raises(InputError, match="another model"):
        Journal(path, {"model": "two"})


def test_what_is_measured_is_written(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    write_labelled(data, "gemm_mma_lds.gfx942", "sgpr")
    out = tmp_path / "found.json"
    arguments = ["eval", str(data), "--all", "--mode", "masked", "--policy", "first-fit", "--out", str(out)]
    assert CliRunner().invoke(cli, arguments, catch_exceptions=False, standalone_mode=False).return_value == 0
    found = json.loads(out.read_text())
    assert found["config"]["policies"] == ["first-fit"]
    assert [c["pass@1"] for c in found["cells"]] == [1.0]
    assert [dict(zip(found["columns"], r, strict=True))["name"] for r in found["rows"]] == ["gemm_mma_lds.gfx942"]
    assert not list(tmp_path.glob("*.partial"))


def test_a_second_attempt_is_told_what_was_refuted() -> None:
    class Wrong(FirstFit):
        """Names no register: every answer is refuted."""

        def extend(self, tokens: Sequence[int], positions: Sequence[int]) -> Scores:
            scores = super().extend(tokens, positions)
            scores[:, words().ids["x7"]] = 100.0
            return scores

    config = EvalConfig(modes=("unmasked",), policies=("model",), feedback=True)
    rows = list(evaluate(problems()[:1], lambda target: Wrong(), config))
    assert [(r.sample, r.told, r.outcome) for r in rows] == [
        (-1, False, "refuted"), (0, False, "refuted"), (0, True, "refuted"),
    ]  # fmt: skip
    (cell,) = summary(rows)
    assert cell["second_attempt_told"] == cell["second_attempt_blind"] == 0.0
    assert rows[2].tokens > rows[1].tokens


@pytest.mark.parametrize(
    ("k", "right", "samples", "chance"), [(1, 5, 10, 0.5), (10, 1, 10, 1.0), (2, 1, 4, 0.5), (1, 0, 3, 0.0)]
)
def test_pass_at_k(k: int, right: int, samples: int, chance: float) -> None:
    assert pass_at(k, right, samples) == pytest.approx(chance)


def test_families() -> None:
    names = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201", "gfx1250")
    assert [family_of(n) for n in names] == ["cdna2", "cdna3", "cdna3", "rdna3", "rdna4", "gfx1250"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["eval", "DIR", "--model", "DIR"], "has no allocation model"),
        (["eval", "DIR"], "nothing to evaluate on"),
        (["train", "base", "DIR", "--out", "OUT"], "nothing to train on"),
        (["train", "base", "DIR", "--out", "OUT", "--set", "hiden=3"], "no setting 'hiden'"),
        (["train", "base", "DIR", "--out", "OUT", "--set", "hidden=big"], "hidden must be of type int"),
        (["adapt", "--target", "gfx1", "--base", "DIR", "--out", "OUT", "DIR"], "gfx1"),
        (["train", "adapter", "DIR", "--out", "OUT", "--base", "DIR"], "has no allocation model"),
    ],
)
def test_errors_say_what_is_wrong(tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "d").mkdir()
    named = {"DIR": str(tmp_path / "d"), "OUT": str(tmp_path / "out")}
    result = CliRunner().invoke(cli, [named.get(a, a) for a in arguments])
    assert isinstance(result.exception, InputError)
    assert message in result.exception.render()


def test_no_model_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VERILOCC_MODEL", raising=False)
    monkeypatch.setattr(registry, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="no model is named, and none is installed"):
        allocator("model")


def test_a_model_here_and_a_server_exclude_each_other() -> None:
    kernel_path = str(kernel("gemm_mma_lds.gfx942"))
    result = CliRunner().invoke(cli, ["compile", kernel_path, "--model", "d", "--server", "local", "-o", "o.hsaco"])
    assert "leave --server out" in result.output + result.stderr
    result = CliRunner().invoke(cli, ["compile", kernel_path, "--model", "d", "--allocator", "exact", "-o", "o.hsaco"])
    assert "leave --allocator out" in result.output + result.stderr
