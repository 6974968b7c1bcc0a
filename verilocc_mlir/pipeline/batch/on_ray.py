"""Jobs as tasks of a Ray cluster.

A task has a CPU and does its job as ``local`` does: in a worker process that stays for the next task, within the job's
time, once more if it dies. A Ray worker that dies takes that process with it, and Ray tries the task once more.
Journal, store and results stay with the process that runs the batch.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from smt_verifier.outcome import Outcome
from verilocc_mlir.errors import ToolchainError, VeriloccError
from verilocc_mlir.pipeline.batch.jobs import Job, Result
from verilocc_mlir.pipeline.batch.local import DEFAULT_MEMORY_MIB, Crew
from verilocc_mlir.pipeline.key import versions
from verilocc_mlir.ray_cluster import RUNTIME, connected, load_ray
from verilocc_mlir.toolchain.find import find_toolchain

_RETRIES = 1
_CANCEL_SECONDS = 30.0
_SAME = "install the same versions of verilocc-mlir and LLVM on every node"


@dataclass(frozen=True)
class _Unfit:
    """A node on which nothing can be done: what is wrong there, and what to do."""

    what: str
    where: str
    hint: str


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
        ray = load_ray()
        task = ray.remote(num_cpus=1, max_retries=_RETRIES, name="verilocc compile", runtime_env=RUNTIME)(_do)
        waiting: dict[Any, Job] = {}
        try:
            for job in jobs:
                waiting[task.remote(job, self._job_seconds, self._factory, self._memory_mib, self._expected)] = job
                # One more than are done at once: no CPU waits while this thread deals with a result.
                while len(waiting) > at_once:
                    yield from self._ready(ray, waiting)
            while waiting:
                yield from self._ready(ray, waiting)
        finally:
            for ref in waiting:
                # Ends the Ray worker; its process hears that its pipe ends, and ends with all it started.
                ray.cancel(ref, force=True)
            if waiting:
                ray.wait(list(waiting), num_returns=len(waiting), timeout=_CANCEL_SECONDS)

    def _ready(self, ray: Any, waiting: dict[Any, Job]) -> Generator[Result, None, None]:
        done, _ = ray.wait(list(waiting), num_returns=1)
        for ref in done:
            job = waiting.pop(ref)
            try:
                found: Result | _Unfit = ray.get(ref)
            except ray.exceptions.RayTaskError as error:
                # What goes wrong with a job is a result; this is a node without our modules, or with others.
                last = str(error).strip().splitlines()[-1]
                raise ToolchainError(f"a Ray task failed: {last}", hint=_SAME) from error
            except ray.exceptions.RayError as error:
                said = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
                found = Result(job.number, Outcome.UNKNOWN, message=f"the Ray worker was lost: {said}", final=False)
            if isinstance(found, _Unfit):
                raise ToolchainError(found.what, where=found.where, hint=found.hint)
            yield found


def _do(job: Job, seconds: float, factory: str, memory_mib: int, expected: Mapping[str, str]) -> Result | _Unfit:
    """One job, in a Ray worker."""
    try:
        here = _versions(job.settings.llvm)
        other = [f"{name} is {here[name]!r}, not {value!r}" for name, value in expected.items() if here[name] != value]
        if other:
            return _Unfit("; ".join(other), _node(), _SAME)
        return _crew(seconds, factory, memory_mib).do(job)
    except VeriloccError as error:
        return _Unfit(f"{error.where}: {error.what}" if error.where else error.what, _node(), error.hint)


@functools.cache
def _versions(llvm: Path | None) -> dict[str, str]:
    return versions(find_toolchain(llvm))


@functools.cache
def _crew(seconds: float, factory: str, memory_mib: int) -> Crew:
    """Workers of this Ray worker: one, as it has one task at a time."""
    return Crew(seconds, factory, memory_mib)


def _node() -> str:
    return f"node {platform.node()}"
