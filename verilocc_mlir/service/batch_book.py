"""Batches on disk: which requests there are, and what came of each.

``DIR/book.sqlite`` says which requests a batch has and which are finished. Requests and answers are entries of
``DIR/content``, a store (``verilocc_mlir.store``): by content, whole, and ours, or as good as absent. An answer that is
absent is made again. One server at a time has a directory, and it is the user's own.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpc import StatusCode

from verilocc_mlir.errors import InputError
from verilocc_mlir.service.logs import log
from verilocc_mlir.service.status import ServiceError, malformed
from verilocc_mlir.store import Store, check_own

MOST_REQUESTS = 100_000
"""Of one caller, in all batches."""
KEEP_SECONDS = 7 * 86400.0
"""After the last change of a batch."""
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_ID_BYTES = 256
_RETRY_SECONDS = 60.0
_PART = "bytes"
_TABLES = """
CREATE TABLE IF NOT EXISTS batches(
  owner TEXT, name TEXT, created REAL, touched REAL, cancelled INTEGER DEFAULT 0, requests INTEGER DEFAULT 0,
  finished INTEGER DEFAULT 0, bytes INTEGER DEFAULT 0, PRIMARY KEY(owner, name));
CREATE TABLE IF NOT EXISTS requests(
  number INTEGER PRIMARY KEY AUTOINCREMENT, owner TEXT, batch TEXT, id TEXT, sha TEXT, request TEXT,
  place INTEGER, answer TEXT, error BLOB, UNIQUE(owner, batch, id));
