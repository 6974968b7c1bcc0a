"""Labels of plans, what chooses one, and the guard: on real kernels, and on made-up labels whose best plan is known."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from corpus_support import first_cell, needs
from support import DEMO_KERNELS, few

from verilocc_mlir.cli.main import run as verilocc
from verilocc_mlir.cost.compare import spill_traffic
from verilocc_mlir.errors import InputError, UnsupportedError
from verilocc_mlir.pipeline.candidates import Answer, candidate_costs
from verilocc_mlir.pipeline.plans import DEFAULT as PLAN
from verilocc_mlir.pipeline.plans import balanced_plans, has_promise, planned
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.toolchain.ir_compat import with_attributes
from verilocc_model.corpus.build import make
from verilocc_model.corpus.ir import ir
from verilocc_model.corpus.shards import ShardWriter, read_lines, read_manifest
from verilocc_model.corpus.sources import Cell
from verilocc_model.plans import labels as labels_module
from verilocc_model.plans.data import DEFAULT, FIGURES, Labels, read_labels
from verilocc_model.plans.evaluate import scores
from verilocc_model.plans.facts import facts_of_text
from verilocc_model.plans.labels import PlanLimits, PlanRecipe, figures
from verilocc_model.plans.policies import (
    Nearest,
    Oracle,
    Policy,
    Rule,
    ranked,
)

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
    rows = [json.loads(RECIPE.lines(cell)[0][0]) for cell in cells]
    assert rows[0]["facts"].keys() == rows[1]["facts"].keys()
    assert all(isinstance(fact, float) and math.isfinite(fact) for row in rows for fact in row["facts"].values())
    given = planned(ir(cells[0]).encode(), "k.ll", Settings("gfx942"))
    expected = candidate_costs(given, [Answer.parse(name).candidate for name in RECIPE.plans])
    for row, cost in zip(rows[0]["plans"], expected, strict=True):
        assert Answer.parse(row["plan"]).candidate == cost.candidate
        assert cost.costs is not None
        assert {name: row[name] for name in FIGURES} == figures(cost.costs)
    assert rows[0]["llvm"] == figures(given.direct_cost())


def test_a_kernel_that_is_too_large_is_left_out_with_the_reason() -> None:
    needs("mlir")
    small = PlanRecipe(1, plans=(DEFAULT,), limits=PlanLimits(instructions=3))
    with pytest.raises(UnsupportedError, match="more than are wanted"):
        small.lines(first_cell("mlir", "conv", "gfx942"))


@pytest.mark.long
def test_a_data_set_goes_on_where_it_was_and_refuses_labels_of_other_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("mlir")
    first = make(PlanRecipe(**{**RECIPE.__dict__, "kernels": 1}), tmp_path)
    begun = (tmp_path / "problems-00000.jsonl.zst").read_bytes()
    journal = make(RECIPE, tmp_path)
    assert [row["cell"] for row in journal][:1] == [row["cell"] for row in first]
    assert (tmp_path / "problems-00000.jsonl.zst").read_bytes() == begun
    assert len(list(read_labels(tmp_path))) == 2 == len(list(read_lines(tmp_path)))
    monkeypatch.setattr(labels_module, "engine_digest", lambda: "another")
    with pytest.raises(InputError, match="other made_with"):
        make(RECIPE, tmp_path)


def test_labels_that_somebody_changed_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    needs("mlir")
    make(PlanRecipe(**{**RECIPE.__dict__, "kernels": 1}), tmp_path / "set")
    assert verilocc(["corpus", "remeasure", str(tmp_path / "set")]) == 0
    assert "1 of 1 kernels have the same labels" in capsys.readouterr().out
    (line,) = map(json.loads, read_lines(tmp_path / "set"))
    line["plans"][1]["cycles"] *= 0.5
    writer = ShardWriter(tmp_path / "poisoned", read_manifest(tmp_path / "set")["parameters"], {})
    writer.add([json.dumps(line)], [{"cell": "0", "records": [{"outcome": "kept"}]}])
    assert verilocc(["corpus", "remeasure", str(tmp_path / "poisoned")]) == 1
    assert "cycles of max-ilp was" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("family", "target"), few([("conv", "gfx942")], [("conv", "gfx942"), ("conv", "gfx1201"), ("gemm", "gfx1100")])
)
def test_a_kernel_that_promises_nothing_has_labels_of_what_fast_tries(family: str, target: str, tmp_path: Path) -> None:
    """What promises something is asked of the ruler's total, in which the vector units of RDNA add up: the greatest of
    them alone leaves a fifth of these kernels' cycles and more.
    """
    needs("mlir")
    cell = first_cell("mlir", family, target)
    asked = PlanRecipe(1, plans=(DEFAULT, "max-ilp", "trackers", "packed", "beside"))
    row = json.loads(asked.lines(cell)[0][0])
    (cost,) = planned(ir(cell).encode(), "k.ll", Settings(target)).direct_cost().values()
    assert row["promises"] is has_promise({cost.name: cost})
    if target != "gfx942":
        assert max(cost.units.values()) < 0.8 * cost.cycles == pytest.approx(0.8 * cost.work)
        assert not row["promises"]
    expected = asked.plans if row["promises"] else (DEFAULT, "max-ilp", "beside")
    assert [one["plan"] for one in row["plans"]] == [*expected]
    ShardWriter(tmp_path, {}, {}).add([json.dumps(row)], [{"cell": "0", "records": [{"outcome": "kept"}]}])
    (read,) = read_labels(tmp_path)
    assert read.has_promise is row["promises"]


@pytest.mark.long
def test_a_text_says_what_would_be_spilled_and_how_many_waves_there_are() -> None:
    """With fewer registers the same kernel spills more, by as much as its final code does (where loops run as often as
    they do, and not ten times).
    """
    text = (DEMO_KERNELS / "attn_d64.gfx1100.opt.ll").read_text()
    facts: list[dict[str, float]] = []
    traffic: list[float] = []
    for registers in (256, 96, 64):
        limited = with_attributes(text, (("amdgpu-num-vgpr", str(registers)),))
        given = planned(limited.encode(), "k.ll", Settings("gfx1100"))
        facts.append(facts_of_text(given, PLAN, "attn"))
        cost = given.cost(PLAN)
        assert cost is not None
        traffic.append(spill_traffic(cost["attn"]))
        assert 2 ** facts[-1]["text waves"] - 1 == pytest.approx(cost["attn"].occupancy, abs=1)
    spilled = [2 ** one["text spilled"] - 1 for one in facts]
    assert spilled[0] == traffic[0] == 0 < spilled[1]
    assert spilled[2] / spilled[1] == pytest.approx(traffic[2] / traffic[1], rel=0.3)
    assert facts[1]["text estimate"] < facts[2]["text estimate"]


@pytest.mark.parametrize(
    ("figures_of_plan", "stands"),
    [
        (changed(cycles=80.0), True),
        (changed(cycles=80.0, waves=2.0), True),
        (changed(cycles=99.5, waves=2.0), False),
        (changed(cycles=80.0, spills=3.0), False),
        (changed(cycles=101.0), False),
    ],
)
def test_the_guard(figures_of_plan: dict[str, float], stands: bool) -> None:
    """LLVM's compile has 100 cycles, 4 waves and 2 registers spilled, and so has the first plan."""
    one = kernel({"max-ilp": figures_of_plan})
    assert one.stands("max-ilp") is stands
    gain = math.log(figures_of_plan["cycles"] / 100.0) if stands else 0.0
    assert one.gain("max-ilp") == pytest.approx(gain)
    assert one.unguarded("max-ilp") == pytest.approx(math.log(figures_of_plan["cycles"] / 100.0))


