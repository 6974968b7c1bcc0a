"""A client of the services: one channel, a deadline for each call, and tries again where that is safe.

What comes back is not trusted: the messages are read and bounded here, and judged by whoever uses them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import grpc
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from grpc import StatusCode
from grpc_status import rpc_status
from msgspec import Struct

from verilocc.v1 import allocation_service_pb2 as allocation
from verilocc.v1 import audit_service_pb2 as auditing
from verilocc.v1 import plan_service_pb2 as planning
from verilocc_mlir.errors import ExitCode, VeriloccError
from verilocc_mlir.remote.access import DEFAULT_ACCESS, ServerAccess, way_to
from verilocc_mlir.remote.wire import DOMAIN, code_of, printable, seconds_of

_ALLOCATION = "/verilocc.v1.AllocationService"
_AUDIT = "/verilocc.v1.AuditService"
_PLANS = "/verilocc.v1.PlanService"
_MAX_ANSWER_BYTES = 256 << 20
_BAD_INPUT = (
    StatusCode.INVALID_ARGUMENT,
    StatusCode.NOT_FOUND,
    StatusCode.FAILED_PRECONDITION,
    StatusCode.UNAUTHENTICATED,
    StatusCode.PERMISSION_DENIED,
)
"""What the same request meets again, however often."""

_CROWDED = "Concurrent RPC limit exceeded!"
"""grpcio's own words for more calls at once than a server of it takes; a message that is too large has the same code,
and neither has details."""
_Answer = TypeVar("_Answer")
_STATUS: Any = rpc_status
"""Has no types."""


class RemoteError(VeriloccError):
    """A call that got no answer that can be used.

    Attributes:
        code: name of the status code: ``UNAVAILABLE``.
        reason: ``ErrorInfo.reason`` of the server's, or ``""``.
        message: what it said, one line.
        retry_seconds: after which time the server would be asked again; None where it did not say.
    """

    def __init__(
        self, address: str, code: StatusCode, reason: str, message: str, retry_seconds: float | None = None
    ) -> None:
        self.code: str = code.name
        self.reason = reason
        self.message = message
        self.retry_seconds = retry_seconds
        self.exit_code = ExitCode.BAD_INPUT if code in _BAD_INPUT else ExitCode.UNKNOWN
        self.status = code
        status_text = f"{code.name}, {reason}" if reason else code.name
        super().__init__(f"{status_text}: {message}" if message else status_text, where=address)


class RetryPolicy(Struct, frozen=True):
    """When a call is made again: backoff from ``first_seconds``, doubled up to ``most_seconds``, with jitter.

    ``tries`` bounds the calls to a server that is not there, or that has too many calls to say anything; one that says
    when to come back is asked as long as the call's time allows. gRPC says CANCELLED of a call that reaches a server
    while that closes: nobody has seen it.
    """

    tries: int = 4
    first_seconds: float = 0.1
    most_seconds: float = 5.0

    def wait(self, tried: int, server_seconds: float | None) -> float:
        """Seconds to wait after ``tried`` calls; no less than the server said."""
        backoff = min(self.first_seconds * 2 ** (tried - 1), self.most_seconds) * random.uniform(0.5, 1.0)
        return backoff if server_seconds is None else max(backoff, server_seconds * random.uniform(1.0, 1.1))

    def again(self, error: RemoteError, tried: int, left: float) -> float | None:
        """Seconds to wait before the next call; None where there is none: it is no use, or ``left`` is not enough."""
        server_wait = error.retry_seconds
        overloaded = error.status is StatusCode.RESOURCE_EXHAUSTED and server_wait is not None
        crowded = error.status is StatusCode.RESOURCE_EXHAUSTED and not error.reason and error.message == _CROWDED
        absent = error.status in (StatusCode.UNAVAILABLE, StatusCode.CANCELLED)
        passes = (crowded or absent) and tried < self.tries
        wait = self.wait(tried, server_wait)
        return wait if (overloaded or passes) and wait < left else None


class Streamed(Struct, frozen=True):
    """The result of one request of a stream: its place among the requests, and the answer or why there is none."""

    number: int
    result: allocation.AllocateResponse | RemoteError


class Client:
    """A channel to one server; threads may share it.

    Args:
        address: ``HOST:PORT`` or ``unix:PATH``.
        access: TLS, token (``access.way_to``), and the time of a call.
        policy: when to try again.
        shown: what people know the server by; ``""`` for its address.

    Raises:
        InputError: it is no address; a file cannot be read; a token would go over the network without TLS.
    """

    def __init__(
        self, address: str, access: ServerAccess = DEFAULT_ACCESS, policy: RetryPolicy = RetryPolicy(), shown: str = ""
    ) -> None:
        self.address = address
        self.shown = shown or address
        self.access = access
        self.policy = policy
        way = way_to(address, access)
        self._metadata = way.metadata
        options: list[tuple[str, Any]] = [
            ("grpc.max_receive_message_length", _MAX_ANSWER_BYTES),
            ("grpc.enable_retries", 0),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 2000),
            # A proxy is no way to this machine, and nobody a token is for.
            ("grpc.enable_http_proxy", 0 if way.local else 1),
        ]
        # Machine IR packs to a tenth. Any server of gRPC unpacks; its limit of a request is that of the unpacked one.
        packing = grpc.Compression.Gzip
        if way.tls:
            credentials = grpc.ssl_channel_credentials(way.ca, way.key, way.certificate)
            self._channel = grpc.secure_channel(address, credentials, options, packing)
        else:
            self._channel = grpc.insecure_channel(address, options, packing)
        self._allocate = self._channel.unary_unary(
            f"{_ALLOCATION}/Allocate",
            allocation.AllocateRequest.SerializeToString,
            allocation.AllocateResponse.FromString,
        )
        self._stream = self._channel.stream_stream(
            f"{_ALLOCATION}/AllocateStream",
            allocation.AllocateStreamRequest.SerializeToString,
            allocation.AllocateStreamResponse.FromString,
        )
        self._capabilities = self._channel.unary_unary(
            f"{_ALLOCATION}/GetCapabilities",
            allocation.GetCapabilitiesRequest.SerializeToString,
            allocation.GetCapabilitiesResponse.FromString,
        )
        self._audit = self._channel.unary_unary(
            f"{_AUDIT}/Audit", auditing.AuditRequest.SerializeToString, auditing.AuditResponse.FromString
        )
        self._plans = self._channel.unary_unary(
            f"{_PLANS}/RankPlans",
            planning.RankPlansRequest.SerializeToString,
            planning.RankPlansResponse.FromString,
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._channel.close()

    def allocate(
        self, request: allocation.AllocateRequest, seconds: float | None = None
    ) -> allocation.AllocateResponse:
        """AllocationService.Allocate within ``seconds`` (None: ``access.seconds``).

        Raises:
            RemoteError: there is no answer.
        """
        return self._call(lambda left: self._allocate(request, timeout=left, metadata=self._metadata), seconds)

    def audit(self, request: auditing.AuditRequest, seconds: float | None = None) -> auditing.AuditResponse:
        """AuditService.Audit; as ``allocate``."""
        return self._call(lambda left: self._audit(request, timeout=left, metadata=self._metadata), seconds)

    def capabilities(self, seconds: float | None = None) -> allocation.GetCapabilitiesResponse:
        """AllocationService.GetCapabilities; as ``allocate``."""
        request = allocation.GetCapabilitiesRequest()
        return self._call(lambda left: self._capabilities(request, timeout=left, metadata=self._metadata), seconds)

    def rank_plans(
        self, request: planning.RankPlansRequest, seconds: float | None = None
    ) -> planning.RankPlansResponse:
        """PlanService.RankPlans; as ``allocate``."""
        return self._call(lambda left: self._plans(request, timeout=left, metadata=self._metadata), seconds)

    def allocate_stream(
        self, requests: Sequence[allocation.AllocateRequest], seconds: float | None = None
    ) -> Iterator[Streamed]:
        """AllocationService.AllocateStream: one result for each request, as it is ready.

        Requests that failed for a reason that passes, or that were under way when the connection broke, are sent again.
        To close the generator ends the call.

        Args:
            seconds: for all of them; None: ``access.seconds`` for each.

        Raises:
            RemoteError: the server answered what nobody asked. (That it is not there is the requests' result.)
        """
        end = time.monotonic() + (self.access.seconds * len(requests) if seconds is None else seconds)
        open_ = dict(enumerate(requests))
        calls = 0
        while open_:
            calls += 1
            failed: dict[int, RemoteError] = {}
            for number, answer in self._one_stream(open_, end - time.monotonic()):
                if isinstance(answer, RemoteError):
                    failed[number] = answer
                else:
                    del open_[number]
                    yield Streamed(number, answer)
            waits: list[float] = []
            for number, error in failed.items():
                wait = self.policy.again(error, calls, end - time.monotonic())
                if wait is None:
                    del open_[number]
                    yield Streamed(number, error)
                else:
                    waits.append(wait)
            if waits:
                time.sleep(max(waits))

    def allocate_all(
        self, requests: Sequence[allocation.AllocateRequest], seconds: float | None = None
    ) -> list[allocation.AllocateResponse | RemoteError]:
        """The results in the order of the requests: of one call for one request, of a stream for several."""
        if len(requests) == 1:
            try:
                return [self.allocate(requests[0], seconds)]
            except RemoteError as error:
                return [error]
        results: dict[int, allocation.AllocateResponse | RemoteError] = {}
        try:
            for one in self.allocate_stream(requests, seconds):
                results[one.number] = one.result
        except RemoteError as error:
            return [results.get(number, error) for number in range(len(requests))]
        return [results[number] for number in range(len(requests))]

    def _one_stream(
        self, requests: dict[int, allocation.AllocateRequest], seconds: float
    ) -> Iterator[tuple[int, allocation.AllocateResponse | RemoteError]]:
        """One call: each request's answer or error, as it comes; last those that its end left without one."""
        waiting = set(requests)
        sent = iter([allocation.AllocateStreamRequest(id=str(n), request=r) for n, r in requests.items()])
        call: Any = self._stream(sent, timeout=max(seconds, 0.0), metadata=self._metadata)
        ended = RemoteError(self.shown, StatusCode.UNKNOWN, "", "it ended the stream without an answer")
        try:
            for answer in call:
                number = int(answer.id) if answer.id.isdecimal() and answer.id.isascii() else -1
                if number not in waiting:
                    raise RemoteError(self.shown, StatusCode.INTERNAL, "", "it answered what was not asked")
                waiting.discard(number)
                if answer.WhichOneof("result") == "response":
                    yield number, answer.response
                else:
                    yield number, self._request_error(answer.error)
        except grpc.RpcError as error:
            ended = self._error(error)
        finally:
            call.cancel()
        yield from ((number, ended) for number in sorted(waiting))

    def _call(self, call: Callable[[float], _Answer], seconds: float | None) -> _Answer:
        end = time.monotonic() + (self.access.seconds if seconds is None else seconds)
        calls = 0
        while True:
            calls += 1
            try:
                return call(max(end - time.monotonic(), 0.0))
            except grpc.RpcError as failed:
                error = self._error(failed)
                wait = self.policy.again(error, calls, end - time.monotonic())
                if wait is None:
                    raise error from failed
            time.sleep(wait)

    def _error(self, error: grpc.RpcError) -> RemoteError:
        """What a failed call says, from its status and details."""
        call: Any = error
        code: StatusCode = call.code()
        reason, retry = "", None
        try:
            status: Any = _STATUS.from_call(call)
        except ValueError:
            # Details of another status than the call's: no server of ours, and nothing to go by.
            status = None
        for detail in () if status is None else status.details:
            info, delay = ErrorInfo(), RetryInfo()
            if detail.Unpack(info) and info.domain == DOMAIN:
                reason = printable(info.reason)
            elif detail.Unpack(delay):
                retry = seconds_of(delay.retry_delay)
        return RemoteError(self.shown, code, reason, printable(call.details() or ""), retry)

    def _request_error(self, error: allocation.RequestError) -> RemoteError:
        retry = seconds_of(error.retry_delay) if error.HasField("retry_delay") else None
        return RemoteError(self.shown, code_of(error.code), printable(error.reason), printable(error.message), retry)
