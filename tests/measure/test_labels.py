"""Labels of plans by the clock: a real data set of one kernel, and measurements of its plans."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from corpus_support import needs
from measure_support import gemm, gemm_that_is, stand_in_hip
from msgspec.structs import replace

from verilocc_mlir.cli.main import run
from verilocc_mlir.measure.device import Subject
from verilocc_mlir.measure.hip import Hip, HipDevice, Launch
from verilocc_mlir.measure.journal import Journal
from verilocc_mlir.measure.runner import Turns, measure
from verilocc_mlir.results.measure import Measurement
from verilocc_model.corpus.build import make
from verilocc_model.corpus.shards import read_lines
from verilocc_model.plans.data import read_labels
from verilocc_model.plans.labels import PlanRecipe

pytest.importorskip("zstandard")

PLANS = ("default", "max-ilp", "beside")


@pytest.fixture(name="labels", scope="module")
def _labels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    needs("mlir")
    directory = tmp_path_factory.mktemp("labels") / "set"
    make(PlanRecipe(1, 1, ("gfx942",), ("mlir",), ("conv",), plans=PLANS), directory)
    return directory


def measured(base: str, candidate: str, ir: str, word: str = "SLOW") -> Measurement:
    """Some measurement, said to be of these plans of the kernel: twice the time, or other results."""
    library = stand_in_hip()
    launch = Launch((1, 1, 1), arguments=("0=64xi8", "1=64xi8", "2=64xi8=0"))
    device = HipDevice(launch, open_hip=lambda number: Hip(number, library))
    return measure(device, Subject(base, gemm()), Subject(candidate, gemm_that_is(word)), Turns(), ir=ir)


def relabelled(labels: Path, at: Path, *measurements: Measurement) -> dict[str, Any]:
    with Journal(at / "j.jsonl") as journal:
        for one in measurements:
            journal.add(one)
    assert run(["corpus", "measured", str(labels), f"--journal={at / 'j.jsonl'}", f"--out={at / 'out'}"]) == 0
    (line,) = map(json.loads, read_lines(at / "out"))
    return line


def test_the_order_is_the_clock_s_and_the_scale_the_model_s(
    labels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (line,) = map(json.loads, read_lines(labels))
    ir = line["sha256"]
    made = relabelled(
        labels, tmp_path, measured("default", "max-ilp", ir), measured("default", "beside", ir, "WRONG"),
        measured("default", "max-ilp", "0" * 64), measured("default", "a.hsaco", ir),
    )  # fmt: skip
    assert "2 labels by the clock, of 1 kernels" in capsys.readouterr().out
    before, after = ({row["plan"]: row for row in one["plans"]} for one in (line, made))
    assert after["default"] == before["default"]
    assert after["max-ilp"]["cycles"] == pytest.approx(2 * before["default"]["cycles"], rel=0.01)
    assert after["max-ilp"]["waves"] == before["max-ilp"]["waves"]
    assert {plan: row["reason"] for plan, row in after.items() if "reason" in row} == {"beside": "its results differ"}
    assert made["llvm"] == line["llvm"]
    (read,) = read_labels(tmp_path / "out")
    assert set(read.plans) == {"default", "max-ilp"}


def test_a_base_that_is_llvm_s_scales_all(labels: Path, tmp_path: Path) -> None:
    (line,) = map(json.loads, read_lines(labels))
    ir = line["sha256"]
    made = relabelled(
        labels, tmp_path, *(measured("llvm", plan, ir, word) for plan, word in (("default", ""), ("beside", "SLOW")))
    )
    figures = {row["plan"]: row.get("cycles") for row in made["plans"]}
    assert made["llvm"] == line["llvm"]
    assert figures["default"] == pytest.approx(line["llvm"]["cycles"], rel=0.01)
    assert figures["beside"] == pytest.approx(2 * line["llvm"]["cycles"], rel=0.01)
    assert figures["max-ilp"] is None
    assert [row["reason"] for row in made["plans"] if "reason" in row] == ["not measured"]


@pytest.mark.parametrize("change", ["another GPU", "another kernel", "two bases"])
def test_what_is_not_of_the_set_labels_nothing(
    labels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: str
) -> None:
    (line,) = map(json.loads, read_lines(labels))
    one = measured("default", "max-ilp", line["sha256"])
    measurements = {
        "another GPU": [replace(one, device=replace(one.device, architecture="gfx1100"))],
        "another kernel": [replace(one, kernel=replace(one.kernel, ir=""))],
        "two bases": [one, measured("max-ilp", "beside", line["sha256"])],
    }[change]
    with Journal(tmp_path / "j.jsonl") as journal:
        for measurement in measurements:
            journal.add(measurement)
    command = ["corpus", "measured", str(labels), f"--journal={tmp_path / 'j.jsonl'}", f"--out={tmp_path / 'out'}"]
    assert run(command) == 2
    assert "no kernel of the data set was measured" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
