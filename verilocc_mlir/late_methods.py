"""Methods of dataclasses compiled when they are first called, in processes that are this project's own.

Python compiles up to eight methods for each dataclass while its module loads, 0.1 ms each. A compile loads 170 of these
classes and calls a sixth of their methods.
"""

from __future__ import annotations

import dataclasses
from typing import Any


def compile_methods_late() -> None:
    """Have the dataclasses that are loaded from now on compile each method at its first call.

    From Python 3.13 on the methods of a class are compiled together, and this does nothing.
    """
    create: Any = getattr(dataclasses, "_create_fn", None)
    if create is None:
        return

    def create_late(name: str, *arguments: Any, **named: Any) -> Any:
        def method(instance: object, *values: Any, **fields: Any) -> Any:
            compiled = create(name, *arguments, **named)
            compiled.__qualname__ = method.__qualname__
            for owner in type(instance).__mro__:
                if owner.__dict__.get(name) is method:
                    setattr(owner, name, compiled)
            return compiled(instance, *values, **fields)

        method.__name__ = name
        return method

    setattr(dataclasses, "_create_fn", create_late)  # noqa: B010
