"""A worker process: one request at a time, from a pipe to a pipe, within a memory limit.

A frame is two big-endian 32-bit lengths, a JSON header and a body. A request's header has ``kind`` and ``seconds``; an
answer's has ``ok`` and ``cpu`` (seconds), for an error the fields of ``ServiceError``, for a defect ``traceback``, and
``defects`` (``message`` and ``traceback``) for those of allocators; none of them has anything of the request. The end
of the pipe, which comes with the server's death however it died, ends the process in the middle of its work, and all it
started.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import os
import resource
import signal
import struct
import sys
import threading
import traceback
from dataclasses import replace
from queue import SimpleQueue
from typing import IO, Any

from grpc import StatusCode

from smt_verifier.outcome import Outcome
from smt_verifier.smt import Obligation, default_solver
from verilocc_mlir.allocators import Loading
from verilocc_mlir.errors import ToolchainError
from verilocc_mlir.pipeline.batch.worker import JOB_VARIABLE, end_processes
from verilocc_mlir.pipeline.clock import cpu_seconds
from verilocc_mlir.pipeline.regenerate import DEFECTS
from verilocc_mlir.remote.codes import number
from verilocc_mlir.service import jobs
from verilocc_mlir.service.status import ServiceError, defect

LENGTHS = struct.Struct(">II")
_CPU_MARGIN_S = 30
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
        """Keep one."""
        if record.exc_info and (error := record.exc_info[1]) is not None and len(self._found) < _MAX_DEFECTS:
            text = "".join(traceback.format_tb(error.__traceback__))
            message = f"{record.getMessage()}: {type(error).__name__}"
            self._found[f"{message}\n{text}"] = {"message": message, "traceback": text}

    def take(self) -> list[dict[str, str]]:
        """What there is since the last call."""
        found = list(self._found.values())
        self._found.clear()
        return found


def frame(header: dict[str, Any], body: bytes) -> bytes:
    """One message as it goes over a pipe."""
    head = json.dumps(header).encode()
    return LENGTHS.pack(len(head), len(body)) + head + body


def serve(memory_mib: int, attempts: int, terms: str) -> None:
    """Answer until the pipe ends.

    Args:
        memory_mib: limit of this process's address space.
        attempts: as in ``jobs.Terms``.
        terms: as for ``terms_called``.
    """
    _limit(resource.RLIMIT_AS, memory_mib << 20)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number_ in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number_, signal.SIG_IGN)  # the server hears them and ends this process when it is done
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    default_solver().start()
    offered = replace(terms_called(terms), attempts=attempts)
    requests: SimpleQueue[tuple[dict[str, Any], bytes]] = SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, requests), daemon=True).start()
    defects = _Defects()
    DEFECTS.addHandler(defects)
    DEFECTS.propagate = False
    _check_solver()
    for name in offered.allocators:
        if isinstance(found := offered.factory(name), Loading):
            found.load()
    answers.write(frame({"ok": True, "ready": os.getpid()}, b""))
    answers.flush()
    while True:
        header, body = requests.get()
        _limit_cpu(float(header["seconds"]))
        before = cpu_seconds()
        answer, result = _answer(header, body, offered)
        answer["cpu"] = cpu_seconds() - before
        answer["defects"] = defects.take()
        answers.write(frame(answer, result))
        answers.flush()
        if answer.get("reason") == "MEMORY_LIMIT":
            # What is left of the heap after a failed allocation is nobody's business.
            os._exit(0)


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


def _listen(stream: IO[bytes], requests: SimpleQueue[tuple[dict[str, Any], bytes]]) -> None:
    try:
        while len(lengths := stream.read(LENGTHS.size)) == LENGTHS.size:
            head, body = LENGTHS.unpack(lengths)
            data = stream.read(head + body)
            if len(data) < head + body:
                break
            requests.put((json.loads(data[:head]), data[head:]))
    finally:
        if mark := os.environ.get(JOB_VARIABLE):
            end_processes(mark)
        os._exit(0)


def terms_called(name: str) -> jobs.Terms:
    """The terms in ``module:attribute``, or the usual ones for ``""``."""
    if not name:
        return jobs.Terms()
    module, _, attribute = name.partition(":")
    found = getattr(importlib.import_module(module), attribute)
    if not isinstance(found, jobs.Terms):
        raise TypeError(f"{name} is {type(found).__name__}, not Terms")
    return found


def _limit_cpu(seconds: float) -> None:
    """A worker that never lets the listening thread run still ends some time after a server that is gone."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _limit(resource.RLIMIT_CPU, int(min(used.ru_utime + used.ru_stime + 2 * seconds, 1e9)) + _CPU_MARGIN_S)


def _limit(what: int, value: int) -> None:
    most = resource.getrlimit(what)[1]
    with contextlib.suppress(ValueError):
        resource.setrlimit(what, (value if most == resource.RLIM_INFINITY else min(value, most), most))
