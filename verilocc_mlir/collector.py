"""How often Python looks for garbage in processes that are this project's own."""

from __future__ import annotations

import gc

_NEW_OBJECTS = 100_000
"""Objects made, less those freed, between two looks; some 10 MB. Python's own figure is 700."""


def look_for_garbage_seldom() -> None:
    """Have the collector of cycles look at what was made since, seldom, and at what is there now, never.

    A compilation makes many small objects that live until it ends, and few cycles: looking for these takes a tenth of
    its time. For a process of a caller's, which may make others, this is not ours to say.
    """
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)
