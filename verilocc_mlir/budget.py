"""The CPU seconds that a compile may take, asked inside the steps that take long."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

from verilocc_mlir.errors import UnsupportedError

_is_over: ContextVar[Callable[[], bool] | None] = ContextVar("is_over", default=None)


class OutOfSecondsError(UnsupportedError):
    """A search was left because the seconds are over; what was found before stands."""


@contextmanager
def within(is_over: Callable[[], bool]) -> Generator[None, None, None]:
    """Steps inside are left where ``is_over`` says so."""
    token = _is_over.set(is_over)
    try:
        yield
    finally:
        _is_over.reset(token)


def check_seconds() -> None:
    """Go on, or not.

    Raises:
        OutOfSecondsError: the seconds are over.
    """
    is_over = _is_over.get()
    if is_over is not None and is_over():
        raise OutOfSecondsError("the seconds are over")
