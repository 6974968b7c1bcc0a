"""What the benchmark scripts share: a log survives an interrupt, and a command shows no place of this machine."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
from support import REPOSITORY

SCRIPTS = REPOSITORY / "benchmarks"


@pytest.fixture
def common(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module("common")


def test_a_log_goes_on_behind_a_line_that_was_cut_off(common: Any, tmp_path: Path) -> None:
    path = tmp_path / "new" / "rows.jsonl"
    common.Log(path).add({"name": "a"})
    with path.open("a") as stream:
        stream.write('{"name": "cut')
    log = common.Log(path)
    log.add({"name": "b"})
    assert [row["name"] for row in log.rows()] == ["a", "b"]


def test_results_are_written_whole_and_read_again(common: Any, tmp_path: Path) -> None:
    path = tmp_path / "new" / "results.json"
    assert common.earlier(path) == {}
    common.write(path, {"rows": [1]})
    assert common.earlier(path) == json.loads(path.read_text()) == {"rows": [1]}
    assert [file.name for file in path.parent.iterdir()] == ["results.json"]


def test_the_command_shows_no_place_of_this_machine(common: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["/somewhere/benchmarks/x.py", "--out", "/tmp/x", "--seed", "1", "--kernels=/tmp/k", "DIR"]
    monkeypatch.setattr("sys.argv", words)
    assert common.command() == "benchmarks/x.py --seed 1 DIR"
