"""What a proof attempt can end in. Never a boolean: UNKNOWN must not be mistaken for either answer."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NoReturn


class Outcome(Enum):
    """The four ends of a proof attempt.

    ``PROVED``: the theorem holds. ``REFUTED``: there is a counterexample. ``UNKNOWN``: a time-out, a resource limit, or
    something the verifier does not model. ``INVALID``: the input is not what it claims to be.
    """

    PROVED = "proved"
    REFUTED = "refuted"
    UNKNOWN = "unknown"
    INVALID = "invalid"

    def __bool__(self) -> NoReturn:
        raise TypeError("an Outcome is not a boolean; compare it with Outcome.PROVED")

    def __str__(self) -> str:
        return self.value


_BY_SEVERITY = (Outcome.INVALID, Outcome.REFUTED, Outcome.UNKNOWN)


def combine(outcomes: Iterable[Outcome]) -> Outcome:
    """The outcome of a conjunction: the worst part, INVALID before REFUTED before UNKNOWN before PROVED.

    The empty conjunction is PROVED; a caller for whom "nothing was checked" is not a proof must check that itself.
    """
    distinct = set(outcomes)
    return next((outcome for outcome in _BY_SEVERITY if outcome in distinct), Outcome.PROVED)
