"""Jobs in worker processes of this machine: whatever one does (crash, hang, run out of memory) costs its job only.

A worker has a session of its own and stays for the next job, as long as it answers. All that it starts carries its mark
in the environment, and is ended with it, whatever process group it is in.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import IO, Any

from smt_verifier.outcome import Outcome
from verilocc_mlir.errors import ToolchainError
from verilocc_mlir.pipeline.batch.jobs import Job, Result
from verilocc_mlir.pipeline.batch.worker import JOB_VARIABLE, end_processes, frame, read_frame

_START = (
    "import sys; sys.path[:] = sys.argv[3:]; from verilocc_mlir.pipeline.batch.worker import serve; "
    "serve(sys.argv[1], int(sys.argv[2]))"
)
"""The worker finds modules where this process does, and never in the directory the user happens to be in."""

DEFAULT_MEMORY_MIB = 2048
_START_SECONDS = 120.0
_GRACE_SECONDS = 5.0
_MAX_JOBS = 200
"""A worker is replaced after so many: what they left behind in it (memory) goes with it."""


class _Ended(Exception):
    """The worker ended without an answer; the message says how."""


class _Late(Exception):
    """The worker was ended because its time was up."""


class _Stopped(Exception):
    """The run is over; no worker starts any more."""


class LocalExecutor:
    """An ``Executor`` with processes of this machine.

    Args:
        workers: how many; each does one job at a time.
        job_seconds: elapsed time that a job may take; then it is UNKNOWN.
        factory: what gives a worker its allocators, as for ``worker.serve``.
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
        crew = Crew(self._job_seconds, self._factory, self._memory_mib)
        waiting: set[Future[Result]] = set()
        pool = ThreadPoolExecutor(max_workers=self._workers)
        try:
            for job in jobs:
                waiting.add(pool.submit(crew.do, job))
                # One more than there are workers: none waits while this thread deals with a result.
                while len(waiting) > self._workers:
                    done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                    for future in done:
                        yield future.result()
            while waiting:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            for future in waiting:
                future.cancel()
            crew.stop()
            pool.shutdown()
            crew.close()


class Crew:
    """Workers of this process, idle or at work; as many as jobs are done at once.

    Args:
        job_seconds, factory, memory_mib: as for ``LocalExecutor``.
    """

    def __init__(self, job_seconds: float, factory: str, memory_mib: int) -> None:
        self._job_seconds = job_seconds
        self._memory_mib = memory_mib
        self._factory = factory
        self._lock = threading.Lock()
        self._stopped = False
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()

    def do(self, job: Job) -> Result:
        """One job, from start to end; its seconds are those of the worker that had it last.

        Raises:
            ToolchainError: no worker starts. _Stopped: the run is over.
        """
        reason, start = "", 0.0
        for _ in range(2):
            worker = self._take()
            start = time.monotonic()
            try:
                header, data = worker.ask(job, self._job_seconds)
            except _Late:
                self._end(worker)
                return self._unknown(job, f"not finished within {self._job_seconds:g} s", start)
            except _Ended as ended:
                self._end(worker)
                reason = str(ended)
                continue
            # What is left of a heap after a failed allocation is nobody's business.
            if header["spent"]:
                self._end(worker)
            else:
                self._give_back(worker)
            return _result(job, header, data, time.monotonic() - start)
        return self._unknown(job, f"{reason}, twice", start)

    def stop(self) -> None:
        """End all workers and what they have started."""
        with self._lock:
            self._stopped = True
            workers = tuple(self._all)
        for worker in workers:
            worker.kill()

    def close(self) -> None:
        """Close the pipes, when no thread waits for them any more."""
        for worker in self._all:
            worker.close()

    def _unknown(self, job: Job, message: str, start: float) -> Result:
        return Result(job.number, Outcome.UNKNOWN, message=message, final=False, seconds=time.monotonic() - start)

    def _take(self) -> _Worker:
        with self._lock:
            if self._stopped:
                raise _Stopped
            if self._idle:
                return self._idle.pop()
            worker = _Worker(self._factory, self._memory_mib)
            self._all.add(worker)
        try:
            worker.begin()
        except _Ended as ended:
            self._end(worker)
            raise ToolchainError(f"no worker process starts: {ended}", hint="run `verilocc doctor`") from ended
        return worker

    def _give_back(self, worker: _Worker) -> None:
        if worker.usable:
            with self._lock:
                self._idle.append(worker)
        else:
            self._end(worker)

    def _end(self, worker: _Worker) -> None:
        worker.kill()
        with self._lock:
            if self._stopped:
                raise _Stopped
            self._all.discard(worker)
        worker.close()


class _Worker:
    """One process."""

    def __init__(self, factory: str, memory_mib: int) -> None:
        self._mark = secrets.token_hex(16)
        self._late = False
        self._jobs = 0
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self._process: subprocess.Popen[bytes] = subprocess.Popen(
                [sys.executable, "-c", _START, factory, str(memory_mib), *sys.path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env={**os.environ, JOB_VARIABLE: self._mark},
                start_new_session=True,
            )
        except OSError as error:
            self._errors.close()
            raise ToolchainError(f"no worker process starts: {error}") from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._questions, self._answers = self._process.stdin, self._process.stdout

    @property
    def usable(self) -> bool:
        """Whether it may be asked again."""
        return not self._late and self._jobs < _MAX_JOBS

    def begin(self) -> None:
        """Wait until it has loaded what it needs, which is no job's time.

        Raises:
            _Ended: it does not come to that.
        """
        try:
            self._within(_START_SECONDS)
        except _Late as late:
            raise _Ended("it does not answer") from late

    def ask(self, job: Job, seconds: float) -> tuple[dict[str, Any], bytes]:
        """One job, one answer.

        Raises:
            _Late: it took longer than ``seconds``. _Ended: it ended.
        """
        self._jobs += 1
        return self._within(seconds, frame({"path": job.path, "settings": job.settings.to_data()}, job.data))

    def kill(self) -> None:
        """End it and all that it started; may be called again, and from another thread than the one that asks."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        end_processes(self._mark)
        self._process.wait()

    def close(self) -> None:
        """Close this side of the pipes."""
        for stream in (self._questions, self._answers, self._errors):
            with contextlib.suppress(OSError):
                stream.close()

    def _within(self, seconds: float, question: bytes = b"") -> tuple[dict[str, Any], bytes]:
        """Send ``question`` and read one frame."""
        timer = threading.Timer(seconds, self._expire)
        timer.daemon = True
        timer.start()
        try:
            self._questions.write(question)
            self._questions.flush()
            return read_frame(self._answers)
        except (OSError, EOFError) as error:
            if self._late:
                raise _Late from error
            raise _Ended(self._how()) from error
        finally:
            timer.cancel()

    def _expire(self) -> None:
        self._late = True
        self.kill()

    def _how(self) -> str:
        try:
            status = self._process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            return "the worker process closed its pipe"
        how = f"exit code {status}"
        if status < 0:
            with contextlib.suppress(ValueError):
                how = signal.Signals(-status).name
        self._errors.seek(0)
        said = self._errors.read(1 << 20).decode(errors="replace").strip().splitlines()
        return f"the worker process ended with {how}" + (f": {said[-1][:200]}" if said else "")


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
