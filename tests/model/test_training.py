"""Training from scratch at reduced size: it learns, can be interrupted, and its model allocates; adapters; errors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from model_support import answered, disguised, kernel
from support import late
from training_support import PHASES, SMALL, record, write_labelled

from smt_verifier.outcome import Outcome
from smt_verifier.prove import prove
from verilocc_mlir.allocators import Counterexample, Refutation, Regenerating, allocator, registry
from verilocc_mlir.cli.main import cli
from verilocc_mlir.errors import InputError
from verilocc_mlir.pipeline.attempt import refutation_of
from verilocc_mlir.problem.model import PROBLEM_VERSION, Proposal
from verilocc_mlir.remote.allocator import RemoteAllocator
from verilocc_mlir.remote.client import Client
from verilocc_mlir.service.jobs import WITH_MODEL
from verilocc_mlir.service.running import serving
from verilocc_model.card import CARD, README, read_card
from verilocc_model.corpus.shards import Record, ShardWriter
from verilocc_model.decoding import FirstFit, Scores
from verilocc_model.encoding.canonical import canonical
from verilocc_model.encoding.examples import cells_of
from verilocc_model.encoding.table import Price, Table
from verilocc_model.encoding.vocabulary import VOCABULARY
from verilocc_model.evaluation import EvalConfig, EvaluationJournal, Row, evaluate, pass_at, summary
from verilocc_model.repair import guidance_of
from verilocc_model.training.config import load_config
from verilocc_model.training.data import encoded, plans
from verilocc_model.training.entries import entries

answering = late("verilocc_model.allocator")
adapting = late("verilocc_model.training.run")
lm = late("verilocc_model.lm")
training = late("verilocc_model.training.run")
TESTED_ON = ("gemm_mma_lds.gfx1100", "gemm_mma_lds.gfx950", "attn_d64.gfx950")


def problems() -> list[Record]:
    return [record(name, phase, labelled=False) for name in TESTED_ON for phase in PHASES]


def prices_of(rows: list[Row], policy: str) -> list[Price]:
    found = [row.price for row in rows if row.policy == policy and row.price is not None]
    assert len(found) == len(TESTED_ON) * len(PHASES)
    return found


@pytest.mark.long
def test_from_scratch_it_learns(trained: Path, tmp_path: Path) -> None:
    # On kernels it has not seen, the first masked answer is always proved; with at most half of the registers of random
    # legal choice, no more waves lost anywhere, and cheaper on five of six problems. Against the same model before
    # training: nowhere worse, and cheaper on three of six.
    config = EvalConfig(modes=("masked",), policies=("model", "random"))
    rows = list(evaluate(problems(), answering.ModelAllocator(trained / "model").scorer, config))
    untrained = tmp_path / "untrained"
    lm.new_model(SMALL).save_pretrained(untrained)
    (untrained / CARD).write_text((trained / "model" / CARD).read_text())
    before = list(
        evaluate(problems(), answering.ModelAllocator(untrained).scorer, replace(config, policies=("model",)))
    )
    assert all(row.proved for row in (*rows, *before))
    mine = prices_of(rows, "model")
    pairs = list(zip(mine, prices_of(rows, "random"), strict=True))
    assert all(one.lost_waves <= other.lost_waves for one, other in pairs)
    assert sum(one.granules for one, _ in pairs) <= sum(other.granules for _, other in pairs) / 2
    assert sum(one < other for one, other in pairs) >= 5
    pairs = list(zip(mine, prices_of(before, "model"), strict=True))
    assert all(one <= other for one, other in pairs)
    assert sum(one < other for one, other in pairs) >= 3
    rows_of_loss = json.loads((trained / "metrics.json").read_text())["rows"]
    assert rows_of_loss[-1]["validation"]["others"]["accuracy"] > 0.9


@pytest.mark.long
def test_the_model_allocates_and_says_who_it_is(trained: Path) -> None:
    found = allocator(f"model:{trained / 'model'}")
    problem, _ = answered(TESTED_ON[0], "vgpr")
    proposal = found.allocate(problem)
    assert found.name == "model"
    assert found.version == read_card(trained / "model")["name"]
    assert proposal.allocator == f"model/{found.version}"
    assert prove(problem, proposal).outcome is Outcome.PROVED
    assert found.allocate(problem).registers == proposal.registers
    assert isinstance(found, Regenerating)
    wrong = Proposal(PROBLEM_VERSION, "model", (proposal.registers[0],) * len(problem.ranges))
    refutation = refutation_of(problem, wrong, prove(problem, wrong))
    again = found.regenerate(problem, (refutation,))
    assert prove(problem, again).outcome is Outcome.PROVED
    assert found.regenerate(problem, (refutation,)).registers == again.registers


@pytest.mark.long
def test_a_server_answers_with_the_model(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERILOCC_MODEL", str(trained / "model"))
    problem, _ = answered(TESTED_ON[0], "sgpr")
    version = read_card(trained / "model")["name"]
    with serving(WITH_MODEL) as address, Client(address) as client:
        first = client.capabilities().allocators[0]
        assert (first.name, first.version) == ("model", version)
        remote = RemoteAllocator(client)
        proposal = remote.allocate(problem)
    assert proposal.registers == answering.ModelAllocator(trained / "model").allocate(problem).registers
    assert f"model {version}" in remote.version


@pytest.mark.long
def test_names_and_block_order_leave_the_models_answer(trained: Path) -> None:
    model = answering.ModelAllocator(trained / "model")
    one, other, renamed = disguised("gemm_mma_lds.gfx1100", "sgpr", 7)
    first, second = model.allocate(one), model.allocate(other)
    by_name = {r.name: register for r, register in zip(other.ranges, second.registers, strict=True)}
    assert {renamed[r.name]: s for r, s in zip(one.ranges, first.registers, strict=True)} == by_name


@pytest.mark.long
def test_a_model_is_adapted_to_a_gpu_that_the_base_may_not_see(trained: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for name in ("gemm_mma_lds.gfx1201", "gemm_mma_lds.gfx942"):
        write_labelled(data, name, "vgpr")
    (seen,) = [e for e in entries([data]) if e.trains(())]
    assert seen.cell.target == "gfx942"
    lines: list[str] = []
    config = replace(SMALL, tokens=4000, rank=4)
    model = adapting.adapt("gfx1201", trained / "model", [data], tmp_path / "out", lines.append, config=config)
    assert "1 of 1 problems" in " ".join(lines)
    found = answering.ModelAllocator(model)
    assert found.version.count("+") == 1
    assert [p.name for p in (model / "adapters").iterdir()] == ["rdna4"]
    said = (model / "adapters" / "rdna4" / README).read_text()
    assert said.startswith(f"# Model card: {found.adapters[0].name}\n")
    assert "It is applied for gfx1200, gfx1201, gfx12-generic; " in said
    assert "| trained on problems for | gfx1201 |" in said
    assert "| tokens | 4," in said
    assert "Needed" not in said
    for name in ("gemm_mma_lds.gfx1201", "gemm_mma_lds.gfx942"):
        problem, _ = answered(name, "vgpr")
        assert prove(problem, found.allocate(problem)).outcome is Outcome.PROVED
    # The base answers for a family without an adapter as it does alone, also after the adapter was in place.
    problem, _ = answered("gemm_mma_lds.gfx942", "vgpr")
    assert found.allocate(problem).registers == answering.ModelAllocator(trained / "model").allocate(problem).registers
    card = json.loads((model / "adapters" / "rdna4" / CARD).read_text())
    (model / "adapters" / "rdna4" / CARD).write_text(json.dumps({**card, "base": "another"}))
    with pytest.raises(InputError, match="the adapter is for another"):
        answering.ModelAllocator(model)


@pytest.mark.long
def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    write_labelled(data, "gemm_mma_lds.gfx942", "sgpr")
    out = tmp_path / "run"
    brief = load_config(None, {**SMALL.to_data(), "tokens": 30_000, "minutes": 1e-6})
    assert not training.train([data], brief, out, lambda line: None)
    steps = json.loads((out / "checkpoint" / "progress.json").read_text())["step"]
    assert steps == 1
    lines: list[str] = []
    assert training.train([data], load_config(None, {**SMALL.to_data(), "tokens": 30_000}), out, lines.append)
    assert "going on from" in lines[0]
    assert json.loads((out / "checkpoint" / "progress.json").read_text())["step"] > steps
    with pytest.raises(InputError, match="another seed"):
        training.train([data], load_config(None, {**SMALL.to_data(), "seed": 9}), out, lines.append)


def test_refutations_become_facts() -> None:
    problem, proposal = answered("gemm_mma_lds.gfx942", "vgpr")
    form = canonical(problem)
    table = Table(form.problem)
    example = Counterexample("interference", (2, 3), 4, (3, 3), (proposal.registers[2], "vgpr0"), ("vgpr9", "vgpr10"))
    told = guidance_of([Refutation(proposal, (example,))], form, table)
    (number,) = told.advice
    assert form.original[number] == 2
    assert told.advice[number].refuted == table.cells.cells_of(proposal.registers[2])[:1]
    assert told.advice[number].free == table.cells.cells_of("vgpr9_vgpr10")
    # And how many registers the proposal took: the grant that holds them, and not the one before.
    (grant,) = told.grants
    registers = table.cost.of(cells_of(table, form.permuted(proposal.registers))).registers
    assert registers <= table.grants[grant]
    assert not grant or registers > table.grants[grant - 1]


def test_a_labelled_problem_is_read_and_a_poisoned_one_is_caught(tmp_path: Path) -> None:
    write_labelled(tmp_path / "data", "gemm_mma_lds.gfx942", "vgpr")
    (entry,) = entries([tmp_path / "data"])
    assert encoded(entry, 512, tmp_path / "cache") == encoded(entry, 512, tmp_path / "cache") != []
    one = entry.read()
    poisoned = tuple(replace(label, registers=label.registers[:1] * len(label.registers)) for label in one.labels)
    ShardWriter(tmp_path / "poisoned", {}, {}).add([replace(one, labels=poisoned).to_json()], [])
    (entry,) = entries([tmp_path / "poisoned"])
    with pytest.raises(InputError, match=r"breaks a rule|no register"):
        encoded(entry, 512, None)
    ShardWriter(tmp_path / "other", {}, {}).add(['{"version": 1}'], [])
    with pytest.raises(InputError, match="is no record"):
        entries([tmp_path / "other"])


def test_the_trivial_policies_are_measured_without_a_model() -> None:
    asked = problems()[0]
    rows = list(evaluate([asked], None, EvalConfig(modes=("masked", "mask-only"))))
    assert {(r.policy, r.mode) for r in rows} == {
        ("draft", "masked"), ("meets", "masked"), ("first-fit", "masked"), ("random", "masked"),
        ("first-fit", "mask-only"), ("random", "mask-only"),
    }  # fmt: skip
    assert all(r.proved for r in rows if r.mode == "masked")
    cells = {(c["policy"], c["mode"]): c for c in summary(rows)}
    assert cells["draft", "masked"]["pass@1"] == 1.0
    assert cells["random", "masked"]["no_worse_than_deterministic"] == 0.0


def test_an_interrupted_evaluation_goes_on(tmp_path: Path) -> None:
    config = EvalConfig(modes=("masked",), policies=("draft",))
    rows = list(evaluate(problems()[:1], None, config))
    path = tmp_path / "rows"
    with closing(EvaluationJournal(path, {"model": "one"})) as journal:
        journal.note("a", rows)
    with path.open("a") as stream:
        stream.write('{"key": "b", "ro')
    with closing(EvaluationJournal(path, {"model": "one"})) as journal:
        assert journal.rows == {"a": rows}
        journal.note("b", rows)
    with closing(EvaluationJournal(path, {"model": "one"})) as journal:
        assert journal.rows == {"a": rows, "b": rows}
    with pytest.raises(InputError, match="another model"):
        EvaluationJournal(path, {"model": "two"})


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
    name = record("gemm_mma_lds.gfx942", "sgpr").cell.name
    assert [dict(zip(found["columns"], r, strict=True))["name"] for r in found["rows"]] == [name]
    assert not list(tmp_path.glob("*.partial"))


def test_a_second_attempt_is_told_what_was_refuted() -> None:
    class Wrong(FirstFit):
        """Names no register: every answer is refuted."""

        def extend(self, tokens: Sequence[int], positions: Sequence[int]) -> Scores:
            scores = super().extend(tokens, positions)
            scores[:, VOCABULARY.ids["x7"]] = 100.0
            return scores

    config = EvalConfig(modes=("unmasked",), policies=("model",), feedback=True)
    rows = list(evaluate(problems()[:1], lambda target: Wrong(), config))
    assert [(r.sample, r.attempt, r.outcome) for r in rows] == [
        (-1, "first", "refuted"), (-1, "told", "refuted"),
    ]  # fmt: skip
    (cell,) = summary(rows)
    assert cell["second_attempt_told"] == 0.0
    assert rows[1].tokens > rows[0].tokens


def test_plans_are_shown_again_and_alone_with_other_grants(tmp_path: Path) -> None:
    write_labelled(tmp_path, "gemm_mma_lds.gfx942", "vgpr")
    (entry,) = entries([tmp_path])
    found = encoded(entry, 1024, None)
    shown = [VOCABULARY.decode(w.tokens) for w in plans(found, 3, 0)]
    (looking,) = [w for w in shown[:2] if w[1] != "alone"]
    (alone,) = [w for w in shown[:2] if w[1] == "alone"]
    assert [w for w in shown if w[1] != "alone"] == [looking] * 3
    others = [w for w in shown[2:] if w[1] == "alone"]
    assert len(others) == 2
    for other in others:
        assert other != alone
        pairs = {(a, b) for a, b in zip(alone, other, strict=True) if a.startswith("grant")}
        assert [b for a, b in zip(alone, other, strict=True) if (a, b) not in pairs] == [
            a for a in alone if not a.startswith("grant")
        ]
        told = sorted((int(a[5:]), int(b[5:])) for a, b in pairs)
        assert [b for _, b in told] == sorted({b for _, b in told})


def test_the_exact_allocator_is_measured_beside_the_others() -> None:
    config = EvalConfig(modes=("masked",), policies=("draft", "exact"), exact_seconds=20.0)
    asked = problems()[0]
    rows = {r.policy: r for r in evaluate([asked], None, config)}
    assert rows["exact"].outcome == "proved"
    # It counts only where it is closed; then nothing is cheaper in waves and copies.
    if rows["exact"].price is None:
        assert rows["exact"].reason == "open"
    else:
        assert rows["draft"].price is not None
        assert rows["exact"].price[:2] <= rows["draft"].price[:2]
    rows = {r.policy: r for r in evaluate([asked], None, replace(config, exact_seconds=1e-3))}
    assert (rows["exact"].price, rows["exact"].reason) == (None, "open")


def test_local_moves_are_measured_beside_the_others() -> None:
    (row,) = evaluate([problems()[0]], None, EvalConfig(policies=("improved",)))
    assert (row.policy, row.mode, row.outcome) == ("improved", "masked", "proved")
    assert row.price is not None
    assert row.deterministic is not None
    assert row.price <= row.deterministic


@pytest.mark.parametrize(
    ("k", "right", "samples", "chance"), [(1, 5, 10, 0.5), (10, 1, 10, 1.0), (2, 1, 4, 0.5), (1, 0, 3, 0.0)]
)
def test_pass_at_k(k: int, right: int, samples: int, chance: float) -> None:
    assert pass_at(k, right, samples) == pytest.approx(chance)


def test_families() -> None:
    names = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201", "gfx1250")
    assert [answering.family_of(n) for n in names] == ["cdna2", "cdna3", "cdna3", "rdna3", "rdna4", "gfx1250"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["eval", "DIR", "--model", "DIR"], "has no allocation model"),
        (["eval", "DIR"], "this is no data set"),
        (["eval", "EMPTY"], "nothing to evaluate on"),
        (["train", "base", "EMPTY", "--out", "OUT"], "nothing to train on"),
        (["train", "base", "DIR", "--out", "OUT", "--set", "hiden=3"], "no setting 'hiden'"),
        (["train", "base", "DIR", "--out", "OUT", "--set", "hidden=big"], "Expected `int`, got `str` - at `$.hidden`"),
        (["adapt", "--target", "gfx1", "--base", "DIR", "--out", "OUT", "DIR"], "gfx1"),
        (["train", "adapter", "DIR", "--out", "OUT", "--base", "DIR"], "has no allocation model"),
    ],
)
def test_errors_say_what_is_wrong(tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "d").mkdir()
    ShardWriter(tmp_path / "empty", {}, {})
    named = {"DIR": str(tmp_path / "d"), "EMPTY": str(tmp_path / "empty"), "OUT": str(tmp_path / "out")}
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
