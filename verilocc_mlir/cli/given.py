"""What a command was given: as one frozen value in place of a parameter for each option, and within limits."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import Any, TypeVar

import click

_Given = TypeVar("_Given")


def given_as(kind: type[_Given], rest: str = "") -> Callable[[Callable[[_Given], int]], Callable[..., int]]:
    """Call the command with a ``kind``, whose fields are named as click names the parameters.

    Args:
        kind: a dataclass.
        rest: its field that takes the parameters without a field of their own, by name.
    """

    def decorate(command: Callable[[_Given], int]) -> Callable[..., int]:
        names = {field.name for field in fields(kind)}  # pyright: ignore[reportArgumentType]

        @wraps(command)
        def called(**parameters: Any) -> int:
            own = {name: value for name, value in parameters.items() if name in names}
            others = {name: value for name, value in parameters.items() if name not in names}
            return command(kind(**own, **({rest: others} if rest else others)))

        return called

    return decorate


# Limits: numbers above zero, and the solver's two options, for every command that asks a solver.


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
