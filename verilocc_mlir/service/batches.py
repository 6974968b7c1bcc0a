"""BatchService: requests that are worked on while nobody is connected, by the same workers, limits and turns."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

from google.protobuf.message import Message
from grpc import StatusCode

from verilocc.v1 import allocation_service_pb2 as allocation
from verilocc.v1 import batch_service_pb2 as batching
from verilocc.v1 import verdict_pb2
from verilocc_mlir.service.admission import OPEN_MESSAGE_BYTES
from verilocc_mlir.service.batch_book import BatchRow, Book, Waiting, content_key, full
from verilocc_mlir.service.envelope import opened_for_batch, read_message
from verilocc_mlir.service.limits import ServerLimits
from verilocc_mlir.service.logs import log
from verilocc_mlir.service.status import ServiceError, draining, malformed

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
