"""One worker process, seen by who asks it.

Whatever it does (end, hang, run out of memory, answer nonsense) is a ``WorkerFailure`` of one question. After it, it is
asked nothing more: what it may still say must not be taken for the next answer.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from socket import socketpair
from typing import IO, Any

from verilocc_mlir.crew.copied import Copy
from verilocc_mlir.crew.serve import Message, frame, receive

_GRACE_S = 5.0
_START = "import pickle, sys; sys.path[:] = sys.argv[2:]; pickle.loads(bytes.fromhex(sys.argv[1]))()"
"""The worker finds modules where this process does, and never in the directory the user happens to be in."""


def program_environment() -> dict[str, str]:
    """Environment of a program of another language: this process's, with the heap in pages of 2 MiB where Linux gives
    them on request (glibc's manual, "Memory Allocation Tunables"). A run of LLVM of 20 ms spends 3 ms less that way.
    """
    return {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.top_pad=16777216", **os.environ}


class WorkerFailure(Exception):
    """A question without an answer; the message says why, in a few words."""


class Late(WorkerFailure):
    """It did not answer in time."""


class Lost(WorkerFailure):
    """It ended by itself."""


class Worker:
    """One process, in a session of its own, with one end of a pair of sockets as standard input and output.

    Args:
        work: what the process calls, which calls ``serve.serve``: a module's function, or a ``partial`` of one.
        title: what messages call the process.
        fork: the process is a copy of this one, which has loaded what it needs; started anew all the same where this
            one has a second thread, whose locks a copy would hold for ever (gRPC's event engine aborts in one).

    Attributes:
        pid: its process id.
        answered: how many questions it answered.
        last: it is not to be asked again.
    """

    def __init__(self, work: Callable[[], None], title: str = "worker process", *, fork: bool = False) -> None:
        self.answered = 0
        self.last = False
        self._title = title
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._pipe, theirs = socketpair()
        try:
            with theirs:
                if fork and _is_single_threaded():
                    self._process: Any = Copy(work, theirs.fileno(), self._errors.fileno())
                else:
                    self._process = self._launch(work, theirs.fileno())
        except (OSError, ValueError) as error:
            self.close()
            raise WorkerFailure(f"no {title}: {error}") from error
        self.pid = self._process.pid

    def ask(self, question: Mapping[str, object], seconds: float, data: bytes = b"") -> Message:
        """One question, one answer.

        Raises:
            Late: no answer within ``seconds`` of elapsed time. Lost: it ended. WorkerFailure: it answered nonsense.
        """
        number, self.last = self.answered, True
        answer, data = self._exchange(frame({**question, "id": number}, data), seconds)
        if answer.get("id") != number:
            raise WorkerFailure(f"the {self._title} answered another question")
        self.answered += 1
        self.last = bool(answer.get("last"))
        return answer, data

    def kill(self) -> None:
        """End it; may be called again, and from another thread than the one that asks, which then sees it ``Lost``."""
        if self._process.poll() is None:
            kill_group(self.pid)
        self._process.wait()

    def close(self) -> None:
        self._pipe.close()
        self._errors.close()

    def _launch(
        self, work: Callable[[], None], pipe: int, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        import pickle

        command = [sys.executable, "-c", _START, pickle.dumps(work).hex(), *sys.path]
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self._errors, env=env, start_new_session=True)

    def _exchange(self, message: bytes, seconds: float) -> Message:
        deadline = time.monotonic() + seconds
        self._pipe.settimeout(max(seconds, 1e-3))
        try:
            self._pipe.sendall(message)
            return receive(self._pipe, deadline)
        except TimeoutError:
            raise Late(f"no answer within {seconds:g} s") from None
        except (OSError, EOFError) as error:
            raise Lost(self._how_it_ended()) from error
        except ValueError as error:
            raise WorkerFailure(f"the {self._title} answered nonsense") from error

    def _how_it_ended(self) -> str:
        try:
            how = ending(self._process.wait(_GRACE_S))
        except subprocess.TimeoutExpired:
            return f"the {self._title} closed its pipe"
        self._errors.seek(0)
        words = self._errors.read(1 << 16).decode(errors="replace").strip().splitlines()
        return f"the {self._title} ended with {how}" + (f": {words[-1][:200]}" if words else "")


def _is_single_threaded() -> bool:
    """Threads of libraries count too, which ``threading`` does not know; no where there is no /proc to ask."""
    with contextlib.suppress(OSError):
        return len(os.listdir("/proc/self/task")) == 1
    return False


def kill_group(group: int) -> None:
    """Kill a process group, where it is still there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def ending(status: int) -> str:
    """``SIGKILL`` for -9, ``exit code 1`` for 1."""
    with contextlib.suppress(ValueError):
        return f"exit code {status}" if status >= 0 else signal.Signals(-status).name
    return f"signal {-status}"
