"""Audit: is the text after register allocation the program before it? The theorem stands in ``core/judge.py``.

``core`` decides and imports nothing that does not; this package around it proposes pairings and claims
(``search.py``, ``align.py``, ``infer.py``) and explains what fails (``explain.py``).
"""

from __future__ import annotations

from dataclasses import replace

from smt_verifier.audit.core.judge import judge_module
from smt_verifier.audit.core.report import (
    RULES,
    AuditReport,
    Fault,
    Finding,
    FunctionAudit,
    GoalCounts,
    MoveCounts,
)
from smt_verifier.audit.search import search_proof
from smt_verifier.outcome import Outcome, combine
from smt_verifier.smt import Solver, default_solver
from verilocc_mlir.errors import UnsupportedError, VeriloccError
from verilocc_mlir.mir.model import MachineFunction, MirFile
from verilocc_mlir.target.targets import Target

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
]


def audit(
    pre: MirFile, post: MirFile, target: Target, *, timeout_s: float = 60.0, solver: Solver | None = None
) -> AuditReport:
    """Audit every function of a file.

    Args:
        pre: text before the phase (stopped before ``greedy,N``), as the allocator read it.
        post: text after it (as after ``virtregrewriter,N``), as LLVM will read it.
        target: the GPU both are for.
        timeout_s: seconds the solver may take for one block; UNKNOWN after that.
        solver: Z3 in a worker process where none is given.

    Functions are matched by name; one that is missing or added makes the outcome INVALID.
    """
    after = {f.name: f for f in post.functions}
    done: list[FunctionAudit] = []
    for function in pre.functions:
        other = after.pop(function.name, None)
        if other is None:
            done.append(_single(function.name, Outcome.INVALID, "header", "the function is missing after allocation"))
        else:
            judged = audit_function(pre, function, other, target, timeout_s=timeout_s, solver=solver)
            done.append(_with_module(judged, pre, post, target))
    done += [_single(n, Outcome.INVALID, "header", "the function was not there before allocation") for n in after]
    return AuditReport(tuple(done))


def audit_function(
    file: MirFile,
    pre: MachineFunction,
    post: MachineFunction,
    target: Target,
    *,
    timeout_s: float = 60.0,
    solver: Solver | None = None,
) -> FunctionAudit:
    """Audit one function; ``file`` is the pre-RA file, whose preamble holds the function's IR attributes."""
    try:
        return search_proof(file, pre, post, target, timeout_s, solver or default_solver())
    except UnsupportedError as error:
        return _single(pre.name, Outcome.UNKNOWN, "unsupported", str(error))
    except VeriloccError as error:
        return _single(pre.name, Outcome.INVALID, "header", str(error))


def _with_module(judged: FunctionAudit, pre: MirFile, post: MirFile, target: Target) -> FunctionAudit:
    findings = judge_module(judged.function, pre, post, target)
    outcome = combine((judged.outcome, *(f.outcome for f in findings)))
    return replace(judged, outcome=outcome, findings=(*judged.findings, *findings))


def _single(function: str, outcome: Outcome, rule: str, message: str) -> FunctionAudit:
    return FunctionAudit(function, outcome, 1, (Finding(rule, outcome, message),), MoveCounts())
