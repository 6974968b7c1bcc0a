"""The solver's limits: the same two options, with the same names and defaults, for every command that asks a solver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])

DEFAULT_SECONDS = 60.0
DEFAULT_MEMORY_MIB = 4096


def solver_limits(command: _Command) -> _Command:
    """Add ``--solver-seconds`` and ``--solver-memory`` (arguments ``solver_seconds`` and ``solver_memory``)."""
    seconds = click.option(
        "--solver-seconds",
        type=click.FloatRange(0, min_open=True),
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
