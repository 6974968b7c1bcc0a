"""What an allocator is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.problem.model import AllocationProblem, Proposal

UNKNOWN_VERSION = "unknown"
"""The version of an allocator behind a server that does not state one."""


@dataclass(frozen=True)
class Partial:
    """An assignment of some ranges.

    Attributes:
        registers: for each live range, by id, its register without ``$``; ``""`` where no place was found.
        ceiling: registers of each file that may be used.
    """

    registers: tuple[str, ...]
    ceiling: Mapping[str, int]


class AllocationFailure(VeriloccError):
    """No assignment without spilling was found; ``what`` says why. The caller falls back to another allocator.

    Attributes:
        reason: ``"pressure"``: more registers are needed at one point than there are, so no assignment exists.
            ``"infeasible"``: each file is large enough at each point, and it is proved that no assignment exists.
            ``"fragmentation"``: each file is large enough by count, but the search found no place for a tuple.
            ``"declined"``: a server answered that it has no assignment. ``"remote"``: a server gave no usable answer.
            ``"defect"``: the allocator broke its contract; its caller sets this.
        partial: the closest it came, where no place was found for a tuple; None where that is not known.
    """

    def __init__(
        self, what: str, *, reason: str, where: str = "", hint: str = "", partial: Partial | None = None
    ) -> None:
        self.reason = reason
        self.partial = partial
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


@runtime_checkable
class Patient(Protocol):
    """An allocator with a long search. ``hurried`` gives the same allocator with a short search, for a caller that can
    spill and ask again.
    """

    def hurried(self) -> Allocator: ...


@runtime_checkable
class Remote(Protocol):
    """An allocator that asks a server, which may be down; ``address`` is how people know it."""

    @property
    def address(self) -> str: ...


@runtime_checkable
class Loading(Protocol):
    """An allocator that loads something before its first answer; ``load`` does it ahead of time."""

    def load(self) -> None:
        """Load it.

        Raises:
            InputError: it cannot be loaded.
        """
        ...


@runtime_checkable
class Modelled(Protocol):
    """An allocator with a model behind it; ``model`` is its name and version, adapters included."""

    @property
    def model(self) -> str: ...


def model_behind(allocator: Allocator) -> str:
    """Name and version of the model that an allocator asks, ``""`` if it has none."""
    return allocator.model if isinstance(allocator, Modelled) else ""


@dataclass(frozen=True, slots=True)
class Counterexample:
    """One constraint that a refuted proposal violates.

    Attributes:
        rule: its stable name: ``interference``, ``alignment`` …
        ranges: ids of the live ranges involved, the one cheaper to move first.
        slot: first program point at which it is broken, -1: everywhere.
        lanes: for each of ``ranges``, the mask of 16-bit lanes involved.
        registers: for each of ``ranges``, the register proposed.
        free: registers that the first of ``ranges`` could have had while everything else stays where it was.
    """

    rule: str
    ranges: tuple[int, ...]
    slot: int
    lanes: tuple[int, ...]
    registers: tuple[str, ...]
    free: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Refutation:
    """A proposal that was refuted, and by what.

    Attributes:
        moves: ids of a smallest set of live ranges that must move: all others can stay where they are. Empty: not
            known.
    """

    proposal: Proposal
    counterexamples: tuple[Counterexample, ...]
    moves: tuple[int, ...] = ()


@runtime_checkable
class Regenerating(Protocol):
    """An allocator that can try again: the next proposal may differ, and may learn from the refutations so far."""

    def regenerate(self, problem: AllocationProblem, refuted: tuple[Refutation, ...]) -> Proposal:
        """Answer ``problem`` once more; ``refuted`` has all earlier answers, the latest last.

        Raises:
            AllocationFailure: as for ``Allocator.allocate``.
        """
        ...
