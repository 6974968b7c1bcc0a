"""What an allocator is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from msgspec import Struct

from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.problem.model import AllocationProblem, Proposal

UNKNOWN_VERSION = "unknown"
"""The version of an allocator behind a server that does not state one."""


class Partial(Struct, frozen=True):
    """An assignment of some ranges.

    Attributes:
        registers: for each live range, by id, its register without ``$``; ``""`` where no place was found.
        ceiling: registers of each file that may be used.
    """

    registers: tuple[str, ...]
    ceiling: Mapping[str, int]


class ModelUse(Struct, frozen=True):
    """What a model did for one answer.

    Attributes:
        model: its name.
        adapter: name of the adapter that was applied, ``""`` for none.
        tokens: that the model read, its own answers among them.
        seconds: wall time of the answer.
        note: what a person should know: an adapter that is there and was not applied, and why; else ``""``.
    """

    model: str
    adapter: str = ""
    tokens: int = 0
    seconds: float = 0.0
    note: str = ""


class ServerAttempt(Struct, frozen=True):
    """One try of a server, in its own words.

    Attributes:
        allocator, version: whose it was.
        ended: the step that decided.
        outcome: the server's verdict on the proposal: ``proved``, ``refuted`` …; ``""`` where it judged none.
        reason: why it was not taken, ``""``: it was.
        refuted: the constraints that the proposal violates, each as ``rule: message``. The next try was told them.
        model: what its model did; None for an allocator without one, and from servers that do not say.
        nearest: of a refuted proposal, in words: the nearest valid assignment, or why none is known; else ``""``.
    """

    allocator: str
    version: str
    ended: str
    reason: str
    outcome: str = ""
    refuted: tuple[str, ...] = ()
    model: ModelUse | None = None
    nearest: str = ""


class ModelProposal(Proposal, frozen=True):
    """A proposal of a model, with what it took."""

    use: ModelUse


class ServedProposal(Proposal, frozen=True):
    """A proposal of a server, with the tries that led to it, the last one being it."""

    tries: tuple[ServerAttempt, ...]


class AllocationFailure(VeriloccError):
    """No assignment without spilling was found; ``what`` says why. The caller falls back to another allocator.

    Attributes:
        reason: ``"pressure"``: more registers are needed at one point than there are, so no assignment exists.
            ``"infeasible"``: each file is large enough at each point, and it is proved that no assignment exists.
            ``"fragmentation"``: each file is large enough by count, but the search found no place for a tuple.
            ``"declined"``: a server answered that it has no assignment. ``"remote"``: a server gave no usable answer.
            ``"defect"``: the allocator broke its contract; its caller sets this.
        partial: the closest it came, where no place was found for a tuple; None where that is not known.
        use: what a model did before it failed; None without one.
        tries: of a server that has no assignment.
    """

    def __init__(
        self,
        what: str,
        *,
        reason: str,
        where: str = "",
        hint: str = "",
        partial: Partial | None = None,
        tries: tuple[ServerAttempt, ...] = (),
    ) -> None:
        self.reason = reason
        self.partial = partial
        self.use: ModelUse | None = None
        self.tries = tries
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
class Reading(Protocol):
    """An allocator that is given the machine IR of the function beside the problem: a server's, which makes the problem
    itself.
    """

    def allocate_text(self, text: str, problem: AllocationProblem) -> Proposal:
        """Answer ``problem``, which is that of ``text``: a function as it enters the phase, with its IR module.

        Raises:
            AllocationFailure: as for ``Allocator.allocate``.
        """
        ...


@runtime_checkable
class Loading(Protocol):
    """An allocator that loads something before its first answer; ``load`` does it ahead of time."""

    def load(self) -> None:
        """Load it.

        Raises:
            InputError: it cannot be loaded.
        """
        ...


class AdapterFacts(Struct, frozen=True):
    """An adapter of a model.

    Attributes:
        name: its name.
        targets: the GPUs that it is applied for.
        trained_on: the GPUs that it was trained on; none: it does not say.
    """

    name: str
    targets: tuple[str, ...]
    trained_on: tuple[str, ...] = ()


@runtime_checkable
class Modelled(Protocol):
    """An allocator with a model behind it, which may have adapters; ``model`` is the model's name and version."""

    @property
    def model(self) -> str: ...

    @property
    def adapters(self) -> tuple[AdapterFacts, ...]: ...


def model_behind(allocator: Allocator, target: str = "") -> str:
    """Name and version of the model that an allocator asks, ``""`` if it has none; after ``+`` the adapters that are
    applied for a GPU, or all of them.
    """
    if not isinstance(allocator, Modelled):
        return ""
    applied = [a.name for a in allocator.adapters if not target or target in a.targets]
    return "+".join([allocator.model, *applied])


class Counterexample(Struct, frozen=True):
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


class Refutation(Struct, frozen=True):
    """A proposal that was refuted, and by what.

    Attributes:
        moves: ids of a smallest set of live ranges that must move: all others can stay where they are. Empty: not
            known.
        nearest: a proved assignment near the proposal: the register of each live range that has another one there, by
            id. Empty: none is known.
    """

    proposal: Proposal
    counterexamples: tuple[Counterexample, ...]
    moves: tuple[int, ...] = ()
    nearest: tuple[tuple[int, str], ...] = ()


@runtime_checkable
class Regenerating(Protocol):
    """An allocator that can try again: the next proposal may differ, and may learn from the refutations so far."""

    def regenerate(self, problem: AllocationProblem, refuted: tuple[Refutation, ...]) -> Proposal:
        """Answer ``problem`` once more; ``refuted`` has all earlier answers, the latest last.

        Raises:
            AllocationFailure: as for ``Allocator.allocate``.
        """
        ...
