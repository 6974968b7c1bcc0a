"""The journal: what is in it is not measured again, wherever it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from measure_support import BEST, MIDDLE, RECORDING, WORST
from support import REPOSITORY

from verilocc_mlir.errors import InputError
from verilocc_mlir.measure.device import ReplayDevice
from verilocc_mlir.measure.journal import Journal, read_measurements
from verilocc_mlir.measure.runner import Turns, measure
from verilocc_mlir.results.measure import Measurement, measurement_data, measurement_from_data

TURNS = Turns(runs=4, warm_up=0)


def measured(candidate: str) -> Measurement:
    device = ReplayDevice(RECORDING)
    return measure(device, device.subject(MIDDLE), device.subject(candidate), TURNS)


@pytest.fixture(name="path")
def _path(tmp_path: Path) -> Path:
    path = tmp_path / "measured.jsonl"
    with Journal(path) as journal:
        journal.add(measured(BEST))
        journal.add(measured(WORST))
    return path


def test_a_line_is_what_it_was_made_of(path: Path) -> None:
    schema = json.loads((REPOSITORY / "verilocc_mlir/results/documents/measure.schema.json").read_text())
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        Draft202012Validator(schema).validate(line)
    kept, passed_over = read_measurements(path)
    assert passed_over == 0
    assert [one.candidate.name for one in kept] == [BEST, WORST]
    assert kept == [measurement_from_data(line) for line in lines]
    assert [measurement_data(one) for one in kept] == lines
    assert sum(len(one.base) for one in kept[0].rounds) == 32


def test_a_journal_may_end_anywhere(path: Path) -> None:
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for end in (first - 1, first + 1, first + 700, len(whole) - 2):
        path.write_bytes(whole[:end])
        kept, passed_over = read_measurements(path)
        assert len(kept) == (1 if end >= first - 1 else 0)
        assert passed_over == (0 if end == first - 1 else 1)
        one = measured(WORST)
        with Journal(path) as journal:
            assert journal.passed_over == passed_over
            assert journal.find(one.asked) is None
            journal.add(one)
        kept, _ = read_measurements(path)
        assert [k.candidate.name for k in kept] == [BEST, WORST]


def test_lines_of_other_versions_do_not_count(path: Path) -> None:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[0]["measurement"] = 99
    del lines[1]["verdict"]
    path.write_text("".join(json.dumps(line) + "\n" for line in [*lines, [1, 2]]))
    assert read_measurements(path) == ([], 3)


def test_two_runs_do_not_write_one_journal(path: Path) -> None:
    with Journal(path), pytest.raises(InputError, match="another run is writing here"):
        Journal(path)
    with Journal(path):
        # Reading needs no lock.
        assert len(read_measurements(path)[0]) == 2


def test_a_journal_that_cannot_be_read_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the journal cannot be read"):
        read_measurements(tmp_path / "none.jsonl")
    with pytest.raises(InputError, match="cannot be written"):
        Journal(tmp_path / "none" / "journal.jsonl")
