"""Solvers in worker processes: a crash, a hang or a lack of memory is an UNKNOWN of one obligation, with its reason.

Measured against Z3 in this process, ``benchmarks/results/audit_speed.json``, row ``worker``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from typing import Any, TypeVar

from msgspec.structs import replace

from smt_verifier.outcome import Outcome
from smt_verifier.smt.solver import Obligation, Verdict
from smt_verifier.smt.worker import solve
from verilocc_mlir.crew.crew import Crew
from verilocc_mlir.crew.worker import Lost, Worker, WorkerFailure

_T = TypeVar("_T")
DEFAULT_MEMORY_MIB = 4096
_TITLE = "solver process"
_QUESTIONS = 3
_KEPT_MIB = 128
"""What a worker that stays may have taken: behind a large function it keeps hundreds of MiB that nobody needs."""
_GRACE_S = 5.0
"""What parsing and the pipes may take, on top of the questions' own limits, which the worker keeps itself."""


class WorkerPool(Crew):
    """Solvers with one memory limit; as many as there are threads that ask at once.

    Args:
        memory_mib: address space of each, in MiB.

    Attributes:
        cpu_seconds: CPU time of all answers so far.
    """

    def __init__(self, memory_mib: int) -> None:
        self._work = partial(solve, memory_mib)
        super().__init__(partial(Worker, self._work, _TITLE))
        self.cpu_seconds = 0.0

    def start(self, *, fork: bool = False) -> None:
        """Have a worker ready, so that it loads while the caller does something else; a failure shows when asked.

        Args:
            fork: as for ``Worker``.
        """
        with suppress(WorkerFailure):
            if not self.pids():
                self.add(Worker(self._work, _TITLE, fork=fork))

    def ask(self, question: Mapping[str, object], seconds: float, read: Callable[[Mapping[str, Any]], _T]) -> _T:
        """Ask one question and read its answer.

        A worker that ends by itself after it has answered others may have been worn out by those (memory that a
        solver did not return): the question is asked of a fresh one, once.

        Args:
            question: what the worker is to do; JSON values.
            seconds: elapsed time for all of it; the worker is killed after that.
            read: makes a result of the answer; ValueError, KeyError or TypeError where it is not one.

        Raises:
            WorkerFailure: no worker, or no answer.
        """
        for fresh in (False, True):
            with self.worker(fresh=fresh) as worker:
                worn = worker.answered > 0
                try:
                    answer, _ = worker.ask({**question, "seconds": seconds}, seconds)
                except Lost:
                    if worn:
                        continue
                    raise
                if worn and worker.last:
                    continue
                try:
                    result = read(answer)
                    cpu_seconds = float(answer["cpu_s"])
                    worker.last |= int(answer["grown_mib"]) > _KEPT_MIB
                except (ValueError, KeyError, TypeError) as error:
                    raise WorkerFailure("the solver process answered nonsense") from error
                with self._lock:
                    self.cpu_seconds += cpu_seconds
                return result
        raise AssertionError


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

    def start(self, *, fork: bool = False) -> None:
        """Have a worker load Z3 while the caller does something else; ``fork`` as for ``Worker``."""
        self.pool.start(fork=fork)

    def close(self) -> None:
        """End the workers; the solver may be used again."""
        self.pool.close()

    def check(
        self,
        obligation: Obligation,
        timeout_s: float = 30.0,
        *,
        consistent: bool = False,
    ) -> Verdict:
        question = {
            "kind": "check",
            "rlimit": obligation.rlimit or self._rlimit,
            "obligation": (obligation.name, obligation.logic, obligation.script, obligation.goals),
            "options": {"timeout_s": timeout_s, "consistent": consistent},
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


class Replayer:
    """Asks one solver about whole scripts.

    Args:
        solver: ``z3``, ``cvc5`` or ``bitwuzla`` (a key of ``replay.SOLVERS``).
        memory_mib: address space of a worker, in MiB.
    """

    def __init__(self, solver: str, memory_mib: int) -> None:
        self.solver = solver
        self._pool = WorkerPool(memory_mib)

    def ask(self, text: str, timeout_s: float) -> Verdict:
        """The verdict on an SMT-LIB2 script with one ``check-sat``.

        Args:
            timeout_s: seconds of wall time.

        Returns:
            PROVED for ``unsat``, REFUTED for ``sat``, else UNKNOWN with the reason.
        """
        question = {"kind": "replay", "solver": self.solver, "text": text}
        try:
            verdict = self._pool.ask(question, timeout_s, _replayed)
        except WorkerFailure as failure:
            verdict = Verdict(Outcome.UNKNOWN, reason=str(failure))
        unknown = verdict.outcome is Outcome.UNKNOWN
        return replace(verdict, reason=f"{self.solver}: {verdict.reason}") if unknown else verdict

    def close(self) -> None:
        """End the workers."""
        self._pool.close()


def _verdict(answer: Mapping[str, Any], obligation: Obligation) -> Verdict:
    violated = tuple(answer["violated"]) if "violated" in answer else ()
    if not set(violated) <= {name for name, _ in obligation.goals}:
        raise ValueError("a goal that was not asked")
    verdict = Verdict(Outcome(answer["outcome"]), violated, str(answer["reason"]))
    if verdict.outcome is Outcome.PROVED and (violated or verdict.reason):
        raise ValueError("proved, but")
    return verdict


def _replayed(answer: Mapping[str, Any]) -> Verdict:
    return Verdict(Outcome(answer["outcome"]), reason=str(answer["reason"]))
