"""What a process of this project's own changes in Python, for speed. No process does that in which a user's code runs.

Two changes, each a tenth of the CPU of a small compile:

* The collector of cycles looks seldom: a compilation makes many small objects that live until it ends, and few cycles.
* The methods of our dataclasses are compiled when they are first called. Python compiles up to eight for each class
  while its module loads, 0.1 ms each; a compile loads 170 of these classes and calls a sixth of their methods.
  Dataclasses of other packages are made as ever.
"""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Mapping
from typing import Any

_NEW_OBJECTS = 100_000
"""Objects made, less those freed, between two looks; some 10 MB. Python's own figure is 700."""

_changed = False

_OURS = ("verilocc_mlir", "smt_verifier")


def look_for_garbage_seldom() -> None:
    """Have the collector of cycles look at what was made since, seldom, and at what is there now, never."""
    global _changed
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)
    _changed = True


def is_own_process() -> bool:
    """Whether this process was said to run no code of a user's."""
    return _changed


def compile_methods_late() -> None:
    """Have the dataclasses of ours that are loaded from now on compile each method at its first call.

    From Python 3.13 on the methods of a class are compiled together, and this does nothing.
    """
    create: Any = getattr(dataclasses, "_create_fn", None)
    if create is None:
        return

    def create_late(name: str, *arguments: Any, **named: Any) -> Any:
        if not _is_ours(named.get("globals")):
            return create(name, *arguments, **named)

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


def _is_ours(module: Mapping[str, Any] | None) -> bool:
    """Whether a dataclass is of one of our packages, by the globals of its module."""
    return module is not None and str(module.get("__name__")).partition(".")[0] in _OURS