def test_where_the_first_plan_falls_short_fast_tries_further_ones() -> None:
    """As ``pipeline.portfolio`` does: loads beside their use, and the plan that counts registers."""
    plans = {DEFAULT: changed(cycles=120.0), "beside": changed(cycles=95.0), "trackers": changed(cycles=90.0)}
    one = kernel({**plans, "max-ilp": changed(cycles=85.0)})
    assert one.fast == (DEFAULT, "beside", "trackers")
    assert one.kept(one.fast) == 90.0
    assert one.gain("max-ilp") == pytest.approx(math.log(85 / 90))
    assert kernel({DEFAULT: changed(cycles=120.0)}).kept((DEFAULT,)) == 100.0, "LLVM's is kept"


def test_a_plan_without_an_allocation_gains_nothing() -> None:
    one = kernel({})
    assert not one.stands("max-ilp")
    assert one.gain("max-ilp") == one.unguarded("max-ilp") == 0.0


def two_kinds(count: int) -> list[Labels]:
    """Kernels of which every other gains by one plan and the rest by another, as one fact says."""
    good, bad = changed(cycles=70.0), changed(cycles=130.0)
    return [
        with_facts(
            kernel({"max-ilp": (good, bad)[n % 2], "trackers": (bad, good)[n % 2]}, n),
            {"latency": float(n % 2), "noise": n * 0.01},
        )
        for n in range(count)
    ]


def test_a_policy_of_facts_tells_the_kinds_apart() -> None:
    train, test = two_kinds(40), two_kinds(10)
    policy = Nearest()
    policy.fit(train)
    rows = {(row.policy, row.tried): row for row in scores([policy], test)}
    assert rows[policy.name, 1].share == pytest.approx(1.0)
    assert rows[policy.name, 1].cycles == pytest.approx(0.7)
    assert rows["oracle", 1].cycles == pytest.approx(0.7)


def test_facts_that_say_nothing_bring_nothing() -> None:
    """What the kinds are told apart by is taken away: no policy may gain more than a single plan does."""
    train, test = two_kinds(40), two_kinds(10)
    blind = [with_facts(k, {"latency": 0.0, "noise": 0.0}) for k in (*train, *test)]
    policy = Nearest()
    policy.fit(blind[:40])
    row = scores([policy], blind[40:])[0]
    assert row.share is not None
    assert row.share <= 0.5 + 1e-9