CREATE INDEX IF NOT EXISTS finished ON requests(owner, batch, place);
CREATE INDEX IF NOT EXISTS waiting ON requests(owner, number) WHERE place IS NULL;
CREATE INDEX IF NOT EXISTS content ON requests(request);
CREATE INDEX IF NOT EXISTS answers ON requests(answer);
"""


@dataclass(frozen=True)
class BatchRow:
    """A batch, counted."""

    name: str
    created: float
    cancelled: bool
    requests: int
    finished: int


@dataclass(frozen=True)
class Waiting:
    """A request that has no result yet; ``request`` is its key in the store."""

    number: int
    owner: str
    batch: str
    id: str
    request: str


@dataclass(frozen=True)
class Finished:
    """A result: an answer, or a serialised ``RequestError``."""

    id: str
    place: int
    sha: str
    answer: bytes | None
    error: bytes


class Book:
    """See the module. Its methods are called from one thread.

    Args:
        most_bytes: of requests and answers of one caller.

    Raises:
        InputError: the directory is another's or another server has it.
    """

    def __init__(self, directory: Path, most_bytes: int, now: Callable[[], float] = time.time) -> None:
        self._most_bytes, self._now = most_bytes, now
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            check_own(directory)
            self._lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._db = sqlite3.connect(directory / "book.sqlite", isolation_level=None, check_same_thread=False)
            self._db.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;" + _TABLES)
        except BlockingIOError as error:
            raise InputError("another server has these batches", where=str(directory)) from error
        except (OSError, sqlite3.Error) as error:
            raise InputError(f"batches cannot be kept there: {error}", where=str(directory)) from error
        self.store = Store(directory / "content", lambda text: log("batches", logging.WARNING, message=text))
        self.store.check()
        self.forget_old()

    def close(self) -> None:
        self._db.close()
        os.close(self._lock)

    # -- batches -------------------------------------------------------------------------------------

    def add(self, owner: str, batch: str, id_: str, payload: bytes) -> BatchRow:
        """Add a request, unless the batch has it.

        Raises:
            ServiceError: it cannot be added. OSError, sqlite3.Error: the disk does not take it.
        """
        if not _NAME.fullmatch(batch) or not 1 <= len(id_.encode()) <= _ID_BYTES:
            raise malformed("a batch's name is 1 to 64 of A-Za-z0-9._-, an id has 1 to 256 bytes", request=True)
        sha = hashlib.sha256(payload).hexdigest()
        if known := self._one("SELECT sha FROM requests WHERE (owner, batch, id) = (?, ?, ?)", owner, batch, id_):
            if known[0] != sha:
                raise ServiceError(StatusCode.ALREADY_EXISTS, "ID_TAKEN", "the batch has another request of this id")
            return self.batch(owner, batch)
        if (there := self._find(owner, batch)) is None:
            self.forget_old()
        elif there.cancelled:
            raise ServiceError(StatusCode.FAILED_PRECONDITION, "BATCH_CANCELLED", "the batch was cancelled")
        count, size = self._one(
            "SELECT COALESCE(SUM(requests), 0), COALESCE(SUM(bytes), 0) FROM batches WHERE owner = ?", owner
        )
        if count >= MOST_REQUESTS or size + len(payload) > self._most_bytes:
            raise full(f"this caller has {count} requests of {size} bytes in batches; delete batches")
        key = content_key("request", owner, payload)
        self.store.put(key, {_PART: payload})
        now = self._now()
        with self._db:
            self._db.execute("BEGIN")
            self._db.execute(
                "INSERT OR IGNORE INTO batches(owner, name, created, touched) VALUES (?, ?, ?, ?)",
                (owner, batch, now, now),
            )
            self._db.execute(
                "INSERT INTO requests(owner, batch, id, sha, request) VALUES (?, ?, ?, ?, ?)",
                (owner, batch, id_, sha, key),
            )
            self._count(owner, batch, requests=1, size=len(payload))
        return self.batch(owner, batch)

    def batch(self, owner: str, name: str) -> BatchRow:
        """Its counts.

        Raises:
            ServiceError: there is none.
        """
        if (row := self._find(owner, name)) is None:
            raise ServiceError(StatusCode.NOT_FOUND, "UNKNOWN_BATCH", "this caller has no such batch")
        return row

    def cancel(self, owner: str, name: str) -> BatchRow:
        """Have no more of it worked on, unless it is done."""
        row = self.batch(owner, name)
        if row.finished < row.requests:
            with self._db:
                self._db.execute("UPDATE batches SET cancelled = 1 WHERE (owner, name) = (?, ?)", (owner, name))
        return self.batch(owner, name)

    def delete(self, owner: str, name: str) -> None:
        """Forget it, with all content that no other batch has."""
        self.batch(owner, name)
        rows = self._all("SELECT request, answer FROM requests WHERE (owner, batch) = (?, ?)", owner, name)
        with self._db:
            self._db.execute("BEGIN")
            self._db.execute("DELETE FROM requests WHERE (owner, batch) = (?, ?)", (owner, name))
            self._db.execute("DELETE FROM batches WHERE (owner, name) = (?, ?)", (owner, name))
        for key in {key for row in rows for key in row if key}:
            if not self._one("SELECT 1 FROM requests WHERE request = ? OR answer = ?", key, key):
                self.store.path(key).unlink(missing_ok=True)

    def forget_old(self) -> None:
        """Delete batches that nothing has happened to for long."""
        before = self._now() - KEEP_SECONDS
        for owner, name in self._all("SELECT owner, name FROM batches WHERE touched < ?", before):
            self.delete(owner, name)

    # -- work ------------------------------------------------------------------------------------------

    def owners(self) -> list[str]:
        """Who has requests that wait."""
        return [row[0] for row in self._all("SELECT DISTINCT owner FROM requests WHERE place IS NULL")]

    def waiting(self, owner: str, most: int) -> list[Waiting]:
        """The first of a caller's requests without a result, of batches that were not cancelled."""
        rows = self._all(
            "SELECT r.number, r.owner, r.batch, r.id, r.request FROM requests r JOIN batches b"
            " ON (b.owner, b.name) = (r.owner, r.batch)"
            " WHERE r.owner = ? AND r.place IS NULL AND NOT b.cancelled ORDER BY r.number LIMIT ?",
            owner, most,
        )  # fmt: skip
        return [Waiting(*row) for row in rows]

    def content(self, key: str) -> bytes | None:
        """A request or an answer, if it is there and ours."""
        return (self.store.get(key) or {}).get(_PART)

    def keep(self, key: str, data: bytes) -> None:
        """Raises: OSError: the disk does not take it."""
        self.store.put(key, {_PART: data})

    def finish(self, one: Waiting, answer: str | None, error: bytes = b"", size: int = 0) -> None:
        """Give a request its result: the key of an answer that is kept, or an error. One that was deleted has none."""
        with self._db:
            self._db.execute("BEGIN")
            done = self._db.execute(
                "UPDATE requests SET answer = ?, error = ?, place = (SELECT COALESCE(MAX(place), 0)"
                " + 1 FROM requests WHERE (owner, batch) = (?, ?)) WHERE number = ? AND place IS NULL",
                (answer, error, one.owner, one.batch, one.number),
            ).rowcount
            self._count(one.owner, one.batch, finished=done, size=size * done)

    def results(self, owner: str, name: str, after: int, most: int) -> Iterable[Finished]:
        """Results after a place. One whose answer is not there any more waits again."""
        self.batch(owner, name)
        rows = self._all(
            "SELECT number, id, place, sha, answer, error FROM requests WHERE (owner, batch) = (?, ?) AND place > ?"
            " ORDER BY place LIMIT ?", owner, name, after, most,
        )  # fmt: skip
        for number, id_, place, sha, key, error in rows:
            answer = self.content(key) if key else None
            if key and answer is None:
                with self._db:
                    self._db.execute("BEGIN")
                    self._db.execute("UPDATE requests SET place = NULL, answer = NULL WHERE number = ?", (number,))
                    self._count(owner, name, finished=-1)
            else:
                yield Finished(id_, place, sha, answer, error or b"")

    # -- SQL ---------------------------------------------------------------------------------------------

    def _find(self, owner: str, name: str) -> BatchRow | None:
        row = self._one(
            "SELECT name, created, cancelled, requests, finished FROM batches WHERE (owner, name) = (?, ?)", owner, name
        )
        return BatchRow(row[0], row[1], bool(row[2]), row[3], row[4]) if row else None

    def _count(self, owner: str, name: str, *, requests: int = 0, finished: int = 0, size: int = 0) -> None:
        self._db.execute(
            "UPDATE batches SET touched = ?, requests = requests + ?, finished = finished + ?, bytes = bytes + ?"
            " WHERE (owner, name) = (?, ?)", (self._now(), requests, finished, size, owner, name),
        )  # fmt: skip

    def _one(self, question: str, *values: object) -> tuple[Any, ...]:
        return self._db.execute(question, values).fetchone() or ()

    def _all(self, question: str, *values: object) -> list[tuple[Any, ...]]:
        return self._db.execute(question, values).fetchall()


def content_key(kind: str, owner: str, data: bytes) -> str:
    """Of one caller alone: nobody learns what others have asked."""
    head = f"verilocc batch {kind}\0{owner}\0".encode()
    return hashlib.sha256(head + data).hexdigest()


def full(message: str) -> ServiceError:
    return ServiceError(StatusCode.RESOURCE_EXHAUSTED, "BATCHES_FULL", message, _RETRY_SECONDS)
