"""A worker that is a copy of this process: it has loaded what this one has, in 2 ms instead of a new start."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from verilocc_mlir.crew.isolated import fork

_POLL_S = 0.01


class Copy:
    """What a worker needs of ``subprocess.Popen``, for a copy of this process in a process group of its own.

    Args:
        work: what the copy calls.
        pipe: its standard input and output.
        errors: its standard error.
    """

    def __init__(self, work: Callable[[], None], pipe: int, errors: int) -> None:
        self._lock = threading.Lock()
        self._code: int | None = None
        self.pid = fork(partial(_live, work, pipe, errors))
        with suppress(OSError):  # the copy does it too: whoever comes first, the group is there from here on
            os.setpgid(self.pid, self.pid)

    def poll(self) -> int | None:
        """Its exit code or minus the signal that ended it, None if it has not ended."""
        with self._lock:
            if self._code is None:
                ended, status = os.waitpid(self.pid, os.WNOHANG)
                self._code = os.waitstatus_to_exitcode(status) if ended else None
            return self._code

    def wait(self, timeout: float | None = None) -> int:
        """As ``poll``, when it has ended.

        Raises:
            subprocess.TimeoutExpired: it has not, within that time.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("a worker", timeout or 0.0)
            time.sleep(_POLL_S)
        return code


def _live(work: Callable[[], None], pipe: int, errors: int) -> None:
    with suppress(OSError):
        os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for file, place in ((pipe, 0), (pipe, 1), (errors, 2)):
        os.dup2(file, place)
    for place in {int(name) for name in os.listdir("/proc/self/fd")} - {0, 1, 2}:
        with suppress(OSError):
            os.close(place)
    work()
