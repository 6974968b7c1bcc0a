"""Errors of the service: a status code, a stable reason, a sentence, and when to try again.

proto/verilocc/v1/allocation_service.proto documents them; docs/guide/service.md says the same for people.
"""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc import StatusCode

from verilocc.v1 import allocation_service_pb2 as allocation
from verilocc_mlir.remote.wire import DOMAIN, number

_MESSAGE_BYTES = 1024
"""A status travels in trailers, which clients limit to 8 KiB, the message in it twice and escaped."""


@dataclass(eq=False)
class ServiceError(Exception):
    """A request that gets a status instead of an answer.

    Attributes:
        reason: ``ErrorInfo.reason``; stable.
        message: one sentence, with what to do; the first KiB of it.
        retry_seconds: after which time to try again; None where waiting does not help.
    """

    code: StatusCode
    reason: str
    message: str
    retry_seconds: float | None = None

    def __post_init__(self) -> None:
        data = self.message.encode("utf-8", "replace")
        if len(data) > _MESSAGE_BYTES:
            self.message = data[:_MESSAGE_BYTES].decode("utf-8", "ignore") + " …"

    def __str__(self) -> str:
        return f"{self.code.name}, {self.reason}: {self.message}"

    def to_request_error(self) -> allocation.RequestError:
        """For a result among others."""
        error = allocation.RequestError(code=number(self.code), reason=self.reason, message=self.message)
        if self.retry_seconds is not None:
            error.retry_delay.CopyFrom(duration(self.retry_seconds))
        return error

    def to_status(self) -> Status:
        """As ``google.rpc.Status`` with one ErrorInfo, and RetryInfo where waiting helps."""
        details = [_packed(ErrorInfo(reason=self.reason, domain=DOMAIN))]
        if self.retry_seconds is not None:
            details.append(_packed(RetryInfo(retry_delay=duration(self.retry_seconds))))
        return Status(code=number(self.code), message=self.message, details=details)


def duration(seconds: float) -> Duration:
    """Seconds as a protobuf duration, to the nanosecond."""
    whole = int(seconds)
    return Duration(seconds=whole, nanos=int((seconds - whole) * 1e9))


def malformed(message: str, *, request: bool = False) -> ServiceError:
    """The request, or the text in it, is not what it claims to be."""
    return ServiceError(StatusCode.INVALID_ARGUMENT, "MALFORMED_REQUEST" if request else "MALFORMED_INPUT", message)


def draining() -> ServiceError:
    """The server ends: it finishes what it has accepted, and accepts no more."""
    return ServiceError(
        StatusCode.UNAVAILABLE, "DRAINING", "this server is about to end; try again, another one will answer", 1.0
    )


def defect(error: BaseException) -> ServiceError:
    """Something that must not happen did. The error's own message stays here: it may quote the request."""
    return ServiceError(
        StatusCode.INTERNAL,
        "DEFECT",
        f"a defect of the server: {type(error).__name__}; report the request, and allocate elsewhere",
    )


def worker_lost() -> ServiceError:
    return ServiceError(
        StatusCode.UNAVAILABLE,
        "WORKER_LOST",
        "the process that worked on the request ended; try again, or allocate elsewhere",
        1.0,
    )


def out_of_time() -> ServiceError:
    return ServiceError(
        StatusCode.DEADLINE_EXCEEDED, "DEADLINE", "time ran out; give more, send fewer functions, or allocate elsewhere"
    )


def _packed(message: ErrorInfo | RetryInfo) -> AnyMessage:
    packed = AnyMessage()
    packed.Pack(message)
    return packed
