"""Tasks in processes of their own: a front end that crashes or hangs fails its task, not the run.

``concurrent.futures`` will not do: it gives up the whole pool when a process dies, and cannot end a task that takes too
long.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar, cast

from verilocc_mlir.crew.descendants import JobWorker, serve_jobs
from verilocc_mlir.crew.jobs import JobCrew
from verilocc_mlir.crew.tasks import LocalTasks, Tasks
from verilocc_mlir.crew.worker import Late, WorkerFailure
from verilocc_mlir.errors import VeriloccError

_Task = TypeVar("_Task")
_AHEAD = 16
"""Results that may wait for an earlier one, for each task done at once: a slow task must not let them pile up."""


@dataclass(frozen=True)
class Done(Generic[_Task]):
    """The end of a task: its ``result``, or why there is none.

    Attributes:
        failure: one line; ``""`` for success.
        seconds: elapsed time; 0 where it is not known.
    """

    task: _Task
    result: Any
    failure: str
    seconds: float = 0.0


Runner = Callable[..., Generator[Done[Any], None, None]]
"""``run``, or another function with its contract."""


class Pool(Protocol[_Task]):
    """Does tasks.

    Its length is the number of tasks that have not ended. The number that a task is started with comes back with its
    end. ``ended`` gives each end once; it may wait a while and then give none.
    """

    def __len__(self) -> int: ...
    def start(self, number: int, task: _Task) -> None: ...
    def ended(self) -> Iterable[tuple[int, Done[_Task]]]: ...


def run(
    function: Callable[[_Task], Any], tasks: Iterable[_Task], *, jobs: int, seconds: float
) -> Generator[Done[_Task], None, None]:
    """Do all tasks, ``jobs`` at once, and give their ends in the order of the tasks.

    Closing the generator, or an exception in it, ends all processes.

    Args:
        function: picklable; an exception that it raises is the task's failure.
        seconds: time limit of a task; the first task of a process also loads what it needs in that time.
    """
    doer = Doer(function, seconds, forks=jobs > 1)
    pool = Given(LocalTasks(doer.do, jobs, doer.stop))
    try:
        yield from in_order(tasks, pool, jobs)
    finally:
        pool.cancel()


def in_order(tasks: Iterable[_Task], pool: Pool[_Task], at_once: int) -> Generator[Done[_Task], None, None]:
    """Give all tasks to ``pool``, at most ``at_once`` at a time, and their ends in the order of the tasks."""
    ready: dict[int, Done[_Task]] = {}
    waiting: Iterator[tuple[int, _Task]] = enumerate(tasks)
    following, more = 0, True
    while True:
        while more and len(pool) < at_once and len(ready) < _AHEAD * at_once:
            numbered = next(waiting, None)
            if numbered is None:
                more = False
            else:
                pool.start(*numbered)
        if not len(pool):
            return
        ready.update(pool.ended())
        while following in ready:
            yield ready.pop(following)
            following += 1


class Given(Pool[_Task]):
    """A ``Pool`` over ``Tasks`` that give a ``Done``, or a loss with its ``reason``."""

    def __init__(self, tasks: Tasks[tuple[int, _Task]]) -> None:
        self._tasks = tasks
        self.cancel = tasks.cancel

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, number: int, task: _Task) -> None:
        self._tasks.start((number, task))

    def ended(self) -> Generator[tuple[int, Done[_Task]], None, None]:
        for (number, task), done in self._tasks.ended():
            yield number, done if isinstance(done, Done) else Done(task, None, done.reason)


class Doer(Generic[_Task]):
    """Does tasks in processes of this machine, which stay for later tasks.

    Args:
        function, seconds: as for ``run``.
        forks: as for ``JobCrew``.
    """

    def __init__(self, function: Callable[[_Task], Any], seconds: float, *, forks: bool = False) -> None:
        self._seconds = seconds
        self._crew = JobCrew(partial(do_tasks, function), forks=forks)
        self.stop = self._crew.stop

    def do(self, numbered: tuple[int, _Task]) -> Done[_Task]:
        """One task, from start to end."""
        _, task = numbered
        result, start = None, time.monotonic()
        with self._crew.worker() as worker:
            start = time.monotonic()
            try:
                _, answer = worker.ask({}, self._seconds, pickle.dumps(task))
                result, failure = pickle.loads(answer)
            except Late:
                failure = f"not finished within {self._seconds:g} s"
            except WorkerFailure:
                failure = f"the process ended with status {cast('JobWorker', worker).status}"
        return Done(task, result, failure, time.monotonic() - start)


def do_tasks(function: Callable[[Any], Any]) -> None:
    serve_jobs(lambda: partial(_answer, function))


def _answer(function: Callable[[Any], Any], _: object, task: bytes) -> tuple[Mapping[str, object], bytes]:
    try:
        answer = function(pickle.loads(task)), ""
    except VeriloccError as error:
        answer = None, error.without_hint
    except Exception as error:
        answer = None, f"a defect: {type(error).__name__}: {error}"
    return {}, pickle.dumps(answer)
