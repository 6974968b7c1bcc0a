"""Solvers in worker processes: a crash, a hang or a lack of memory is an UNKNOWN of one obligation, with its reason.

Measured against Z3 in this process, ``benchmarks/results/audit_speed.json``, row ``worker``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from smt_verifier.outcome import Outcome
from smt_verifier.smt.obligation import Obligation, Verdict
from smt_verifier.smt.pool import WorkerFailure, WorkerPool

DEFAULT_MEMORY_MIB = 4096
_QUESTIONS = 3
_GRACE_S = 5.0
"""What parsing and the pipes may take, on top of the questions' own limits, which the worker keeps itself."""


class ProcessSolver:
    """Z3 in a worker process, which stays for the next obligation; instances may be shared by threads.

    Args:
        memory_mib: address space of a worker, in MiB.
        rlimit: as for :class:`smt_verifier.smt.solver.Z3Solver`.
    """

    def __init__(self, memory_mib: int = DEFAULT_MEMORY_MIB, rlimit: int = 0) -> None:
        self.pool = WorkerPool(memory_mib)
        self._rlimit = rlimit

    @property
    def cpu_seconds(self) -> float:
        """CPU time that answers have cost so far, which is not in this process's own."""
        return self.pool.cpu_seconds

    def start(self) -> None:
        """Have a worker load Z3 while the caller does something else."""
        self.pool.start()

    def close(self) -> None:
        """End the workers; the solver may be used again."""
        self.pool.close()

    def check(
        self,
        obligation: Obligation,
        timeout_s: float = 30.0,
        *,
        exhaustive: bool = False,
        consistent: bool = False,
    ) -> Verdict:
        """See :class:`smt_verifier.smt.solver.Solver`."""
        question: dict[str, object] = {
            "kind": "check",
            "name": obligation.name,
            "logic": obligation.logic,
            "script": obligation.script,
            "goals": obligation.goals,
            "timeout_s": timeout_s,
            "exhaustive": exhaustive,
            "consistent": consistent,
            "rlimit": self._rlimit,
        }
        try:
            return self.pool.ask(
                question, _QUESTIONS * timeout_s + _GRACE_S, lambda answer: _verdict(answer, obligation)
            )
        except WorkerFailure as failure:
            return Verdict(Outcome.UNKNOWN, reason=str(failure))


@cache
def default_solver() -> ProcessSolver:
    """The process-wide solver of ``prove`` and ``audit``."""
    return ProcessSolver()


@dataclass(frozen=True, slots=True)
class Replay:
    """A solver's answer: PROVED for ``unsat``, REFUTED for ``sat``, else UNKNOWN with the reason."""

    outcome: Outcome
    reason: str = ""


def replay(text: str, solver: str, *, timeout_s: float, memory_mib: int) -> Replay:
    """Ask ``solver`` (a key of ``replay.SOLVERS``) about a whole script.

    Args:
        text: an SMT-LIB2 script with one ``check-sat``.
        solver: ``z3``, ``cvc5`` or ``bitwuzla``.
        timeout_s: seconds of wall time.
        memory_mib: address space of the worker, in MiB.
    """
    question: dict[str, object] = {"kind": "replay", "solver": solver, "text": text}
    try:
        answer = _replay_pool(solver, memory_mib).ask(question, timeout_s, _replayed)
    except WorkerFailure as failure:
        return Replay(Outcome.UNKNOWN, f"{solver}: {failure}")
    return answer if answer.outcome is not Outcome.UNKNOWN else Replay(answer.outcome, f"{solver}: {answer.reason}")


@cache
def _replay_pool(_solver: str, memory_mib: int) -> WorkerPool:
    """Workers for each solver: one that a solver wore out is not another's."""
    return WorkerPool(memory_mib)


def _verdict(answer: Mapping[str, Any], obligation: Obligation) -> Verdict:
    violated = tuple(answer["violated"]) if "violated" in answer else ()
    if not set(violated) <= {name for name, _ in obligation.goals}:
        raise ValueError("a goal that was not asked")
    verdict = Verdict(Outcome(answer["outcome"]), violated, str(answer["reason"]))
    if verdict.outcome is Outcome.PROVED and (violated or verdict.reason):
        raise ValueError("proved, but")
    return verdict


def _replayed(answer: Mapping[str, Any]) -> Replay:
    return Replay(Outcome(answer["outcome"]), str(answer["reason"]))
