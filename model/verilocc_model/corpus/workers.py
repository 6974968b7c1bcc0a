"""Tasks in processes of their own: a front end that crashes or hangs costs its task, not the run.

``concurrent.futures`` gives up the whole pool when a process dies, and cannot end a task that takes too long.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

from verilocc_mlir.errors import VeriloccError

_Task = TypeVar("_Task")


@dataclass(frozen=True)
class Done(Generic[_Task]):
    """What became of a task: its ``result``, or why there is none.

    Attributes:
        failure: one line; ``""`` for success.
        seconds: elapsed time.
    """

    task: _Task
    result: Any
    failure: str
    seconds: float


def run(
    function: Callable[[_Task], Any], tasks: Iterable[_Task], *, jobs: int, seconds: float
) -> Generator[Done[_Task], None, None]:
    """Do all tasks, ``jobs`` at once, and give their ends in the order of the tasks.

    Args:
        function: picklable; an exception that it raises is the task's failure.
        seconds: what one task may take; the first one of a process pays for loading what it needs too.

    Closing the generator, or an exception in it, ends all processes.
    """
    context = multiprocessing.get_context("spawn")
    idle: list[_Worker] = []
    busy: dict[Connection, tuple[_Worker, int, _Task, float]] = {}
    ready: dict[int, Done[_Task]] = {}
    waiting: Iterator[tuple[int, _Task]] = enumerate(tasks)
    following, more = 0, True
    try:
        while more or busy:
            # Results that wait for an earlier one are bounded, so that a slow task does not let them pile up.
            while more and len(busy) < jobs and len(ready) < 16 * jobs:
                found = next(waiting, None)
                if found is None:
                    more = False
                    break
                worker = idle.pop() if idle else _Worker(context, function)
                worker.connection.send(found[1])
                busy[worker.connection] = (worker, *found, time.monotonic())
            for connection in wait(list(busy), timeout=1.0):
                assert isinstance(connection, Connection)
                worker, number, task, start = busy.pop(connection)
                elapsed = time.monotonic() - start
                try:
                    result, failure = connection.recv()
                    idle.append(worker)
                except (EOFError, OSError):
                    result, failure = None, worker.end()
                ready[number] = Done(task, result, failure, elapsed)
            for connection, (worker, number, task, start) in list(busy.items()):
                if time.monotonic() - start > seconds:
                    del busy[connection]
                    worker.end()
                    ready[number] = Done(task, None, f"not finished within {seconds:g} s", time.monotonic() - start)
            while following in ready:
                yield ready.pop(following)
                following += 1
    finally:
        for worker in [*idle, *(entry[0] for entry in busy.values())]:
            worker.end()


class _Worker:
    def __init__(self, context: Any, function: Callable[[Any], Any]) -> None:
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, function), daemon=True)
        self._process.start()
        theirs.close()

    def end(self) -> str:
        """End it; returns how it ended."""
        self._process.join(0.5)
        code = self._process.exitcode
        if code is None:
            self._process.kill()
            self._process.join()
        self.connection.close()
        return f"the process ended with status {code}"


def _serve(connection: Connection, function: Callable[[Any], Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it
    with contextlib.suppress(EOFError):
        while True:
            task = connection.recv()
            try:
                answer = function(task), ""
            except VeriloccError as error:
                answer = None, f"{error.where}: {error.what}" if error.where else error.what
            except Exception as error:
                answer = None, f"a defect: {type(error).__name__}: {error}"
            connection.send(answer)
