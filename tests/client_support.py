"""Shared by the tests of the client: servers that are ours, in a process, and servers that are nobody's friend."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import grpc
from batch_support import VERILOCC
from grpc_status import rpc_status
from support import REPOSITORY

from verilocc.v1 import allocation_service_pb2 as allocation
from verilocc_mlir.allocators.deterministic import DeterministicAllocator
from verilocc_mlir.problem.model import AllocationProblem
from verilocc_mlir.remote.client import RetryPolicy
from verilocc_mlir.remote.wire import problem_message
from verilocc_mlir.service.jobs import run as run_job
from verilocc_mlir.service.status import ServiceError

QUICK = RetryPolicy(tries=4, first_seconds=0.01, most_seconds=0.02)
NOWHERE = "127.0.0.1:1"
"""No server listens on port 1 of a machine that runs tests."""
DETERMINISTIC = f"{DeterministicAllocator.name} {DeterministicAllocator.version}"
Allocate = Callable[[allocation.AllocateRequest], allocation.AllocateResponse]


@contextlib.contextmanager
def served(*arguments: str, listen: Sequence[str]) -> Generator[list[str], None, None]:
    """``verilocc serve`` in a process; gives the addresses it listens on, and ends it."""
    options = [f"--listen={address}" for address in listen]
    process = subprocess.Popen(
        [*VERILOCC, "serve", "--workers=1", "--drain-seconds=0", *options, *arguments],
        cwd=REPOSITORY,
        stderr=subprocess.PIPE,
        text=True,
        env={k: v for k, v in os.environ.items() if k != "VERILOCC_TOKEN"},
    )
    try:
        assert process.stderr is not None
        found: list[str] = []
        while len(found) < len(listen):
            line = process.stderr.readline()
            assert line.startswith("{"), line + process.stderr.read()
            said = json.loads(line)
            if said["event"] == "listening":
                found.append(said["address"])
        yield found
    finally:
        process.terminate()
        process.communicate()


@dataclass
class Asked:
    """A server of this process that does as it is told: its address, and what it was asked."""

    address: str = ""
    calls: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)


def honest(request: allocation.AllocateRequest) -> allocation.AllocateResponse:
    """What our own server answers."""
    return allocation.AllocateResponse.FromString(_answer(request.SerializeToString(deterministic=True)))


@lru_cache(maxsize=8)
def _answer(request: bytes) -> bytes:
    return run_job("Allocate", request, 60.0)


@contextlib.contextmanager
def answering(
    allocate: Allocate, address: str = "127.0.0.1:0", ids: Callable[[str], Sequence[str]] = lambda name: [name]
) -> Generator[Asked, None, None]:
    """A server that answers Allocate with what ``allocate`` gives, or with the ``ServiceError`` that it raises; the
    same for each request of a stream, under the ``ids`` that its own becomes.
    """
    asked = Asked()

    def one(request: allocation.AllocateRequest, context: Any) -> allocation.AllocateResponse:
        asked.calls.append("Allocate")
        asked.headers.append({str(k): str(v) for k, v in context.invocation_metadata()})
        try:
            return allocate(request)
        except ServiceError as error:
            context.abort_with_status(rpc_status.to_status(error.to_status()))
            raise

    def many(
        requests: Iterator[allocation.AllocateStreamRequest], _: Any
    ) -> Iterator[allocation.AllocateStreamResponse]:
        for request in requests:
            asked.calls.append("AllocateStream")
            answer = allocation.AllocateStreamResponse()
            try:
                answer.response.CopyFrom(allocate(request.request))
            except ServiceError as error:
                answer.error.code, answer.error.reason = error.code.value[0], error.reason
                if error.retry_seconds is not None:
                    answer.error.retry_delay.FromMilliseconds(int(error.retry_seconds * 1000))
            for name in ids(request.id):
                answer.id = name
                yield answer

    handlers = {
        "Allocate": grpc.unary_unary_rpc_method_handler(
            one, allocation.AllocateRequest.FromString, allocation.AllocateResponse.SerializeToString
        ),
        "AllocateStream": grpc.stream_stream_rpc_method_handler(
            many, allocation.AllocateStreamRequest.FromString, allocation.AllocateStreamResponse.SerializeToString
        ),
    }
    server = grpc.server(ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("verilocc.v1.AllocationService", handlers),))
    port = server.add_insecure_port(address)
    asked.address = f"127.0.0.1:{port}" if address.endswith(":0") else address
    server.start()
    try:
        yield asked
    finally:
        server.stop(0).wait()


def request(problem: AllocationProblem) -> allocation.AllocateRequest:
    """To allocate it with what the server takes by itself."""
    return allocation.AllocateRequest(problem=problem_message(problem))


def flat(text: str) -> str:
    """Without the line breaks of a console."""
    return " ".join(text.split())
