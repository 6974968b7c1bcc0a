"""A worker process: one request at a time, within a memory limit.

A question has ``kind`` and ``seconds``, and the request. An answer's header has ``ok`` and ``cpu`` (seconds), for an
error the fields of ``ServiceError``, for a defect ``traceback``, and ``defects`` (``message`` and ``traceback``) for
those of allocators; none of them has anything of the request. A request that nobody waits for any more is given up
(``crew.abandon``): ``abandoned`` says so, and the process stays, with its solver and its model.
"""

from __future__ import annotations

import importlib
import logging
import resource
import signal
import traceback
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from grpc import StatusCode

from smt_verifier.outcome import Outcome
from smt_verifier.smt import Obligation, default_solver
from verilocc_mlir.allocators import Loading
from verilocc_mlir.crew import abandon
from verilocc_mlir.crew.descendants import serve_jobs, started_by_this
from verilocc_mlir.crew.serve import Answer
from verilocc_mlir.errors import ToolchainError
from verilocc_mlir.pipeline.attempt import DEFECTS
from verilocc_mlir.pipeline.events import cpu_seconds
from verilocc_mlir.remote.wire import number
from verilocc_mlir.service import jobs
from verilocc_mlir.service.status import ServiceError, defect

_SOLVER_SECONDS = 15.0
"""For the question that shows that it is there; it has three times as much in all, within the time for a start."""
_MAX_DEFECTS = 8
"""Different ones that an answer tells of."""


class _Defects(logging.Handler):
    """Keeps what allocators of one request raised, each once, without its words: they may quote the request."""

    def __init__(self) -> None:
        super().__init__()
        self._found: dict[str, dict[str, str]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and (error := record.exc_info[1]) is not None and len(self._found) < _MAX_DEFECTS:
            text = "".join(traceback.format_tb(error.__traceback__))
            message = f"{record.getMessage()}: {type(error).__name__}"
            self._found[f"{message}\n{text}"] = {"message": message, "traceback": text}

    def take(self) -> list[dict[str, str]]:
        """What there is since the last call."""
        defects = list(self._found.values())
        self._found.clear()
        return defects


def answer_requests(memory_mib: int, attempts: int, terms: str) -> None:
    """Answer until the pipe ends.

    Args:
        memory_mib: limit of this process's address space.
        attempts: as in ``jobs.Terms``.
        terms: as for ``terms_called``.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the server hears it and ends this process when it is done
    abandon.listen()
    serve_jobs(partial(_load, attempts, terms), memory_mib)


def _load(attempts: int, terms: str) -> Answer:
    default_solver().start()
    offered = replace(terms_called(terms), attempts=attempts)
    defects = _Defects()
    DEFECTS.addHandler(defects)
    DEFECTS.propagate = False
    _check_solver()
    for name in offered.allocators:
        if isinstance(factory := offered.factory(name), Loading):
            factory.load()

    def answer(header: dict[str, Any], body: bytes) -> tuple[Mapping[str, object], bytes]:
        before = cpu_seconds()
        abandon.begin()
        try:
            result, data = _answer(header, body, offered)
            last = result.get("reason") == "MEMORY_LIMIT"
        except abandon.Abandoned:
            result, data = {"ok": False, "abandoned": True}, b""
            # Of what this process started the solver alone may stay: all else ends with it.
            last = not started_by_this() <= set(default_solver().pool.pids())
        return {**result, "cpu": cpu_seconds() - before, "defects": defects.take(), "last": last}, data

    return answer


def _check_solver() -> None:
    """Ask the solver something; it stays, and the first request does not wait until it has loaded.

    Raises:
        ToolchainError: nothing could be proved here.
    """
    goal = Obligation("ready", "QF_BV", "(declare-const x Bool)\n", (("tautology", "(or x (not x))"),))
    verdict = default_solver().check(goal, _SOLVER_SECONDS)
    if verdict.outcome is not Outcome.PROVED:
        raise ToolchainError(f"the solver does not answer: {verdict.reason or verdict.outcome}")


def _answer(header: dict[str, Any], body: bytes, terms: jobs.Terms) -> tuple[dict[str, Any], bytes]:
    try:
        return {"ok": True}, jobs.run(header["kind"], body, float(header["seconds"]), terms)
    except ServiceError as error:
        return _refused(error), b""
    except MemoryError:
        message = "the request needs more memory than a worker has"
        return _refused(ServiceError(StatusCode.RESOURCE_EXHAUSTED, "MEMORY_LIMIT", message)), b""
    except Exception as error:
        return {**_refused(defect(error)), "traceback": "".join(traceback.format_tb(error.__traceback__))}, b""


def _refused(error: ServiceError) -> dict[str, Any]:
    return {
        "ok": False, "code": number(error.code), "reason": error.reason, "message": error.message,
        "retry": error.retry_seconds,
    }  # fmt: skip


def terms_called(name: str) -> jobs.Terms:
    """The terms in ``module:attribute``, or the usual ones for ``""``."""
    if not name:
        return jobs.Terms()
    module, _, attribute = name.partition(":")
    terms = getattr(importlib.import_module(module), attribute)
    if not isinstance(terms, jobs.Terms):
        raise TypeError(f"{name} is {type(terms).__name__}, not Terms")
    return terms
