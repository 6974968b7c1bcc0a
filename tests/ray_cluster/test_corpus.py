"""The corpus on a Ray cluster of this machine: the data set is the same, whatever dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from cluster_support import MARKS, needs_ray
from corpus_support import hold_once, needs, task
from process_support import gone, lines_of, parent_of

from verilocc_mlir.cli.main import run as verilocc
from verilocc_mlir.errors import ToolchainError
from verilocc_mlir.ray_cluster import Cluster
from verilocc_model.corpus import on_ray
from verilocc_model.corpus.build import Recipe, make
from verilocc_model.corpus.on_ray import RayRunner
from verilocc_model.corpus.shards import read_journal, read_lines

pytestmark = MARKS

RUNNER = RayRunner("local", ("mlir",))
RECIPE = Recipe(3, 1, ("gfx942",), ("mlir",), ("conv",), teachers=("deterministic",))
OPTIONS = ["--seed=1", "--target=gfx942", "--source=mlir", "--family=conv", "--teacher=deterministic", "--kernels=3"]


class Stop(Exception):
    pass


def _stop(_row: Mapping[str, Any], _left: int) -> None:
    raise Stop


@pytest.mark.long
@needs_ray
def test_the_data_set_is_the_one_made_without_ray(cluster: Cluster, tmp_path: Path) -> None:
    needs("mlir")
    for out, options in (("here", ["-j1"]), ("ray", ["--ray"])):
        assert verilocc(["corpus", "make", "--out", str(tmp_path / out), "-q", *OPTIONS, *options]) == 0
    here, there = (
        {path.name: path.read_bytes() for path in (tmp_path / out).iterdir() if path.name != "journal.jsonl"}
        for out in ("here", "ray")
    )
    assert sorted(here) == ["manifest.json", "problems-00000.jsonl.zst"]
    assert there == here
    rows = [[{**row, "seconds": 0} for row in read_journal(tmp_path / out)] for out in ("here", "ray")]
    assert len(rows[0]) == 3
    assert rows[1] == rows[0]
    # Interrupted, it goes on where it was, with Ray or without.
    with pytest.raises(Stop):
        make(RECIPE, tmp_path / "cut", jobs=0, runner=RUNNER, progress=_stop)
    assert len(list(read_journal(tmp_path / "cut"))) == 1
    make(RECIPE, tmp_path / "cut", jobs=1, runner=RUNNER)
    assert list(read_lines(tmp_path / "cut")) == list(read_lines(tmp_path / "here"))


@pytest.mark.long
@needs_ray
def test_a_task_that_crashes_hangs_or_fails_costs_itself_only(cluster: Cluster) -> None:
    needs("mlir")
    done = list(RUNNER(task, ["a", "crash", "b", "hang", "bad", "c"], jobs=2, seconds=15))
    assert [one.task for one in done] == ["a", "crash", "b", "hang", "bad", "c"]
    assert [one.result for one in done] == ["A", None, "B", None, None, "C"]
    failures = [one.failure for one in done]
    assert failures[1] == "the process ended with status 7"
    assert failures[3] == "not finished within 15 s"
    assert failures[4] == "here: not good"


@pytest.mark.long
@needs_ray
def test_a_ray_worker_that_is_killed_costs_no_task(cluster: Cluster, tmp_path: Path) -> None:
    needs("mlir")
    with ThreadPoolExecutor(1) as pool:
        given = ["a", str(tmp_path), "b", "c"]
        running = pool.submit(lambda: list(RUNNER(hold_once, given, jobs=2, seconds=90)))
        (line,) = lines_of(tmp_path / "pids")
        process, tool = map(int, line.split())
        os.kill(parent_of(process), signal.SIGKILL)
        done = running.result(60)
    assert [(one.result, one.failure) for one in done] == [(one, "") for one in given]
    # What worked for the Ray worker went with it.
    assert gone(process)
    assert gone(tool)


@pytest.mark.long
@needs_ray
def test_a_task_whose_ray_worker_is_killed_each_time_has_no_result(cluster: Cluster) -> None:
    needs("mlir")
    done = list(RUNNER(_kill_ray_worker, ["a", "die", "b"], jobs=2, seconds=60))
    assert [one.result for one in done] == ["a", None, "b"]
    assert done[1].failure.startswith("the Ray worker was lost: ")


def _kill_ray_worker(what: str) -> str:
    if what == "die":
        os.kill(os.getppid(), signal.SIGKILL)
    return what


@pytest.mark.long
@needs_ray
def test_closing_ends_what_is_running_on_the_cluster(cluster: Cluster, tmp_path: Path) -> None:
    needs("mlir")
    given = (str(tmp_path) if number == 1 else "a" for number in count())
    with closing(RUNNER(hold_once, given, jobs=2, seconds=600)) as results:
        assert next(results).result == "a"
        (line,) = lines_of(tmp_path / "pids")
    assert all(gone(int(pid)) for pid in line.split())


@pytest.mark.long
@needs_ray
def test_a_node_with_another_front_end_is_refused(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("mlir")
    here = on_ray._versions(("mlir",))
    monkeypatch.setattr(on_ray, "_versions", lambda _sources: {**here, "mlir": "torch-mlir 1"})
    with pytest.raises(ToolchainError, match=r"node .*: mlir is 'torch-mlir .*', not 'torch-mlir 1'") as raised:
        list(RUNNER(task, ["a"], jobs=1, seconds=60))
    assert "same versions" in raised.value.hint
