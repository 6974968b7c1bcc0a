"""What an LLVM answers in a session of tests is asked once: the same program, the same words, the same input.

Nothing stands in for LLVM: an answer is what that program wrote in this session, for whichever test asked first. Only
runs that succeed and that name no file are kept. ``make test-all`` asks every time, and so do the tests of the tools.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import threading
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from verilocc_mlir.toolchain.run import ToolRun, run_tool

_BRIEF = 60.0
"""Seconds; a test that allows less asks how long the program takes."""


@lru_cache(maxsize=None)
def _is_machine_code(program: str) -> bool:
    """A script, as one that misbehaves for a test, may answer otherwise the next time."""
    with open(program, "rb") as stream:
        return stream.read(4) == b"\x7fELF"


class Asked:
    """In the place of ``run_tool``, for all processes of a session.

    Args:
        directory: where the answers are, one file each.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(exist_ok=True)

    def __call__(self, command: Sequence[str | Path], *, stdin: bytes, timeout: float, **more: Any) -> ToolRun:
        program, *words = map(str, command)
        if timeout < _BRIEF or any("/" in word and word != "/dev/stdin" for word in words):
            return run_tool(command, stdin=stdin, timeout=timeout, **more)
        if not os.path.exists(program) or not _is_machine_code(program):
            return run_tool(command, stdin=stdin, timeout=timeout, **more)
        question = "\0".join((program, *words, more["stage"])).encode()
        kept = self._directory / hashlib.sha256(b"%d %b%b" % (len(question), question, stdin)).hexdigest()
        if kept.exists():
            return pickle.loads(kept.read_bytes())
        answer = run_tool(command, stdin=stdin, timeout=timeout, **more)
        partial = kept.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        partial.write_bytes(pickle.dumps(answer))
        partial.replace(kept)
        return answer
