"""Results kept by content: a directory of files, each whole and checked, or as good as absent.

An entry is one file, ``DIR/KK/KEY``, where KEY is 64 hexadecimal digits and KK its first two::

    verilocc-store-1 SHA256\\n
    {"key": KEY, "parts": [["NAME", SIZE], …]}\\n
    the parts' bytes, one after the other

SHA256 is that of everything after the first line. An entry is written under another name, handed to the disk and
renamed, so that processes may share a store without a lock, and a crash leaves the old entry or none. What is kept is
trusted as the program's own files are: the directory is made for its user alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verilocc_mlir.files import write_whole

_MAGIC = b"verilocc-store-1 "
_KEY = re.compile(r"[0-9a-f]{64}")


def default_directory(environment: Mapping[str, str] | None = None) -> Path:
    """``$XDG_CACHE_HOME/verilocc``, else ``~/.cache/verilocc``.

    Raises:
        RuntimeError: there is no home directory.
    """
    base = (os.environ if environment is None else environment).get("XDG_CACHE_HOME", "")
    # The XDG specification: a relative path is to be ignored.
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "verilocc"


class Store:
    """The entries of one directory, which is made when the first of them is kept."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def path(self, key: str) -> Path:
        """The file of an entry.

        Raises:
            ValueError: ``key`` is not 64 hexadecimal digits.
        """
        if not _KEY.fullmatch(key):
            raise ValueError(f"{key!r} is no key")
        return self.directory / key[:2] / key

    def get(self, key: str) -> dict[str, bytes] | None:
        """The parts of an entry by name; None where it is absent, damaged or cannot be read."""
        try:
            data = self.path(key).read_bytes()
        except OSError:
            return None
        return _unpack(key, data)

    def put(self, key: str, parts: Mapping[str, bytes]) -> None:
        """Keep ``parts``, in place of whatever was there.

        Raises:
            OSError: it cannot be written, as on a full disk; what was there stays.
        """
        path = self.path(key)
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_whole(path, _pack(key, parts), durable=True)


def _pack(key: str, parts: Mapping[str, bytes]) -> bytes:
    header = json.dumps({"key": key, "parts": [[name, len(data)] for name, data in parts.items()]})
    body = b"".join([header.encode(), b"\n", *parts.values()])
    return _MAGIC + hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def _unpack(key: str, data: bytes) -> dict[str, bytes] | None:
    first, _, body = data.partition(b"\n")
    if first != _MAGIC + hashlib.sha256(body).hexdigest().encode():
        return None
    header, _, remaining = body.partition(b"\n")
    head: dict[str, Any] = json.loads(header)
    if head["key"] != key:
        return None
    parts: dict[str, bytes] = {}
    for name, size in head["parts"]:
        parts[name], remaining = remaining[:size], remaining[size:]
    return parts
