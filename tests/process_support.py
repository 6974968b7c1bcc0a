"""Processes as /proc has them: who started whom, and who is gone."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path


def gone(pid: int, seconds: float = 10) -> bool:
    """Whether the process ends within that time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def children(pid: int) -> list[int]:
    """Process ids of what all its threads started, in order; none of a process that is gone."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, task.read_text().split())
    return sorted(found)


def descendants(pid: int) -> set[int]:
    """Process ids of all it started, and of what those started."""
    return {found for child in children(pid) for found in ({child} | descendants(child))}
