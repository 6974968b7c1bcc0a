"""LLVM's tools loaded once: each run is a copy of a process that stopped before the tool's main function.

A tool of LLVM takes 15 ms to relocate its libraries and to make its static objects, half of what it takes for a small
kernel, and a compile runs six or more of them. ``loaded_tool.c``, preloaded into the tool, waits there and makes a copy
for each run. A copy has done nothing yet that a new process would not have done, is a child of this process, and is
waited for, limited and killed as any other.

Where that library was not built (no C compiler at installation) or the tool does not load it, tools are started anew.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import struct
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct, field

from verilocc_mlir.crew.worker import program_environment

LIBRARY = Path(__file__).with_name("loaded_tool.preload")
"""Not named ``.so``: Python would take it for a module of its own."""
LOADED_VARIABLE = "VERILOCC_LOADED_TOOLS"
"""Environment variable: ``0`` has every tool started anew."""

SELDOM = 2
"""Runs of a tool that a single compile needs; one that runs more often pays for being loaded."""

_SOCKET_VARIABLE = "VERILOCC_LOADED_TOOL"
_START_SECONDS = 20.0
_MOST_BYTES = 1 << 16
_MOST_ARGUMENTS = 4096
_ANSWER = struct.Struct("i")


def tool_environment() -> dict[str, str]:
    """Environment of a tool: a program's, without names in the stack dump of a crash, which nobody reads here and
    which take four times as long as the tool (llvm-symbolizer).
    """
    return {**program_environment(), "LLVM_DISABLE_SYMBOLIZATION": "1"}


class Copy:
    """What waits for a tool needs of ``subprocess.Popen``."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def wait(self) -> int:
        """Its exit code, or minus the signal that ended it."""
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode


class _Gone(Exception):
    """The loaded process does not answer."""


class _Loaded:
    """One process that is copied.

    Raises:
        _Gone: the tool does not load the library.
    """

    def __init__(self, tool: str) -> None:
        self._asking = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = {**tool_environment(), "LD_PRELOAD": str(LIBRARY), _SOCKET_VARIABLE: str(theirs.fileno())}
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [tool], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                    env=environment, pass_fds=[theirs.fileno()], start_new_session=True,
                )  # fmt: skip
            self._socket.settimeout(_START_SECONDS)
            if self._answer() != 0:
                raise _Gone
            # From here on without a limit: a copy that is late would write where another process writes as well.
            self._socket.settimeout(None)
        except _Gone:
            self.close()
            raise
        except OSError as error:
            self._socket.close()
            raise _Gone from error

    def copy(self, argv: Sequence[str], streams: Sequence[int]) -> int:
        """Process id of a copy that calls the tool's main function.

        Raises:
            _Gone: there is none, nor will there be: nobody holds the other end of the socket.
        """
        message = b"".join(os.fsencode(word) + b"\0" for word in (os.getcwd(), *argv))
        with self._asking:
            try:
                socket.send_fds(self._socket, [message], [*streams])
            except OSError as error:
                raise _Gone from error
            pid = self._answer()
        if pid <= 0:
            raise _Gone
        return pid

    def _answer(self) -> int:
        try:
            data = self._socket.recv(_ANSWER.size)
        except OSError as error:
            raise _Gone from error
        if len(data) != _ANSWER.size:
            raise _Gone
        return int(_ANSWER.unpack(data)[0])

    def close(self) -> None:
        """End the process."""
        self._socket.close()
        self._process.kill()
        self._process.wait()

    def forget(self) -> None:
        """In a copy of this process, whose child the loaded process is not."""
        self._socket.close()
        self._process.returncode = 0  # so that nobody waits for it


class _Tools(Struct):
    """Those of this process: by the file's name, inode and time, None for one that cannot be loaded."""

    by_file: dict[tuple[str, int, int], _Loaded | None] = field(
        default_factory=dict[tuple[str, int, int], "_Loaded | None"]
    )
    runs: dict[str, int] = field(default_factory=dict[str, int])
    starting: threading.Lock = field(default_factory=threading.Lock)

    def of(self, tool: str, runs: int) -> _Loaded | None:
        state = os.stat(tool)
        file = (tool, state.st_ino, state.st_mtime_ns)
        with self.starting:
            self.runs[tool] = self.runs.get(tool, 0) + 1
            if self.runs[tool] <= runs:
                return None
            if file not in self.by_file:
                self.by_file[file] = _load(tool)
            return self.by_file[file]

    def drop(self, loaded: _Loaded) -> None:
        """One that does not answer."""
        with self.starting:
            for file, other in self.by_file.items():
                if other is loaded:
                    self.by_file[file] = None
        loaded.close()

    def close(self) -> None:
        for loaded in filter(None, self.by_file.values()):
            loaded.close()
        self.by_file.clear()

    def forget(self) -> None:
        for loaded in filter(None, self.by_file.values()):
            loaded.forget()
        self.by_file.clear()
        self.starting = threading.Lock()


def _load(tool: str) -> _Loaded | None:
    with contextlib.suppress(_Gone, OSError):
        if _is_program(tool):
            return _Loaded(tool)
    return None


def _is_program(tool: str) -> bool:
    """Whether it is machine code: a script's arguments are not those of the program that reads it."""
    with open(tool, "rb") as file:
        return file.read(4) == b"\x7fELF"


_TOOLS = _Tools()
atexit.register(_TOOLS.close)
os.register_at_fork(after_in_child=_TOOLS.forget)


def available() -> bool:
    """Whether tools are loaded once, for all that is known before the first of them is."""
    return LIBRARY.is_file() and os.environ.get(LOADED_VARIABLE) != "0"


def copy_of(argv: Sequence[str], runs: int, stdin: int, stdout: int, stderr: int) -> Copy | None:
    """A copy of the loaded tool ``argv[0]``, a path, with those file descriptors; None where it is to be started anew.

    Args:
        runs: so many runs of the tool are started anew before it is loaded.
    """
    if not available() or len(argv) > _MOST_ARGUMENTS or sum(map(len, argv)) > _MOST_BYTES:
        return None
    loaded = None
    try:
        loaded = _TOOLS.of(argv[0], runs)
        return None if loaded is None else Copy(loaded.copy(argv, (stdin, stdout, stderr)))
    except OSError:  # no such file, or no such directory any more: starting it anew says so
        return None
    except _Gone:
        if loaded is not None:
            _TOOLS.drop(loaded)
        return None
