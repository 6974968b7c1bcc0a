"""Shared by the tests of the client: servers that are ours, in a process, and servers that are nobody's friend."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from grpc_status import rpc_status
from support import REPOSITORY

from verilocc.v1 import allocation_service_pb2 as allocation
from verilocc_mlir.service.jobs import run as run_job
from verilocc_mlir.service.status import ServiceError

VERILOCC = [sys.executable, "-m", "verilocc_mlir.cli.main"]
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
    return allocation.AllocateResponse.FromString(run_job("Allocate", request.SerializeToString(), 60.0))


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


@dataclass(frozen=True)
class Certificates:
    """PEM files of a CA and of a server's and a client's certificate that it signed."""

    ca: Path
    server: tuple[Path, Path]
    client: tuple[Path, Path]


def certificates(directory: Path) -> Certificates:
    """Fresh ones, for localhost and 127.0.0.1."""
    directory.mkdir()
    curve = ec.SECP256R1()
    authority = ec.generate_private_key(curve)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test CA")])
    files: dict[str, Path] = {}

    def write(path: str, data: bytes) -> Path:
        files[path] = directory / path
        files[path].write_bytes(data)
        return files[path]

    def pair(what: str, subject: x509.Name, key: ec.EllipticCurvePrivateKey, ca: bool) -> tuple[Path, Path]:
        now = datetime.datetime.now(datetime.timezone.utc)
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        signed = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca, None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(authority, hashes.SHA256())
        )
        form = serialization.PrivateFormat.PKCS8
        text = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
        return write(f"{what}.pem", signed.public_bytes(serialization.Encoding.PEM)), write(f"{what}.key", text)

    ca, _ = pair("ca", name, authority, ca=True)
    server, client = (
        pair(what, x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, what)]), key, ca=False)
        for what, key in (("server", ec.generate_private_key(curve)), ("client", ec.generate_private_key(curve)))
    )
    return Certificates(ca, server, client)
