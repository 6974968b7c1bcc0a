"""Register allocators: from an ``AllocationProblem`` to a ``Proposal``, which others prove; none is trusted."""

from __future__ import annotations

from verilocc_mlir.allocators.protocol import (
    UNKNOWN_VERSION,
    AllocationFailure,
    Allocator,
    Counterexample,
    Loading,
    ModelProposal,
    ModelUse,
    Partial,
    Patient,
    Reading,
    Refutation,
    Regenerating,
    Remote,
    ServedProposal,
    ServerAttempt,
)
from verilocc_mlir.allocators.registry import allocator, allocator_names

__all__ = [
    "UNKNOWN_VERSION",
    "AllocationFailure",
    "Allocator",
    "Counterexample",
    "Loading",
    "ModelProposal",
    "ModelUse",
    "Partial",
    "Patient",
    "Reading",
    "Refutation",
    "Regenerating",
    "Remote",
    "ServedProposal",
    "ServerAttempt",
    "allocator",
    "allocator_names",
]
