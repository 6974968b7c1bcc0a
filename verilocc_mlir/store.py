"""Results kept by content: a directory of files, each whole, ours and unchanged, or as good as absent.

An entry is one file, ``DIR/KK/KEY``, where KEY is 64 hexadecimal digits and KK its first two::

    verilocc-store-2 CODE\\n
    {"key": KEY, "parts": [["NAME", SIZE], …]}\\n
    the parts' bytes, one after the other

CODE is the HMAC-SHA256 of everything after the first line, under a key of the user's: whoever does not have it can
neither make an entry nor change one. The directory is the user's own, and nobody else may write there. A store that
several users share has a key that they share, in the file that ``$VERILOCC_STORE_KEY`` names; then the directory may be
anybody's.

An entry is written under another name, handed to the disk and renamed, so that processes may share a store without a
lock, and a crash leaves the old entry or none.
"""

from __future__ import annotations

import errno
import hmac
import json
import logging
import os
import re
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from verilocc_mlir.errors import InputError
from verilocc_mlir.files import write_whole

KEY_VARIABLE = "VERILOCC_STORE_KEY"
"""Environment variable that names the key of a store that users share."""

_MAGIC = b"verilocc-store-2 "
_KEY = re.compile(r"[0-9a-f]{64}")
_LEAST_SECRET = 32
"""Bytes of a key: fewer could be guessed."""
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
"""A pipe is opened without waiting for its writer, and then refused."""
_WARN = logging.getLogger("verilocc.store").warning


def default_directory(environment: Mapping[str, str] | None = None) -> Path:
    """``$XDG_CACHE_HOME/verilocc``, else ``~/.cache/verilocc``.

    Raises:
        RuntimeError: there is no home directory.
    """
    return _own_directory(os.environ if environment is None else environment, "XDG_CACHE_HOME", ".cache")


