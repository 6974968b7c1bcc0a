"""A bounded pool of worker processes for an event loop.

A request waits for a worker, is worked on within its time, and costs at most the worker it was given: one that hangs
is killed with all it started; where one ends or answers nonsense, the request is tried once more on another. A request
that nobody waits for any more is given up by its worker, which then has the next one. Where it does not do that soon,
another one starts beside it, and who is ready first goes on.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

from grpc import StatusCode

from verilocc_mlir.crew.descendants import JobWorker
from verilocc_mlir.crew.jobs import JobCrew
from verilocc_mlir.crew.serve import Message
from verilocc_mlir.crew.worker import Late, WorkerFailure
from verilocc_mlir.errors import ToolchainError
from verilocc_mlir.pipeline.attempt import DEFAULT_ATTEMPTS
from verilocc_mlir.pipeline.events import cpu_seconds
from verilocc_mlir.remote.wire import code_of
from verilocc_mlir.service import jobs
from verilocc_mlir.service.limits import CallerLimits, Turns
from verilocc_mlir.service.logs import log
from verilocc_mlir.service.status import ServiceError, draining, out_of_time, worker_lost
from verilocc_mlir.service.worker import answer_requests

# How long a request takes of late, and so how long one that is refused should stay away.


FIRST_SECONDS = 1.0
"""What a request is taken to cost before one was done."""
LEAST_SECONDS, MOST_SECONDS = 0.1, 60.0
_WEIGHT = 0.1
"""Of the latest request: some twenty of them make the mean."""


@dataclass
class Pace:
    """A running mean.

    Attributes:
        mean: seconds that a request has a worker; None before the first one.
    """

    mean: float | None = None

    def note(self, seconds: float) -> None:
        """One more request had a worker for so long, whatever came of it."""
        self.mean = seconds if self.mean is None else self.mean + _WEIGHT * (seconds - self.mean)

    def wait(self, waiting: int, workers: int) -> float:
        """Seconds after which those that are worked on, and ``waiting`` more, are done; within bounds that no single
        slow or quick request moves.
        """
        mean = FIRST_SECONDS if self.mean is None else self.mean
        return min(max(mean * (1 + waiting / workers), LEAST_SECONDS), MOST_SECONDS)


# Not asyncio.wait_for: before Python 3.12 it forgets a cancellation that comes as the wait ends, and then the work goes
# on that nobody waits for (github.com/python/cpython/issues/86296).
if sys.version_info >= (3, 11):
    from asyncio import timeout
else:
    from async_timeout import timeout

_T = TypeVar("_T")

_START_SECONDS = 60.0
_GRACE_SECONDS = 0.5
"""What a worker may take beyond the request's time to say so itself."""
_TRIES = 2
_GIVING_UP_SECONDS = 0.25
"""For a worker to give up what nobody waits for, before another one is started."""


@dataclass(frozen=True)
class Done:
    """An answer and what it cost: seconds until a worker had it, the start of one included; wall seconds in it; CPU
    seconds of it and its solver.
    """

    data: bytes
    waited: float
    worked: float
    cpu: float


