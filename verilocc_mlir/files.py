"""Files that appear whole, under their name, or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


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
