"""Best of n: the model's samples are compared by price, the cheapest is proposed and proved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from model_support import answered, kernel
from support import few, late
from training_support import SMALL

from smt_verifier.outcome import Outcome
from smt_verifier.prove import prove
from verilocc_mlir.allocators import allocator
from verilocc_mlir.allocators.registry import SAMPLES_VARIABLE
from verilocc_mlir.cli.main import cli
from verilocc_mlir.errors import InputError
from verilocc_mlir.problem.build import Phase
from verilocc_mlir.problem.model import AllocationProblem
from verilocc_mlir.remote.client import Client
from verilocc_mlir.service.jobs import WITH_MODEL
from verilocc_mlir.service.running import serving
from verilocc_model.card import CARD
from verilocc_model.decoding import Decoded, OutOfTime, Sampling, Scorer, decode
from verilocc_model.encoding.canonical import Canonical, canonical
from verilocc_model.encoding.episode import Episode
from verilocc_model.encoding.examples import cells_of
from verilocc_model.encoding.table import Price, Table, price_of
from verilocc_model.encoding.vocabulary import VOCABULARY_VERSION

answering = late("verilocc_model.allocator")
lm = late("verilocc_model.lm")
KERNELS: list[tuple[str, Phase]] = [("gemm_mma_lds.gfx1100", "vgpr"), ("gemm_mma_lds.gfx942", "sgpr")]


@pytest.fixture(scope="module")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with random weights: its samples differ, and so do their prices."""
    out = tmp_path_factory.mktemp("random") / "model"
    lm.new_model(SMALL).save_pretrained(out)
    (out / CARD).write_text(json.dumps({"name": "noise", "vocabulary": VOCABULARY_VERSION, "window": SMALL.window}))
    return out


def told(problem: AllocationProblem) -> tuple[Canonical, Table]:
    form = canonical(problem)
    return form, Table(form.problem)


def price(problem: AllocationProblem, registers: tuple[str, ...]) -> Price:
    form, table = told(problem)
    return price_of(table, cells_of(table, form.permuted(registers)))


@pytest.mark.long
@pytest.mark.parametrize(("name", "phase"), few(KERNELS[1:], KERNELS))
def test_the_cheapest_of_the_samples_is_proposed_and_proved(random_model: Path, name: str, phase: Phase) -> None:
    problem, _ = answered(name, phase)
    _, table = told(problem)
    one = answering.ModelAllocator(random_model)
    single: list[Price] = []
    for seed in range(4):
        episode = Episode(table)
        decode(episode, one.scorer(problem.target), Sampling(answering.AGAIN_TEMPERATURE if seed else 0.0, seed))
        single.append(price_of(table, episode.starts))
    assert price(problem, one.allocate(problem).registers) == single[0]
    four = answering.ModelAllocator(random_model, samples=4)
    assert (one.version, four.version) == ("noise", "noise, best of 4")
    proposal = four.allocate(problem)
    assert proposal.allocator == "model/noise, best of 4"
    assert prove(problem, proposal).outcome is Outcome.PROVED
    assert price(problem, proposal.registers) == min(single) < max(single)
    assert four.allocate(problem).registers == proposal.registers


@pytest.mark.long
def test_what_is_drawn_before_the_time_is_up_counts(random_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, _ = answered(*KERNELS[0])
    drawn: list[int] = []

    def slow(episode: Episode, scorer: Scorer, sampling: Sampling) -> Decoded:
        assert sampling.seconds is None or sampling.seconds <= 60
        drawn.append(sampling.seed)
        if sampling.seed == 2:
            raise OutOfTime(60.0, "k")
        return decode(episode, scorer, sampling)

    monkeypatch.setattr("verilocc_model.allocator.decode", slow)
    found = answering.ModelAllocator(random_model, seconds=60, samples=8).allocate(problem)
    assert drawn == [0, 1, 2]
    monkeypatch.undo()
    assert found.registers == answering.ModelAllocator(random_model, samples=2).allocate(problem).registers
    with pytest.raises(OutOfTime):
        answering.ModelAllocator(random_model, seconds=1e-9, samples=8).allocate(problem)


def test_preferences_of_the_machine_decide_between_samples() -> None:
    # MFMA chains on CDNA: the price of an answer that meets fewer is higher by just what they weigh.
    problem, proposal = answered("gemm_mma_lds.gfx942", "vgpr")
    form, table = told(problem)
    assert table.cost.preferences
    starts = cells_of(table, form.permuted(proposal.registers))
    met = [p for p in table.cost.preferences if all(r.holds(starts[r.a], starts[r.b]) for r in p[0])]
    assert met
    without = Table(form.problem)
    without.cost.preferences = ()
    missed = sum(weight for _, weight in table.cost.preferences) - sum(weight for _, weight in met)
    assert price_of(table, starts).copies == pytest.approx(price_of(without, starts).copies + missed)


@pytest.mark.long
def test_compile_takes_a_number_of_samples_and_says_so(random_model: Path, tmp_path: Path) -> None:
    out, report = tmp_path / "k.hsaco", tmp_path / "r.json"
    arguments = ["compile", str(kernel("gemm_mma_lds.gfx942")), "--model", str(random_model), "--model-samples", "3",
                 f"--report={report}", "-o", str(out)]  # fmt: skip
    result = CliRunner().invoke(cli, arguments, catch_exceptions=False, standalone_mode=False)
    assert result.return_value == 0
    attempts = [a for f in json.loads(report.read_text())["functions"] for p in f["phases"] for a in p["attempts"]]
    assert {(a["allocator"], a["version"], a["outcome"]) for a in attempts} == {("model", "noise, best of 3", "proved")}


def test_a_server_takes_a_number_of_samples(random_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERILOCC_MODEL", str(random_model))
    monkeypatch.setenv(SAMPLES_VARIABLE, "2")
    with serving(WITH_MODEL) as address, Client(address) as client:
        assert client.capabilities().allocators[0].version == "noise, best of 2"


def test_errors_say_what_is_wrong(random_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SAMPLES_VARIABLE, "many")
    with pytest.raises(InputError, match="many samples of the model are wanted, not between 1 and 1000"):
        allocator(f"model:{random_model}")
    # What is asked for goes before the environment.
    assert allocator(f"model:{random_model}", samples=5).version == "noise, best of 5"
    with pytest.raises(InputError, match="0 samples"):
        allocator(f"model:{random_model}", samples=0)
    result = CliRunner().invoke(cli, ["serve", "--model-samples", "4"])
    assert "--model-samples needs --model" in result.output + result.stderr
