"""Labels of plans, what chooses one, and the guard: on real kernels, and on made-up labels whose best plan is known."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

import pytest
from corpus_support import first_cell, needs
from support import long

from verilocc_mlir.cli.main import run as verilocc
from verilocc_mlir.errors import InputError, UnsupportedError
from verilocc_mlir.pipeline.answers import Answer
from verilocc_mlir.pipeline.candidates import candidate_costs
from verilocc_mlir.pipeline.plans import planned
from verilocc_mlir.pipeline.settings import Settings
from verilocc_model.corpus.cells import Cell
from verilocc_model.corpus.ir import ir
from verilocc_model.corpus.shards import ShardWriter, read_lines
from verilocc_model.plans import labels as labels_module
from verilocc_model.plans.data import DEFAULT, Labels, read_labels
from verilocc_model.plans.labels import PlanLimits, PlanRecipe, figures, labelled, make_labels
from verilocc_model.plans.policies import BestByTarget, Default, Nearest, Oracle, Policy, Trees, ranked
from verilocc_model.plans.score import scores

pytest.importorskip("numpy")

RECIPE = PlanRecipe(
    2, seed=1, targets=("gfx942", "gfx1100"), sources=("mlir",), families=("conv",), plans=(DEFAULT, "max-ilp")
)
AS_DEFAULT = {"cycles": 100.0, "waves": 4.0, "spills": 2.0}


def kernel(plans: Mapping[str, Mapping[str, float]], number: int = 0, **facts: float) -> Labels:
    cell = Cell.of("mlir", "gemm", "gfx942", {"number": number}, {})
    return Labels(cell, facts or {"size": 1.0}, AS_DEFAULT, {DEFAULT: AS_DEFAULT, **plans})


def changed(**figures: float) -> dict[str, float]:
    return {**AS_DEFAULT, **figures}


def test_a_kernel_has_the_cost_of_each_plan_and_the_same_facts_as_any_other() -> None:
    needs("mlir")
    cells = [first_cell("mlir", "conv", target) for target in ("gfx942", "gfx1100")]
    rows = [json.loads(labelled(cell, RECIPE)) for cell in cells]
    assert rows[0]["facts"].keys() == rows[1]["facts"].keys()
    assert all(isinstance(fact, float) and math.isfinite(fact) for row in rows for fact in row["facts"].values())
    given = planned(ir(cells[0]).encode(), "k.ll", Settings("gfx942"))
    expected = candidate_costs(given, [Answer.parse(name).candidate for name in RECIPE.plans])
    for row, cost in zip(rows[0]["plans"], expected, strict=True):
        assert Answer.parse(row["plan"]).candidate == cost.candidate
        assert cost.costs is not None
        assert {name: row[name] for name in ("cycles", "waves", "spills")} == figures(cost.costs)
    assert rows[0]["llvm"] == figures(given.direct_cost())


def test_a_kernel_that_is_too_large_is_left_out_with_the_reason() -> None:
    needs("mlir")
    small = PlanRecipe(1, plans=(DEFAULT,), limits=PlanLimits(instructions=3))
    with pytest.raises(UnsupportedError, match="more than are wanted"):
        labelled(first_cell("mlir", "conv", "gfx942"), small)


@pytest.mark.long
def test_a_data_set_goes_on_where_it_was_and_refuses_labels_of_other_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("mlir")
    first = make_labels(PlanRecipe(**{**RECIPE.__dict__, "kernels": 1}), tmp_path)
    begun = (tmp_path / "problems-00000.jsonl.zst").read_bytes()
    journal = make_labels(RECIPE, tmp_path)
    assert [row["cell"] for row in journal][:1] == [row["cell"] for row in first]
    assert (tmp_path / "problems-00000.jsonl.zst").read_bytes() == begun
    assert len(list(read_labels(tmp_path))) == 2 == len(list(read_lines(tmp_path)))
    monkeypatch.setattr(labels_module, "engine_digest", lambda: "another")
    with pytest.raises(InputError, match="other made_with"):
        make_labels(RECIPE, tmp_path)


@pytest.mark.parametrize(
    ("figures_of_plan", "is_kept"),
    [
        (changed(cycles=80.0), True),
        (changed(cycles=80.0, waves=2.0), True),
        (changed(cycles=101.0, waves=2.0), False),
        (changed(cycles=80.0, spills=3.0), False),
        (changed(cycles=120.0), True),
    ],
)
def test_the_guard(figures_of_plan: dict[str, float], is_kept: bool) -> None:
    one = kernel({"max-ilp": figures_of_plan})
    assert one.is_kept("max-ilp") is is_kept
    gain = min(0.0, math.log(figures_of_plan["cycles"] / 100.0)) if is_kept else 0.0
    assert one.gain("max-ilp") == pytest.approx(gain)
    assert one.unguarded("max-ilp") == pytest.approx(math.log(figures_of_plan["cycles"] / 100.0))


def test_a_plan_without_an_allocation_gains_nothing() -> None:
    one = kernel({})
    assert not one.is_kept("max-ilp")
    assert one.gain("max-ilp") == one.unguarded("max-ilp") == 0.0


def two_kinds(count: int) -> list[Labels]:
    """Kernels of which every other gains by one plan and the rest by another, as one fact says."""
    good, bad = changed(cycles=70.0), changed(cycles=130.0)
    return [
        kernel({"max-ilp": (good, bad)[n % 2], "trackers": (bad, good)[n % 2]}, n, latency=float(n % 2), noise=n * 0.01)
        for n in range(count)
    ]


@pytest.mark.parametrize("policy", [Nearest(), *long(Trees())], ids=lambda policy: policy.name)
def test_a_policy_of_facts_tells_the_kinds_apart_and_a_single_plan_cannot(policy: Policy) -> None:
    if isinstance(policy, Trees):
        pytest.importorskip("sklearn")
    train, test = two_kinds(40), two_kinds(10)
    single = BestByTarget()
    for one in (policy, single):
        one.fit(train)
    rows = {(row.policy, row.tried): row for row in scores([Default(), single, policy], test)}
    assert rows[policy.name, 1].share == pytest.approx(1.0)
    assert rows[policy.name, 1].cycles == pytest.approx(0.7)
    assert rows[single.name, 1].share == pytest.approx(0.5)
    assert rows[single.name, 2].share == pytest.approx(1.0)
    assert rows["always the default", 4].cycles == 1.0
    assert rows["oracle", 1].cycles == pytest.approx(0.7)


def test_facts_that_say_nothing_bring_nothing() -> None:
    """What the kinds are told apart by is taken away: no policy may gain more than a single plan does."""
    train, test = two_kinds(40), two_kinds(10)
    blind = [Labels(k.cell, {"latency": 0.0, "noise": 0.0}, k.llvm, k.plans) for k in (*train, *test)]
    policy = Nearest()
    policy.fit(blind[:40])
    (row, *_), _ = scores([policy], blind[40:]), None
    assert row.share is not None
    assert row.share <= 0.5 + 1e-9


def test_plans_are_ranked_by_what_is_expected_and_only_those_with_a_gain() -> None:
    one = kernel({"max-ilp": changed(cycles=90.0), "trackers": changed(cycles=80.0), "top-down": changed(cycles=110.0)})
    assert ranked(Oracle(), one) == ["trackers", "max-ilp"]
    assert ranked(Default(), one) == []


def write_set(directory: Path, count: int) -> None:
    writer = ShardWriter(directory, {}, {})
    lines: list[str] = []
    for one in two_kinds(count):
        plans = [{"plan": name, **values} for name, values in one.plans.items()]
        data = {"cell": one.cell.to_data(), "facts": dict(one.facts), "llvm": dict(one.llvm), "plans": plans}
        lines.append(json.dumps(data))
    writer.add(lines, [{"cell": str(n), "records": [{"outcome": "kept"}]} for n in range(count)])


@pytest.mark.long
def test_eval_prints_a_table_for_each_part_and_writes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    write_set(tmp_path / "set", 30)
    assert verilocc(["eval", "--plans", str(tmp_path / "set"), "--out", str(tmp_path / "out.json")]) == 0
    shown = capsys.readouterr().err
    assert "folds of all kernels" in shown
    assert "| gradient-boosted trees | 1 |" in shown
    parts = json.loads((tmp_path / "out.json").read_text())["parts"]
    assert {row["policy"] for rows in parts.values() for row in rows} >= {"oracle", "always the default"}


def test_too_few_kernels_are_refused_with_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_set(tmp_path / "set", 4)
    assert verilocc(["eval", "--plans", str(tmp_path / "set")]) == 2
    assert "corpus plans --kernels" in capsys.readouterr().err


def share_of(policy: Policy, train: list[Labels], test: list[Labels]) -> float:
    """Of the oracle's gain, with one plan beside the default."""
    policy.fit(train)
    share = scores([policy], test)[0].share
    assert share is not None
    return share


def test_the_transformer_tells_the_kinds_apart_and_an_untrained_one_does_not() -> None:
    pytest.importorskip("peft")
    from verilocc_model.plans.causal import Causal, Sizes

    sizes = Sizes(hidden=32, layers=1, heads=2, epochs=30, rate=3e-3, adapter_epochs=5)
    train, test = two_kinds(40), two_kinds(10)
    assert share_of(Causal(sizes), train, test) == pytest.approx(1.0)
    assert share_of(Causal(sizes, adapted=True), train, test) == pytest.approx(1.0)
    assert share_of(Causal(sizes, trained=False), train, test) < 0.9