def with_facts(one: Labels, facts: Mapping[str, float], alike: Mapping[str, str] | None = None) -> Labels:
    cpu = dict.fromkeys(one.plans, 1.0)
    return replace(one, facts=facts, cpu=cpu, alike=alike or {})


def test_answers_are_ranked_by_what_is_expected_and_of_those_alike_one_is_tried() -> None:
    plans = {"max-ilp": changed(cycles=90.0), "trackers": changed(cycles=80.0), "top-down": changed(cycles=80.0)}
    one = with_facts(kernel({**plans, "sinking": AS_DEFAULT}), {}, {"top-down": "trackers", "sinking": DEFAULT})
    assert ranked(Oracle(), one) == ["trackers", "max-ilp"]


def test_nothing_is_tried_where_a_kernel_promises_nothing() -> None:
    for promises in (False, True):
        one = replace(with_facts(kernel({"max-ilp": changed(cycles=90.0)}), {}), has_promise=promises)
        assert ranked(Oracle(), one) == ["max-ilp"] * promises


def test_the_rule_is_that_of_balanced() -> None:
    names = ("max-ilp", "iterative-ilp", "max-memory-clause", "top-down", "trackers", "iterative-minreg", "no-clusters")
    of_spilled = with_facts(kernel(dict.fromkeys(names, AS_DEFAULT)), {})
    others = with_facts(kernel({name: changed(spills=0.0) for name in (DEFAULT, *names)}), {})
    for one, spilled in ((of_spilled, True), (others, False)):
        expected = [plan.name for plan in balanced_plans(spilled=spilled)]
        assert ranked(Rule(), one) == expected


def test_a_score_counts_the_time_of_all_that_is_tried() -> None:
    one = with_facts(kernel({"max-ilp": changed(cycles=90.0)}), {})
    rows = {(row.policy, row.tried): row for row in scores([], [one])}
    assert rows["oracle", 1].cpu == 2.0


def write_set(directory: Path, count: int) -> None:
    writer = ShardWriter(directory, {}, {})
    lines: list[str] = []
    for one in two_kinds(count):
        plans = [{"plan": name, **values} for name, values in one.plans.items()]
        data = {
            "cell": one.cell.to_data(),
            "facts": dict(one.facts),
            "llvm": dict(one.llvm),
            "plans": plans,
            "promises": True,
        }
        lines.append(json.dumps(data))
    writer.add(lines, [{"cell": str(n), "records": [{"outcome": "kept"}]} for n in range(count)])


@pytest.mark.long
def test_eval_prints_a_table_for_each_part_and_writes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    write_set(tmp_path / "set", 30)
    assert verilocc(["eval", "--plans", str(tmp_path / "set"), "--out", str(tmp_path / "out.json")]) == 0
    shown = capsys.readouterr().err
    assert "\n5 folds\n" in shown
    assert "each family held out" not in shown, "there is one family"
    parts = json.loads((tmp_path / "out.json").read_text())["parts"]
    assert {row["policy"] for rows in parts.values() for row in rows} >= {"oracle", Rule.name}


def test_too_few_kernels_are_refused_with_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_set(tmp_path / "set", 4)
    assert verilocc(["eval", "--plans", str(tmp_path / "set")]) == 2
    assert "corpus plans --kernels" in capsys.readouterr().err


def share_of(policy: Policy, test: list[Labels]) -> float:
    share = scores([policy], test)[0].share
    assert share is not None
    return share


def test_neighbours_tell_the_kinds_apart_and_are_what_was_saved(tmp_path: Path) -> None:
    nearest = Nearest()
    kernels = two_kinds(40)
    nearest.fit(
        [
            *kernels,
            *(replace(one, cell=replace(one.cell, target="gfx1100")) for one in kernels[:14]),
        ]
    )
    test = two_kinds(10)
    assert share_of(nearest, test) == pytest.approx(1.0)
    nearest.save(tmp_path / "model")
    loaded = Nearest.load(tmp_path / "model")
    for one in test:
        assert loaded.expected(one) == nearest.expected(one)
        gains = loaded.expected(one)
        assert list(map(str, loaded.ranked(one.cell.target, one.facts))) == sorted(gains, key=lambda p: gains[p])
    with pytest.raises(InputError, match="a fact that is not there"):
        loaded.ranked("gfx942", {"latency": 1.0})
    with pytest.raises(InputError, match="no model of plans"):
        Nearest.load(tmp_path)


def test_training_and_evaluation_by_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    write_set(tmp_path / "set", 40)
    model, out = str(tmp_path / "model"), str(tmp_path / "out.json")
    assert verilocc(["train", "plans", str(tmp_path / "set"), "--out", model]) == 0
    assert verilocc(["eval", "--plans", str(tmp_path / "set"), "--model", model, "--out", out]) == 0
    assert "| 7 nearest neighbours of model | 1 |" in capsys.readouterr().err
    assert json.loads((tmp_path / "out.json").read_text())["model"] == "model"
