"""The front of the service: grpc.aio before an executor. Requests pass through as bytes; workers parse them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, text_format
from google.protobuf.message import Message
from google.rpc.status_pb2 import Status
from grpc import StatusCode
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2
from grpc_status import rpc_status
from opentelemetry import trace

from verilocc.v1 import allocation_service_pb2 as allocation
from verilocc.v1 import audit_service_pb2 as auditing
from verilocc.v1 import plan_service_pb2 as planning
from verilocc.v1 import problem_pb2, verdict_pb2
from verilocc_mlir.allocators.protocol import Allocator, Modelled, model_behind
from verilocc_mlir.service.admission import OPEN_MESSAGE_BYTES, Admission
from verilocc_mlir.service.batches import BATCH, METHODS, Batches, Book
from verilocc_mlir.service.http_json import HttpServer, Method
from verilocc_mlir.service.jobs import MAX_ATTEMPTS, Terms, solver_version
from verilocc_mlir.service.limits import ServerLimits
from verilocc_mlir.service.logs import log
from verilocc_mlir.service.observed import Metrics, refused, request_span
from verilocc_mlir.service.plans import MOST_BYTES, PLANS, Plans
from verilocc_mlir.service.pool import Done, Executor, within
from verilocc_mlir.service.security import TokenBook
from verilocc_mlir.service.status import (
    Envelope,
    ServiceError,
    defect,
    draining,
    duration,
    opened,
    read_json,
    read_message,
)
from verilocc_mlir.target.targets import TARGETS
from verilocc_mlir.version import __version__

ALLOCATION = "verilocc.v1.AllocationService"
AUDIT = "verilocc.v1.AuditService"
_Context = grpc.aio.ServicerContext[bytes, bytes]
_Methods = Mapping[str, "grpc.RpcMethodHandler[bytes, bytes]"]
_QUOTING = (StatusCode.INVALID_ARGUMENT, StatusCode.FAILED_PRECONDITION, StatusCode.NOT_FOUND)
"""Errors whose message may have part of the request in it, which the log never has."""
_CONNECTION_AGE_MS = 3_600_000
_CONNECTION_IDLE_MS = 600_000
_FLUSH_SECONDS = 1.0
"""For answers on their way out when the server ends, and for the health service's watchers, who are cut off then."""
_HEALTH: Any = health
_HEALTH_GRPC: Any = health_pb2_grpc
"""The aio half of the health package has no types."""


