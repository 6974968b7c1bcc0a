"""Where a figure of the model comes from. It stands beside the figure; the table in the documentation is made of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

_Rule = TypeVar("_Rule", bound=Callable[..., object])


class Origin(Enum):
    """How a figure is known."""

    MEASURED = "measured"
    LLVM = "LLVM"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a figure comes from.

    Attributes:
        origin: how it is known.
        detail: what was measured, LLVM's file, or what the assumption rests on.
    """

    origin: Origin
    detail: str


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure and its source."""

    value: float
    source: Source


RULES: dict[str, Source] = {}
"""Sources of the rules that compute figures, by ``module.function``."""


def sourced(origin: Origin, detail: str) -> Callable[[_Rule], _Rule]:
    """Say where the figures in a function come from."""

    def noted(rule: _Rule) -> _Rule:
        RULES[f"{rule.__module__.rpartition('.')[2]}.{rule.__name__}"] = Source(origin, detail)
        return rule

    return noted
