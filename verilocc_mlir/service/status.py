"""Errors of the service, a status code, a stable reason, a sentence, and when to try again; and the messages that the
front reads.

proto/verilocc/v1/allocation_service.proto documents them; docs/guide/service.md says the same for people.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError, Message
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


# Messages that the front reads: none of them grows with what is in it.
#
# An entry of two bytes takes a hundred once protobuf has read it. So whole requests are read by workers alone, within
# their limit of memory. Of a stream's request the front reads the name, and takes the rest as bytes. What it reads
# whole is small: ``batches.py`` and ``plans.py`` refuse larger requests first.


JSON = "+json"
"""After the name of a kind of request: its bytes are JSON, in protobuf's own mapping."""
_M = TypeVar("_M", bound=Message)
_NO_MEMORY = ("Arena alloc failed", "ut of memory")
"""In protobuf's own words for it, which come as a fault of the message."""


@dataclass(frozen=True)
class Envelope:
    """An ``AllocateStreamRequest`` whose request is not read."""

    id: str
    request: bytes


def opened(data: bytes) -> Envelope:
    """Read the name.

    Raises:
        ServiceError: it is no such message.
    """
    envelope = _parts(_STREAMED, data)
    return Envelope(_decoded(envelope.id), envelope.request)


def opened_for_batch(data: bytes) -> tuple[str, str, bytes]:
    """An ``AddToBatchRequest``: batch, id, and the request, which is not read.

    Raises:
        ServiceError: it is no such message.
    """
    envelope = _parts(_ADDED, data)
    return _decoded(envelope.batch), _decoded(envelope.id), envelope.request


def _parts(kind: type[Message], data: bytes) -> Any:
    envelope: Any = read_message(kind, data)
    # Of a field that is there twice, what is not kept is missing here.
    if envelope.ByteSize() != len(data):
        raise malformed("the request is not a message of this contract, or has a field twice", request=True)
    return envelope


def _decoded(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        raise malformed("a name in the request is not UTF-8", request=True) from error


def read_message(kind: type[_M], data: bytes) -> _M:
    """A message from its bytes.

    Raises:
        ServiceError: it is none. MemoryError: there is not enough memory for it.
    """
    message = kind()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        if any(words in str(error) for words in _NO_MEMORY):
            raise MemoryError(str(error)) from error
        raise malformed("the request is not a message of this contract", request=True) from error
    return message


def read_json(kind: type[_M], data: bytes) -> _M:
    """A message from its JSON. A field that is not known is an error: nobody else would say that it is misspelt.

    Raises:
        ServiceError: it is none. MemoryError: there is not enough memory for it.
    """
    message = kind()
    try:
        json_format.Parse(data, message)
    except (json_format.ParseError, UnicodeDecodeError) as error:
        if isinstance(error.__cause__ or error.__context__, MemoryError):
            raise MemoryError(str(error)) from error
        raise malformed(f"the request is no JSON of this contract: {error}", request=True) from error
    return message


def _envelope(*names: str) -> type[Message]:
    """A message as it is on the wire, its parts as bytes; numbered from 1."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="envelope.proto", syntax="proto2")
    message = file.message_type.add(name="Envelope")
    for at, name in enumerate(names, 1):
        message.field.add(name=name, number=at, type=field.TYPE_BYTES, label=field.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Envelope"))


_STREAMED = _envelope("id", "request")
_ADDED = _envelope("batch", "id", "request")
