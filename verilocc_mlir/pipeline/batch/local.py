"""Jobs in worker processes of this machine: whatever one does (crash, hang, run out of memory) costs its job only."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable
from contextlib import closing
from functools import partial
from typing import Any

from smt_verifier.outcome import Outcome
from verilocc_mlir.crew.jobs import JobCrew
from verilocc_mlir.crew.tasks import LocalTasks, as_ready
from verilocc_mlir.crew.worker import Late, WorkerFailure
from verilocc_mlir.pipeline.batch.jobs import Job, Result
from verilocc_mlir.pipeline.batch.worker import compile_jobs

DEFAULT_MEMORY_MIB = 2048
_MAX_JOBS = 200
"""A worker is replaced after so many: what they left behind in it (memory) goes with it."""


class LocalExecutor:
    """An ``Executor`` with processes of this machine.

    Args:
        workers: how many; each does one job at a time.
        job_seconds: elapsed time that a job may take; then it is UNKNOWN.
        factory: what gives a worker its allocators, as for ``worker.compile_jobs``.
        memory_mib: address space of a worker, and of each tool that it starts; then the job is UNKNOWN.
    """

    def __init__(
        self, workers: int, job_seconds: float, factory: str = "", memory_mib: int = DEFAULT_MEMORY_MIB
    ) -> None:
        self._workers = workers
        self._job_seconds = job_seconds
        self._factory = factory
        self._memory_mib = memory_mib

    def run(self, jobs: Iterable[Job]) -> Generator[Result, None, None]:
        """See ``Executor``. A worker that dies has its job tried once more by another.

        Raises:
            ToolchainError: workers do not start at all.
        """
        doer = JobDoer(self._job_seconds, self._factory, self._memory_mib, forks=self._workers > 1)
        tasks = LocalTasks(doer.do, self._workers, doer.stop)
        with closing(as_ready(tasks, jobs, self._workers)) as results:
            for _, result in results:
                yield result


class JobDoer:
    """Does jobs in workers of this process; as many as are done at once.

    Args:
        job_seconds, factory, memory_mib: as for ``LocalExecutor``.
        forks: as for ``JobCrew``.
    """

    def __init__(self, job_seconds: float, factory: str, memory_mib: int, *, forks: bool = False) -> None:
        self._job_seconds = job_seconds
        self._crew = JobCrew(partial(compile_jobs, factory, memory_mib), forks=forks)
        self.stop = self._crew.stop

    def do(self, job: Job) -> Result:
        """One job, from start to end; its seconds are those of the worker that had it last.

        Raises:
            ToolchainError: no worker starts, or the run is over.
        """
        message, start = "", 0.0
        for _ in range(2):
            try:
                with self._crew.worker() as worker:
                    start = time.monotonic()
                    question = {"path": job.path, "settings": job.settings.to_data()}
                    header, data = worker.ask(question, self._job_seconds, job.data)
                    worker.last |= worker.answered >= _MAX_JOBS
                return _result(job, header, data, time.monotonic() - start)
            except Late:
                message = f"not finished within {self._job_seconds:g} s"
                break
            except WorkerFailure as failure:
                message = f"{failure}, twice"
        return Result(job.number, Outcome.UNKNOWN, message=message, final=False, seconds=time.monotonic() - start)


def _result(job: Job, header: dict[str, Any], data: bytes, seconds: float) -> Result:
    end = at = len(data) - sum(size for _, size in header["parts"])
    parts: dict[str, bytes] = {}
    for name, size in header["parts"]:
        parts[name], at = data[at : at + size], at + size
    return Result(
        number=job.number,
        outcome=Outcome(header["outcome"]),
        data=data[:end] if header["proved"] else None,
        report=header["report"],
        message=header["message"],
        final=header["final"],
        seconds=seconds,
        keyed=header["keyed"],
        server_version=header["server_version"],
        parts=parts,
    )