class Executor(Protocol):
    """Does requests somewhere."""

    async def run(self, kind: str, payload: bytes, seconds: float, caller: str = "") -> Done:
        """Do one request of a caller within ``seconds``.

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


@dataclass
class WorkerPool:
    """See the module.

    Args:
        workers: processes, as many requests are worked on at once.
        max_waiting: requests that may wait beyond those; above it they are refused.
        each: what one caller may have; None: all of it.
        memory_mib: address space of a worker.
        max_requests: a worker is replaced after so many, so that nothing it leaks lasts.
        attempts, terms: as for ``worker.answer_requests``.
    """

    workers: int
    max_waiting: int
    each: CallerLimits | None = None
    memory_mib: int = 2048
    max_requests: int = 1000
    attempts: int = DEFAULT_ATTEMPTS
    terms: str = ""
    counts: PoolCounts = field(default_factory=PoolCounts)
    pace: Pace = field(default_factory=Pace)
    _idle: list[JobWorker] = field(default_factory=list[JobWorker])
    _all: set[JobWorker] = field(default_factory=set[JobWorker])
    _turns: Turns = field(init=False)
    _crew: JobCrew = field(init=False)
    _threads: ThreadPoolExecutor = field(init=False)
    """One for each worker that is asked, and for each that starts."""
    _starting: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    _leaving: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    """One for each worker that is to give up."""
    _given_up: set[JobWorker] = field(default_factory=set[JobWorker])
    _reaping: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    _closed: bool = False

    def __post_init__(self) -> None:
        self._turns = Turns(self.workers, self.each or CallerLimits(self.workers, self.max_waiting))
        work = partial(answer_requests, self.memory_mib, self.attempts, self.terms)
        self._crew = JobCrew(work, ready_s=_START_SECONDS)
        self._threads = ThreadPoolExecutor(2 * self.workers)

    async def start(self) -> None:
        """Start all workers.

        Raises:
            ToolchainError: one does not start.
        """
        await asyncio.gather(*(self._start_one() for _ in range(self.workers)))

    async def run(self, kind: str, payload: bytes, seconds: float, caller: str = "") -> Done:
        crowd = self._turns.check(caller)
        if self.counts.busy + self.counts.waiting >= self.workers + self.max_waiting:
            crowd = f"{self.counts.busy} requests are worked on and {self.counts.waiting} wait"
        if crowd:
            retry = self.pace.wait(self.counts.waiting, self.workers)
            raise ServiceError(StatusCode.RESOURCE_EXHAUSTED, "OVERLOADED", f"{crowd}; try again later", retry)
        asked_at = time.monotonic()
        self.counts.waiting += 1
        try:
            await within(partial(self._turns.take, caller), seconds)
        finally:
            self.counts.waiting -= 1
        started = time.monotonic()
        self.counts.busy += 1
        cpu, waited = -1.0, 0.0
        try:
            answer, data, waited = await self._tried(kind, payload, asked_at + seconds)
            cpu = float(answer.get("cpu", 0.0))
        finally:
            worked = time.monotonic() - started - waited
            self.pace.note(worked)
            self.counts.busy -= 1
            # Of work that failed or was ended nobody says what it took.
            self._turns.give_back(caller, worked if cpu < 0 else cpu)
        return Done(data, started - asked_at + waited, worked, cpu)

    async def _tried(self, kind: str, payload: bytes, end: float) -> tuple[dict[str, Any], bytes, float]:
        """The answer, and the seconds that it waited for a worker that was not ready."""
        waited = 0.0
        for attempt in range(_TRIES):
            begun = time.monotonic()
            worker = await within(self._take, end - begun)
            waited += time.monotonic() - begun
            rest = end - time.monotonic()
            question = {"kind": kind, "seconds": rest}
            asked = asyncio.ensure_future(self._in_thread(_ask, worker, question, rest, payload))
            try:
                answer, data = await asyncio.shield(asked)
                if answer.get("abandoned"):
                    raise WorkerFailure("the worker gave up what somebody waits for")
            except Late:
                self._discard(worker, lost=False)
                raise out_of_time() from None
            except WorkerFailure as error:
                self._discard(worker, lost=True)
                if attempt + 1 < _TRIES and not self._closed:
                    continue
                raise worker_lost() from error
            except BaseException:
                # Cancelled: nobody waits for the answer.
                self._leave(worker, asked)
                raise
            self._put_back(worker)
            for one in answer.get("defects", ()):
                log("defect", logging.ERROR, message=one["message"], traceback=one["traceback"])
            if answer.get("ok"):
                return answer, data, waited
            if "traceback" in answer:
                log("defect", logging.ERROR, message=answer["message"], traceback=answer["traceback"])
            raise ServiceError(code_of(answer["code"]), answer["reason"], answer["message"], answer["retry"])
        raise AssertionError

    async def close(self) -> None:
        self._closed = True
        self._idle.clear()
        for starting in self._starting:
            starting.cancel()
        await asyncio.gather(
            asyncio.to_thread(self._crew.stop), *self._starting, *self._leaving, *self._reaping,
            return_exceptions=True,
        )  # fmt: skip
        self._threads.shutdown()
        for worker in self._all:
            worker.close()
        self._all.clear()

    async def _take(self) -> JobWorker:
        """A worker that waits, that is about to give up, or that is being started, whoever had it started."""
        while not self._closed:
            while self._idle:
                worker = self._idle.pop()
                if worker.status is None:
                    return worker
                self._discard(worker, lost=True)
            if not self._starting and not self._leaving:
                self._replace()
            done, _ = await asyncio.wait(self._starting | self._leaving, return_when=asyncio.FIRST_COMPLETED)
            for failed in filter(None, (one.exception() for one in done if not one.cancelled())):
                raise worker_lost() from failed
        raise draining()

    def _replace(self) -> asyncio.Task[None]:
        """Start a worker that belongs to no request. So a request with little time left does not end the start, and
        the next request does not pay for it.
        """
        task = asyncio.ensure_future(self._start_one())
        self._starting.add(task)
        task.add_done_callback(self._started)
        return task

    def _started(self, task: asyncio.Task[None]) -> None:
        self._starting.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log("worker not started", logging.ERROR, message=str(error))

    async def _start_one(self) -> None:
        self.counts.started += 1
        try:
            worker = await self._in_thread(self._crew.begun)
        except ToolchainError:
            self.counts.lost += 1
            raise
        self._all.add(worker)
        if len(self._all - self._given_up) > self.workers:
            # It was started in place of one that gave up after all.
            self._end(worker, lost=False)
        else:
            self._idle.append(worker)

    def _in_thread(self, function: Callable[..., _T], *arguments: Any) -> Awaitable[_T]:
        return asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    def _leave(self, worker: JobWorker, asked: asyncio.Future[Message]) -> None:
        """Nobody waits for the answer: have the worker give up. It has the next request as soon as it did."""
        worker.abandon()
        self._given_up.add(worker)
        task = asyncio.ensure_future(self._left(worker, asked))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _left(self, worker: JobWorker, asked: asyncio.Future[Message]) -> None:
        start = time.monotonic()
        # Whatever comes of it is nobody's error.
        asked.add_done_callback(lambda one: one.cancelled() or one.exception())
        await asyncio.wait({asked}, timeout=_GIVING_UP_SECONDS)
        if not asked.done() and not self._closed:
            await asyncio.wait({asked, self._replace()}, return_when=asyncio.FIRST_COMPLETED)
        self._given_up.discard(worker)
        there = len(self._all - self._given_up) <= self.workers
        kept = there and asked.done() and not asked.cancelled() and asked.exception() is None and not worker.last
        log("given up", seconds=round(time.monotonic() - start, 4), pid=worker.pid, kept=kept)
        if kept:
            self._put_back(worker)
        else:
            self._discard(worker, lost=False)

    def _put_back(self, worker: JobWorker) -> None:
        if worker.last or worker.answered >= self.max_requests or self._closed:
            self._discard(worker, lost=False)
        else:
            self._idle.append(worker)

    def _discard(self, worker: JobWorker, *, lost: bool) -> None:
        """End it, and have another one in its place."""
        self._end(worker, lost=lost)
        if not self._closed and len(self._all) + len(self._starting) < self.workers:
            self._replace()

    def _end(self, worker: JobWorker, *, lost: bool) -> None:
        self._all.discard(worker)
        if lost:
            self.counts.lost += 1
        else:
            self.counts.killed += 1
        reaping = asyncio.ensure_future(asyncio.to_thread(_end, worker))
        self._reaping.add(reaping)
        reaping.add_done_callback(self._reaping.discard)


def _ask(worker: JobWorker, question: Mapping[str, object], seconds: float, payload: bytes) -> Message:
    """Ask a worker. One that failed is ended here: no other thread may close the pipe that this one reads."""
    try:
        if seconds <= 0:
            raise Late
        return worker.ask(question, seconds + _GRACE_SECONDS, payload)
    finally:
        # The log has lines of one form only, and nothing of requests.
        if words := worker.words():
            log("worker said", logging.DEBUG, pid=worker.pid, text=words)
        if worker.last:
            worker.kill()
            worker.close()


def _end(worker: JobWorker) -> None:
    """End it and all it started, its solver for one; return when they are gone."""
    worker.kill()
    if not worker.last:
        worker.close()


@dataclass
class ThisProcess:
    """Does requests in a thread of this process: for the in-process server, whose client is the only one."""

    terms: jobs.Terms = field(default_factory=jobs.Terms)

    async def run(self, kind: str, payload: bytes, seconds: float, caller: str = "") -> Done:
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


async def within(wait: Callable[[], Awaitable[Any]], seconds: float) -> Any:
    """What ``wait`` gives, if it comes in time.

    Raises:
        ServiceError: it does not.
    """
    try:
        async with timeout(max(seconds, 0.0)):
            return await wait()
    except (asyncio.TimeoutError, TimeoutError):
        raise out_of_time() from None
