"""A crew of workers that start processes of their own."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import TypeVar

from verilocc_mlir.crew.crew import Crew
from verilocc_mlir.crew.descendants import JobWorker
from verilocc_mlir.crew.forks import ForkServer
from verilocc_mlir.crew.worker import WorkerFailure
from verilocc_mlir.errors import ToolchainError

_W = TypeVar("_W", bound=JobWorker)


class JobCrew(Crew):
    """A crew of ``JobWorker``, which can be stopped in the middle of its work.

    Args:
        work: as for ``JobWorker``.
        forks: fork the workers from a process that has loaded the module of ``work``. That pays from the second one on.
        ready_s: seconds in which a worker says that it is ready.
    """

    def __init__(self, work: Callable[[], None], *, forks: bool = False, ready_s: float = 120.0) -> None:
        super().__init__(self.begun)
        self._work = work
        self._forks = forks
        self._server: ForkServer | None = None
        self._serving = threading.Lock()
        self._ready_s = ready_s
        self._stopped = False
        self._all: weakref.WeakSet[JobWorker] = weakref.WeakSet()

    def stop(self) -> None:
        """End all workers, in the middle of a question too, and start no more."""
        with self._lock:
            self._stopped = True
            # The server last: it waits for its forks, whose CPU time is then known.
            workers = sorted(self._all, key=lambda worker: isinstance(worker, ForkServer))
        for worker in workers:
            worker.kill()
        self.close()

    def begun(self) -> JobWorker:
        """One that is ready, and for the caller to end.

        Raises:
            ToolchainError: none starts, or the crew has been stopped.
        """
        worker = None
        try:
            worker = self._new()
            worker.begin(self._ready_s)
            return worker
        except BaseException as error:
            if worker is not None:
                worker.kill()
                worker.close()
            if not isinstance(error, WorkerFailure):
                raise
            reason = str(error).removeprefix("no worker process: ")
            raise ToolchainError(f"no worker process starts: {reason}", hint="run `verilocc doctor`") from error

    def _new(self) -> JobWorker:
        with self._serving:
            if self._forks and (self._server is None or self._server.status is not None):
                self._server = self._known(ForkServer(self._work))
        return self._known(JobWorker(self._work, self._server and self._server.fork))

    def _known(self, worker: _W) -> _W:
        with self._lock:
            self._all.add(worker)
            stopped = self._stopped
        if stopped:
            worker.kill()
            raise WorkerFailure("the crew has been stopped")
        return worker
