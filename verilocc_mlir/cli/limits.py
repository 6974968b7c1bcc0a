"""Limits: numbers above zero, and the solver's two options, for every command that asks a solver."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])


class _Finite(click.FloatRange):
    """``inf`` and ``nan`` are in every range of click's."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


POSITIVE = _Finite(0, min_open=True)

DEFAULT_SECONDS = 60.0
DEFAULT_MEMORY_MIB = 4096


def solver_limits(command: _Command) -> _Command:
    """Add ``--solver-seconds`` and ``--solver-memory`` (arguments ``solver_seconds`` and ``solver_memory``)."""
    seconds = click.option(
        "--solver-seconds",
        type=POSITIVE,
        default=DEFAULT_SECONDS,
        show_default=True,
        metavar="S",
        help="For one question to the solver; then UNKNOWN.",
    )
    memory = click.option(
        "--solver-memory",
        type=click.IntRange(256),
        default=DEFAULT_MEMORY_MIB,
        show_default=True,
        metavar="MIB",
        help="For one solver process; then UNKNOWN.",
    )
    return seconds(memory(command))
