"""How long a request takes of late, and so how long one that is refused should stay away."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_SECONDS = 1.0
"""What a request is taken to cost before one was done."""
LEAST_SECONDS, MOST_SECONDS = 0.1, 60.0
_WEIGHT = 0.1
"""Of the latest request: some twenty of them make the mean."""


@dataclass
class Pace:
    """A running mean.

    Attributes:
        mean: seconds that a request has a worker; None before the first one.
    """

    mean: float | None = None

    def note(self, seconds: float) -> None:
        """One more request had a worker for so long, whatever came of it."""
        self.mean = seconds if self.mean is None else self.mean + _WEIGHT * (seconds - self.mean)

    def wait(self, waiting: int, workers: int) -> float:
        """Seconds after which those that are worked on, and ``waiting`` more, are done; within bounds that no single
        slow or quick request moves.
        """
        mean = FIRST_SECONDS if self.mean is None else self.mean
        return min(max(mean * (1 + waiting / workers), LEAST_SECONDS), MOST_SECONDS)
