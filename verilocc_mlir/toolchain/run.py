"""Run one LLVM tool in a subprocess: time-out, own process group, bounded output, CPU time, readable failures.

LLVM aborts on malformed MIR and may run long on odd input, so it never runs inside this process. The child gets its own
session, so that a time-out or Ctrl-C ends everything it started. The operating system limits its CPU time as well, so
that it ends even if this process is killed outright.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from types import FrameType
from typing import IO

from msgspec import Struct

from verilocc_mlir.crew.worker import ending, kill_group
from verilocc_mlir.errors import ToolchainError
from verilocc_mlir.toolchain.loaded_tools import Copy, copy_of, tool_environment

DEFAULT_TIMEOUT = 300.0
MAX_OUTPUT_BYTES = 1 << 30
MAX_STDERR_BYTES = 1 << 20
BROKEN_MODULE = "Broken module found"
"""LLVM's last words when the IR verifier refuses a module; llc then aborts, as if it had crashed."""

KEEP_VARIABLE = "VERILOCC_KEEP"
"""Environment variable: a directory where the input of a failing tool is kept, for replay."""

_NOISE = re.compile(
    r"^\s*(PLEASE submit a bug report|Stack dump|Program arguments|\d+\.\s|#\d+\s|\w+\[0x|.*\(\+?0x[0-9a-f]+\)|"
    r"Running pass|Exiting on signal)",
)
_USEFUL = re.compile(r"error:|LLVM ERROR|Assertion|\*\*\* Bad machine code|UNREACHABLE|fatal", re.IGNORECASE)
_LOCATION = re.compile(r"(?P<where><stdin>:\d+(?::\d+)?): (?:fatal )?(?:error: )?(?P<what>.+)$")


class ToolFailure(ToolchainError):
    """A tool exited with a failure.

    Attributes:
        status: its exit code, or minus the signal that ended it.
        line: the line of its standard error that says why.
        stderr: its standard error; of more than 1 MiB the two ends.
    """

    def __init__(self, what: str, *, where: str, hint: str, status: int, line: str, stderr: str) -> None:
        self.status = status
        self.line = line
        self.stderr = stderr
        super().__init__(what, where=where, hint=hint)


class RunningTools:
    """The tools that one job is waiting for, in any of its threads. They are killed when the job is given up."""

    def __init__(self) -> None:
        self._groups: set[int] = set()

    def kill(self) -> None:
        """Kill them; the calls that wait for them get a ToolFailure."""
        for group in tuple(self._groups):
            kill_group(group)

    @contextlib.contextmanager
    def holding(self, group: int) -> Generator[None, None, None]:
        """Count process group ``group`` as running."""
        self._groups.add(group)
        try:
            yield
        finally:
            self._groups.discard(group)


class ToolRun(Struct, frozen=True):
    """One finished subprocess.

    Attributes:
        stage: its name in the report's time table, e.g. ``"pre-ra"``.
        stderr: its standard error; of more than 1 MiB the two ends.
        cpu_seconds: user and system time of the child.
        max_rss_kib: peak resident memory of the child in KiB.
    """

    command: tuple[str, ...]
    stage: str
    stdout: bytes
    stderr: str
    cpu_seconds: float
    wall_seconds: float
    max_rss_kib: int


def run_tool(
    command: Sequence[str | Path],
    *,
    stdin: bytes = b"",
    timeout: float = DEFAULT_TIMEOUT,
    stage: str = "",
    where: str = "",
    running: RunningTools | None = None,
    loaded_after: int | None = None,
) -> ToolRun:
    """Run ``command`` with ``stdin`` and return its output.

    Args:
        timeout: wall seconds; the whole process group is killed when it has passed.
        stage: name for the report and for error messages.
        where: the input's name, shown in errors where the tool itself gives no better place.
        running: the job it belongs to, so that another thread can end it.
        loaded_after: after so many runs of a tool of LLVM, copy a process that has loaded it (``loaded_tools``).

    Raises:
        ToolFailure: it exits with a failure, or crashes.
        ToolchainError: it cannot be started, times out, or writes more than 1 GiB.
    """
    argv = tuple(str(part) for part in command)
    started = time.monotonic()
    with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        source.write(stdin)
        source.seek(0)
        child: subprocess.Popen[bytes] | Copy | None = None
        try:
            try:
                with _interrupts_later():
                    if loaded_after is not None:
                        child = copy_of(argv, loaded_after, source.fileno(), out.fileno(), err.fileno())
                    if child is None:
                        child = subprocess.Popen(
                            argv, stdin=source, stdout=out, stderr=err, env=tool_environment(), start_new_session=True
                        )
            except OSError as error:
                raise ToolchainError(
                    f"cannot run {argv[0]}: {error.strerror or error}", where=where, hint="run `verilocc doctor`"
                ) from error
            status, usage, timed_out = _wait(child, timeout, running or RunningTools())
        except BaseException:
            # It may be interrupted before it waits; the child must not be left behind.
            if child is not None and child.returncode is None:
                kill_group(child.pid)
                child.wait()
            raise
        wall = time.monotonic() - started
        stderr = _read_ends(err, MAX_STDERR_BYTES).decode("utf-8", "replace")
        if timed_out:
            raise late(_title(argv, stage), replay_hint(argv, stdin, stage), timeout, where)
        if status != 0:
            raise failed(_title(argv, stage), replay_hint(argv, stdin, stage), status, stderr, where)
        size = out.seek(0, os.SEEK_END)
        if size > MAX_OUTPUT_BYTES:
            raise ToolchainError(
                f"{_title(argv, stage)} wrote {size} bytes, more than {MAX_OUTPUT_BYTES}",
                where=where,
                hint=replay_hint(argv, stdin, stage),
            )
        stdout = _read(out, MAX_OUTPUT_BYTES)
    return ToolRun(argv, stage, stdout, stderr, usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss)


