"""A copy of this process is a worker like any other; ``tests/crew/test_crew.py`` runs this with no thread beside it."""

from __future__ import annotations

import os
from contextlib import closing
from functools import partial

import pytest
from crew_workers import echo
from process_support import gone

from verilocc_mlir.crew.crew import Crew
from verilocc_mlir.crew.serve import Message
from verilocc_mlir.crew.worker import Late, Lost, Worker


def main() -> None:
    def asked(what: str, data: bytes = b"", seconds: float = 30.0) -> Message:
        with crew.worker() as worker:
            return worker.ask({"what": what}, seconds, data)

    with closing(Crew(partial(Worker, partial(echo, 0), fork=True))) as crew:
        data = os.urandom(3 << 20)
        assert asked("echo", data)[1] == data
        (pid,) = crew.pids()
        assert os.getpgid(pid) == pid != os.getpgid(0)
        with pytest.raises(Lost, match="the worker process ended with exit code 7"):
            asked("die")
        asked("echo")
        (pid,) = crew.pids()
        with pytest.raises(Late):
            asked("hang", seconds=0.3)
        assert gone(pid)
        asked("echo")
        (pid,) = crew.pids()
        with open(f"/proc/{pid}/cmdline") as theirs, open("/proc/self/cmdline") as ours:
            assert theirs.read() == ours.read()
    assert gone(pid)


if __name__ == "__main__":
    main()
