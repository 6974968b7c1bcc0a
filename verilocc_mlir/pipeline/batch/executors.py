"""Who does the jobs: worker processes of this machine, or tasks of a Ray cluster."""

from __future__ import annotations

import importlib
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from smt_verifier.outcome import Outcome
from smt_verifier.smt import default_solver
from verilocc_mlir.allocators import UNKNOWN_VERSION, Allocator
from verilocc_mlir.crew.descendants import serve_jobs
from verilocc_mlir.crew.jobs import JobCrew
from verilocc_mlir.crew.serve import Answer
from verilocc_mlir.crew.tasks import LocalTasks, as_ready
from verilocc_mlir.crew.worker import Late, WorkerFailure
from verilocc_mlir.errors import ToolchainError, VeriloccError, is_out_of_memory
from verilocc_mlir.own_process import look_for_garbage_seldom
from verilocc_mlir.pipeline.batch.jobs import BEFORE, REST, Job, Result
from verilocc_mlir.pipeline.chosen_allocators import allocators_of
from verilocc_mlir.pipeline.compile import compile_module
from verilocc_mlir.pipeline.key import versions
from verilocc_mlir.pipeline.settings import Effort, Emit, Settings
from verilocc_mlir.ray_cluster import Lost, Tasks, check_versions, connected, kept
from verilocc_mlir.results.compile import EXIT_CODES, Report
from verilocc_mlir.results.compile_document import to_data
from verilocc_mlir.toolchain.choose import choose_tools

# Jobs in worker processes of this machine: whatever one does (crash, hang, run out of memory) costs its job only.


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


# The process that compiles. Its question is a job, with the input's bytes; its answer has what a ``Result`` has.


Factory = Callable[[Settings], Sequence[Allocator]]
"""Gives the allocators for a job. What it makes (channels) it keeps: it is called for every job."""


def compile_jobs(factory: str, memory_mib: int) -> None:
    """Answer jobs until the pipe ends.

    Args:
        factory: ``module:attribute`` of a ``Factory``; ``""`` for the allocators of this process.
        memory_mib: limit of the address space of this process, and of each tool that it starts; the solver's processes
            have their own.
    """

    def load() -> Answer:
        module, _, attribute = factory.partition(":")
        allocators: Factory = getattr(importlib.import_module(module), attribute) if factory else allocators_of
        look_for_garbage_seldom()
        return partial(_answer, allocators, memory_mib)

    # Before there is another thread: a copy of this process, which has loaded what the solver needs.
    default_solver().start(fork=True)
    serve_jobs(load, memory_mib)


def _answer(
    allocators: Factory, memory_mib: int, job: dict[str, Any], data: bytes
) -> tuple[Mapping[str, object], bytes]:
    path: str = job["path"]
    try:
        settings = Settings.from_data(job["settings"])
        compiled = compile_module(data, path, settings, allocators=allocators(settings))
    except VeriloccError as error:
        # A tool that is missing or late may be there, or in time, another day.
        return _failure(_outcome(error), _line(error, path), final=not isinstance(error, ToolchainError))
    except Exception as error:
        if is_out_of_memory(error):
            what = f"out of memory: a worker has {memory_mib} MiB; give more with --memory"
            return _failure(Outcome.UNKNOWN, what, final=False, last=True)
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        return _failure(
            Outcome.UNKNOWN, f"a defect of verilocc: {type(error).__name__} at {where}: {error}", final=False
        )
    report = compiled.report
    proved = report.outcome is Outcome.PROVED and compiled.data is not None
    attempts = [a for f in report.functions for p in f.phases for a in p.attempts]
    versions = {a.version for a in attempts if a.server}
    header: dict[str, Any] = {
        "outcome": str(report.outcome),
        "message": "" if proved else _reason(report),
        "final": True,
        "last": False,
        "proved": proved,
        # A server that was replaced meanwhile is two servers; one that does not say what it has, none that is known.
        "keyed": not any(p.forsaken for f in report.functions for p in f.phases)
        and len(versions) <= 1
        and not versions & {"", UNKNOWN_VERSION}
        # Which model of plans was asked is in no key (``key.py``).
        and not (settings.server and settings.effort is Effort.LEARNED),
        "server_version": next(iter(versions), ""),
        "report": to_data(report),
    }
    data = compiled.data if proved and compiled.data is not None else b""
    parts = {emit.value: text for emit, text in compiled.also.items()}
    if Emit.MIR in settings.also:
        parts[BEFORE] = compiled.before.encode()
    if report.left_out and compiled.data is not None:
        parts[REST] = compiled.data
    header["parts"] = [[name, len(part)] for name, part in parts.items()]
    return header, b"".join((data, *parts.values()))


def _failure(outcome: Outcome, message: str, *, final: bool, last: bool = False) -> tuple[Mapping[str, object], bytes]:
    header = {"outcome": str(outcome), "message": " ".join(message.split()), "final": final, "last": last}
    return {**header, "proved": False, "keyed": True, "server_version": "", "report": None, "parts": []}, b""


def _outcome(error: VeriloccError) -> Outcome:
    return next(outcome for outcome, code in EXIT_CODES.items() if code == error.exit_code)


def _line(error: VeriloccError, path: str) -> str:
    """The message without the input's name, which stands before it wherever it is shown."""
    where = error.where.removeprefix(path).removeprefix(":")
    head = f"{where}: {error.what}" if where else error.what
    return f"{head} (hint: {error.hint})" if error.hint else head


def _reason(report: Report) -> str:
    if report.left_out:
        said = next((note for note in report.notes if "is left out: " in note), "") or _unproved_phase(report)
        return f"without {', '.join(report.left_out)}, which nobody proves: {' '.join(said.split())}"
    return _unproved_phase(report)


def _unproved_phase(report: Report) -> str:
    for function in report.functions:
        for phase in function.phases:
            if phase.outcome is not Outcome.PROVED:
                return f"{function.name}, {phase.phase.upper()}: {' '.join(phase.attempts[-1].reason.split())}"
    return "it did not come to the last phase"


# Jobs as tasks of a Ray cluster.
#
# A task has a CPU and does its job as ``LocalExecutor`` does: in a worker process that stays for the next task,
# within the job's time, once more if it dies. A Ray worker that dies takes that process with it, and Ray tries the task
# once more. Journal, store and results stay with the process that runs the batch.


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
    check_versions(expected, versions(choose_tools(job.settings.toolchain, job.settings.llvm)))
    return kept(JobDoer, seconds, factory, memory_mib).do(job)
