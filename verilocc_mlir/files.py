"""Files that appear whole, under their name, or not at all; and lines of JSON that are appended to one."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from verilocc_mlir.errors import InputError


def write_whole(target: Path, data: bytes, *, durable: bool = False) -> None:
    """Write ``data`` under a temporary name in the same directory, then rename it; the old file stays until then.

    Args:
        target: a device or a pipe is written as it is: it has no "whole" to keep.
        durable: have the disk keep it before the name changes, and the name before this returns.

    Raises:
        OSError: it cannot be written, as on a full disk; nothing is left behind.
    """
    with written_last(target, data, durable=durable):
        pass


@contextmanager
def written_last(target: Path, data: bytes, *, durable: bool = False) -> Generator[None, None, None]:
    """As ``write_whole``; the file has its name, or the device its bytes, when the block ends without an exception."""
    if target.exists() and not target.is_file():
        yield
        target.write_bytes(data)
        return
    handle, partial = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            if durable:
                stream.flush()
                os.fsync(stream.fileno())
        os.chmod(partial, 0o666 & ~_umask())
        yield
        os.replace(partial, target)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise
    if durable:
        directory = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _umask() -> int:
    """The mask of new files. ``os.umask`` tells it only by changing it, for the files of other threads too."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("\nUmask:")[2].split()[0], 8)


# Lines of JSON that are appended when they are there, and read again by the next run; locked until they are closed.
#
# Lines that are cut do not count, so such a file may end anywhere.


class JsonLines:
    """Such a file.

    Attributes:
        records: what is in it.
        unread: lines that do not count.

    Raises:
        InputError: it cannot be opened, or another run has it.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._stream = path.open("a+b", buffering=0)
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", where=str(path)) from error
        try:
            fcntl.flock(self._stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._stream.close()
            raise InputError("another run is writing here", where=str(path), hint="wait for it") from error
        except OSError:
            # A file system without locks: two runs at once do work twice, but every line is whole.
            pass
        self._stream.seek(0)
        data = self._stream.read()
        self._cut = bool(data) and not data.endswith(b"\n")
        self.records, self.unread = records_in(data)

    def add(self, record: dict[str, Any]) -> None:
        """Append a line; the disk has it when this returns.

        Raises:
            OSError: it cannot be written, as on a full disk.
        """
        line = json.dumps(record).encode() + b"\n"
        if self._cut:
            line = b"\n" + line
        self._cut = True
        unwritten = memoryview(line)
        while unwritten:
            # What fits on a disk that is almost full is written; the next call says that it is full.
            unwritten = unwritten[self._stream.write(unwritten) or 0 :]
        self._cut = False
        os.fsync(self._stream.fileno())

    def close(self) -> None:
        self._stream.close()


def records_in(data: bytes) -> tuple[list[dict[str, Any]], int]:
    """The objects in lines of JSON, and how many other lines there are."""
    records: list[dict[str, Any]] = []
    lines = [line for line in data.splitlines() if line.strip()]
    for line in lines:
        with contextlib.suppress(ValueError):
            record = json.loads(line)
            if isinstance(record, dict):
                records.append(cast("dict[str, Any]", record))
    return records, len(lines) - len(records)
