"""Workers that err on purpose, for the tests of verilocc_mlir.crew."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from verilocc_mlir.crew.descendants import serve_jobs
from verilocc_mlir.crew.serve import serve


def echo(memory_mib: int = 0) -> None:
    serve(lambda: _echo, memory_mib, ready=False)


def jobs(memory_mib: int = 0) -> None:
    serve_jobs(lambda: _echo, memory_mib)


def failing() -> None:
    serve_jobs(partial(sys.exit, "nothing to load"))


def cut() -> None:
    """Ends in the middle of its answer."""
    os.read(0, 1 << 16)
    os.write(1, b'90\n{"id": 0}')


def too_long() -> None:
    os.read(0, 1 << 16)
    os.write(1, b"9999999999\n{}")
    time.sleep(600)


def _echo(question: dict[str, Any], data: bytes) -> tuple[Mapping[str, object], bytes]:
    what = question.get("what", "echo")
    if what == "die":
        os._exit(7)
    if what == "hang":
        time.sleep(600)
    if what == "allocate":
        try:
            bytearray(8 << 30)
        except MemoryError:
            return {"reason": "memory", "last": True}, b""
    if what == "print":
        print('9\n{"id": 1}', flush=True)
        os.write(1, b"and once more")
    if what == "start":
        _start(Path(question["note"]), stay=question["stay"])
        time.sleep(600 * question["stay"])
    return {"what": what, "pid": os.getpid()}, data


def _start(note: Path, *, stay: bool) -> None:
    """A process in a group of its own, one that this starts in yet another, and, where this one stays, a mere fork."""
    child = subprocess.Popen(["sh", "-c", f"setsid sleep 600 & echo $! >> {note}; wait"], start_new_session=True)
    fork = os.fork() if stay else child.pid
    if not fork:
        os.setsid()
        time.sleep(600)
    while not note.exists() or not note.read_text().endswith("\n"):
        time.sleep(0.01)
    with note.open("a") as stream:
        stream.write(f"{child.pid}\n{fork}\n{os.getpid()}\n")
