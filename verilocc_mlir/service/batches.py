"""BatchService: requests that are worked on while nobody is connected, by the same workers, limits and turns."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import logging
import os
import re
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from google.protobuf.message import Message
from grpc import StatusCode

from verilocc.v1 import allocation_service_pb2 as allocation
from verilocc.v1 import batch_service_pb2 as batching
from verilocc.v1 import verdict_pb2
from verilocc_mlir.errors import InputError
from verilocc_mlir.service.admission import OPEN_MESSAGE_BYTES
from verilocc_mlir.service.limits import ServerLimits
from verilocc_mlir.service.logs import log
from verilocc_mlir.service.status import ServiceError, draining, malformed, opened_for_batch, read_message
from verilocc_mlir.store import Store, check_own

# Batches on disk: which requests there are, and what came of each.
#
# ``DIR/book.sqlite`` says which requests a batch has and which are finished. Requests and answers are entries of
# ``DIR/content``, a store (``verilocc_mlir.store``): by content, whole, and ours, or as good as absent. An answer that
# is absent is made again. One server at a time has a directory, and it is the user's own.


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


BATCH = "verilocc.v1.BatchService"
METHODS = ("AddToBatch", "GetBatch", "ListBatchResults", "CancelBatch", "DeleteBatch")
_MOST_RESULTS, _MOST_BYTES = 1000, 16 << 20
_TRIES = 3
"""For a request whose worker is lost."""
_DISK_SECONDS = 5.0
"""After which a disk that took nothing is tried again."""
_STATES = {
    "running": batching.BATCH_STATE_RUNNING,
    "done": batching.BATCH_STATE_DONE,
    "cancelled": batching.BATCH_STATE_CANCELLED,
}
_T = TypeVar("_T")
_M = TypeVar("_M", bound=Message)


class Worker(Protocol):
    """What is asked of the front."""

    @property
    def limits(self) -> ServerLimits: ...
    def capabilities(self) -> allocation.GetCapabilitiesResponse: ...
    async def work_alone(self, payload: bytes, seconds: float, caller: str) -> bytes:
        """Do an Allocate request that no call waits for.

        Raises:
            ServiceError: what its result is instead.
        """
        ...


@dataclass
class Batches:
    """See the module. Disk and front are each asked by one thread: the book's own, and the event loop."""

    front: Worker
    book: Book
    _disk: ThreadPoolExecutor = field(default_factory=partial(ThreadPoolExecutor, 1))
    _wake: dict[str, asyncio.Event] = field(default_factory=dict[str, asyncio.Event])
    """Of the callers whose requests are worked on; set where there may be more to do."""
    _runners: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    _working: dict[int, tuple[Waiting, asyncio.Task[None]]] = field(
        default_factory=dict[int, tuple[Waiting, asyncio.Task[None]]]
    )
    _versions: bytes = b""
    _stopped: bool = False

    async def start(self) -> None:
        """Go on with what waits."""
        offered = self.front.capabilities()
        offered.ClearField("limits")
        offered.ClearField("plan_model")
        self._versions = offered.SerializeToString(deterministic=True)
        for owner in await self._on_disk(self.book.owners):
            self._run(owner)

    async def stop(self) -> None:
        """Give up what is worked on; it waits on disk for the next server."""
        self._stopped = True
        tasks = {*self._runners, *(task for _, task in self._working.values())}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # After what is written just now.
        await asyncio.get_running_loop().run_in_executor(self._disk, self.book.close)
        self._disk.shutdown()

    # -- methods -----------------------------------------------------------------------------------

    def methods(self) -> dict[str, Callable[[str, bytes], Awaitable[Message]]]:
        """By their names: from a caller and the request's bytes to the answer."""
        return dict(zip(METHODS, (self.add, self.get, self.results, self.cancel, self.delete), strict=True))

    async def add(self, caller: str, data: bytes) -> Message:
        batch, id_, payload = opened_for_batch(data)
        try:
            row = await self._on_disk(self.book.add, caller, batch, id_, payload)
        except (OSError, sqlite3.Error) as error:
            log("batches", logging.ERROR, message=f"a request was not kept: {error}")
            raise full("the server's disk does not take the request") from error
        self._run(caller)
        return batching.AddToBatchResponse(batch=_message(row))

    async def get(self, caller: str, data: bytes) -> Message:
        name = _read(batching.GetBatchRequest, data).batch
        return batching.GetBatchResponse(batch=_message(await self._on_disk(self.book.batch, caller, name)))

    async def results(self, caller: str, data: bytes) -> Message:
        request = _read(batching.ListBatchResultsRequest, data)
        if request.after < 0 or request.max_results < 0:
            raise malformed("after and max_results are not negative", request=True)
        most = min(request.max_results or _MOST_RESULTS, _MOST_RESULTS)
        answer = await self._on_disk(self._listed, caller, request.batch, request.after, most)
        if answer.batch.state == batching.BATCH_STATE_RUNNING:
            self._run(caller)  # an answer that is not there any more is made again
        return answer

    async def cancel(self, caller: str, data: bytes) -> Message:
        name = _read(batching.CancelBatchRequest, data).batch
        row = await self._on_disk(self.book.cancel, caller, name)
        if row.cancelled:
            self._end(caller, name)
        return batching.CancelBatchResponse(batch=_message(row))

    async def delete(self, caller: str, data: bytes) -> Message:
        name = _read(batching.DeleteBatchRequest, data).batch
        await self._on_disk(self.book.delete, caller, name)
        self._end(caller, name)
        return batching.DeleteBatchResponse()

    def _listed(self, caller: str, name: str, after: int, most: int) -> batching.ListBatchResultsResponse:
        answer, size = batching.ListBatchResultsResponse(), 0
        for one in self.book.results(caller, name, after, most):
            size += len(one.answer or one.error)
            if answer.results and size > _MOST_BYTES:
                break
            result = answer.results.add(id=one.id, place=one.place, request_sha256=bytes.fromhex(one.sha))
            if one.answer is not None:
                result.response.ParseFromString(one.answer)
            else:
                result.error.ParseFromString(one.error)
        answer.batch.CopyFrom(_message(self.book.batch(caller, name)))
        return answer

    # -- work ----------------------------------------------------------------------------------------

    def _run(self, owner: str) -> None:
        if owner in self._wake:
            self._wake[owner].set()
        elif not self._stopped:
            self._wake[owner] = asyncio.Event()
            runner = asyncio.create_task(self._work(owner))
            self._runners.add(runner)
            runner.add_done_callback(self._runners.discard)

    async def _work(self, owner: str) -> None:
        """As many of a caller's requests at once as it may have workers, in the order in which they came."""
        wake, room = self._wake[owner], self.front.limits.caller.workers
        try:
            while True:
                wake.clear()
                mine = {n for n, (one, _) in self._working.items() if one.owner == owner}
                for one in await self._waiting(owner, 2 * room):
                    if len(mine) < room and one.number not in mine:
                        mine.add(one.number)
                        self._begin(one, wake)
                if not mine and not wake.is_set():
                    return
                await wake.wait()
        finally:
            del self._wake[owner]

    async def _waiting(self, owner: str, most: int) -> list[Waiting]:
        while True:
            try:
                return await self._on_disk(self.book.waiting, owner, most)
            except sqlite3.Error as error:
                log("batches", logging.ERROR, message=f"what waits is not known: {error}")
                await asyncio.sleep(_DISK_SECONDS)

    def _begin(self, one: Waiting, wake: asyncio.Event) -> None:
        task = asyncio.create_task(self._one(one))
        self._working[one.number] = one, task

        def ended(_: object) -> None:
            del self._working[one.number]
            wake.set()

        task.add_done_callback(ended)

    async def _one(self, one: Waiting) -> None:
        try:
            payload = await self._on_disk(self.book.content, one.request)
            if payload is None:
                lost = ServiceError(StatusCode.DATA_LOSS, "REQUEST_LOST", "the server's disk lost the request")
                await self._on_disk(self.book.finish, one, None, _error(lost))
                return
            key = content_key("answer", one.owner, self._versions + b"\0" + payload)
            if await self._on_disk(self.book.content, key) is not None:
                await self._on_disk(self.book.finish, one, key)
                return
            data = await self._done(payload, one.owner)
            if isinstance(data, ServiceError):
                await self._on_disk(self.book.finish, one, None, _error(data))
                return
            if not _proved(data):  # a limit may have been the reason: the next batch tries again
                key = content_key("answer", one.owner, f"{one.batch}\0{one.id}\0".encode() + payload)
            await self._on_disk(self.book.keep, key, data)
            await self._on_disk(self.book.finish, one, key, b"", len(data))
        except (OSError, sqlite3.Error) as error:
            log("batches", logging.ERROR, message=f"a result was not kept: {error}")
            await asyncio.sleep(_DISK_SECONDS)

    async def _done(self, payload: bytes, owner: str) -> bytes | ServiceError:
        """The answer, or the error that is the result; what is for want of room is tried again until there is room."""
        tries = 0
        while True:
            try:
                return await self.front.work_alone(payload, self.front.limits.default_seconds, owner)
            except ServiceError as error:
                tries += error.code is StatusCode.UNAVAILABLE
                if error.retry_seconds is None or tries >= _TRIES:
                    return error
                await asyncio.sleep(error.retry_seconds)

    def _end(self, owner: str, batch: str) -> None:
        for one, task in list(self._working.values()):
            if (one.owner, one.batch) == (owner, batch):
                task.cancel()

    def _on_disk(self, function: Callable[..., _T], *arguments: object) -> Awaitable[_T]:
        if self._stopped:
            raise draining()
        return asyncio.get_running_loop().run_in_executor(self._disk, function, *arguments)


def _read(kind: type[_M], data: bytes) -> _M:
    if len(data) > OPEN_MESSAGE_BYTES:
        raise malformed(f"this request has {OPEN_MESSAGE_BYTES} bytes at most", request=True)
    return read_message(kind, data)


def _message(row: BatchRow) -> batching.Batch:
    state = "cancelled" if row.cancelled else "done" if row.finished >= row.requests else "running"
    message = batching.Batch(name=row.name, state=_STATES[state], requests=row.requests, finished=row.finished)
    message.create_time.FromMicroseconds(int(row.created * 1e6))
    return message


def _error(error: ServiceError) -> bytes:
    return error.to_request_error().SerializeToString()


def _proved(data: bytes) -> bool:
    answer = allocation.AllocateResponse.FromString(data)
    return all(function.outcome == verdict_pb2.OUTCOME_PROVED for function in answer.functions)
