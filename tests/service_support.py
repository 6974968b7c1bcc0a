"""Servers for the tests: ``verilocc serve`` in a process, its log, its metrics, and certificates for it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import grpc
from batch_support import CPU, VERILOCC, gone, kernel
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from grpc_health.v1 import health_pb2_grpc
from grpc_status import rpc_status
from support import REPOSITORY, run_llc
from test_pipeline_phase import IR as TWO_FUNCTIONS

from verilocc.v1 import allocation_service_pb2 as allocation
from verilocc.v1 import allocation_service_pb2_grpc as allocation_grpc
from verilocc.v1 import audit_service_pb2_grpc as audit_grpc
from verilocc.v1 import problem_pb2

__all__ = ["CPU", "TWO_FUNCTIONS", "gone"]
SECONDS = 60.0
"""What anything may take here before a test gives up."""
_SERVE_TERMS = """
import json, sys
from verilocc_mlir.service.running import Options, serve
from verilocc_mlir.service.server import ServerLimits
given = json.loads(sys.argv[1])
sys.exit(serve(Options(**{**given, "addresses": tuple(given["addresses"]), "limits": ServerLimits(**given["limits"])})))
"""


@dataclass
class Served:
    """A server process and what it said."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list[str])
    changed: threading.Condition = field(default_factory=threading.Condition)

    def read(self) -> None:
        """Collect its standard error until it ends."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self.changed:
                self.lines.append(line)
                self.changed.notify_all()

    def events(self) -> list[dict[str, Any]]:
        """Its log so far; every line is a JSON object."""
        with self.changed:
            return [json.loads(line) for line in self.lines]

    def event(self, name: str, **fields: object) -> dict[str, Any]:
        """The first event of that name with those fields, when it is there."""

        def found() -> dict[str, Any] | None:
            wanted = {"event": name, **fields}
            return next((e for e in self.events() if wanted.items() <= e.items()), None)

        deadline = time.monotonic() + SECONDS
        with self.changed:
            while (event := found()) is None:
                assert self.process.poll() is None or self.lines, f"the server ended with {self.process.returncode}"
                assert self.changed.wait(deadline - time.monotonic()), f"no {name} {fields} in {self.lines}"
        return event

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def address(self) -> str:
        """As a client wants it."""
        return str(self.event("listening")["address"])

    def descendants(self) -> set[int]:
        """Process ids of all it started, and of what those started."""
        return _descendants(self.pid)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Signal it and wait for its end; the exit code."""
        self.process.send_signal(number)
        return self.process.wait(SECONDS)


def _descendants(pid: int) -> set[int]:
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, task.read_text().split()):
                found |= {child} | _descendants(child)
    return found


@contextlib.contextmanager
def serving(*arguments: str | Path, listen: str = "127.0.0.1:0", **environment: str) -> Iterator[Served]:
    """``verilocc serve`` with two workers; ended at the end, if the test did not."""
    given = [*VERILOCC, "serve", f"--listen={listen}", *map(str, arguments)]
    if not any(str(a).startswith("--workers") for a in arguments):
        given.append("--workers=2")
    with _running(given, environment) as served:
        yield served


@contextlib.contextmanager
def serving_terms(listen: str, terms: str = "service_allocators:TERMS", **options: Any) -> Iterator[Served]:
    """A server that offers ``terms``; ``options`` are those of ``running.Options``, limits as a dictionary, and
    ``environment``.
    """
    environment = options.pop("environment", {})
    given = {"addresses": [listen], "limits": {}, "terms": terms, **options}
    with _running([sys.executable, "-c", _SERVE_TERMS, json.dumps(given)], environment) as served:
        yield served


