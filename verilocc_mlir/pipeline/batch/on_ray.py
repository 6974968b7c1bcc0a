"""Jobs as tasks of a Ray cluster.

A task has a CPU and does its job as ``local`` does: in a worker process that stays for the next task, within the job's
time, once more if it dies. A Ray worker that dies takes that process with it, and Ray tries the task once more.
Journal, store and results stay with the process that runs the batch.
"""

from __future__ import annotations

import functools
from collections.abc import Generator, Iterable, Mapping
from contextlib import closing
from itertools import chain
from pathlib import Path

from smt_verifier.outcome import Outcome
from verilocc_mlir.crew.tasks import as_ready
from verilocc_mlir.pipeline.batch.jobs import Job, Result
from verilocc_mlir.pipeline.batch.local import DEFAULT_MEMORY_MIB, JobDoer
from verilocc_mlir.pipeline.key import versions
from verilocc_mlir.ray_cluster import connected
from verilocc_mlir.ray_tasks import Lost, Tasks, check_versions
from verilocc_mlir.toolchain.choice import ToolchainChoice
from verilocc_mlir.toolchain.choose import choose_tools


class RayExecutor:
    """An ``Executor`` with the nodes of a Ray cluster, which is joined or started when there is a job.

    Args:
        address: as for ``ray_cluster.connected``.
        at_once: tasks that are given to the cluster at a time, and the CPUs of a local one; 0: as many as it has CPUs.
        job_seconds: elapsed time that a job may take once it has begun; then it is UNKNOWN.
        expected: ``key.versions`` of this machine; a node with others is refused, its results would be other ones.
        factory, memory_mib: as for ``LocalExecutor``.
    """

    def __init__(
        self,
        address: str,
        at_once: int,
        job_seconds: float,
        expected: Mapping[str, str],
        factory: str = "",
        memory_mib: int = DEFAULT_MEMORY_MIB,
    ) -> None:
        self._address = address
        self._at_once = at_once
        self._job_seconds = job_seconds
        self._expected = dict(expected)
        self._factory = factory
        self._memory_mib = memory_mib

    def run(self, jobs: Iterable[Job]) -> Generator[Result, None, None]:
        """See ``Executor``. A Ray worker or node that dies has its job tried once more by another.

        Raises:
            UnsupportedError: Ray is not installed. InputError: there is no cluster. ToolchainError: a node has other
            versions, or no worker process starts there.
        """
        todo = iter(jobs)
        for first in todo:
            with connected(self._address, self._at_once or None) as cluster:
                yield from self._run(chain([first], todo), self._at_once or cluster.cpus)

    def _run(self, jobs: Iterable[Job], at_once: int) -> Generator[Result, None, None]:
        tasks: Tasks[Job] = Tasks(
            "verilocc compile", _do, self._job_seconds, self._factory, self._memory_mib, self._expected
        )
        with closing(as_ready(tasks, jobs, at_once)) as results:
            for job, result in results:
                if isinstance(result, Lost):
                    yield Result(job.number, Outcome.UNKNOWN, message=result.reason, final=False)
                else:
                    yield result


def _do(job: Job, seconds: float, factory: str, memory_mib: int, expected: Mapping[str, str]) -> Result:
    """One job, in a Ray worker.

    Raises:
        ToolchainError: other versions here, or no worker process starts.
    """
    check_versions(expected, _versions(job.settings.toolchain, job.settings.llvm))
    return _doer(seconds, factory, memory_mib).do(job)


@functools.cache
def _versions(toolchain: ToolchainChoice, llvm: Path | None) -> dict[str, str]:
    return versions(choose_tools(toolchain, llvm))


@functools.cache
def _doer(seconds: float, factory: str, memory_mib: int) -> JobDoer:
    """Workers of this Ray worker: one, as it has one task at a time."""
    return JobDoer(seconds, factory, memory_mib)
