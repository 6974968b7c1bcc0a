"""The unary methods over HTTP/1.1, as JSON or protobuf: unary calls of the Connect protocol (connectrpc.com/docs).

Another way to the same front: the same callers, limits, turns, errors and log. A call is counted before its body is
read; the front holds the body as bytes, and a worker reads it, within its memory.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import math
import socket
import ssl
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import grpc
import h11
from google.protobuf import json_format
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc import StatusCode

from verilocc_mlir.remote.wire import code_of
from verilocc_mlir.service.admission import Admission
from verilocc_mlir.service.logs import log
from verilocc_mlir.service.pool import timeout, within
from verilocc_mlir.service.status import JSON, ServiceError

_HEAD_BYTES, _CHUNK = 16 << 10, 64 << 10
_HEAD_SECONDS, _IDLE_SECONDS, _WRITE_SECONDS, _LINGER_SECONDS = 10.0, 60.0, 60.0, 1.0
_MEDIA = {"application/json": JSON, "application/proto": ""}
_HTTP = {
    StatusCode.CANCELLED: 499, StatusCode.INVALID_ARGUMENT: 400, StatusCode.DEADLINE_EXCEEDED: 504,
    StatusCode.NOT_FOUND: 404, StatusCode.ALREADY_EXISTS: 409, StatusCode.PERMISSION_DENIED: 403,
    StatusCode.RESOURCE_EXHAUSTED: 429, StatusCode.FAILED_PRECONDITION: 400, StatusCode.ABORTED: 409,
    StatusCode.OUT_OF_RANGE: 400, StatusCode.UNIMPLEMENTED: 501, StatusCode.UNAVAILABLE: 503,
    StatusCode.UNAUTHENTICATED: 401,
}  # fmt: skip
"""Status codes of HTTP by those of gRPC, as Connect has them; 500 for all others."""


@dataclass(frozen=True)
class Method:
    """A unary method of the front: it takes the request's bytes, the context, and the form that the bytes have."""

    serve: Callable[[bytes, Any, str], Awaitable[bytes]]
    answer: type[Message]
    max_bytes: int


class _Refused(Exception):
    """The call has a status instead of an answer. ``http``: where HTTP has a word of its own for it."""

    def __init__(self, status: Status, http: int = 0) -> None:
        super().__init__(status.message)
        self.status = status
        self.http = http or _HTTP.get(code_of(status.code), 500)


def _refuse(http: int, code: StatusCode, message: str) -> NoReturn:
    """For what is wrong with the HTTP request, before it is a call; no method has seen it."""
    raise _Refused(Status(code=int(code.value[0]), message=message), http)


@dataclass(frozen=True)
class HttpContext:
    """What the front asks of a gRPC call, answered of an HTTP request."""

    address: tuple[str, int]
    headers: Mapping[str, str]
    end: float | None

    def peer(self) -> str:
        host, port = self.address
        return f"ipv6:%5B{host}%5D:{port}" if ":" in host else f"ipv4:{host}:{port}"

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return tuple(self.headers.items())

    def time_remaining(self) -> float | None:
        return None if self.end is None else max(0.0, self.end - time.monotonic())

    async def abort_with_status(self, status: grpc.Status) -> NoReturn:
        details = dict(status.trailing_metadata or ())
        raise _Refused(Status.FromString(bytes(details["grpc-status-details-bin"])))  # type: ignore[arg-type]


