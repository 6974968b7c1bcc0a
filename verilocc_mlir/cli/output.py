"""Reading inputs, and writing results and pages: all of it or nothing, also where a signal ends the command."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO
from urllib.parse import quote

import click
from msgspec.structs import replace

from verilocc_mlir import files
from verilocc_mlir.errors import InputError
from verilocc_mlir.target.targets import target

if TYPE_CHECKING:
    from verilocc_mlir.pipeline.events import Listener
    from verilocc_mlir.pipeline.recording import Recording
    from verilocc_mlir.results.compile import Report


STDIO = "-"


def read(path: str) -> bytes:
    """The bytes of a file, or of standard input.

    Raises:
        InputError: the file cannot be read.
    """
    if path == STDIO:
        if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison]
            raise InputError("standard input is closed", hint="name a file")
        return sys.stdin.buffer.read()
    return read_file(Path(path))


def read_file(path: Path) -> bytes:
    """The bytes of a file.

    Raises:
        InputError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error


class Progress:
    """One line on a terminal that says what a compilation is at, once it has taken a second; nothing elsewhere.

    Args:
        source: the name of the input.
        wanted: False: there is none.
        after_s: seconds before the line is shown.
    """

    def __init__(self, source: str, stream: TextIO, *, wanted: bool = True, after_s: float = 1.0) -> None:
        self._source, self._stream = Path(source).name, stream
        self._start, self._after = time.monotonic(), after_s
        self._candidate = ""
        self._shown = False
        self._wanted = wanted and stream.isatty() and os.environ.get("TERM") != "dumb"

    def __enter__(self) -> tuple[Listener, ...]:
        """What hears of the compilation's events."""
        if not self._wanted:
            return ()
        from verilocc_mlir.pipeline.events import Begun, Event, Events, Tried

        def hear(event: Event, _: Events) -> None:
            if isinstance(event, Tried):
                self._candidate = f"{event.candidate}: "
            elif isinstance(event, Begun) and (seconds := time.monotonic() - self._start) >= self._after:
                self._shown = True
                self._write(f"{seconds:.0f} s  {self._source}: {self._candidate}{event.step}")

        return (hear,)

    def __exit__(self, *error: object) -> None:
        self._write("")

    def _write(self, text: str) -> None:
        if self._shown:
            width = shutil.get_terminal_size().columns - 1
            self._stream.write(f"\r\x1b[K{text[:width]}")
            self._stream.flush()


def check_writable(path: str) -> None:
    """Fail before the work rather than after it.

    Raises:
        InputError: the directory of ``path`` is missing or cannot be written, or ``path`` is a directory.
    """
    if path == STDIO:
        if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]
            raise InputError("standard output is closed", hint="give a file name")
        return
    target = Path(path)
    if target.is_dir():
        raise InputError(f"{path} is a directory", hint="give a file name with -o")
    directory = target.parent
    if not directory.is_dir():
        raise InputError(f"there is no directory {directory}", hint=f"mkdir -p {directory}")
    if not os.access(directory, os.W_OK):
        raise InputError(f"cannot write into {directory}", hint="give another place with -o")


def check_directory(path: str) -> None:
    """Fail before the work rather than after it; nothing is made yet.

    Raises:
        InputError: ``path`` is no directory and cannot become one, or cannot be written.
    """
    there = Path(path)
    while not os.path.lexists(there):
        there = there.parent
    if not there.is_dir():
        raise InputError(f"{there} is no directory", hint="give another one")
    if not os.access(there, os.W_OK):
        raise InputError(f"cannot write into {there}", hint="give another place")


def make_directory(path: str) -> None:
    """Make a directory that the user named, with its parents, or take the one there is.

    Raises:
        InputError: it cannot be made or written.
    """
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the directory {path}: {error.strerror}", hint="give another one") from error
    check_writable(str(Path(path) / "x"))


def write(path: str, data: bytes) -> None:
    """Write ``data`` to ``path`` (``-``: standard output): a file appears whole, under its name, or not at all.

    Raises:
        InputError: the file cannot be written, as on a full disk.
    """
    with written_last(path, data):
        pass


@contextmanager
def written_last(path: str, data: bytes) -> Generator[None, None, None]:
    """As ``write``, when the block ends without an exception: what else the command writes is written before.

    Raises:
        InputError: as for ``write``.
    """
    with ExitStack() as stack:
        try:
            if path != STDIO:
                stack.enter_context(files.written_last(Path(path), data))
        except OSError as error:
            raise _not_written(path, error) from error
        yield
        try:
            if path == STDIO:
                _write_to_stdout(data)
            stack.close()
        except OSError as error:
            raise _not_written(path, error) from error


def _write_to_stdout(data: bytes) -> None:
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except OSError:
        discard(sys.stdout)
        raise


def discard(stream: TextIO | None) -> None:
    """Nothing can be said there any more, not even what Python has kept for the end."""
    if stream is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _not_written(path: str, error: OSError) -> InputError:
    return InputError(f"cannot be written: {error.strerror}", where="standard output" if path == STDIO else path)


# SIGTERM ends a command as Ctrl-C does: tools killed, nothing written, exit code 130.


def end_on_sigterm() -> None:
    """From now on; a handler that a user's program has put there stays."""
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminated)


def _terminated(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


# The HTML page of a compilation and the obligations it links to: shared by ``compile --html`` and ``report``.


smt_dir_option = click.option(
    "--smt-dir",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write every obligation as SMT-LIB2.",
)


def new_recording() -> Recording:
    from verilocc_mlir.pipeline.recording import Recording

    return Recording()


def write_recorded(path: str, report: Report, recording: Recording, directory: Path | None) -> None:
    """The obligations into ``directory``, then the page, which links to them; either may be left out.

    Raises:
        InputError: something cannot be written.
    """
    files = write_obligations(directory, recording) if directory is not None else ()
    if path:
        write_page(path, report, recording, directory, files)


def write_obligations(directory: Path, recording: Recording) -> tuple[str, ...]:
    """Every obligation of the run as SMT-LIB, with a manifest; file names in the order of the run.

    Raises:
        InputError: the directory cannot be made or written.
    """

    from smt_verifier.artefacts import write_artefacts

    answers = [
        (replace(obligation, name=f"{record.phase}/{obligation.name}"), verdict)
        for record in recording.phases
        for obligation, verdict in record.asked
    ]
    return write_artefacts(directory, recording.texts(), answers)


def write_page(
    path: str,
    report: Report,
    recording: Recording,
    obligations: Path | None = None,
    files: tuple[str, ...] = (),
) -> None:
    """Write the page as a whole.

    Args:
        path: where to; ``-`` is standard output.
        obligations: directory of the obligations; None where none were written.
        files: their names, as ``write_obligations`` gives them.

    Raises:
        InputError: the file cannot be written.
    """
    from verilocc_mlir.report.page.html import to_html

    links: tuple[str, ...] = ()
    if obligations is not None:
        start = Path.cwd() if path == STDIO else Path(path).resolve().parent
        directory = Path(os.path.relpath(obligations.resolve(), start)).as_posix()
        links = tuple(f"{quote(directory)}/{name}" for name in files)
    write(path, to_html(report, recording.page(target(report.target), links)).encode())
