"""What an allocator is."""

from __future__ import annotations

from typing import Protocol

from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.problem.model import AllocationProblem, Proposal


class AllocationFailure(VeriloccError):
    """No assignment without spilling was found; ``what`` says why. The caller falls back to another allocator.

    Attributes:
        reason: ``"pressure"`` (more registers are needed at one point than there are: no assignment exists) or
            ``"fragmentation"`` (each file is large enough by count, but this search found no place for a tuple).
    """

    def __init__(self, what: str, *, reason: str, where: str = "", hint: str = "") -> None:
        self.reason = reason
        super().__init__(what, where=where, hint=hint)


class Allocator(Protocol):
    """Proposes a physical register for every live range of a problem.

    ``name`` and ``version`` appear in reports and cache keys: the version changes whenever results can.
    """

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    def allocate(self, problem: AllocationProblem) -> Proposal:
        """Answer ``problem``.

        Raises:
            AllocationFailure: it cannot be answered without spilling, or not by this allocator.
        """
        ...