@dataclass
class HttpServer:
    """Serves ``methods`` by their paths, and GET /healthz.

    Args:
        most: connections at once; one host has half of them.
    """

    admission: Admission
    methods: Mapping[str, Method]
    healthy: Callable[[], bool]
    most: int
    _hosts: Counter[str] = field(default_factory=Counter[str])
    _tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    _accepting: asyncio.Task[None] | None = None

    def start(self, listener: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Accept connections of a socket that listens."""
        listener.setblocking(False)
        self._accepting = asyncio.create_task(self._accept(listener, tls))

    async def stop(self, seconds: float) -> None:
        """Accept no more; answers that are under way have so long."""
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.wait({self._accepting, *self._tasks}, timeout=seconds)
            for task in self._tasks:
                task.cancel()

    async def _accept(self, listener: socket.socket, tls: ssl.SSLContext | None) -> None:
        with listener:
            while True:
                try:
                    accepted, address = await asyncio.get_running_loop().sock_accept(listener)
                except OSError as error:  # no more files may be opened, or the client has gone again
                    log("not accepted", logging.WARNING, message=str(error))
                    await asyncio.sleep(0.1)
                    continue
                host = address[0]
                # Counted from the first packet on: a connection that never ends its handshake takes a place too.
                if self._hosts.total() >= self.most or self._hosts[host] >= max(1, self.most // 2):
                    accepted.close()
                    continue
                self._hosts[host] += 1
                task = asyncio.create_task(self._connection(accepted, (host, address[1]), tls))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _connection(self, accepted: socket.socket, address: tuple[str, int], tls: ssl.SSLContext | None) -> None:
        writer: asyncio.StreamWriter | None = None
        try:
            reader = asyncio.StreamReader(limit=_CHUNK)
            loop, protocol = asyncio.get_running_loop(), asyncio.StreamReaderProtocol(reader)
            handshake = _HEAD_SECONDS if tls else None
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol, accepted, ssl=tls, ssl_handshake_timeout=handshake
            )
            writer = asyncio.StreamWriter(transport, protocol, reader, loop)
            await _Connection(self, address, reader, writer).serve()
        except (OSError, h11.ProtocolError, asyncio.TimeoutError, TimeoutError):
            pass  # gone, late, or no HTTP: there is nobody to tell
        finally:
            self._hosts[address[0]] -= 1
            if not self._hosts[address[0]]:
                del self._hosts[address[0]]
            accepted.close() if writer is None else writer.transport.abort()


@dataclass
class _Connection:
    """One request after the other."""

    server: HttpServer
    address: tuple[str, int]
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    http: h11.Connection = field(
        default_factory=lambda: h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_BYTES)
    )

    async def serve(self) -> None:
        patience = _HEAD_SECONDS
        while True:
            try:
                async with timeout(patience):
                    event = await self._event()
                if not isinstance(event, h11.Request):
                    return
                answer = await self._answer(event)
            except h11.RemoteProtocolError as error:
                message = f"this is no HTTP/1.1 request: {error}"
                answer = _error(_Refused(Status(code=3, message=message), error.error_status_hint))
            if answer is None or not await self._send(*answer):
                return
            patience = _IDLE_SECONDS
            self.http.start_next_cycle()

    async def _event(self) -> Any:
        while (event := self.http.next_event()) is h11.NEED_DATA:
            self.http.receive_data(await self.reader.read(_CHUNK))
        return event

    async def _answer(self, request: h11.Request) -> tuple[int, dict[str, str], bytes] | None:
        """Status, headers and body; None where the client has gone."""
        try:
            return await self._called(request)
        except _Refused as refused:
            return _error(refused)

    async def _called(self, request: h11.Request) -> tuple[int, dict[str, str], bytes] | None:
        start = time.monotonic()
        headers = {name.decode(): value.decode("latin-1") for name, value in request.headers}
        path = request.target.decode("latin-1")
        if path == "/healthz" and request.method == b"GET":
            await self._body(0)
            healthy = self.server.healthy()
            return (200 if healthy else 503), {"content-type": "text/plain"}, b"SERVING" if healthy else b"NOT_SERVING"
        method = self.server.methods.get(path)
        if method is None:
            _refuse(404, StatusCode.UNIMPLEMENTED, f"there is no method {path[:100]!r}")
        if request.method != b"POST":
            _refuse(405, StatusCode.UNIMPLEMENTED, "methods are called with POST")
        if "origin" in headers:
            _refuse(403, StatusCode.PERMISSION_DENIED, "pages in a browser may not call this service")
        media = headers.get("content-type", "").partition(";")[0].strip().lower()
        if media not in _MEDIA:
            _refuse(415, StatusCode.UNIMPLEMENTED, f"the content type is one of {', '.join(_MEDIA)}")
        if headers.get("content-encoding", "identity") != "identity":
            _refuse(415, StatusCode.UNIMPLEMENTED, "the body is not to be compressed")
        milliseconds = headers.get("connect-timeout-ms", "")
        if milliseconds and not (milliseconds.isascii() and milliseconds.isdecimal() and len(milliseconds) <= 10):
            _refuse(400, StatusCode.INVALID_ARGUMENT, "connect-timeout-ms is a number of milliseconds")
        end = start + int(milliseconds) / 1000 if milliseconds else None
        return await self._admitted(path, method, HttpContext(self.address, headers, end), media, start)

    async def _admitted(
        self, path: str, method: Method, context: HttpContext, media: str, start: float
    ) -> tuple[int, dict[str, str], bytes] | None:
        gate = self.server.admission.gate
        try:
            with self.server.admission.admitted(context, is_open=False):
                body = await within(lambda: self._body(method.max_bytes), gate.seconds(context))
                data = await self._while_there(method.serve(body, context, _MEDIA[media]))
                if data is None:
                    return None
                if media == "application/json":
                    data = await asyncio.to_thread(_as_json, method.answer, data)
                return 200, {"content-type": media}, data
        except ServiceError as error:
            await gate.abort(path.rpartition("/")[2], error, context, start)
            raise AssertionError from None

    async def _body(self, most: int) -> bytes:
        if self.http.they_are_waiting_for_100_continue:
            self.writer.write(self.http.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
        body = bytearray()
        while isinstance(event := await self._event(), h11.Data):
            body += event.data
            if len(body) > most:
                _refuse(413, StatusCode.RESOURCE_EXHAUSTED, f"a request of this method has {most} bytes at most")
        if not isinstance(event, h11.EndOfMessage):
            raise ConnectionError
        return bytes(body)

    async def _while_there(self, work: Awaitable[bytes]) -> bytes | None:
        """What the work gives; it is cancelled, and there is nothing, where the client goes away."""
        working = asyncio.ensure_future(work)
        reading = asyncio.ensure_future(self.reader.read(_CHUNK))
        try:
            await asyncio.wait({working, reading}, return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                more = reading.result()
                if not more and not working.done():
                    return None
                self.http.receive_data(more)
            return await working
        finally:
            for task in (working, reading):
                task.cancel()
            await asyncio.wait({working, reading})

    async def _send(self, status: int, headers: dict[str, str], body: bytes) -> bool:
        """Whether a further request may follow."""
        given = [*headers.items(), ("content-length", str(len(body))), ("x-content-type-options", "nosniff")]
        if unread := self.http.their_state is not h11.DONE:
            given.append(("connection", "close"))
        for event in (
            h11.Response(status_code=status, headers=given), h11.Data(data=body), h11.EndOfMessage(),
        ):  # fmt: skip
            self.writer.write(self.http.send(event) or b"")
        async with timeout(_WRITE_SECONDS):
            await self.writer.drain()
        if self.http.our_state is h11.DONE and not unread:
            return True
        # A socket that is closed with unread bytes in it takes the answer back.
        with contextlib.suppress(NotImplementedError, OSError):
            self.writer.write_eof()
        with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
            async with timeout(_LINGER_SECONDS):
                while await self.reader.read(_CHUNK):
                    pass
        return False


def _as_json(kind: type[Message], data: bytes) -> bytes:
    return json_format.MessageToJson(kind.FromString(data), indent=None, ensure_ascii=False).encode()


def _error(refused: _Refused) -> tuple[int, dict[str, str], bytes]:
    """Connect's form of an error; ``debug`` is for those who read no protobuf."""
    details: list[dict[str, object]] = []
    headers = {"content-type": "application/json"}
    for packed in refused.status.details:
        for detail in (ErrorInfo(), RetryInfo()):
            if packed.Unpack(detail):
                value = base64.b64encode(packed.value).decode().rstrip("=")
                shown = json_format.MessageToDict(detail)
                details.append({"type": detail.DESCRIPTOR.full_name, "value": value, "debug": shown})
                if isinstance(detail, RetryInfo):
                    headers["retry-after"] = str(math.ceil(detail.retry_delay.ToTimedelta().total_seconds()))
    if refused.http == 401:
        headers["www-authenticate"] = "Bearer"
    code = code_of(refused.status.code).name.lower().replace("cancelled", "canceled")
    body = {"code": code, "message": refused.status.message, **({"details": details} if details else {})}
    return refused.http, headers, json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
