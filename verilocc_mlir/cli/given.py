"""What a command was given, as one frozen value in place of a parameter for each option."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import Any, TypeVar

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
