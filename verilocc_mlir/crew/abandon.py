"""Work that nobody waits for any more, given up in the middle by the worker itself, so that its process stays.

Whoever asks sends ``SIGNAL``. The worker raises ``Abandoned`` at its next ``check``, or at once where it is within
``interruptible``: that is for code on whose state nothing relies afterwards. A second signal changes nothing.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Generator

SIGNAL = signal.SIGUSR1


class Abandoned(BaseException):
    """Nobody waits for the answer. No error of the work, so nothing that handles its errors catches it."""


class _State:
    listening = False
    asked = False
    inside = 0


def listen() -> None:
    """Take the signal from now on; for the main thread of a worker."""
    signal.signal(SIGNAL, _heard)
    _State.listening = True


def begin() -> None:
    """Work on something new, which nobody has given up."""
    _State.asked, _State.inside = False, 0


def check() -> None:
    """
    Raises:
        Abandoned: nobody waits for the answer.
    """
    if _State.asked:
        raise Abandoned


@contextlib.contextmanager
def interruptible() -> Generator[None, None, None]:
    """Within the block the signal interrupts whatever runs; nothing, where this thread does not take it."""
    if not _State.listening or threading.current_thread() is not threading.main_thread():
        yield
        return
    check()
    _State.inside += 1
    try:
        yield
    finally:
        _State.inside -= 1


def _heard(_number: int, _frame: object) -> None:
    if not _State.asked:
        _State.asked = True
        if _State.inside:
            raise Abandoned
