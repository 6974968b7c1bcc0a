"""What the autotuner compiles only to time it: Triton's own, unless ours is asked for.

An autotuner compiles every configuration, runs each, and keeps one. Allocating and proving all of them costs several
times what Triton's own compilations cost, for code of which one in fifty is kept. So, by default, configurations are
timed as Triton compiles them, and the chosen one goes through this project's pipeline when it is launched. What is
timed is then not what ships: with ``replace=better`` what ships is Triton's, or is modelled no dearer than that.
``autotune="ours"`` has every configuration allocated and proved before it is timed.

Triton says nowhere that it is timing, so the stack is looked at for ``Autotuner._bench`` (Triton 3.9; with a Triton
that has none ours are timed). Nothing of Triton's is wrapped: a program that is asked to by its environment installs
the hook while Triton is being imported, before there is an autotuner.
"""

from __future__ import annotations

import inspect
import sys
from enum import Enum

_DEEPEST = 40
"""Frames between a launch and the autotuner that times it, at most: benchmarkers, heuristics, the compiler's own."""


class Autotune(Enum):
    """Whose code is timed while configurations are compared."""

    THEIRS = "theirs"
    OURS = "ours"


DEFAULT_AUTOTUNE = Autotune.THEIRS


def is_timing() -> bool:
    """Whether an autotuner has called, to time a configuration."""
    autotuner = getattr(sys.modules.get("triton.runtime.autotuner"), "Autotuner", None)
    bench = getattr(getattr(autotuner, "_bench", None), "__code__", None)
    frame = inspect.currentframe() if bench is not None else None
    for _ in range(_DEEPEST):
        if frame is None or frame.f_code is bench:
            return frame is not None
        frame = frame.f_back
    return False
