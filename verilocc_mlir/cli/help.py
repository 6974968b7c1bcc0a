"""How commands show their help."""

from __future__ import annotations

from typing import Any

from rich_click import RichHelpConfiguration

HELP: dict[str, Any] = {"help_option_names": ["-h", "--help"]}
"""Settings of a command's context: its help is asked for by either."""


def grouped_help(groups: dict[str, Any]) -> dict[str, Any]:
    """``HELP``, with options in groups: ``{"verilocc NAME": [{"name": …, "options": ["--one", …]}, …]}``."""
    return {**HELP, "rich_help_config": RichHelpConfiguration(option_groups=groups)}
