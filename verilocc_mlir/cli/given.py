"""What commands share: what one was given, as one frozen value and within limits; how its help is shown; and which
optional parts it needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from importlib.util import find_spec
from typing import Any, TypeVar

import click

from verilocc_mlir.errors import UnsupportedError

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


# How commands show their help: with rich_click, which is loaded for that alone.


HELP: dict[str, Any] = {"help_option_names": ["-h", "--help"]}
"""Settings of a command's context: its help is asked for by either."""


def grouped_help(groups: dict[str, Any]) -> dict[str, Any]:
    """``HELP``, with options in groups: ``{"verilocc NAME": [{"name": …, "options": ["--one", …]}, …]}``."""
    return {**HELP, "option_groups": groups}


class _Context(click.Context):
    """A context that knows the groups of its command's options."""

    def __init__(self, *arguments: Any, option_groups: dict[str, Any] | None = None, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.option_groups = option_groups


class Command(click.Command):
    """A command whose help is shown by rich_click."""

    context_class = _Context

    def get_help(self, ctx: click.Context) -> str:
        return _rich_help(self, ctx)


class Group(click.Group):
    """A group of commands whose help is shown by rich_click."""

    context_class = _Context
    command_class = Command

    def get_help(self, ctx: click.Context) -> str:
        return _rich_help(self, ctx)

    def listed(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command as the group's help lists it: its name and its help are looked at."""
        return click.Group.get_command(self, ctx, cmd_name)


Group.group_class = Group


def _rich_help(command: click.Command, ctx: click.Context) -> str:
    from rich_click import RichCommand, RichContext, RichGroup, RichHelpConfiguration

    is_group = isinstance(command, Group)
    rich: Any = RichGroup if is_group else RichCommand
    same: Any = type(rich.__name__, (rich, type(command)), {"get_command": type(command).listed} if is_group else {})
    taken = ["name", "params", "help", "epilog", "options_metavar", *(["commands"] if is_group else [])]
    shown: click.Command = same(**{name: getattr(command, name) for name in taken})
    groups = getattr(ctx, "option_groups", None)
    config = RichHelpConfiguration(option_groups=groups) if groups else None
    context = RichContext(shown, info_name=ctx.info_name, parent=ctx.parent, rich_help_config=config, **HELP)
    return click.Command.get_help(shown, context)


# Optional parts: whether they are installed, and what to install if not.


_SERVICE = (
    "grpc",
    "grpc_health",
    "grpc_reflection",
    "grpc_status",
    "google.protobuf",
    "opentelemetry",
    "prometheus_client",
)

_MODEL = ("numpy", "torch", "transformers", "peft", "safetensors")


def needs_service() -> None:
    """Raises UnsupportedError, naming the extra, if the gRPC service cannot run here."""
    missing = [name for name in _SERVICE if not _found(name)]
    if missing:
        raise UnsupportedError(
            f"this needs the gRPC service, and {', '.join(missing)} is not installed",
            hint="pip install 'verilocc-mlir[service]'",
        )


def has_ray() -> bool:
    return _found("ray")


def needs_ray() -> None:
    """Raises UnsupportedError, naming the extra, if Ray is not installed."""
    if not has_ray():
        raise UnsupportedError("this needs Ray, which is not installed", hint="pip install 'verilocc-mlir[ray]'")


def needs_model() -> None:
    """Raises UnsupportedError if the package ``verilocc_model`` is not installed."""
    if not _found("verilocc_model"):
        raise UnsupportedError(
            "this needs the package verilocc_model, which is not installed",
            hint="in a source tree: PYTHONPATH=model, or pip install -e .",
        )


def needs_language_model() -> None:
    """Raises UnsupportedError, naming the extra, if the language model cannot run here."""
    needs_model()
    missing = [name for name in _MODEL if not _found(name)]
    if missing:
        raise UnsupportedError(
            f"this needs the language model, and {', '.join(missing)} is not installed",
            hint="pip install 'verilocc-mlir[model]'",
        )


def _found(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False
