"""Batches on a Ray cluster of this machine: several processes, some of them killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from batch_support import CPU, SETTINGS, faulty_llc, job, kernels
from cluster_support import MARKS, needs_ray
from msgspec.structs import replace
from process_support import gone, lines_of, parent_of

from smt_verifier.outcome import Outcome
from verilocc_mlir.cli.main import run
from verilocc_mlir.errors import ToolchainError
from verilocc_mlir.pipeline.batch.executors import LocalExecutor, RayExecutor
from verilocc_mlir.pipeline.batch.jobs import Job
from verilocc_mlir.pipeline.key import versions
from verilocc_mlir.ray_cluster import Cluster
from verilocc_mlir.toolchain.find import find_toolchain

pytestmark = MARKS


def executor(seconds: float = 60) -> RayExecutor:
    return RayExecutor("local", 0, seconds, versions(find_toolchain()))


@pytest.mark.long
@needs_ray
def test_compile_many_writes_what_it_writes_without_ray(cluster: Cluster, tmp_path: Path) -> None:
    kernels(tmp_path / "in", 6)
    (tmp_path / "in" / "bad.ll").write_text("this is no kernel\n")
    for out, options in (("here", []), ("ray", ["--ray"])):
        command = ["compile-many", str(tmp_path / "in"), "-o", str(tmp_path / out), f"-mcpu={CPU}", "-q", *options]
        assert run([*command, f"--cache={tmp_path / out}.store"]) == 2
    here, there = (
        {path.name: path.read_bytes() for path in (tmp_path / out).glob("*.hsaco")} for out in ("here", "ray")
    )
    assert len(here) == 6
    assert there == here
    stored = [sorted(p.name for p in (tmp_path / f"{out}.store").rglob("*") if p.is_file()) for out in ("here", "ray")]
    assert stored[0] == stored[1]


@pytest.mark.long
@needs_ray
def test_a_tool_that_is_killed_while_a_node_is_looked_at_is_asked_again(cluster: Cluster, tmp_path: Path) -> None:
    llc = tmp_path / "llc"
    once = 'if [ "$1" = --version ] && [ ! -e "$0.log" ]; then echo killed > "$0.log"; kill -KILL $$; fi'
    llc.write_text(f'#!/bin/sh\n{once}\nexec {find_toolchain().llc} "$@"\n')
    llc.chmod(0o755)
    (result,) = executor().run([job(0, 3, replace(SETTINGS, llvm=llc))])
    assert lines_of(Path(f"{llc}.log")) == ["killed"]
    assert result.outcome is Outcome.PROVED


@pytest.mark.long
@needs_ray
def test_a_ray_worker_that_is_killed_costs_no_job(cluster: Cluster, tmp_path: Path) -> None:
    action = 'if [ ! -e "$0.log" ]; then echo $$ $PPID >> "$0.log"; sleep 600; fi'
    slow = faulty_llc(tmp_path / "llc", "times4", action)
    expected = {r.number: r.data for r in LocalExecutor(1, 60).run([job(n, 3 + n) for n in range(4)])}
    with ThreadPoolExecutor(1) as pool:
        given = [job(n, 3 + n, replace(SETTINGS, llvm=slow)) for n in range(4)]
        running = pool.submit(lambda: list(executor().run(given)))
        (line,) = lines_of(Path(f"{slow}.log"))
        tool, worker = map(int, line.split())
        os.kill(parent_of(worker), signal.SIGKILL)
        results = running.result(60)
    assert {r.number: r.outcome for r in results} == dict.fromkeys(range(4), Outcome.PROVED)
    assert {r.number: r.data for r in results} == expected
    # What worked for the Ray worker went with it.
    assert gone(worker)
    assert gone(tool)


@pytest.mark.long
@needs_ray
def test_a_job_over_its_time_is_unknown_and_the_next_one_is_done(cluster: Cluster, tmp_path: Path) -> None:
    slow = faulty_llc(tmp_path / "llc", "times4", 'echo $$ $PPID >> "$0.log"; sleep 600')
    given = [job(n, 3 + n, replace(SETTINGS, llvm=slow)) for n in range(3)]
    results = {r.number: r for r in executor(8).run(given)}
    assert {n: r.outcome for n, r in results.items()} == {0: Outcome.PROVED, 1: Outcome.UNKNOWN, 2: Outcome.PROVED}
    assert results[1].message == "not finished within 8 s"
    assert not results[1].final
    assert all(gone(int(pid)) for line in lines_of(Path(f"{slow}.log")) for pid in line.split())


@pytest.mark.long
@needs_ray
def test_closing_ends_what_is_running_on_the_cluster(cluster: Cluster, tmp_path: Path) -> None:
    slow = faulty_llc(tmp_path / "llc", "times4", 'echo $$ $PPID >> "$0.log"; sleep 600')
    taken: list[int] = []

    def given() -> Generator[Job, None, None]:
        for number in range(100):
            taken.append(number)
            yield job(number, 4 if number else 3, replace(SETTINGS, llvm=slow))

    with closing(executor().run(given())) as results:
        assert next(results).number == 0
        log = lines_of(Path(f"{slow}.log"))
    assert len(taken) <= 4
    assert all(gone(int(pid)) for line in log for pid in line.split())


@pytest.mark.long
@needs_ray
def test_a_node_with_other_versions_is_refused(cluster: Cluster) -> None:
    other = {**versions(find_toolchain()), "LLVM": "LLVM version 99"}
    with pytest.raises(ToolchainError, match=r"node .*: LLVM is '.*', not 'LLVM version 99'") as raised:
        list(RayExecutor("local", 1, 60, other).run([job(0, 3)]))
    assert "same versions" in raised.value.hint
