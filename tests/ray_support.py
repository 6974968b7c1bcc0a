"""An allocator that waits, for the tests of the service on Ray: its processes find it by this module's name."""

from __future__ import annotations

import os
import time
from pathlib import Path

from verilocc_mlir.allocators import Allocator, allocator
from verilocc_mlir.problem.model import AllocationProblem, Proposal
from verilocc_mlir.service.jobs import Terms

DIRECTORY = "VERILOCC_TEST_HOLD"
"""Environment variable: directory of the files below."""


class Waiting:
    """Says in ``pids`` which process it is in, waits while there is ``hold``, then allocates as "deterministic"."""

    name = "waiting"
    version = "1"

    def allocate(self, problem: AllocationProblem) -> Proposal:
        directory = Path(os.environ[DIRECTORY])
        with (directory / "pids").open("a") as stream:
            stream.write(f"{os.getpid()}\n")
        while (directory / "hold").exists():
            time.sleep(0.02)
        return allocator("deterministic").allocate(problem)


def _named(name: str) -> Allocator:
    return Waiting() if name == Waiting.name else allocator(name)


TERMS = Terms(("deterministic", Waiting.name), factory=_named)
