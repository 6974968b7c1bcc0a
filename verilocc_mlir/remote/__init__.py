"""The client's side of the gRPC service: how to reach a server, its messages, and the allocator behind it.

``access`` is plain data, as is what is asked here of a server that has a model of plans.
``cached_allocator.remote_allocator`` is the way in. All else needs the extra ``service``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from msgspec import Struct


class RankedPlans(Struct, frozen=True):
    """Answers as a server gives them, which are not read yet.

    Attributes:
        model: its name, with the adapter that it has for the target.
        version: changes whenever its answers can.
        answers: the best first.
    """

    model: str
    version: str
    answers: tuple[str, ...]


@runtime_checkable
class PlanServer(Protocol):
    """A server that may have a model of plans; ``address`` is how people know it."""

    @property
    def address(self) -> str: ...

    def rank_plans(self, target: str, facts: Mapping[str, float]) -> RankedPlans:
        """All its answers for a kernel with these facts.

        Raises:
            AllocationFailure: it has no model, is down, late, or refuses.
        """
        ...
