"""The part that a server had in a compilation: what it was asked for and did not give is said, or is an error."""

from __future__ import annotations

from collections.abc import Sequence

from verilocc_mlir.errors import InputError, ToolchainError
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.results.compile import FunctionReport, Report

PLANS = "plans: "
"""How notes begin about what a model of plans was asked."""

REQUIRED = "the server had not the part that it is required to have"
REQUIRED_HINT = "start it, or do not require it: the allocation here is proved as well"


def missed_by_server(functions: Sequence[FunctionReport], notes: Sequence[str]) -> str:
    """Why a server that was named had not its part, in a line; ``""`` where it had. Declining is an answer."""
    phases = [phase for function in functions for phase in function.phases if phase.phase != "wwm"]
    failed = [a for p in phases for a in p.attempts[:-1] if a.server and a.cause != "declined"]
    if failed:
        first = failed[0]
        reason = first.reason if first.reason.startswith(first.server) else f"{first.server}: {first.reason}"
        count = sum(phase.forsaken for phase in phases)
        return f"{reason}; the local allocation stands in {count} of {len(phases)} phases"
    return next((note.removeprefix(PLANS) for note in notes if note.startswith(PLANS)), "")


def check_required(settings: Settings) -> None:
    """
    Raises:
        InputError: a server is required, and none is named.
    """
    if settings.server_required and not settings.server:
        raise InputError("a server is required, and none is named", hint="name one with --server=ADDR")


def require_server(settings: Settings, report: Report) -> None:
    """
    Raises:
        ToolchainError: a server is required, and had not its part.
    """
    if settings.server_required and report.server:
        raise ToolchainError(f"{REQUIRED}: {report.server}", where=report.input, hint=REQUIRED_HINT)
