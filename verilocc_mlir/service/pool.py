"""A bounded pool of worker processes for an event loop.

A request waits for a worker, is worked on within its time, and costs at most the worker it was given: one that hangs
is killed with all it started; where one ends or answers nonsense, the request is tried once more on another. A request
that nobody waits for any more ends its worker at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import secrets
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from grpc import StatusCode

from verilocc_mlir.errors import ToolchainError
from verilocc_mlir.pipeline.batch.worker import JOB_VARIABLE, end_processes
from verilocc_mlir.pipeline.clock import cpu_seconds
from verilocc_mlir.pipeline.regenerate import DEFAULT_ATTEMPTS
from verilocc_mlir.remote.codes import code_of
from verilocc_mlir.service import jobs
from verilocc_mlir.service.logs import log
from verilocc_mlir.service.pace import Pace
from verilocc_mlir.service.status import ServiceError, draining, out_of_time, worker_lost
from verilocc_mlir.service.worker import LENGTHS, frame

# Not asyncio.wait_for: before Python 3.12 it forgets a cancellation that comes as the wait ends, and then the work goes
# on that nobody waits for (github.com/python/cpython/issues/86296).
if sys.version_info >= (3, 11):
    from asyncio import timeout
else:
    from async_timeout import timeout

_START = (
    "import sys; sys.path[:] = sys.argv[4:]; from verilocc_mlir.service.worker import serve; "
    "serve(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])"
)
"""The worker finds modules where this process does, and never in the directory the user happens to be in."""
_START_SECONDS = 60.0
_GRACE_SECONDS = 0.5
"""What a worker may take beyond the request's time to say so itself."""
_TRIES = 2
_KEPT = 2000
"""Bytes of what a worker says before it is ready."""


@dataclass(frozen=True)
class Done:
    """An answer and what it cost: seconds waited for a worker, wall seconds in it, CPU seconds of it and its solver."""

    data: bytes
    waited: float
    worked: float
    cpu: float


class Executor(Protocol):
    """Does requests somewhere."""

    async def run(self, kind: str, payload: bytes, seconds: float) -> Done:
        """Do one request within ``seconds``.

        Raises:
            ServiceError: what the client is to be told instead.
        """
        ...

    async def close(self) -> None:
        """Give up what is being worked on."""
        ...


@dataclass
class PoolCounts:
    """What the metrics show."""

    busy: int = 0
    waiting: int = 0
    started: int = 0
    lost: int = 0
    killed: int = 0


