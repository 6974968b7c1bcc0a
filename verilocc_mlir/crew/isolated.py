"""Copies of this process: one that goes its own way, and one that makes a call which may end it."""

from __future__ import annotations

import faulthandler
import os
import signal
import tempfile
import traceback
import warnings
from collections.abc import Callable


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