@contextlib.contextmanager
def _running(command: list[str], environment: dict[str, str]) -> Iterator[Served]:
    paths = os.pathsep.join((str(REPOSITORY), str(REPOSITORY / "tests")))
    process = subprocess.Popen(
        command,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": paths, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    served = Served(process)
    reader = threading.Thread(target=served.read, daemon=True)
    reader.start()
    try:
        yield served
    finally:
        left = served.descendants()
        if process.poll() is None:
            process.kill()
        process.wait(SECONDS)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        reader.join(SECONDS)


@dataclass(frozen=True)
class Client:
    """Stubs on one channel."""

    channel: grpc.Channel
    allocation: Any
    audit: Any

    def raw(self, method: str, data: bytes, **options: Any) -> bytes:
        """Call with any bytes: ``"Allocate"``."""
        service = "Audit" if method == "Audit" else "Allocation"
        call: Any = self.channel.unary_unary(f"/verilocc.v1.{service}Service/{method}")
        return call(data, timeout=SECONDS, **options)


@contextlib.contextmanager
def connected(address: str, credentials: grpc.ChannelCredentials | None = None, **options: Any) -> Iterator[Client]:
    """A channel that connects at once again when a server is back; ``options`` are channel options."""
    arguments = [
        ("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1),
        ("grpc.use_local_subchannel_pool", 1), ("grpc.initial_reconnect_backoff_ms", 100), *options.items(),
    ]  # fmt: skip
    if credentials is None:
        opened = grpc.insecure_channel(address, arguments)
    else:
        opened = grpc.secure_channel(address, credentials, arguments)
    with opened as channel:
        yield Client(channel, allocation_grpc.AllocationServiceStub(channel), audit_grpc.AuditServiceStub(channel))


def health(channel: grpc.Channel) -> Any:
    """The health service's stub, which has no types."""
    return health_pb2_grpc.HealthStub(channel)


@dataclass(frozen=True)
class Refused:
    """The status of a failed call; ``reason`` is "" and ``retry`` None where it has no such detail."""

    code: grpc.StatusCode
    reason: str
    message: str
    retry: float | None


def refused(error: grpc.RpcError) -> Refused:
    """A failed call's status; one that has details has one ErrorInfo of our domain."""
    found: Any = error
    status = rpc_status.from_call(found)
    info, retry = ErrorInfo(), RetryInfo()
    if status is not None:
        infos = [d for d in status.details if d.Is(ErrorInfo.DESCRIPTOR)]
        assert len(infos) == 1
        infos[0].Unpack(info)
        assert info.domain == "verilocc"
        assert (status.code, status.message) == (found.code().value[0], found.details())
        retries = [d for d in status.details if d.Is(RetryInfo.DESCRIPTOR)]
        if retries:
            retries[0].Unpack(retry)
            return Refused(found.code(), info.reason, status.message, retry.retry_delay.ToTimedelta().total_seconds())
    return Refused(found.code(), info.reason, str(found.details()), None)


def refusal(call: Callable[[], object]) -> Refused:
    """How a call fails."""
    try:
        call()
    except grpc.RpcError as error:
        return refused(error)
    raise AssertionError("the call was answered")


def small_mir(factor: int = 3) -> str:
    """A kernel of a few instructions, before the SGPR phase."""
    return run_llc(kernel(factor), CPU, "-stop-before=greedy,0", mir=False)


def sgpr(text: str | bytes, allocator: str = "", **fields: Any) -> allocation.AllocateRequest:
    """A request to allocate scalar registers."""
    data = text.encode() if isinstance(text, str) else text
    mir = allocation.MachineIr(text=data, target=CPU, phase=problem_pb2.PHASE_SGPR)
    return allocation.AllocateRequest(mir=mir, allocator=allocator, **fields)


def wait_until(true: Callable[[], object], what: str) -> None:
    """Return when it is so."""
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline, f"not within {SECONDS} s: {what}"
        time.sleep(0.01)


def numbers(path: Path, count: int) -> list[int]:
    """The process ids in a file that an allocator writes, when there are so many."""

    def lines() -> list[str]:
        return path.read_text().split("\n")[:-1] if path.exists() else []

    wait_until(lambda: len(lines()) >= count, f"{count} lines in {path.name}")
    return [int(line) for line in lines()]


@dataclass(frozen=True)
class Authority:
    """A certificate authority in a directory: ``ca.pem``, and what it signs as NAME.pem and NAME.key."""

    directory: Path
    name: str
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def path(self) -> Path:
        return self.directory / f"{self.name}.pem"

    def sign(self, name: str, days: tuple[int, int] = (-1, 1)) -> tuple[Path, Path]:
        """Certificate and key of ``name`` at loopback, good between days counted from today."""
        key = ec.generate_private_key(ec.SECP256R1())
        alternatives = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))])
        builder = _certificate(name, self.certificate.subject, key, days).add_extension(alternatives, critical=False)
        _write(self.directory, name, builder.sign(self.key, hashes.SHA256()), key)
        return self.directory / f"{name}.pem", self.directory / f"{name}.key"


def authority(directory: Path, name: str) -> Authority:
    """A new one."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = _certificate(name, subject, key, (-2, 2)).add_extension(x509.BasicConstraints(True, 0), critical=True)
    certificate = builder.sign(key, hashes.SHA256())
    _write(directory, name, certificate, key)
    return Authority(directory, name, key, certificate)


def _certificate(
    name: str, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: tuple[int, int]
) -> x509.CertificateBuilder:
    now = datetime.now(timezone.utc)
    return x509.CertificateBuilder(
        issuer,
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]),
        key.public_key(),
        x509.random_serial_number(),
        now + timedelta(days=days[0]),
        now + timedelta(days=days[1]),
    )


def _write(directory: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    pem = serialization.Encoding.PEM
    (directory / f"{name}.pem").write_bytes(certificate.public_bytes(pem))
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (directory / f"{name}.key").write_bytes(key.private_bytes(pem, *plain))
