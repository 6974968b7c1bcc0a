"""Where the CPU time goes."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager

from smt_verifier.smt import default_solver


class Budget:
    """CPU seconds of this process and its solver workers, from now on; None: there is no end to them."""

    def __init__(self, seconds: float | None = None) -> None:
        self._end = None if seconds is None else cpu_seconds() + seconds

    @property
    def is_over(self) -> bool:
        """Whether nothing further is tried: what is proved by then has to do."""
        return self._end is not None and cpu_seconds() > self._end


class Clock:
    """CPU seconds of this process and its solver workers by step; tools account for themselves.

    Attributes:
        budget: what all that measures by this clock may take.
    """

    def __init__(self, budget: Budget | None = None) -> None:
        self.seconds: dict[str, float] = {}
        self.budget = budget or Budget()

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
