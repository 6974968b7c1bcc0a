"""``prove``: does a proposal satisfy every constraint of its allocation problem, and if not, which, where and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smt_verifier.prove.case import ProofResult, Violation
from smt_verifier.prove.prover import obligation_for, prove

if TYPE_CHECKING:
    from smt_verifier.prove.diagnosis import Diagnosis, Nearest, Relocation, diagnose

__all__ = ["Diagnosis", "Nearest", "ProofResult", "Relocation", "Violation", "diagnose", "obligation_for", "prove"]


def __getattr__(name: str) -> Any:
    # A proposal that is proved needs no diagnosis.
    if name in __all__:
        from smt_verifier.prove import diagnosis

        return getattr(diagnosis, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
