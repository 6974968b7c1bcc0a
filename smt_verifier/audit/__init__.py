"""Audit: does the text after register allocation compute what the program before it computes?

``core/judge.py`` states the theorem. ``core`` decides, and imports only what decides. The modules around it propose
pairings and claims (``search.py``, ``align.py``, ``infer.py``) and explain what fails (``explain.py``). ``driver.py``
audits a whole file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smt_verifier.audit.core.report import (
    RULES,
    AuditReport,
    Fault,
    Finding,
    FunctionAudit,
    GoalCounts,
    MoveCounts,
)
from smt_verifier.audit.driver import audit, audit_function

if TYPE_CHECKING:
    from smt_verifier.audit.core.callees import check_calls, may_write

__all__ = [
    "RULES",
    "AuditReport",
    "Fault",
    "Finding",
    "FunctionAudit",
    "GoalCounts",
    "MoveCounts",
    "audit",
    "audit_function",
    "check_calls",
    "may_write",
]


def __getattr__(name: str) -> Any:
    # A module without calls needs nothing of the core, as long as the checkers accept.
    if name in __all__:
        from smt_verifier.audit.core import callees

        return getattr(callees, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