@contextlib.contextmanager
def _interrupts_later() -> Generator[None, None, None]:
    """Call this process's handlers of SIGINT and SIGTERM at the end: one that raises within ``Popen`` loses the child,
    which may be running by then.
    """
    arrived: list[tuple[int, FrameType | None]] = []
    handlers = {
        number: handler
        for number in (signal.SIGINT, signal.SIGTERM)
        if threading.current_thread() is threading.main_thread() and callable(handler := signal.getsignal(number))
    }

    def note(number: int, frame: FrameType | None) -> None:
        arrived.append((number, frame))

    for number in handlers:
        signal.signal(number, note)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number, frame in arrived:
            handlers[signal.Signals(number)](number, frame)


def first_useful_line(stderr: str) -> tuple[str, str]:
    """The line of a tool's standard error that says what is wrong, and the place it names (or ``""``).

    Skips LLVM's stack dump and bug-report request. A machine-verifier report is joined with the instruction it names.
    """
    lines = [line.strip() for line in stderr.splitlines() if line.strip() and not _NOISE.match(line)]
    useful = [i for i, line in enumerate(lines) if _USEFUL.search(line)]
    if not useful:
        return (lines[0] if lines else "no message"), ""
    # A generic "LLVM ERROR: Found N machine code errors" ends the report that names them.
    first = useful[0]
    line = lines[first]
    if BROKEN_MODULE in line:
        # The IR verifier's complaint and the instruction come first, without any mark.
        return "; ".join(lines[: min(first, 2)]) or BROKEN_MODULE, ""
    if line.startswith("*** Bad machine code"):
        details = [
            text
            for text in lines[first + 1 : first + 8]
            if text.startswith(("- function", "- instruction", "- operand"))
        ]
        return "; ".join([line.strip("* "), *[re.sub(r"\s+", " ", text[2:]) for text in details]]), ""
    match = _LOCATION.search(line)
    if match:
        return match["what"], match["where"]
    return re.sub(r"^\S*(?:llc|opt|lld|llvm-\w+)\S*: (?:error: )?", "", line), ""


def _wait(
    child: subprocess.Popen[bytes] | Copy, timeout: float, running: RunningTools
) -> tuple[int, resource.struct_rusage, bool]:
    """Reap the child; returns (exit status or minus the signal, its resource usage, whether it was timed out)."""
    late = threading.Event()

    def expire() -> None:
        late.set()
        kill_group(child.pid)

    with contextlib.suppress(OSError, ValueError, AttributeError):
        limit = int(timeout) + 5
        # Each of the child's threads counts, so leave room. This limit is only for a child that outlives this process.
        resource.prlimit(child.pid, resource.RLIMIT_CPU, (4 * limit, 4 * limit))
    timer = threading.Timer(timeout, expire)
    timer.daemon = True
    timer.start()
    try:
        # Wait without reaping first: nobody else gets the process id while it may still be killed here.
        with running.holding(child.pid):
            os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    finally:
        timer.cancel()
        timer.join()
        kill_group(child.pid)  # whatever the tool itself started
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode, usage, late.is_set() and child.returncode == -signal.SIGKILL


def _read(stream: IO[bytes], limit: int) -> bytes:
    size = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    # A read allocates memory for as many bytes as it asks for, so it asks for no more than there are.
    return stream.read(min(size, limit))


def _read_ends(stream: IO[bytes], limit: int) -> bytes:
    """The whole stream, or its two ends: the verifier prints a whole function before it says what is wrong with it."""
    size = stream.seek(0, os.SEEK_END)
    if size <= limit:
        return _read(stream, limit)
    stream.seek(0)
    head = stream.read(limit // 2)
    stream.seek(size - limit // 2)
    return head + b"\n" + stream.read(limit // 2)


def _title(argv: tuple[str, ...], stage: str) -> str:
    name = Path(argv[0]).name
    return f"{name} ({stage})" if stage else name


def late(title: str, replay: str, timeout: float, where: str) -> ToolchainError:
    """The error of a tool that ran out of time; ``replay`` says how to run it again."""
    return ToolchainError(f"{title} did not finish within {timeout:g} s", where=where, hint=replay)


def failed(title: str, replay: str, status: int, stderr: str, where: str) -> ToolFailure:
    """The error of a tool that ended with ``status``."""
    line, place = first_useful_line(stderr)
    message = f"{title} {'crashed' if status < 0 else 'failed'} with {ending(status)}: {line}"
    if place.startswith(("<stdin>", "-:")) or not place:
        place = f"{where or 'input'}:{place.split(':', 1)[1]}" if ":" in place else where
    return ToolFailure(message, where=place, hint=replay, status=status, line=line, stderr=stderr)


def replay_hint(argv: tuple[str, ...], stdin: bytes, stage: str) -> str:
    """How to run a tool again. Its input is kept where ``$VERILOCC_KEEP`` names a directory."""
    command = shlex.join(argv)
    if not stdin:
        return f"replay with: {command}"
    keep = os.environ.get(KEEP_VARIABLE)
    if not keep:
        return f"replay with: {command} < INPUT (set {KEEP_VARIABLE}=DIR to keep the input)"
    try:
        directory = Path(keep)
        directory.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f"{stage or 'input'}-", dir=directory)
        with os.fdopen(handle, "wb") as stream:
            stream.write(stdin)
    except OSError as error:
        return f"replay with: {command} < INPUT (the input could not be kept in {keep}: {error.strerror})"
    return f"replay with: {command} < {shlex.quote(name)}"
