"""Server reflection, v1 and v1alpha. The two have the same messages under other names; grpcio has v1alpha alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, text_format
from grpc_reflection.v1alpha import reflection, reflection_pb2

V1 = "grpc.reflection.v1.ServerReflection"
_ALPHA: Any = reflection
_MESSAGES: Any = reflection_pb2
"""Have no types."""


def reflect(server: grpc.aio.Server, services: Sequence[str]) -> None:
    """Offer reflection of ``services``, and of itself."""
    _describe_v1()
    names = (*services, V1, _ALPHA.SERVICE_NAME)
    _ALPHA.enable_server_reflection(names, server)
    method: Any = grpc.stream_stream_rpc_method_handler(
        _ALPHA.aio.ReflectionServicer(names).ServerReflectionInfo,
        _MESSAGES.ServerReflectionRequest.FromString,
        _MESSAGES.ServerReflectionResponse.SerializeToString,
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(V1, {"ServerReflectionInfo": method}),))


def _describe_v1() -> None:
    """Have the descriptors of v1 where those of v1alpha are."""
    file = descriptor_pb2.FileDescriptorProto()
    _MESSAGES.DESCRIPTOR.CopyToProto(file)
    text = re.sub(r"(grpc[._]reflection[./])v1alpha", r"\1v1", text_format.MessageToString(file))
    named = text_format.Parse(text, descriptor_pb2.FileDescriptorProto())
    descriptor_pool.Default().AddSerializedFile(named.SerializeToString())
