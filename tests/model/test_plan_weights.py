"""The model of plans that comes with the package, on labelled kernels that it did not learn from.

The critic is judged by today's ruler and by October's, whose labels both were fitted to; the neighbours by October's
alone (docs/results/plan-choice.md has what they bring by today's).
What is asked of the weights is asked of noise and of an untrained network too, which must not pass.
"""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from builders import kernel, loads, loop, stores
from corpus_support import needs

import verilocc_model
from smt_verifier.outcome import Outcome
from verilocc_mlir.cli.main import run as verilocc
from verilocc_mlir.errors import InputError
from verilocc_mlir.pipeline.compile import compile_module
from verilocc_mlir.pipeline.learned import PlanModel, model_directory
from verilocc_mlir.pipeline.settings import Effort, Settings
from verilocc_mlir.target.targets import TARGETS
from verilocc_model.plans.critic import FORM, TREES, Critic
from verilocc_model.plans.data import Labels
from verilocc_model.plans.evaluate import labels_of, scores
from verilocc_model.plans.labels import remeasured
from verilocc_model.plans.policies import KERNELS, NEIGHBOURS, Nearest, Oracle, Policy, Texts

safetensors = pytest.importorskip("safetensors.numpy")

WEIGHTS = Path(verilocc_model.__file__).parent / "weights" / "plans"
PLANS = Path(verilocc_model.__file__).parents[1] / "data" / "plans"
DATA = tuple(PLANS / name for name in ("all-sources", "generated", "longer"))
OCTOBER = tuple(PLANS / "october" / name for name in ("all-sources", "generated"))
LEAST_STATED, LEAST_JUDGED = 0.5, 0.6
"""Share of the oracle's gain that one answer of the model, and one of the critic, must bring."""


@cache
def held_out(data: tuple[Path, ...] = DATA) -> list[Labels]:
    """Promising kernels of the test and valid parts, of IREE, and for gfx1201."""
    return [k for k in labels_of(data) if k.has_promise and (k.split != "train" or k.held_out)]


def share(policy: Policy, tried: int = 1, data: tuple[Path, ...] = DATA) -> float:
    score = next(row for row in scores([policy], held_out(data)) if row.policy == policy.name and row.tried == tried)
    assert score.share is not None
    assert score.worst <= 1.0
    return score.share


def noisy(path: Path, seed: int = 0) -> None:
    """Replace every tensor of floating-point numbers by noise of the same spread."""
    generator = np.random.default_rng(seed)
    tensors = safetensors.load_file(path)
    for name, values in tensors.items():
        if values.dtype.kind == "f":
            tensors[name] = (generator.standard_normal(values.shape) * values.std() + values.mean()).astype(
                values.dtype
            )
    safetensors.save_file(tensors, path)


@pytest.mark.parametrize("data", [DATA, OCTOBER])
def test_the_kernels_are_of_what_it_did_not_learn_from(data: tuple[Path, ...]) -> None:
    assert len(held_out(data)) > 100
    assert {k.cell.source for k in held_out(data)} == {"mlir", "triton", "iree"}


@pytest.mark.long
def test_labels_measured_again_are_the_same() -> None:
    """As ``verilocc corpus remeasure`` does. A change of what decides a label makes them stale: label again."""
    needs("mlir")
    needs("triton")
    assert [difference for one in remeasured(DATA[1], 3) for difference in one] == []


def test_one_answer_of_the_model_brings_its_share() -> None:
    assert share(Nearest.load(WEIGHTS), data=OCTOBER) > LEAST_STATED


@pytest.mark.parametrize("data", [DATA, OCTOBER])
def test_one_answer_of_the_critic_brings_its_share_and_more_than_the_estimate_alone(data: tuple[Path, ...]) -> None:
    critic = Critic.load(WEIGHTS)
    assert share(critic, data=data) > LEAST_JUDGED
    assert share(critic, 4, data) > 0.85
    assert share(critic, 4, data) > share(Texts(), 4, data)


def test_weights_of_noise_do_not(tmp_path: Path) -> None:
    shutil.copytree(WEIGHTS, tmp_path / "noise")
    for path in (tmp_path / "noise").rglob("*.safetensors"):
        noisy(path)
    assert share(Nearest.load(tmp_path / "noise"), data=OCTOBER) < LEAST_STATED
    assert share(Critic.load(tmp_path / "noise")) < LEAST_JUDGED
    assert share(Critic.load(tmp_path / "noise"), data=OCTOBER) < LEAST_JUDGED


def test_one_process_loads_it_for_all_targets() -> None:
    model = PlanModel.load(model_directory(None))
    assert {*model.targets} == {*TARGETS}
    one = held_out()[0]
    for target in TARGETS:
        stated = model.ranked(target, one.facts)
        assert stated.model == "plans"
        assert stated.answers


def spilling() -> str:
    """A kernel that a model is asked about: registers are spilled under every plan."""
    names = [f"%v{k}" for k in range(24)]
    return kernel([*loads(24), *loop(stores(names[:5])), *stores(names)], 16)


@pytest.mark.parametrize("name", [NEIGHBOURS, KERNELS])
def test_neighbours_that_are_cut_off_are_one_error(name: str, tmp_path: Path) -> None:
    shutil.copytree(WEIGHTS, tmp_path / "model")
    cut_off = tmp_path / "model" / name
    cut_off.write_bytes(cut_off.read_bytes()[:1000])
    with pytest.raises(InputError, match="no model of plans is there"):
        Nearest.load(tmp_path / "model")


def test_a_critic_that_is_cut_off_is_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(WEIGHTS, tmp_path / "model")
    cut_off = tmp_path / "model" / "critic.safetensors"
    cut_off.write_bytes(cut_off.read_bytes()[:1000])
    source, out = tmp_path / "k.ll", tmp_path / "k.hsaco"
    source.write_text(spilling())
    model = f"--plan-model={tmp_path / 'model'}"
    assert verilocc(["compile", str(source), "-mcpu=gfx1201", "-O=learned", model, "-o", str(out)]) == 2
    said = capsys.readouterr().err
    assert "of plans is there" in said
    assert "Traceback" not in said
    assert not out.exists()


def test_a_compilation_asks_it_says_so_and_counts_its_time() -> None:
    report = compile_module(spilling().encode(), "k.ll", Settings("gfx1201", effort=Effort.LEARNED, plans=2)).report
    assert report.outcome is Outcome.PROVED
    assert any(note.startswith("critic plans stated 2 plans to try: ") for note in report.notes)
    assert next(step.seconds for step in report.steps if step.name == "plans") > 0


def test_it_is_small() -> None:
    assert sum(path.stat().st_size for path in WEIGHTS.rglob("*") if path.is_file()) < 20e6
    assert (WEIGHTS / FORM).is_file()
    assert (WEIGHTS / TREES).is_file()


def test_the_oracle_says_how_much_there_is() -> None:
    best = scores([], held_out())[0]
    assert best.policy == Oracle.name
    assert best.cycles < 0.95
