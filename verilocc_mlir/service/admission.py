"""Who may have a call open: decided when a call begins, before anything of its request is read.

gRPC's own limit counts all calls of a server together, so that one connection could keep everybody out, health checks
included. Here calls of both services are counted by caller. Health and reflection, which need no token, are counted by
connection, and their number has no part in the others'.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Protocol

import grpc
from google.protobuf.message import DecodeError
from grpc import StatusCode

from verilocc_mlir.service.limits import OPEN_CALLS, ServerLimits
from verilocc_mlir.service.observed import Metrics
from verilocc_mlir.service.pool import within
from verilocc_mlir.service.status import ServiceError, malformed

OPEN_MESSAGE_BYTES = 4096
"""For a request of health or reflection."""
_RETRY_SECONDS = 1.0


class Gate(Protocol):
    """What is asked of the front."""

    @property
    def limits(self) -> ServerLimits: ...
    @property
    def metrics(self) -> Metrics: ...
    def caller(self, context: Any) -> str:
        """Who calls.

        Raises:
            ServiceError: nobody who may.
        """
        ...

    def seconds(self, context: Any) -> float:
        """What the call may take."""
        ...

    async def abort(self, method: str, error: Exception, context: Any, start: float) -> None:
        """End the call, and say so in log and metrics."""
        ...


@dataclass
class Admission(grpc.aio.ServerInterceptor):
    """Wraps every method: counts its call while it is open, and hands on what it reads.

    Attributes:
        needs_token: full names of the services that are counted by caller.
    """

    gate: Gate
    needs_token: frozenset[str]
    _calls: Counter[str] = field(default_factory=Counter[str])
    _open_calls: Counter[str] = field(default_factory=Counter[str])

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        _, service, method = str(handler_call_details.method).split("/")
        # gRPC calls the handler of a unary request when the message is there, and that of a stream at once.
        call = _Call(self, handler, method, is_open=service not in self.needs_token)
        method_handler: Any = (
            grpc.stream_stream_rpc_method_handler
            if handler.response_streaming
            else grpc.stream_unary_rpc_method_handler
        )
        return method_handler(call.serve, None, handler.response_serializer)

    @contextlib.contextmanager
    def admitted(self, context: Any, *, is_open: bool) -> Generator[None, None, None]:
        """Count a call while it is open.

        Raises:
            ServiceError: it may not be.
        """
        limits = self.gate.limits
        who = str(context.peer()) if is_open else self.gate.caller(context)
        calls, most = (self._open_calls, OPEN_CALLS) if is_open else (self._calls, limits.caller_calls)
        if calls[who] >= most:
            where = "connection has for health and reflection" if is_open else "caller has"
            raise _too_many(f"{most} calls are open, the most that a {where}")
        if not is_open and calls.total() >= limits.max_calls:
            raise _too_many(f"{limits.max_calls} calls are open, the most that this server has")
        calls[who] += 1
        self.gate.metrics.open_calls.inc()
        try:
            yield
        finally:
            self.gate.metrics.open_calls.dec()
            calls[who] -= 1
            if not calls[who]:
                del calls[who]


@dataclass(frozen=True)
class _Call:
    """One call of a method."""

    admission: Admission
    handler: Any
    method: str
    is_open: bool

    async def serve(self, requests: AsyncIterable[bytes], context: Any) -> Any:
        """As the method's own handler does; a stream of requests whatever the method has."""
        try:
            return await self._served(requests, context)
        except grpc.aio.AbortError as error:
            # gRPC keeps it with the call, in a cycle of references: without this the request stays until the collector
            # comes, which counts objects and not their bytes.
            error.__context__ = error.__cause__ = None
            raise error.with_traceback(None) from None

    async def _served(self, requests: AsyncIterable[bytes], context: Any) -> Any:
        start = time.monotonic()
        try:
            with self.admission.admitted(context, is_open=self.is_open):
                given: Any = self._messages(requests)
                if not self.handler.request_streaming:
                    given = await self._first(given, context)
                return await self._answered(given, context)
        except ServiceError as error:
            await self.admission.gate.abort(self.method, error, context, start)

    async def _answered(self, given: Any, context: Any) -> Any:
        handler = self.handler
        if not handler.response_streaming:
            return await (handler.stream_unary or handler.unary_unary)(given, context)
        answers: Any = (handler.stream_stream or handler.unary_stream)(given, context)
        if not hasattr(answers, "__aiter__"):
            return await answers
        async with contextlib.aclosing(answers):
            async for answer in answers:
                await context.write(answer)

    async def _first(self, messages: AsyncGenerator[Any, None], context: Any) -> Any:
        """The one message of a unary request, when it is there."""
        try:
            return await within(lambda: anext(messages), self.admission.gate.seconds(context))
        except StopAsyncIteration:
            raise malformed("the call has no request", request=True) from None
        finally:
            await messages.aclose()

    async def _messages(self, requests: AsyncIterable[bytes]) -> AsyncGenerator[Any, None]:
        parse = self.handler.request_deserializer
        # gRPC's iterator keeps the last message until it is closed.
        received: Any = aiter(requests)
        async with contextlib.aclosing(received):
            async for data in received:
                if self.is_open and len(data) > OPEN_MESSAGE_BYTES:
                    message = f"a request of this service has {OPEN_MESSAGE_BYTES} bytes at most"
                    raise ServiceError(StatusCode.RESOURCE_EXHAUSTED, "TOO_LARGE", message)
                try:
                    yield data if parse is None else parse(data)
                except DecodeError as error:
                    raise malformed("the request is not a message of this contract", request=True) from error


def _too_many(message: str) -> ServiceError:
    return ServiceError(StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_CALLS", message, _RETRY_SECONDS)
