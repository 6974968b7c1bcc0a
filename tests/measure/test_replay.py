"""Recordings: Kernel Tuner's caches and our own journals, and what is none."""

from __future__ import annotations

import gzip
import importlib
import json
from pathlib import Path
from statistics import mean

import pytest
from measure_support import BEST, FAILED, MIDDLE, RECORDING, WORST
from support import REPOSITORY

from verilocc_mlir.errors import InputError
from verilocc_mlir.measure.device import ReplayDevice, read_recording
from verilocc_mlir.measure.journal import Journal
from verilocc_mlir.measure.runner import Turns, measure
from verilocc_mlir.results.measure import Verdict


def test_a_cache_of_kernel_tuner_is_read_as_it_is() -> None:
    recording = read_recording(RECORDING)
    rows = json.loads(RECORDING.read_text())["cache"]
    assert recording.times.keys() == rows.keys() - {FAILED}
    assert recording.device.name == "AMD Radeon PRO W7800"
    assert recording.kernel == "convolution_kernel"
    assert {len(times) for times in recording.times.values()} == {32}
    # Kernel Tuner's "time" is the mean of "times".
    assert mean(recording.times[BEST]) == pytest.approx(rows[BEST]["time"])


def test_a_compressed_cache_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "W7800.json.gz"
    path.write_bytes(gzip.compress(RECORDING.read_bytes()))
    assert read_recording(path).times == read_recording(RECORDING).times
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(InputError, match="cannot be read"):
        read_recording(path)


def test_each_time_is_given_once() -> None:
    device = ReplayDevice(RECORDING)
    loaded = device.load(device.subject(BEST))
    assert [len(loaded.times(10)) for _ in range(5)] == [10, 10, 10, 2, 0]


def test_what_is_not_recorded_is_said() -> None:
    device = ReplayDevice(RECORDING)
    with pytest.raises(InputError, match="is not recorded") as missing:
        device.subject(FAILED)
    assert BEST in missing.value.hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "this is no recording"),
        ("{}", "this is no recording"),
        ('{"cache": 3, "device_name": "x", "kernel_name": "y"}', "no cache of Kernel Tuner"),
        ('{"cache": {}, "device_name": "x", "kernel_name": "y"}', "no time is recorded"),
        ('{"cache": {"1": {"time": 1, "times": ["x"]}}, "device_name": "x", "kernel_name": "y"}', "no cache of"),
    ],
)
def test_other_files_are_one_error(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "recording.json"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        ReplayDevice(path)


def test_our_own_journal_is_a_device(tmp_path: Path) -> None:
    recorded = ReplayDevice(RECORDING)
    path = tmp_path / "journal.jsonl"
    turns = Turns(runs=4, warm_up=0)
    with Journal(path) as journal:
        for candidate in (BEST, WORST):
            journal.add(measure(recorded, recorded.subject(MIDDLE), recorded.subject(candidate), turns))
        first = measure(recorded, recorded.subject(MIDDLE), recorded.subject(BEST), turns)
    device = ReplayDevice(path)
    base, best, worst = (device.subject(recorded.subject(name).code.sha256[:12]) for name in (MIDDLE, BEST, WORST))
    again = measure(device, base, best, turns)
    assert (again.verdict, again.ratio) == (Verdict.FASTER, first.ratio)
    assert measure(device, best, worst, turns).verdict is Verdict.SLOWER
    assert again.device == first.device
    with pytest.raises(InputError, match="is not recorded"):
        device.subject(base.name[:7])


def test_one_code_against_itself_is_neither_faster_nor_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmark of verdicts, on the sample: both ways to split what hardware took."""
    monkeypatch.syspath_prepend(str(REPOSITORY / "benchmarks"))
    script = importlib.import_module("measure_verdicts")
    times = [*read_recording(RECORDING).times.values()]
    rounds = script.in_turns(times[0])
    assert sorted(time for one in rounds for time in (*one.base, *one.candidate)) == sorted(times[0])
    halves = script.one_after_the_other(times[0])
    assert [time for one in halves for time in one.candidate] == list(times[0][16:])
    counts = script.counted(times)
    assert all(sum(verdicts.values()) == len(times) for verdicts in counts.values())
    assert counts["in turns, tie 0.01"].keys() <= {"alike", "undecided"}
