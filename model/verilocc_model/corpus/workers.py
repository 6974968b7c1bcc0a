"""Tasks in processes of their own: a front end that crashes or hangs costs its task, not the run.

``concurrent.futures`` gives up the whole pool when a process dies, and cannot end a task that takes too long.
"""

from __future__ import annotations

import multiprocessing
import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.pipeline.batch.worker import JOB_VARIABLE, end_processes

_Task = TypeVar("_Task")
_AHEAD = 16
"""Results that wait for an earlier one, for each task at a time: a slow task must not let them pile up."""


@dataclass(frozen=True)
class Done(Generic[_Task]):
    """What became of a task: its ``result``, or why there is none.

    Attributes:
        failure: one line; ``""`` for success.
        seconds: elapsed time; 0 where nobody is left who knows it.
    """

    task: _Task
    result: Any
    failure: str
    seconds: float = 0.0


class Runner(Protocol):
    """``run``, or another that keeps its contract."""

    def __call__(
        self, function: Callable[[_Task], Any], tasks: Iterable[_Task], *, jobs: int, seconds: float
    ) -> Generator[Done[_Task], None, None]: ...


class Pool(Protocol[_Task]):
    """What tasks are given to."""

    def __len__(self) -> int:
        """How many have not ended."""
        ...

    def start(self, number: int, task: _Task) -> None:
        """Give it one; ``number`` comes back with its end."""
        ...

    def ended(self) -> Iterable[tuple[int, Done[_Task]]]:
        """What has ended by now, each once. May wait for that a while, and be nothing then."""
        ...


def run(
    function: Callable[[_Task], Any], tasks: Iterable[_Task], *, jobs: int, seconds: float
) -> Generator[Done[_Task], None, None]:
    """Do all tasks, ``jobs`` at once, and give their ends in the order of the tasks.

    Args:
        function: picklable; an exception that it raises is the task's failure.
        seconds: what one task may take; the first one of a process pays for loading what it needs too.

    Closing the generator, or an exception in it, ends all processes.
    """
    processes = Processes(function, seconds)
    try:
        yield from in_order(tasks, processes, jobs)
    finally:
        processes.close()


def in_order(tasks: Iterable[_Task], pool: Pool[_Task], at_once: int) -> Generator[Done[_Task], None, None]:
    """Give all tasks to ``pool``, at most ``at_once`` at a time, and their ends in the order of the tasks."""
    ready: dict[int, Done[_Task]] = {}
    waiting: Iterator[tuple[int, _Task]] = enumerate(tasks)
    following, more = 0, True
    while True:
        while more and len(pool) < at_once and len(ready) < _AHEAD * at_once:
            found = next(waiting, None)
            if found is None:
                more = False
            else:
                pool.start(*found)
        if not len(pool):
            return
        ready.update(pool.ended())
        while following in ready:
            yield ready.pop(following)
            following += 1


class Processes(Generic[_Task]):
    """A ``Pool`` of processes of this machine, one for each task at a time; they stay for later ones.

    Args:
        function, seconds: as for ``run``.
    """

    def __init__(self, function: Callable[[_Task], Any], seconds: float) -> None:
        self._function = function
        self._seconds = seconds
        self._context = multiprocessing.get_context("spawn")
        self._idle: list[_Worker] = []
        self._busy: dict[Connection, tuple[_Worker, int, _Task, float]] = {}

    def __len__(self) -> int:
        return len(self._busy)

    def start(self, number: int, task: _Task) -> None:
        """See ``Pool``."""
        worker = self._idle.pop() if self._idle else _Worker(self._context, self._function)
        worker.connection.send(task)
        self._busy[worker.connection] = (worker, number, task, time.monotonic())

    def ended(self) -> Generator[tuple[int, Done[_Task]], None, None]:
        """See ``Pool``; waits for a second at most."""
        for connection in wait(list(self._busy), timeout=1.0):
            assert isinstance(connection, Connection)
            worker, number, task, start = self._busy.pop(connection)
            elapsed = time.monotonic() - start
            try:
                result, failure = connection.recv()
                self._idle.append(worker)
            except (EOFError, OSError):
                result, failure = None, worker.end()
            yield number, Done(task, result, failure, elapsed)
        for connection, (worker, number, task, start) in list(self._busy.items()):
            if time.monotonic() - start > self._seconds:
                del self._busy[connection]
                worker.end()
                failure = f"not finished within {self._seconds:g} s"
                yield number, Done(task, None, failure, time.monotonic() - start)

    def close(self) -> None:
        """End all processes."""
        for worker in [*self._idle, *(entry[0] for entry in self._busy.values())]:
            worker.end()
        self._idle.clear()
        self._busy.clear()


class _Worker:
    def __init__(self, context: Any, function: Callable[[Any], Any]) -> None:
        self.connection, theirs = context.Pipe()
        self._mark = secrets.token_hex(16)
        self._process = context.Process(target=_serve, args=(theirs, function, self._mark), daemon=True)
        self._process.start()
        theirs.close()

    def end(self) -> str:
        """End it and all that it started; returns how it ended."""
        self.connection.close()  # which it hears, but not in the midst of native code
        self._process.join(0.5)
        code = self._process.exitcode
        if code is None:
            self._process.kill()
            self._process.join()
        end_processes(self._mark)
        return f"the process ended with status {code}"


def _serve(connection: Connection, function: Callable[[Any], Any], mark: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it
    os.setsid()  # who kills the parent's group leaves this process to end what it started
    os.environ[JOB_VARIABLE] = mark  # of all that is started from here on
    tasks: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=_listen, args=(connection, tasks, mark), daemon=True).start()
    while True:
        task = tasks.get()
        try:
            answer = function(task), ""
        except VeriloccError as error:
            answer = None, f"{error.where}: {error.what}" if error.where else error.what
        except Exception as error:
            answer = None, f"a defect: {type(error).__name__}: {error}"
        connection.send(answer)


def _listen(connection: Connection, tasks: SimpleQueue[Any], mark: str) -> None:
    """The pipe ends with the parent, however that died; it ends this process too, in the middle of a task."""
    try:
        while True:
            tasks.put(connection.recv())
    finally:
        end_processes(mark)
        os._exit(0)
