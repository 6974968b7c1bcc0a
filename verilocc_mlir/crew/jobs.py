"""A crew of workers that start processes of their own."""

from __future__ import annotations

import ctypes
import gc
import os
import select
import signal
import subprocess
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from socket import recv_fds, send_fds, socket
from typing import TypeVar

from verilocc_mlir.crew.copied import fork
from verilocc_mlir.crew.crew import Crew
from verilocc_mlir.crew.descendants import JOB_VARIABLE, JobWorker
from verilocc_mlir.crew.serve import frame
from verilocc_mlir.crew.worker import WorkerFailure, kill_group
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


# Workers that are forked from a process which has loaded what they need, and does nothing else.
#
# A worker of the compiler takes a second of CPU to load, a fork of one that has loaded some milliseconds.


_START_S = 120.0
_ENVIRONMENT_START = 47
"""Place of ``env_start`` in /proc/self/stat, behind the name; proc(5) counts it as 50."""


class ForkServer(JobWorker):
    """The process that is forked.

    Args:
        work: as for ``Worker``; what each fork calls.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        self._asking = threading.Lock()
        super().__init__(partial(serve_forks, work))

    def fork(self, pipe: int, errors: int, mark: str) -> Forked:
        """A process with those file descriptors.

        Raises:
            OSError: there is none.
        """
        ours, theirs = os.pipe()
        try:
            with self._asking:
                send_fds(self._pipe, [mark.encode()], [pipe, errors, theirs])
                answer, _ = self._exchange(b"", _START_S)
        except WorkerFailure as failure:
            os.close(ours)
            raise OSError(str(failure)) from failure
        finally:
            os.close(theirs)
        return Forked(answer["pid"], ours)


class Forked:
    """What a worker needs of ``subprocess.Popen``, for a child of the server, which says on ``status`` how it ended."""

    def __init__(self, pid: int, status: int) -> None:
        self.pid = pid
        self._status = os.fdopen(status, "rb")
        self._lock = threading.Lock()
        self._code: int | None = None

    def poll(self) -> int | None:
        """Its exit code or minus the signal that ended it, None if it has not ended."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """As ``poll``, when it has ended.

        Raises:
            subprocess.TimeoutExpired: it has not, within that time.
        """
        ending = select.poll()  # which, unlike select, takes any file descriptor
        ending.register(self._status)
        if self._code is None and not ending.poll(None if timeout is None else timeout * 1000):
            raise subprocess.TimeoutExpired("a worker", timeout or 0.0)
        with self._lock:
            if self._code is None:
                code = self._status.read()
                if not code:  # nobody is left who knows
                    kill_group(self.pid)
                self._code = int(code or -signal.SIGKILL)
            return self._code


def serve_forks(work: Callable[[], None]) -> None:
    """Fork whenever asked, until the other side ends; each fork calls ``work``."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe = socket(fileno=0)
    waking, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda _, __: None)
    signal.set_wakeup_fd(woken)
    gc.freeze()
    statuses: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([pipe, waking], [], [])
        if waking in ready:
            os.read(waking, 4096)
            _reap(statuses)
        if pipe in ready:
            mark, files, _, _ = recv_fds(pipe, 64, 3)
            if not mark:
                os._exit(0)
            pid = fork(partial(_become, work, mark, files, pipe))
            statuses[pid] = files.pop()
            for file in files:
                os.close(file)


def _reap(statuses: dict[int, int]) -> None:
    for pid in tuple(statuses):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            with suppress(OSError), os.fdopen(statuses.pop(pid), "wb") as stream:
                stream.write(b"%d" % os.waitstatus_to_exitcode(status))


def _become(work: Callable[[], None], mark: bytes, files: list[int], server: socket) -> None:
    os.setsid()
    server.sendall(frame({"pid": os.getpid()}))  # from here on its group can be killed
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for file, place in zip((files[0], *files), (0, 1, 2), strict=False):
        os.dup2(file, place)
    for place in {int(name) for name in os.listdir("/proc/self/fd")} - {0, 1, 2}:
        with suppress(OSError):
            os.close(place)
    _take_mark(mark)
    work()


def _take_mark(mark: bytes) -> None:
    """Write it over the server's: /proc shows the memory in which the environment stood when the program began."""
    place = int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[_ENVIRONMENT_START])
    before = os.environb[JOB_VARIABLE.encode()]
    at = Path("/proc/self/environ").read_bytes().index(b"%b=%b" % (JOB_VARIABLE.encode(), before))
    after = before[: -len(mark)] + mark
    ctypes.memmove(place + at + len(JOB_VARIABLE) + 1, after, len(after))
    os.environb[JOB_VARIABLE.encode()] = after
