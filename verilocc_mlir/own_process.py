"""What a process of this project's own changes in Python, for speed. No process does that in which a user's code runs.

The collector of cycles looks seldom: a compilation makes many small objects that live until it ends, and few cycles.
That is a tenth of the CPU of a small compile.
"""

from __future__ import annotations

import gc

_NEW_OBJECTS = 500_000
"""Objects made, less those freed, between two looks; some 50 MB. Python's own figure is 700."""

_changed = False


def look_for_garbage_seldom() -> None:
    """Have the collector of cycles look at what was made since, seldom, and at what is there now, never."""
    global _changed
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)
    _changed = True


def is_own_process() -> bool:
    """Whether this process was said to run no code of a user's."""
    return _changed