@dataclass
class Front:
    """The servicers of all services but that of batches.

    Attributes:
        accepted: calls that are not answered yet.
    """

    executor: Executor
    limits: ServerLimits
    terms: Terms = field(default_factory=Terms)
    tokens: TokenBook | None = None
    metrics: Metrics = field(default_factory=Metrics)
    plans: Plans = field(default_factory=Plans)
    accepted: int = 0
    _draining: asyncio.Event = field(default_factory=asyncio.Event)
    _quiet: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def healthy(self) -> bool:
        """Whether calls are accepted."""
        return not self._draining.is_set()

    async def drain(self) -> None:
        """Accept no more; return when all that was accepted is done."""
        self._draining.set()
        if self.accepted:
            await self._quiet.wait()

    # -- methods -----------------------------------------------------------------------------------

    async def allocate(self, request: bytes, context: _Context, form: str = "") -> bytes:
        """AllocationService.Allocate. ``form``: of the request, ``""`` or ``status.JSON``; answers are protobuf."""
        return await self._call("Allocate", request, context, form)

    async def audit(self, request: bytes, context: _Context, form: str = "") -> bytes:
        """AuditService.Audit; see ``allocate``."""
        return await self._call("Audit", request, context, form)

    async def get_capabilities(self, request: bytes, context: _Context, form: str = "") -> bytes:
        """AllocationService.GetCapabilities; needs no worker."""

        async def capabilities(_caller: str, data: bytes) -> Message:
            (read_json if form else read_message)(allocation.GetCapabilitiesRequest, data)
            return self.capabilities()

        return await self.answer("GetCapabilities", capabilities, request, context)

    async def rank_plans(self, request: bytes, context: _Context, form: str = "") -> bytes:
        """PlanService.RankPlans; needs no worker."""

        async def ranked(_caller: str, data: bytes) -> Message:
            with self._call_accepted():
                return await within(lambda: self.plans.rank(data, as_json=bool(form)), self.seconds(context))

        return await self.answer("RankPlans", ranked, request, context)

    async def answer(
        self, method: str, answered: Callable[[str, bytes], Awaitable[Message]], request: bytes, context: _Context
    ) -> bytes:
        """A method that needs no worker: ``answered`` takes the caller and the request."""
        start = time.monotonic()
        with request_span(method, _metadata(context)):
            try:
                answer = (await answered(self.caller(context), request)).SerializeToString()
            except Exception as error:
                await self.abort(method, error, context, start)
                raise
            self._count(method, "OK", "", start)
            return answer

    async def allocate_stream(self, requests: AsyncIterator[bytes], context: _Context) -> AsyncIterator[bytes]:
        """AllocationService.AllocateStream: answers as they are ready, a few requests ahead at most."""
        start = time.monotonic()
        try:
            caller = self.caller(context)
            with self._call_accepted():
                # An answer that the client does not take keeps its place: no more is read meanwhile.
                room = asyncio.Semaphore(self.limits.streams)
                ready: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
                reading = asyncio.create_task(self._read_stream(requests, context, caller, room, ready))
                try:
                    while (item := await ready.get()) is not None:
                        if isinstance(item, Exception):
                            raise item
                        yield item
                        room.release()
                finally:
                    # The client is gone, or all is answered: nothing goes on behind its back.
                    reading.cancel()
                    await asyncio.wait({reading})
        except Exception as error:
            await self.abort("AllocateStream", error, context, start)

    async def work_alone(self, payload: bytes, seconds: float, caller: str) -> bytes:
        """Do an Allocate request of a batch.

        Raises:
            ServiceError: what its result is instead.
        """
        start = time.monotonic()
        with request_span("Batch", {}) as span:
            try:
                return await self._work("Batch", "Allocate", payload, seconds, caller, span)
            except Exception as failure:
                error = self._refused("Batch", failure, start)
                raise error from failure

    def capabilities(self) -> allocation.GetCapabilitiesResponse:
        limits = self.limits
        offered = [(name, self.terms.factory(name)) for name in self.terms.allocators]
        plan_model = self.plans.model
        return allocation.GetCapabilitiesResponse(
            targets=list(TARGETS),
            phases=[problem_pb2.PHASE_SGPR, problem_pb2.PHASE_VGPR],
            allocators=[
                allocation.AllocatorInfo(
                    name=name, version=found.version, model=model_behind(found), adapters=_adapters(found)
                )
                for name, found in offered
            ],
            limits=allocation.Limits(
                max_request_bytes=limits.max_request_bytes,
                max_time=duration(limits.max_seconds),
                default_time=duration(limits.default_seconds),
                max_memory_bytes=limits.memory_mib << 20,
                workers=limits.workers,
                max_waiting=limits.max_waiting,
                max_attempts=MAX_ATTEMPTS,
                caller_workers=limits.caller.workers,
                caller_waiting=limits.caller.waiting,
                caller_cpu_share=limits.caller.cpu,
            ),
            versions=allocation.Versions(
                verilocc=__version__,
                allocator=f"{offered[0][0]} {offered[0][1].version}",
                model=model_behind(offered[0][1]),
                solver=solver_version(),
            ),
            plan_model=plan_model.version if plan_model is not None else "",
        )

    # -- one request ---------------------------------------------------------------------------------

    async def _call(self, method: str, request: bytes, context: _Context, form: str) -> bytes:
        start = time.monotonic()
        with request_span(method, _metadata(context)) as span:
            try:
                caller = self.caller(context)
                with self._call_accepted():
                    return await self._work(method, method + form, request, self.seconds(context), caller, span)
            except Exception as error:
                await self.abort(method, error, context, start)
            except asyncio.CancelledError:
                self._count(method, "CANCELLED", "", start)
                log("cancelled", method=method, seconds=round(time.monotonic() - start, 4))
                raise
        raise AssertionError

    @contextlib.contextmanager
    def _call_accepted(self) -> Generator[None, None, None]:
        if self._draining.is_set():
            raise draining()
        self.accepted += 1
        self._quiet.clear()
        try:
            yield
        finally:
            self.accepted -= 1
            if not self.accepted:
                self._quiet.set()

    async def _work(
        self, method: str, kind: str, request: bytes, seconds: float, caller: str, span: trace.Span
    ) -> bytes:
        start = time.monotonic()
        finished = await self.executor.run(kind, request, seconds, caller)
        data = self._finished(method, finished, span)
        self._count(method, "OK", "", start)
        log(
            "answered", method=method, caller=caller, request_bytes=len(request), answer_bytes=len(data),
            waited=round(finished.waited, 4), worked=round(finished.worked, 4), cpu=round(finished.cpu, 4),
        )  # fmt: skip
        return data

    def _finished(self, method: str, done: Done, span: trace.Span) -> bytes:
        """The answer with the time it waited, and what it says counted."""
        self.metrics.cpu_seconds.labels(method).inc(done.cpu)
        span.set_attributes({"verilocc.waited_s": done.waited, "verilocc.worked_s": done.worked})
        if method == "Audit":
            audited = auditing.AuditResponse.FromString(done.data)
            audited.queue_time.CopyFrom(duration(done.waited))
            for function in audited.functions:
                self.metrics.functions.labels(method, _outcome(function.verdict.outcome), "").inc()
            return audited.SerializeToString()
        answer = allocation.AllocateResponse.FromString(done.data)
        answer.queue_time.CopyFrom(duration(done.waited))
        for step in answer.steps:
            span.set_attribute(f"verilocc.{step.name}_cpu_s", step.cpu_time.ToTimedelta().total_seconds())
        for function in answer.functions:
            self.metrics.functions.labels(method, _outcome(function.outcome), function.allocator).inc()
            for attempt in function.attempts:
                self.metrics.attempts.labels(attempt.allocator, attempt.ended).inc()
        return answer.SerializeToString()

    def seconds(self, context: _Context) -> float:
        """What the call may take."""
        # Typed as a float; without a deadline it is None.
        remaining: Any = context.time_remaining()
        return min(self.limits.default_seconds if remaining is None else float(remaining), self.limits.max_seconds)

    def caller(self, context: _Context) -> str:
        """Who calls: the name of the token, or where no tokens are asked for, the host.

        Raises:
            ServiceError: UNAUTHENTICATED.
        """
        if self.tokens is None:
            return _host(str(context.peer()))
        return self.tokens.check(_metadata(context).get("authorization"))

    # -- streams ---------------------------------------------------------------------------------------

    async def _read_stream(
        self,
        requests: AsyncIterator[bytes],
        context: _Context,
        caller: str,
        room: asyncio.Semaphore,
        ready: asyncio.Queue[bytes | Exception | None],
    ) -> None:
        """Read requests and have them worked on; the last thing put into ``ready`` is what the stream ends with."""
        working: set[asyncio.Task[None]] = set()
        end: Exception | None = None
        try:
            try:
                async with contextlib.aclosing(self._until_draining(requests)) as accepted:
                    async for data in accepted:
                        request = opened(data)
                        await room.acquire()
                        task = asyncio.create_task(self._one_of_stream(request, context, caller, ready))
                        working.add(task)
                        task.add_done_callback(working.discard)
            except ServiceError as error:
                end = error
            await asyncio.gather(*working)
            if end is None and self._draining.is_set():
                end = draining()
        except Exception as error:
            end = error
        finally:
            for task in working:
                task.cancel()
            ready.put_nowait(end)

    async def _until_draining(self, requests: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """Requests until there are no more, or until no more are accepted."""
        drain_signal = asyncio.ensure_future(self._draining.wait())
        following = aiter(requests)
        try:
            while True:
                coming = asyncio.ensure_future(anext(following))
                try:
                    await asyncio.wait({coming, drain_signal}, return_when=asyncio.FIRST_COMPLETED)
                    if not coming.done():
                        return
                    try:
                        yield coming.result()
                    except StopAsyncIteration:
                        return
                finally:
                    coming.cancel()
        finally:
            drain_signal.cancel()

    async def _one_of_stream(
        self,
        request: Envelope,
        context: _Context,
        caller: str,
        ready: asyncio.Queue[bytes | Exception | None],
    ) -> None:
        start = time.monotonic()
        answer = allocation.AllocateStreamResponse(id=request.id)
        try:
            with request_span("AllocateStream", _metadata(context)) as span:
                try:
                    data = await self._work(
                        "AllocateStream", "Allocate", request.request, self.seconds(context), caller, span
                    )
                except ServiceError as error:
                    refused(error)
                    raise
            answer.response.ParseFromString(data)
        except Exception as failure:
            error = self._refused("AllocateStream", failure, start)
            answer.error.CopyFrom(error.to_request_error())
        ready.put_nowait(answer.SerializeToString())

    # -- what is said of requests ------------------------------------------------------------------------

    async def abort(self, method: str, error: Exception, context: _Context, start: float) -> None:
        """End the call, and say so in log and metrics."""
        await context.abort_with_status(_trailing(self._refused(method, error, start).to_status()))

    def _refused(self, method: str, failure: Exception, start: float) -> ServiceError:
        """What the client is told, counted and logged."""
        error = failure if isinstance(failure, ServiceError) else defect(failure)
        extra: dict[str, str] = {} if error.code in _QUOTING else {"message": error.message}
        if error is not failure:
            extra["traceback"] = "".join(traceback.format_tb(failure.__traceback__))
        self._count(method, error.code.name, error.reason, start)
        level = logging.ERROR if error.code is StatusCode.INTERNAL else logging.INFO
        refused(error)
        log("refused", level, method=method, code=error.code.name, reason=error.reason, **extra)
        return error

    def _count(self, method: str, code: str, reason: str, start: float) -> None:
        self.metrics.requests.labels(method, code, reason).inc()
        self.metrics.seconds.labels(method).observe(time.monotonic() - start)


class Server:
    """A grpc.aio server around a front: its services, health and reflection; batches where there is a book of them."""

    def __init__(self, front: Front, book: Book | None = None) -> None:
        self.front = front
        self.batches = Batches(front, book) if book is not None else None
        self._services = (ALLOCATION, AUDIT, PLANS, *((BATCH,) if book is not None else ()))
        self.health = _HEALTH.aio.HealthServicer()
        admission = Admission(front, frozenset((ALLOCATION, AUDIT, BATCH, PLANS)))
        self.http = HttpServer(admission, _methods_of_http(front), lambda: front.healthy, front.limits.connections // 2)
        self._server = grpc.aio.server(
            interceptors=[admission],
            options=_options(front.limits),
        )
        self._server.add_generic_rpc_handlers((_handlers(front, self.batches),))
        _HEALTH_GRPC.add_HealthServicer_to_server(self.health, self._server)
        _reflect(self._server, (*self._services, health.SERVICE_NAME))

    def listen(self, address: str, credentials: grpc.ServerCredentials | None = None) -> int:
        """Bind ``host:port`` or ``unix:PATH``; returns the port (0 for a socket).

        Raises:
            RuntimeError: it cannot be bound.
        """
        if credentials is not None:
            return self._server.add_secure_port(address, credentials)
        return self._server.add_insecure_port(address)

    async def start(self) -> None:
        await self._server.start()
        if self.batches is not None:
            await self.batches.start()
        await self._healthy(serving=True)

    async def stop(self, grace_seconds: float, at_once: asyncio.Event | None = None) -> bool:
        """Refuse new calls, finish those that were accepted within ``grace_seconds`` or until ``at_once``, then end.

        Returns:
            Whether all accepted calls were finished.
        """
        await self._healthy(serving=False)
        drained = asyncio.ensure_future(self.front.drain())
        if self.batches is not None:
            await self.batches.stop()
        ends = {drained} if at_once is None else {drained, asyncio.ensure_future(at_once.wait())}
        await asyncio.wait(ends, timeout=grace_seconds, return_when=asyncio.FIRST_COMPLETED)
        finished = not self.front.accepted
        for waiting in ends:
            waiting.cancel()
        # What is not done by now is told that its worker is gone.
        await self.front.executor.close()
        await self.http.stop(_FLUSH_SECONDS)
        await self._server.stop(_FLUSH_SECONDS)
        return finished

    async def _healthy(self, *, serving: bool) -> None:
        status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in ("", *self._services):
            await self.health.set(name, status)


def _options(limits: ServerLimits) -> list[tuple[str, int]]:
    grace_ms = int(1000 * limits.max_seconds)
    return [
        ("grpc.max_receive_message_length", limits.max_request_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.so_reuseport", 0),
        ("grpc.max_allowed_incoming_connections", limits.connections),
        ("grpc.max_concurrent_streams", limits.connection_streams),
        # A connection that is old is told to end; its calls have as long as any call may take.
        ("grpc.max_connection_age_ms", _CONNECTION_AGE_MS),
        ("grpc.max_connection_age_grace_ms", grace_ms),
        ("grpc.max_connection_idle_ms", _CONNECTION_IDLE_MS),
        # A client that went away without a word is noticed.
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ]


def _handlers(front: Front, batches: Batches | None) -> grpc.GenericRpcHandler:
    """Handlers that take and give bytes: what is wrong with a message, the service says itself."""
    methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        f"/{ALLOCATION}/Allocate": grpc.unary_unary_rpc_method_handler(front.allocate),
        f"/{ALLOCATION}/AllocateStream": grpc.stream_stream_rpc_method_handler(front.allocate_stream),
        f"/{ALLOCATION}/GetCapabilities": grpc.unary_unary_rpc_method_handler(front.get_capabilities),
        f"/{AUDIT}/Audit": grpc.unary_unary_rpc_method_handler(front.audit),
        f"/{PLANS}/RankPlans": grpc.unary_unary_rpc_method_handler(front.rank_plans),
    }
    answers = batches.methods() if batches is not None else dict.fromkeys(METHODS, _no_batches)
    for name, answered in answers.items():
        methods[f"/{BATCH}/{name}"] = grpc.unary_unary_rpc_method_handler(partial(front.answer, name, answered))
    return _ByPath(methods)


async def _no_batches(_caller: str, _data: bytes) -> Message:
    raise ServiceError(
        StatusCode.UNIMPLEMENTED, "NO_BATCHES", "this server keeps no batches: it was started without --batches=DIR"
    )


def _methods_of_http(front: Front) -> dict[str, Method]:
    """The unary ones. Of their requests the front reads those for capabilities and plans alone, which are small."""
    most = front.limits.max_request_bytes
    return {
        f"/{ALLOCATION}/Allocate": Method(front.allocate, allocation.AllocateResponse, most),
        f"/{ALLOCATION}/GetCapabilities": Method(
            front.get_capabilities, allocation.GetCapabilitiesResponse, OPEN_MESSAGE_BYTES
        ),
        f"/{AUDIT}/Audit": Method(front.audit, auditing.AuditResponse, most),
        f"/{PLANS}/RankPlans": Method(front.rank_plans, planning.RankPlansResponse, MOST_BYTES),
    }


class _ByPath(grpc.GenericRpcHandler):
    def __init__(self, methods: _Methods) -> None:
        self._methods = methods

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        return self._methods.get(handler_call_details.method)


def _adapters(found: Allocator) -> list[allocation.Adapter]:
    adapters = found.adapters if isinstance(found, Modelled) else ()
    return [allocation.Adapter(name=a.name, targets=a.targets, trained_on=a.trained_on) for a in adapters]


def _metadata(context: _Context) -> dict[str, str]:
    return {str(k): v for k, v in context.invocation_metadata() or () if isinstance(v, str)}


def _host(peer: str) -> str:
    """Of gRPC's "ipv4:127.0.0.1:4711"; "unix" for a socket of this machine."""
    kind, _, rest = peer.partition(":")
    return rest.rpartition(":")[0] if kind in ("ipv4", "ipv6") else kind


def _trailing(status: Status) -> grpc.Status:
    module: Any = rpc_status
    return module.to_status(status)


def _outcome(value: int) -> str:
    return verdict_pb2.Outcome.Name(verdict_pb2.Outcome.ValueType(value)).removeprefix("OUTCOME_").lower()


# Server reflection, v1 and v1alpha. The two have the same messages under other names; grpcio has v1alpha alone.


_V1 = "grpc.reflection.v1.ServerReflection"
_ALPHA: Any = reflection
_MESSAGES: Any = reflection_pb2
"""Have no types."""


def _reflect(server: grpc.aio.Server, services: Sequence[str]) -> None:
    """Offer reflection of ``services``, and of itself."""
    _describe_v1()
    names = (*services, _V1, _ALPHA.SERVICE_NAME)
    _ALPHA.enable_server_reflection(names, server)
    method: Any = grpc.stream_stream_rpc_method_handler(
        _ALPHA.aio.ReflectionServicer(names).ServerReflectionInfo,
        _MESSAGES.ServerReflectionRequest.FromString,
        _MESSAGES.ServerReflectionResponse.SerializeToString,
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_V1, {"ServerReflectionInfo": method}),))


def _describe_v1() -> None:
    """Have the descriptors of v1 where those of v1alpha are."""
    file = descriptor_pb2.FileDescriptorProto()
    _MESSAGES.DESCRIPTOR.CopyToProto(file)
    text = re.sub(r"(grpc[._]reflection[./])v1alpha", r"\1v1", text_format.MessageToString(file))
    named = text_format.Parse(text, descriptor_pb2.FileDescriptorProto())
    descriptor_pool.Default().AddSerializedFile(named.SerializeToString())
