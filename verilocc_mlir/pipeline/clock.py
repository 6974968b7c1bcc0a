"""Where the CPU time goes."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager

from smt_verifier.smt import default_solver


class Clock:
    """CPU seconds of this process and its solver workers by step; tools account for themselves."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def measure(self, step: str) -> Generator[None, None, None]:
        start = cpu_seconds()
        try:
            yield
        finally:
            self.add(step, cpu_seconds() - start)

    @contextmanager
    def measure_rest(self, step: str) -> Generator[None, None, None]:
        """As ``measure``, without what is measured as other steps meanwhile."""
        start, measured = cpu_seconds(), sum(self.seconds.values())
        try:
            yield
        finally:
            self.add(step, cpu_seconds() - start - (sum(self.seconds.values()) - measured))

    def add(self, step: str, seconds: float) -> None:
        self.seconds[step] = self.seconds.get(step, 0.0) + seconds

    def since(self, earlier: Mapping[str, float]) -> Clock:
        """What came on top of earlier ``seconds``."""
        later = Clock()
        later.seconds = {step: seconds - earlier.get(step, 0.0) for step, seconds in self.seconds.items()}
        return later

    def absorb(self, other: Clock) -> None:
        for step, seconds in other.seconds.items():
            self.add(step, seconds)


def cpu_seconds() -> float:
    return time.process_time() + default_solver().cpu_seconds
