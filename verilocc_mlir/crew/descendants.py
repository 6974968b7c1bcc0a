"""Workers that start processes of their own, which end with them.

All that such a worker starts carries its mark in the environment, whatever process group it is in. A worker that is
started by another one has the other's mark before its own.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from verilocc_mlir.crew.abandon import SIGNAL
from verilocc_mlir.crew.serve import Answer, serve
from verilocc_mlir.crew.worker import Worker

JOB_VARIABLE = "VERILOCC_JOB"
"""Environment variable with the marks, joined by dots."""


class JobWorker(Worker):
    """A worker whose processes end with it.

    Args:
        work: as for ``Worker``; it calls ``serve_jobs``.
        fork: starts it with a socket, a file for standard error, and a mark, instead of ``work``: ``ForkServer.fork``.
    """

    def __init__(self, work: Callable[[], None], fork: Callable[[int, int, str], Any] | None = None) -> None:
        self._mark = os.urandom(16).hex()
        self._fork = fork
        super().__init__(work)

    @property
    def status(self) -> int | None:
        """How it ended, as ``subprocess.Popen.poll`` says it."""
        return self._process.poll()

    def words(self) -> str:
        """What it has written to standard error since the last call; for when it is not being asked."""
        self._errors.seek(0)
        text = self._errors.read().decode(errors="replace")
        self._errors.seek(0)  # also where it goes on to write
        self._errors.truncate()
        return text

    def begin(self, seconds: float) -> None:
        """Wait until it says that it is ready.

        Raises:
            WorkerFailure: as for ``ask``.
        """
        self._exchange(b"", seconds)

    def kill(self) -> None:
        """End it and all that it started; may be called again, and from another thread than the one that asks."""
        super().kill()
        end_processes(self._mark)

    def abandon(self) -> None:
        """Tell it that nobody waits for its answer, which then comes soon and says so; from any thread."""
        if self.status is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, SIGNAL)

    def _launch(self, work: Callable[[], None], pipe: int, env: Mapping[str, str] | None = None) -> Any:
        if self._fork:
            return self._fork(pipe, self._errors.fileno(), self._mark)
        marks = [*filter(None, [os.environ.get(JOB_VARIABLE)]), self._mark]
        return super()._launch(work, pipe, {**os.environ, JOB_VARIABLE: ".".join(marks)})


def serve_jobs(load: Callable[[], Answer], memory_mib: int = 0) -> None:
    """As ``serve.serve``; what this process has started ends with it."""
    serve(load, memory_mib, ended=lambda: end_processes(_own_mark()))


def started_by_this() -> set[int]:
    """Process ids of what this worker, or what it started, has started and is there."""
    return set(_marked(_own_mark()))


def end_processes(mark: str) -> None:
    """Kill every process but this one that has ``mark`` in its environment, those that they start meanwhile too."""
    for _ in range(100):
        marked = _marked(mark)
        if not marked:
            return
        for pid in marked:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _own_mark() -> str:
    return os.environ[JOB_VARIABLE].split(".")[-1]


def _marked(mark: str) -> list[int]:
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _has(pid, mark)]


def _has(pid: int, mark: str) -> bool:
    with suppress(OSError):
        values = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return pid != os.getpid() and any(v.startswith(JOB_VARIABLE.encode()) and mark.encode() in v for v in values)
    return False
