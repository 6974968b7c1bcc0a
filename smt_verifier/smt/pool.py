"""Worker processes that stay: started when first needed, asked one question at a time, replaced when one fails.

Whatever a worker does (end, hang, run out of memory, answer nonsense) costs the question it was asked, which gets a
:class:`WorkerFailure`, and that worker. The next question is asked of another one.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from typing import IO, Any, TypeVar, cast

from smt_verifier.smt.worker import frame

_T = TypeVar("_T")
_MAX_ANSWER_BYTES = 1 << 28
_CHUNK = 1 << 20
_START = "import sys; sys.path[:] = sys.argv[2:]; from smt_verifier.smt.worker import serve; serve(int(sys.argv[1]))"
"""The worker finds modules where this process does, and never in the directory the user happens to be in."""


class WorkerFailure(Exception):
    """A question without an answer; the message says why, in a few words."""


class _Lost(WorkerFailure):
    """The worker ended by itself."""


class Worker:
    """One process.

    Attributes:
        answered: how many questions it answered.
    """

    def __init__(self, memory_mib: int) -> None:
        self.answered = 0
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self._process: subprocess.Popen[bytes] = subprocess.Popen(
                [sys.executable, "-c", _START, str(memory_mib), *sys.path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            self._errors.close()
            raise WorkerFailure(f"no solver process: {error}") from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._questions, self._answers = self._process.stdin, self._process.stdout
        os.set_blocking(self._questions.fileno(), False)
        os.set_blocking(self._answers.fileno(), False)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def ask(self, question: dict[str, object], seconds: float) -> dict[str, Any]:
        """One question, one answer.

        Raises:
            WorkerFailure: it ended, said nothing within ``seconds`` of wall time, or something else than an answer.
        """
        deadline = time.monotonic() + seconds
        self._send(frame(question), deadline, seconds)
        answer = self._receive(deadline, seconds)
        if answer.get("id") != question["id"]:
            raise WorkerFailure("the solver process answered another question")
        self.answered += 1
        return answer

    def kill(self) -> None:
        """End it and forget it."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self.forget()

    def forget(self) -> None:
        """Close this side of the pipes."""
        for stream in (self._questions, self._answers, self._errors):
            with contextlib.suppress(OSError):
                stream.close()

    def _send(self, data: bytes, deadline: float, seconds: float) -> None:
        left = memoryview(data)
        with selectors.DefaultSelector() as ready:
            ready.register(self._questions, selectors.EVENT_WRITE)
            while left:
                self._wait(ready, deadline, seconds)
                try:
                    left = left[os.write(self._questions.fileno(), left[:_CHUNK]) :]
                except BlockingIOError:
                    continue
                except OSError as error:
                    raise self._ended() from error

    def _receive(self, deadline: float, seconds: float) -> dict[str, Any]:
        data = bytearray()
        start, wanted = 0, 0
        with selectors.DefaultSelector() as ready:
            ready.register(self._answers, selectors.EVENT_READ)
            while not start or len(data) < start + wanted:
                self._wait(ready, deadline, seconds)
                try:
                    more = os.read(self._answers.fileno(), _CHUNK)
                except BlockingIOError:
                    continue
                if not more:
                    raise self._ended()
                data += more
                if not start and (b"\n" in data or len(data) > 20):
                    length, _, _ = data.partition(b"\n")
                    if not length.isdigit() or len(length) > 10 or int(length) > _MAX_ANSWER_BYTES:
                        raise WorkerFailure("the solver process answered nonsense")
                    start, wanted = len(length) + 1, int(length)
        return _message(data[start:])

    def _wait(self, ready: selectors.BaseSelector, deadline: float, seconds: float) -> None:
        if not ready.select(max(0.0, deadline - time.monotonic())):
            raise WorkerFailure(f"no answer within {seconds:g} s")

    def _ended(self) -> WorkerFailure:
        try:
            status = self._process.wait(5)
        except subprocess.TimeoutExpired:
            return _Lost("the solver process closed its pipe")
        how = f"exit code {status}"
        if status < 0:
            with contextlib.suppress(ValueError):
                how = signal.Signals(-status).name
        self._errors.seek(0)
        said = self._errors.read(_CHUNK).decode(errors="replace").strip().splitlines()
        return _Lost(f"the solver process ended with {how}" + (f": {said[-1][:200]}" if said else ""))


