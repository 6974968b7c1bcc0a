"""An allocator whose answers are improved before they are proved."""

from __future__ import annotations

from verilocc_mlir.allocators.improve.search import VERSION, improve
from verilocc_mlir.allocators.protocol import Allocator, Patient
from verilocc_mlir.problem.model import AllocationProblem, Proposal

DEFAULT_STEPS = 60


class Improving:
    """``inner``, then ``improve`` by local moves.

    Args:
        inner: finds the first placement.
        seconds: wall time at most for the improvement of one problem.
        steps: rounds of it at most. Where these end it before the time does, equal problems get equal answers.
        seed: of all random choices.
    """

    def __init__(self, inner: Allocator, seconds: float, *, steps: int = DEFAULT_STEPS, seed: int = 0) -> None:
        self._inner = inner
        self._seconds = seconds
        self._steps = steps
        self._seed = seed
        self.name = f"{inner.name}+improve"
        self.version = f"{inner.version}+{VERSION}"

    def hurried(self) -> Improving:
        """The same, giving up sooner where ``inner`` does."""
        inner = self._inner.hurried() if isinstance(self._inner, Patient) else self._inner
        return Improving(inner, self._seconds, steps=self._steps, seed=self._seed)

    def allocate(self, problem: AllocationProblem) -> Proposal:
        """Answer ``problem``.

        Raises:
            AllocationFailure: as ``inner`` does.
        """
        proposal = self._inner.allocate(problem)
        # Without OR-Tools, so that the answer is the same where it is not installed.
        return improve(problem, proposal, self._seconds, self._seed, steps=self._steps, solver=False).proposal