@dataclass(eq=False)
class _Worker:
    """One process; ``mark`` is in the environment of all it starts."""

    process: asyncio.subprocess.Process
    mark: str
    answered: int = 0
    said: bytes = b""
    hearing: asyncio.Task[None] | None = None

    async def hear(self) -> None:
        """Take what it writes on standard error: the log has lines of one form only, and nothing of requests."""
        stream = self.process.stderr
        assert stream is not None
        while data := await stream.read(1 << 16):
            self.said = (self.said + data)[-_KEPT:]
            log("worker said", logging.DEBUG, pid=self.process.pid, text=data.decode(errors="replace"))

    async def receive(self) -> tuple[dict[str, Any], bytes]:
        stream = self.process.stdout
        assert stream is not None
        head, body = LENGTHS.unpack(await stream.readexactly(LENGTHS.size))
        return json.loads(await stream.readexactly(head)), await stream.readexactly(body)

    async def ask(self, header: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
        stream = self.process.stdin
        assert stream is not None
        stream.write(frame(header, body))
        await stream.drain()
        answer = await self.receive()
        self.answered += 1
        return answer

    def kill(self) -> None:
        """End it and what is in its process group."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)

    async def end(self) -> None:
        """End it and all it started, its solver for one; return when they are gone."""
        self.kill()
        # First of all: whoever still holds a pipe of it keeps ``wait`` from returning.
        await asyncio.to_thread(end_processes, self.mark)
        await self.process.wait()


@dataclass
class WorkerPool:
    """See the module.

    Args:
        workers: processes, as many requests are worked on at once.
        max_waiting: requests that may wait beyond those; above it they are refused.
        memory_mib: address space of a worker.
        max_requests: a worker is replaced after so many, so that nothing it leaks lasts.
        attempts, terms: as for ``worker.serve``.
    """

    workers: int
    max_waiting: int
    memory_mib: int = 2048
    max_requests: int = 1000
    attempts: int = DEFAULT_ATTEMPTS
    terms: str = ""
    counts: PoolCounts = field(default_factory=PoolCounts)
    pace: Pace = field(default_factory=Pace)
    _idle: list[_Worker] = field(default_factory=list[_Worker])
    _all: set[_Worker] = field(default_factory=set["_Worker"])
    _slots: asyncio.Semaphore | None = None
    _starting: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    _reaping: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    _closed: bool = False

    async def start(self) -> None:
        """Start all workers.

        Raises:
            ToolchainError: one does not start.
        """
        self._slots = asyncio.Semaphore(self.workers)
        await asyncio.gather(*(self._start_one() for _ in range(self.workers)))

    async def run(self, kind: str, payload: bytes, seconds: float) -> Done:
        """See ``Executor``."""
        assert self._slots is not None
        if self.counts.busy + self.counts.waiting >= self.workers + self.max_waiting:
            raise ServiceError(
                StatusCode.RESOURCE_EXHAUSTED,
                "OVERLOADED",
                f"{self.counts.busy} requests are worked on and {self.counts.waiting} wait; try again later",
                self.pace.wait(self.counts.waiting, self.workers),
            )
        asked = time.monotonic()
        self.counts.waiting += 1
        try:
            await _within(self._slots.acquire, seconds)
        finally:
            self.counts.waiting -= 1
        started = time.monotonic()
        self.counts.busy += 1
        try:
            answer, data = await self._tried(kind, payload, asked + seconds)
        finally:
            worked = time.monotonic() - started
            self.pace.note(worked)
            self.counts.busy -= 1
            self._slots.release()
        return Done(data, started - asked, worked, float(answer.get("cpu", 0.0)))

    async def _tried(self, kind: str, payload: bytes, end: float) -> tuple[dict[str, Any], bytes]:
        for attempt in range(_TRIES):
            worker = await _within(self._take, end - time.monotonic())
            left = end - time.monotonic()
            try:
                if left <= 0:
                    raise asyncio.TimeoutError
                async with timeout(left + _GRACE_SECONDS):
                    answer, data = await worker.ask({"kind": kind, "seconds": left}, payload)
            except (asyncio.TimeoutError, TimeoutError):
                self._discard(worker, lost=False)
                raise out_of_time() from None
            except (asyncio.IncompleteReadError, ConnectionError, ValueError) as error:
                self._discard(worker, lost=True)
                if attempt + 1 < _TRIES and not self._closed:
                    continue
                raise worker_lost() from error
            except BaseException:
                # Cancelled: nobody waits for the answer.
                self._discard(worker, lost=False)
                raise
            self._put_back(worker, spent=answer.get("reason") == "MEMORY_LIMIT")
            for found in answer.get("defects", ()):
                log("defect", logging.ERROR, message=found["message"], traceback=found["traceback"])
            if answer.get("ok"):
                return answer, data
            if "traceback" in answer:
                log("defect", logging.ERROR, message=answer["message"], traceback=answer["traceback"])
            raise ServiceError(code_of(answer["code"]), answer["reason"], answer["message"], answer["retry"])
        raise AssertionError

    async def close(self) -> None:
        """End all workers."""
        self._closed = True
        self._idle.clear()
        for starting in self._starting:
            starting.cancel()
        await asyncio.gather(*self._starting, return_exceptions=True)
        await asyncio.gather(*(w.end() for w in self._all), *self._reaping, return_exceptions=True)
        self._all.clear()

    async def _take(self) -> _Worker:
        """A worker that waits, or one that is being started, whoever had it started."""
        while not self._closed:
            while self._idle:
                worker = self._idle.pop()
                if worker.process.returncode is None:
                    return worker
                self._discard(worker, lost=True)
            if not self._starting:
                self._replace()
            done, _ = await asyncio.wait(self._starting, return_when=asyncio.FIRST_COMPLETED)
            for failed in filter(None, (one.exception() for one in done if not one.cancelled())):
                raise worker_lost() from failed
        raise draining()

    def _replace(self) -> None:
        """Start a worker that belongs to no request: one with little time left must not end it, and the next one's time
        not go into it.
        """
        task = asyncio.ensure_future(self._start_one())
        self._starting.add(task)
        task.add_done_callback(self._started)

    def _started(self, task: asyncio.Task[None]) -> None:
        self._starting.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log("worker not started", logging.ERROR, message=str(error))

    async def _start_one(self) -> None:
        mark = secrets.token_hex(16)
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", _START, str(self.memory_mib), str(self.attempts), self.terms, *sys.path,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
                env={**os.environ, JOB_VARIABLE: mark}, start_new_session=True, limit=1 << 24,
            )  # fmt: skip
        except OSError as error:
            raise ToolchainError(f"no worker process starts: {error}") from error
        worker = _Worker(process, mark)
        worker.hearing = asyncio.ensure_future(worker.hear())
        self._all.add(worker)
        self.counts.started += 1
        try:
            async with timeout(_START_SECONDS):
                await worker.receive()
        except (asyncio.TimeoutError, TimeoutError, asyncio.IncompleteReadError, ConnectionError, ValueError) as error:
            self._end(worker, lost=True)
            await asyncio.wait({worker.hearing}, timeout=_GRACE_SECONDS)
            last = (worker.said.decode(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
            raise ToolchainError(f"no worker process starts: {last}") from error
        except BaseException:
            self._end(worker, lost=False)
            raise
        self._idle.append(worker)

    def _put_back(self, worker: _Worker, *, spent: bool) -> None:
        if spent or worker.answered >= self.max_requests or self._closed:
            self._discard(worker, lost=False)
        else:
            self._idle.append(worker)

    def _discard(self, worker: _Worker, *, lost: bool) -> None:
        """End it, and have another one in its place."""
        self._end(worker, lost=lost)
        if not self._closed and len(self._all) + len(self._starting) < self.workers:
            self._replace()

    def _end(self, worker: _Worker, *, lost: bool) -> None:
        worker.kill()
        self._all.discard(worker)
        if lost:
            self.counts.lost += 1
        else:
            self.counts.killed += 1
        reaping = asyncio.ensure_future(worker.end())
        self._reaping.add(reaping)
        reaping.add_done_callback(self._reaping.discard)


@dataclass
class ThisProcess:
    """Does requests in a thread of this process: for the in-process server, whose client is the only one."""

    terms: jobs.Terms = field(default_factory=jobs.Terms)

    async def run(self, kind: str, payload: bytes, seconds: float) -> Done:
        """See ``Executor``."""
        start, before = time.monotonic(), cpu_seconds()
        try:
            data = await asyncio.to_thread(jobs.run, kind, payload, seconds, self.terms)
        except ServiceError:
            raise
        except Exception as error:
            message = f"a defect of the server: {type(error).__name__}: {error}; report the request"
            raise ServiceError(StatusCode.INTERNAL, "DEFECT", message) from error
        return Done(data, 0.0, time.monotonic() - start, cpu_seconds() - before)

    async def close(self) -> None:
        """Nothing is kept."""


async def _within(wait: Callable[[], Awaitable[Any]], seconds: float) -> Any:
    """What ``wait`` gives, if it comes in time.

    Raises:
        ServiceError: it does not.
    """
    try:
        async with timeout(max(seconds, 0.0)):
            return await wait()
    except (asyncio.TimeoutError, TimeoutError):
        raise out_of_time() from None
