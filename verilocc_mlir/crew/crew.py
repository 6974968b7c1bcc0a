"""Workers that stay: started when first needed, as many as are asked at once, replaced when one fails."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager

from verilocc_mlir.crew.worker import Worker


class Crew:
    """Workers of one kind, which threads may share.

    Args:
        start: starts one.
    """

    def __init__(self, start: Callable[[], Worker]) -> None:
        self._start = start
        self._idle: list[Worker] = []
        self._lock = threading.Lock()
        self._pid = os.getpid()
        weakref.finalize(self, _end, self._idle, self._pid)

    def pids(self) -> tuple[int, ...]:
        """Process ids of the workers that wait for a question."""
        with self._lock:
            return tuple(worker.pid for worker in self._idle)

    @contextmanager
    def worker(self, *, fresh: bool = False) -> Generator[Worker, None, None]:
        """One to be asked; an exception ends it, since it may still have something to say.

        Args:
            fresh: one that has answered nothing.

        Raises:
            WorkerFailure: there is none.
        """
        worker = self._waiting(fresh) or self._start()
        try:
            yield worker
        except BaseException:
            worker.last = True
            raise
        finally:
            if worker.last:
                worker.kill()
                worker.close()
            else:
                with self._lock:
                    self._idle.append(worker)

    def add(self, worker: Worker) -> None:
        """Take in a worker that was started elsewhere."""
        with self._lock:
            self._idle.append(worker)

    def close(self) -> None:
        with self._lock:
            _end(self._idle, self._pid)

    def _waiting(self, fresh: bool) -> Worker | None:
        with self._lock:
            if os.getpid() != self._pid:
                # A fork: the parent goes on talking to these.
                _end(self._idle, self._pid)
                self._pid = os.getpid()
            return self._idle.pop() if self._idle and not fresh else None


def _end(idle: list[Worker], owner: int) -> None:
    while idle:
        worker = idle.pop()
        if os.getpid() == owner:
            worker.kill()
        worker.close()
