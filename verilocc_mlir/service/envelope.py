"""Messages that the front reads: none of them grows with what is in it.

An entry of two bytes takes a hundred once protobuf has read it. So whole requests are read by workers alone, within
their limit of memory. Of a stream's request the front reads the name, and takes the rest as bytes. What it reads whole
is small: ``batches.py`` and ``plans.py`` refuse larger requests first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.message import DecodeError, Message

from verilocc_mlir.service.status import malformed

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
    for number, name in enumerate(names, 1):
        message.field.add(name=name, number=number, type=field.TYPE_BYTES, label=field.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Envelope"))


_STREAMED = _envelope("id", "request")
_ADDED = _envelope("batch", "id", "request")
