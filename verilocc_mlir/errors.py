"""The root of every error this project raises on purpose, and the exit code each one stands for.

An error says *what* is wrong, *where*, and *what to do*; it is printed as one message, never as a traceback.
"""

from __future__ import annotations

import errno
from enum import IntEnum


class ExitCode(IntEnum):
    """Process exit codes of ``verilocc``: documented in README.md, stable across versions."""

    PROVED = 0
    REFUTED = 1
    BAD_INPUT = 2
    UNKNOWN = 3
    WORSE = 4
    INTERRUPTED = 130


class VeriloccError(Exception):
    """Any failure that the user can act on.

    Args:
        what: one sentence naming the fault.
        where: file, line, function, block or instruction; empty where it does not apply.
        hint: what to do about it; empty where nothing can be said.
    """

    exit_code: ExitCode = ExitCode.BAD_INPUT

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        self.what = what
        self.where = where
        self.hint = hint
        super().__init__(self.render())

    @property
    def without_hint(self) -> str:
        """``where: what``."""
        return f"{self.where}: {self.what}" if self.where else self.what

    def render(self) -> str:
        """The message as it is shown: ``where: what`` and, on a second line, the hint."""
        return f"{self.without_hint}\n  hint: {self.hint}" if self.hint else self.without_hint


class InputError(VeriloccError):
    """The input is not what it claims to be: truncated, for another target, already allocated, no body."""


class UnsupportedError(VeriloccError):
    """The input is well formed, but outside what this version handles; the hint names the way around."""


class ToolchainError(VeriloccError):
    """LLVM or lld is missing, too old, has no AMDGPU back end, crashed or timed out."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, be it Python's or what the system was asked for."""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
