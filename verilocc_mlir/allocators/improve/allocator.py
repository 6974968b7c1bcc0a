"""An allocator that improves the answers of another one before they are proved."""

from __future__ import annotations

from verilocc_mlir.allocators.improve.search import VERSION, improve
from verilocc_mlir.allocators.protocol import Allocator, Patient
from verilocc_mlir.problem.model import AllocationProblem, Proposal

STEPS = 60
"""Most rounds of improvement. Where these end it before the time does, equal problems get equal answers."""


class Improving:
    """``inner``, then ``improve`` by local moves.

    Args:
        inner: finds the first placement.
        seconds: most wall time for the improvement of one problem.
    """

    def __init__(self, inner: Allocator, seconds: float) -> None:
        self._inner = inner
        self._seconds = seconds
        self.name = f"{inner.name}+improve"
        self.version = f"{inner.version}+{VERSION}"

    def hurried(self) -> Improving:
        """The same allocator, which gives up sooner where ``inner`` does."""
        return Improving(self._inner.hurried() if isinstance(self._inner, Patient) else self._inner, self._seconds)

    def allocate(self, problem: AllocationProblem) -> Proposal:
        """Answer ``problem``.

        Raises:
            AllocationFailure: as ``inner`` does.
        """
        proposal = self._inner.allocate(problem)
        # Without OR-Tools, so that the answer is the same where it is not installed.
        return improve(problem, proposal, self._seconds, steps=STEPS, solver=False).proposal
