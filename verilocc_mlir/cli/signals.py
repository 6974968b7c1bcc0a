"""SIGTERM ends a command as Ctrl-C does: tools killed, nothing written, exit code 130."""

from __future__ import annotations

import signal
from typing import NoReturn


def end_on_sigterm() -> None:
    """From now on; a handler that a user's program has put there stays."""
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminated)


def _terminated(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt
