"""Copies of this process: a worker, which has loaded what this one has, in 2 ms instead of a new start; and one that
makes a call which may end it.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial

# Copies of this process: one that goes its own way, and one that makes a call which may end it.


class Ended(Exception):
    """The copy ended without a result; ``args[0]`` is what it wrote to standard error, or the signal."""


def fork(life: Callable[[], None]) -> int:
    """Process id of a copy of this process, in which ``life`` is called and no exit handler.

    Only the calling thread lives on in the copy, so ``life`` must not wait for others.
    """
    with warnings.catch_warnings():
        # Python 3.12 warns of locks that other threads may hold; MLIR's idle thread pool holds none.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child:
        return child
    status = 1
    try:
        life()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def call_isolated(function: Callable[[], str]) -> str:
    """What ``function`` returns, called in a copy of this process; there is no copy where there is no ``fork``.

    Raises:
        Ended: the copy crashed, or ``function`` raised.
    """
    if not hasattr(os, "fork"):
        return function()
    with tempfile.TemporaryFile() as complaints:
        reading, writing = os.pipe()

        def answer() -> None:
            faulthandler.disable()
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            os.dup2(complaints.fileno(), 2)
            try:
                with os.fdopen(writing, "wb") as stream:
                    stream.write(function().encode())
            except BaseException as error:
                os.write(2, f"{type(error).__name__}: {error}".encode())
                os._exit(1)

        child = fork(answer)
        os.close(writing)
        try:
            with os.fdopen(reading, "rb") as stream:
                result = stream.read()
        except BaseException:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status == 0:
            return result.decode()
        complaints.seek(0)
        text = complaints.read().decode("utf-8", "replace").strip()
        crash = next((known.name for known in signal.Signals if known == -status), f"signal {-status}")
        raise Ended(text.splitlines()[0] if text else crash if status < 0 else "no message")


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