class Store:
    """The entries of one directory, which is made when the first of them is kept.

    Args:
        warn: told of entries that are there and not taken, each reason once.
    """

    def __init__(self, directory: Path, warn: Callable[[str], None] = _WARN) -> None:
        self.directory = directory
        self._warn = warn
        self._warned: set[str] = set()
        self._secret = b""

    def check(self) -> None:
        """See whether it can be trusted; one that is not there yet can.

        Raises:
            InputError: it is no directory; the directory is another user's, or others may write there; there is no
                key, or others may read it.
        """
        try:
            status = os.stat(self.directory)
        except OSError:
            return
        if not stat.S_ISDIR(status.st_mode):
            raise InputError("it is no directory", where=str(self.directory), hint="give another one for the cache")
        if not os.environ.get(KEY_VARIABLE):
            check_own(self.directory, status)
        self._key()

    def path(self, key: str) -> Path:
        """The file of an entry.

        Raises:
            ValueError: ``key`` is not 64 hexadecimal digits.
        """
        if not _KEY.fullmatch(key):
            raise ValueError(f"{key!r} is no key")
        return self.directory / key[:2] / key

    def get(self, key: str) -> dict[str, bytes] | None:
        """The parts of an entry by name; None where it is absent, or is not what we put there."""
        path = self.path(key)
        try:
            self.check()
            return _unpack(key, _read_entry(path), self._key())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except InputError as error:
            self.refuse(key, error.what)
        except OSError as error:
            self.refuse(key, error.strerror or str(error))
        return None

    def refuse(self, key: str, why: str) -> None:
        """Say that an entry is not taken."""
        if why not in self._warned:
            self._warned.add(why)
            self._warn(f"what is kept in {self.path(key)} is not used: {why}")

    def put(self, key: str, parts: Mapping[str, bytes]) -> None:
        """Keep ``parts``, in place of whatever was there.

        Raises:
            OSError: it cannot be written, as on a full disk, or the store is not to be trusted; what was there stays.
        """
        path = self.path(key)
        # Others may go into a store that is shared, as far as the umask lets them.
        mode = 0o777 if os.environ.get(KEY_VARIABLE) else 0o700
        self.directory.mkdir(mode=mode, parents=True, exist_ok=True)
        path.parent.mkdir(mode=mode, exist_ok=True)
        try:
            self.check()
            data = _pack(key, parts, self._key())
        except InputError as error:
            raise PermissionError(errno.EPERM, error.what, str(self.directory)) from error
        with suppress(FileNotFoundError):
            if stat.S_IFMT(path.lstat().st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
                path.unlink()  # it would be written into, not replaced
        write_whole(path, data, durable=True)

    def _key(self) -> bytes:
        if not self._secret:
            shared = os.environ.get(KEY_VARIABLE)
            self._secret = _read_secret(Path(shared), 0o027) if shared else _own_secret()
        return self._secret


def check_own(directory: Path, status: os.stat_result | None = None) -> None:
    """See that only this user can write there.

    Raises:
        InputError: others can.
    """
    status = os.stat(directory) if status is None else status
    where = str(directory)
    if status.st_uid != os.geteuid():
        raise InputError(
            f"the directory belongs to another user (uid {status.st_uid})",
            where=where, hint=f"take one of your own, or share a key: ${KEY_VARIABLE}",
        )  # fmt: skip
    if status.st_mode & 0o022:
        raise InputError(
            f"others may write into the directory (mode {stat.S_IMODE(status.st_mode):o})",
            where=where, hint=f"chmod go-w {where}; or share a key: ${KEY_VARIABLE}",
        )  # fmt: skip


def _own_directory(environment: Mapping[str, str], variable: str, place: str) -> Path:
    base = environment.get(variable, "")
    # The XDG specification: a relative path is to be ignored.
    return (Path(base) if os.path.isabs(base) else Path.home() / place) / "verilocc"


def _own_secret() -> bytes:
    """This user's key, ``$XDG_CONFIG_HOME/verilocc/store.key`` or below ``~/.config``, made where there is none.

    Raises:
        InputError: it cannot be made or read.
    """
    hint = f"${KEY_VARIABLE} names a key elsewhere"
    try:
        path = _own_directory(os.environ, "XDG_CONFIG_HOME", ".config") / "store.key"
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _make_secret(path)
    except (OSError, RuntimeError) as error:
        raise InputError(f"the key of the store cannot be made: {error}", hint=hint) from error
    return _read_secret(path, 0o077)


def _make_secret(path: Path) -> None:
    """A new key under ``path``, or the one that another process made meanwhile."""
    partial = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "w", encoding="ascii") as stream:
            stream.write(os.urandom(_LEAST_SECRET).hex() + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        os.link(partial, path)
    except FileExistsError:
        pass
    finally:
        partial.unlink()


def _read_secret(path: Path, forbidden: int) -> bytes:
    """The key in a file.

    Args:
        forbidden: bits of the mode that it may not have.

    Raises:
        InputError: there is none, or others may read or write it.
    """
    try:
        with open(os.open(path, _OPEN), "rb") as stream:
            status = os.fstat(stream.fileno())
            secret = stream.read().strip() if stat.S_ISREG(status.st_mode) else b""
    except OSError as error:
        raise InputError(f"the key of the store cannot be read: {error.strerror}", where=str(path)) from error
    if status.st_mode & forbidden:
        raise InputError(
            f"others may read or write the key of the store (mode {stat.S_IMODE(status.st_mode):o})",
            where=str(path), hint=f"chmod {0o640 & ~forbidden:o} {path}; if others may have read it, make another key",
        )  # fmt: skip
    if len(secret) < _LEAST_SECRET:
        raise InputError(
            f"a key of a store has {_LEAST_SECRET} bytes at least",
            where=str(path),
            hint=f"openssl rand -hex 32 >{path}",
        )
    return secret


def _read_entry(path: Path) -> bytes:
    """The bytes of a regular file; of a link, a pipe or a device nothing is read.

    Raises:
        OSError: it is none, or cannot be read.
    """
    with open(os.open(path, _OPEN | os.O_NOFOLLOW), "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        return stream.read()


def _pack(key: str, parts: Mapping[str, bytes], secret: bytes) -> bytes:
    header = json.dumps({"key": key, "parts": [[name, len(data)] for name, data in parts.items()]})
    body = b"".join([header.encode(), b"\n", *parts.values()])
    return _first_line(body, secret) + b"\n" + body


def _unpack(key: str, data: bytes, secret: bytes) -> dict[str, bytes]:
    """The parts.

    Raises:
        InputError: it is damaged, was made without the key, or is another entry.
    """
    first, _, body = data.partition(b"\n")
    if not hmac.compare_digest(first, _first_line(body, secret)):
        raise InputError("it was damaged, or made with another key")
    header, _, remaining = body.partition(b"\n")
    head: dict[str, Any] = json.loads(header)
    if head["key"] != key:
        raise InputError("it is the entry of another key")
    parts: dict[str, bytes] = {}
    for name, size in head["parts"]:
        parts[name], remaining = remaining[:size], remaining[size:]
    return parts


def _first_line(body: bytes, secret: bytes) -> bytes:
    return _MAGIC + hmac.digest(secret, body, "sha256").hex().encode()
