"""The process that solves: reads questions from a pipe, answers each on another, and outlives nothing.

Both directions carry frames: the body's length in decimal, a newline, the body as JSON. A question has ``id``,
``kind``, ``seconds`` and what its kind needs. Its answer repeats ``id`` and has ``cpu_s``, what it cost, and ``last``,
whether the worker ends after it. A thread listens for questions, so that the end of the pipe, which comes with the
parent's death however it died, ends this process in the middle of a solver's run.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import cache
from queue import SimpleQueue
from typing import IO, Any

from smt_verifier.outcome import Outcome
from smt_verifier.smt.obligation import Obligation
from smt_verifier.smt.replay import answer
from smt_verifier.smt.solver import Z3Solver

_CPU_MARGIN_S = 10
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BLOCK_BYTES, _KEPT_BYTES = 32 << 20, 256 << 20


def frame(message: dict[str, object]) -> bytes:
    """A message as it goes over a pipe."""
    body = json.dumps(message).encode()
    return b"%d\n%b" % (len(body), body)


def serve(memory_mib: int) -> None:
    """Answer questions until the pipe ends.

    Args:
        memory_mib: limit of this process's address space, in MiB.
    """
    _limit(resource.RLIMIT_AS, memory_mib << 20)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _keep_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it, and ends this process by closing the pipe
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a solver prints is not an answer
    questions: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, questions), daemon=True).start()
    while True:
        question: dict[str, Any] = json.loads(questions.get())
        _limit_cpu(float(question["seconds"]))
        start = time.process_time()
        found, exhausted = _answer(question)
        spent = {"cpu_s": time.process_time() - start, "last": exhausted}
        answers.write(frame({"id": question["id"], **spent, **found}))
        answers.flush()
        if exhausted:
            # What is left of the heap after a failed allocation is nobody's business.
            os._exit(0)


def _keep_memory() -> None:
    """Have malloc keep what is freed, where it can be told so (glibc): a question of a small block takes 2 ms then.

    Z3 takes and frees megabytes for each question. In pages that come fresh from the kernel each time they cost 6 ms
    more, until glibc's own threshold has grown.
    """
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, _KEPT_BLOCK_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def _listen(stream: IO[bytes], questions: SimpleQueue[bytes]) -> None:
    try:
        while length := stream.readline():
            body = stream.read(int(length))
            if len(body) < int(length):
                break
            questions.put(body)
    finally:
        os._exit(0)


def _limit_cpu(seconds: float) -> None:
    """A solver that never lets the listening thread run still ends some time after a parent that is gone."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _limit(resource.RLIMIT_CPU, int(min(used.ru_utime + used.ru_stime + 2 * seconds, 1e9)) + _CPU_MARGIN_S)


def _limit(what: int, value: int) -> None:
    """Set a limit of this process, no higher than the user's own."""
    most = resource.getrlimit(what)[1]
    resource.setrlimit(what, (value if most == resource.RLIM_INFINITY else min(value, most), most))


def _answer(question: dict[str, Any]) -> tuple[dict[str, object], bool]:
    """The answer, and whether memory ran out."""
    found: dict[str, object]
    try:
        found = _KINDS[question["kind"]](question)
    except MemoryError:
        found = {"outcome": Outcome.UNKNOWN.value, "reason": "out of memory"}
    except Exception as error:
        found = {"outcome": Outcome.UNKNOWN.value, "reason": f"{type(error).__name__}: {error}"[:500]}
    return found, "memory" in str(found.get("reason", ""))


def _check(question: dict[str, Any]) -> dict[str, object]:
    goals = tuple((str(name), str(term)) for name, term in question["goals"])
    obligation = Obligation(question["name"], question["logic"], question["script"], goals)
    verdict = _solver(question["rlimit"]).check(
        obligation, question["timeout_s"], exhaustive=question["exhaustive"], consistent=question["consistent"]
    )
    return {"outcome": verdict.outcome.value, "violated": verdict.violated, "reason": verdict.reason}


@cache
def _solver(rlimit: int) -> Z3Solver:
    """The worker's own, which keeps a context for all its questions."""
    return Z3Solver(rlimit)


def _replay(question: dict[str, Any]) -> dict[str, object]:
    said = answer(question["text"], question["solver"])
    known = {"unsat": Outcome.PROVED, "sat": Outcome.REFUTED}
    return {"outcome": known.get(said, Outcome.UNKNOWN).value, "reason": "" if said in known else said[:200]}


_KINDS: dict[str, Callable[[dict[str, Any]], dict[str, object]]] = {"check": _check, "replay": _replay}