def _message(body: bytearray) -> dict[str, Any]:
    try:
        answer: object = json.loads(body)
    except ValueError as error:
        raise WorkerFailure("the solver process answered nonsense") from error
    if not isinstance(answer, dict):
        raise WorkerFailure("the solver process answered nonsense")
    return cast("dict[str, Any]", answer)


class WorkerPool:
    """Workers with one memory limit; as many as there are threads that ask at once.

    Args:
        memory_mib: address space of each, in MiB.

    Attributes:
        cpu_seconds: CPU time of all answers so far.
    """

    def __init__(self, memory_mib: int) -> None:
        self.memory_mib = memory_mib
        self.cpu_seconds = 0.0
        self._idle: list[Worker] = []
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._pid = os.getpid()
        self._finalizer = weakref.finalize(self, _end, self._idle, self._pid)

    def start(self) -> None:
        """Have a worker ready, so that it loads while the caller does something else; a failure shows when asked."""
        with contextlib.suppress(WorkerFailure):
            self._give_back(self._take())

    def pids(self) -> tuple[int, ...]:
        """Process ids of the workers that wait for a question."""
        with self._lock:
            return tuple(worker.pid for worker in self._idle)

    def ask(self, question: dict[str, object], seconds: float, read: Callable[[dict[str, Any]], _T]) -> _T:
        """Ask one question and read its answer.

        A worker that ends by itself after it has answered others may have been worn out by those (memory that a
        solver did not return): the question is asked of a fresh one, once.

        Args:
            question: what the worker is to do; JSON values.
            seconds: wall time for all of it; the worker is killed after that.
            read: makes a result of the answer; ValueError, KeyError or TypeError where it is not one.

        Raises:
            WorkerFailure: no worker, or no answer.
        """
        asked = {**question, "id": f"{os.getpid()}.{next(self._numbers)}", "seconds": seconds}
        worker = self._take()
        try:
            worn = worker.answered > 0
            try:
                answer = worker.ask(asked, seconds)
                worn = worn and bool(answer.get("last"))
            except _Lost:
                if not worn:
                    raise
                answer = {"last": True}
            if worn:
                worker.kill()
                worker = Worker(self.memory_mib)
                answer = worker.ask(asked, seconds)
            result = read(answer)
            cpu_seconds = float(answer["cpu_s"])
        except (ValueError, KeyError, TypeError) as error:
            worker.kill()
            raise WorkerFailure("the solver process answered nonsense") from error
        except BaseException:
            # Interrupted, late or broken: what it may still say must not be taken for the next answer.
            worker.kill()
            raise
        if answer.get("last"):
            worker.kill()
        else:
            self._give_back(worker)
        with self._lock:
            self.cpu_seconds += cpu_seconds
        return result

    def close(self) -> None:
        """End the workers that wait."""
        with self._lock:
            _end(self._idle, self._pid)

    def _take(self) -> Worker:
        with self._lock:
            if os.getpid() != self._pid:
                # A fork: the parent goes on talking to these.
                for worker in self._idle:
                    worker.forget()
                self._idle.clear()
                self._pid = os.getpid()
            if self._idle:
                return self._idle.pop()
        return Worker(self.memory_mib)

    def _give_back(self, worker: Worker) -> None:
        with self._lock:
            self._idle.append(worker)


def _end(idle: list[Worker], owner: int) -> None:
    while idle:
        worker = idle.pop()
        if os.getpid() == owner:
            worker.kill()
