"""Call a function that may end the process, in a copy of the process."""

from __future__ import annotations

import faulthandler
import os
import signal
import tempfile
import warnings
from collections.abc import Callable


class Ended(Exception):
    """The copy ended without a result; ``args[0]`` is what it wrote to standard error, or the signal."""


def call_isolated(function: Callable[[], str]) -> str:
    """What ``function`` returns, called in a forked copy of this process; there is no copy where there is no ``fork``.

    Only the calling thread lives on in the copy, so ``function`` must not wait for others.

    Raises:
        Ended: the copy crashed, or ``function`` raised.
    """
    if not hasattr(os, "fork"):
        return function()
    with tempfile.TemporaryFile() as complaints:
        reading, writing = os.pipe()
        with warnings.catch_warnings():
            # Python 3.12 warns of locks that other threads may hold; MLIR's idle thread pool holds none.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            _answer(function, writing, complaints.fileno())
        os.close(writing)
        try:
            with os.fdopen(reading, "rb") as stream:
                answer = stream.read()
        except BaseException:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status == 0:
            return answer.decode()
        complaints.seek(0)
        text = complaints.read().decode("utf-8", "replace").strip()
        raise Ended(text.splitlines()[0] if text else signal.Signals(-status).name if status < 0 else "no message")


def _answer(function: Callable[[], str], writing: int, complaints: int) -> None:
    """The copy's whole life: never returns, runs none of the process's exit handlers."""
    status = 1
    try:
        faulthandler.disable()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.dup2(complaints, 2)
        with os.fdopen(writing, "wb") as stream:
            stream.write(function().encode())
        status = 0
    except BaseException as error:
        os.write(complaints, f"{type(error).__name__}: {error}".encode())
    finally:
        os._exit(status)
