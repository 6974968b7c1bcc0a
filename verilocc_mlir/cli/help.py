"""How commands show their help: with rich_click, which is loaded for that alone."""

from __future__ import annotations

from typing import Any

import click

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
