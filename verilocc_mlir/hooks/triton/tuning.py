"""What the autotuner compiles only to time it: Triton's own, unless ours is asked for.

An autotuner compiles every configuration, runs each, and keeps one. Allocating and proving all of them costs several
times what Triton's own compilations cost, for code of which one in fifty is kept. So, by default, configurations are
timed as Triton compiles them, and the chosen one goes through this project's pipeline when it is launched. What is
timed is then not what ships: with ``replace=better`` what ships is Triton's, or is modelled no dearer than that.
``autotune="ours"`` has every configuration allocated and proved before it is timed.

Triton says nowhere that it is timing, so ``Autotuner._bench`` is wrapped (Triton 3.9; a Triton without it times ours).
"""

from __future__ import annotations

import functools
import importlib
from contextvars import ContextVar
from enum import Enum
from typing import Any

from verilocc_mlir.errors import InputError

_timing: ContextVar[bool] = ContextVar("verilocc_triton_timing", default=False)


class Autotune(Enum):
    """Whose code is timed while configurations are compared."""

    THEIRS = "theirs"
    OURS = "ours"


DEFAULT_AUTOTUNE = Autotune.THEIRS


def autotune_of(given: Autotune | str) -> Autotune:
    """The value, from itself or its text.

    Raises:
        InputError: it is none of them.
    """
    try:
        return Autotune(given)
    except ValueError as error:
        raise InputError(f"autotune={given} is not theirs or ours") from error


def is_timing() -> bool:
    """Whether this thread compiles and runs a configuration for an autotuner to time."""
    return _timing.get()


class TimingWatch:
    """Marks what an autotuner does as it times a configuration, from when this is made until ``remove``."""

    def __init__(self) -> None:
        self._autotuner: Any = importlib.import_module("triton.runtime.autotuner").Autotuner
        self._before: Any = getattr(self._autotuner, "_bench", None)
        self._marked: Any = None
        if self._before is not None:
            self._marked = self._autotuner._bench = _marked(self._before)

    def remove(self) -> None:
        """The autotuner as it was; does nothing where somebody else has wrapped it since."""
        if self._marked is not None and self._autotuner._bench is self._marked:
            self._autotuner._bench = self._before


def _marked(bench: Any) -> Any:
    @functools.wraps(bench)
    def marked(*args: Any, **kwargs: Any) -> Any:
        token = _timing.set(True)
        try:
            return bench(*args, **kwargs)
        finally:
            _timing.reset(token)

    return marked
