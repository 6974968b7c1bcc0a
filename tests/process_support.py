"""Processes as /proc has them: who started whom, who works, and who is gone; and waiting for what a test needs.

Nothing here is decided by how fast the machine is: a condition is awaited, and a test fails where it never comes.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

SECONDS = 60.0
"""After which a condition counts as one that never comes."""
TO_END = 30.0
"""The same for the end of a process; all that tests make hang would stay longer."""
_Value = TypeVar("_Value")


def until(ask: Callable[[], _Value], what: str = "", seconds: float = SECONDS) -> _Value:
    """The first true value that ``ask`` gives."""
    deadline = time.monotonic() + seconds
    while not (value := ask()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what or ask}"
        time.sleep(0.02)
    return value


def lines_of(path: Path, count: int = 1) -> list[str]:
    """The lines of a file, when it has that many."""

    def enough() -> list[str]:
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return lines if sum(line.endswith("\n") for line in lines) >= count else []

    return [line.rstrip("\n") for line in until(enough, f"{count} lines in {path.name}")]


def gone(pid: int) -> bool:
    """Whether the process ends; a zombie has ended."""

    def ended() -> bool:
        try:
            return _stat(pid)[0] == "Z"
        except OSError:
            return True

    return until(ended, f"the end of process {pid}", TO_END)


def works(pid: int) -> bool:
    """Whether the process takes CPU time, a twentieth of a second from now on."""
    before = _ticks(pid)
    return until(lambda: _ticks(pid) >= before + 5, f"work of process {pid}")


def _ticks(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[11]) + int(fields[12])


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()


def listens_beyond_loopback(pid: int) -> list[str]:
    """Where other machines can reach the process: addresses and ports as /proc/net has them."""
    inodes = {os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir() if fd.is_symlink()}
    beyond: list[str] = []
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            _, local, _, state, *fields = line.split()
            host = local.partition(":")[0]
            if state == "0A" and f"socket:[{fields[5]}]" in inodes and host[-8:] not in ("0100007F", "01000000"):
                beyond.append(local)
    return beyond


def parent_of(pid: int) -> int:
    return int(_stat(pid)[1])


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
