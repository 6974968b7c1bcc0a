"""An allocator that improves the answers of another one before they are proved."""

from __future__ import annotations

from verilocc_mlir.allocators.improve.search import VERSION, improve
from verilocc_mlir.allocators.protocol import Allocator, Patient
from verilocc_mlir.allocators.spread import spread_proposal
from verilocc_mlir.problem.model import AllocationProblem, Proposal

STEPS = 60
"""Most rounds of improvement. Where these end it before the time does, equal problems get equal answers."""


class Improving:
    """``inner``, then ``improve`` by local moves; then registers are spread over what loses no wave (``spread.py``).

    Args:
        inner: finds the first placement.
        seconds: most wall time for the improvement of one problem.
        packed: leave out the last step.
    """

    def __init__(self, inner: Allocator, seconds: float, *, packed: bool = False) -> None:
        self._inner = inner
        self._seconds = seconds
        self._packed = packed
        self.name = f"{inner.name}+improve"
        self.version = f"{inner.version}+{VERSION}"

    def hurried(self) -> Improving:
        """The same allocator, which gives up sooner where ``inner`` does."""
        inner = self._inner.hurried() if isinstance(self._inner, Patient) else self._inner
        return Improving(inner, self._seconds, packed=self._packed)

    def allocate(self, problem: AllocationProblem) -> Proposal:
        """Answer ``problem``.

        Raises:
            AllocationFailure: as ``inner`` does.
        """
        proposal = self._inner.allocate(problem)
        # Without OR-Tools, so that the answer is the same where it is not installed.
        improved = improve(problem, proposal, self._seconds, steps=STEPS, solver=False).proposal
        return improved if self._packed else spread_proposal(problem, improved)
