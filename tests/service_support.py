"""Servers for the tests: ``verilocc serve`` in a process, its log, its metrics, its statuses."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from batch_support import CPU, VERILOCC, kernel
from builders import TWO_FUNCTIONS
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from grpc import StatusCode
from grpc_health.v1 import health_pb2_grpc
from grpc_status import rpc_status
from process_support import descendants, until
from support import REPOSITORY, run_llc

from verilocc.v1 import allocation_service_pb2 as allocation
from verilocc.v1 import allocation_service_pb2_grpc as allocation_grpc
from verilocc.v1 import audit_service_pb2_grpc as audit_grpc
from verilocc.v1 import problem_pb2, verdict_pb2

__all__ = ["CPU", "TWO_FUNCTIONS"]
SECONDS = 60.0
"""What anything may take here before a test gives up."""
MIB = 1 << 20
EXHAUSTED = StatusCode.RESOURCE_EXHAUSTED, "MEMORY_LIMIT"
LOST = StatusCode.UNAVAILABLE, "WORKER_LOST"
LATE = StatusCode.DEADLINE_EXCEEDED, "DEADLINE"
BAD_REQUEST = StatusCode.INVALID_ARGUMENT, "MALFORMED_REQUEST"
BAD_INPUT = StatusCode.INVALID_ARGUMENT, "MALFORMED_INPUT"
_SERVE_TERMS = """
import json, sys
from pathlib import Path
from verilocc_mlir.service.running import Options, serve
from verilocc_mlir.service.limits import ServerLimits
given = json.loads(sys.argv[1])
for name in {"tokens", "batches", "plan_model"} & set(given):
    given[name] = Path(given[name])
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
        return descendants(self.pid)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Signal it and wait for its end; the exit code."""
        self.process.send_signal(number)
        return self.process.wait(SECONDS)


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
    paths = os.pathsep.join(str(path) for path in (REPOSITORY, REPOSITORY / "model", REPOSITORY / "tests"))
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
        service = {"Audit": "Audit", "RankPlans": "Plan"}.get(method, "Allocation")
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


def mir_request(text: str | bytes | None = None, **fields: Any) -> allocation.AllocateRequest:
    """A request to allocate scalar registers of a text, else of a small one; ``target``, ``phase`` and ``name`` are
    those of the text.
    """
    text = small_mir() if text is None else text
    given = {k: fields.pop(k) for k in ("target", "phase", "name") if k in fields}
    mir = {"text": text.encode() if isinstance(text, str) else text, "target": CPU, "phase": problem_pb2.PHASE_SGPR}
    return allocation.AllocateRequest(mir=allocation.MachineIr(**{**mir, **given}), **fields)


def sgpr(text: str | bytes, allocator: str = "", **fields: Any) -> allocation.AllocateRequest:
    """A request to allocate scalar registers."""
    return mir_request(text, allocator=allocator, **fields)


def given_up(served: Served) -> int:
    """How many requests workers have given up, because nobody waits for them, and went on."""
    return len([e for e in served.events() if e["event"] == "given up" and e["kept"]])


def check_alive(client: Client) -> None:
    """A good request is answered."""
    answer = client.allocation.Allocate(sgpr(small_mir()), timeout=SECONDS)
    assert answer.functions[0].outcome == verdict_pb2.OUTCOME_PROVED


def answered(client: Client, seconds: float) -> bool:
    """Whether a good request is, within that time."""
    call = client.allocation.Allocate.future(sgpr(small_mir()), timeout=seconds)
    return call.exception() is None


def said(client: Client, request: allocation.AllocateRequest) -> tuple[StatusCode, str]:
    """Code and reason of a request that fails; the server's own time limit is what ends it, if anything does."""
    failed = refusal(lambda: client.allocation.Allocate(request))
    return failed.code, failed.reason


def numbers(path: Path, count: int) -> list[int]:
    """The process ids in a file that an allocator writes, when there are so many."""

    def lines() -> list[str]:
        return path.read_text().split("\n")[:-1] if path.exists() else []

    until(lambda: len(lines()) >= count, f"{count} lines in {path.name}")
    return [int(line) for line in lines()]


def start_fails(*arguments: str | Path, **environment: str) -> str:
    """What a server says that does not come up; it ends with exit code 2 and one message."""
    done = subprocess.run(
        [*VERILOCC, "serve", *map(str, arguments)],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=SECONDS, env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 2, done
    assert "Traceback" not in done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("verilocc: error: ")]
    assert len(errors) == 1, done.stderr
    return done.stderr


def metrics(served: Served) -> dict[str, float]:
    """A scrape: series with their labels as they are written, and their values."""
    port = served.event("metrics")["port"]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=SECONDS) as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, _, value in (x.rpartition(" ") for x in lines if not x.startswith("#"))}


def wait_until_waiting(served: Served, count: int) -> None:
    """Return when so many requests wait for a worker: a call that was sent need not have arrived."""
    until(lambda: metrics(served)["verilocc_workers_waiting"] == count, f"{count} requests that wait")


def token_line(token: str, name: str, expires: str = "") -> str:
    """A line of a token file."""
    return f"{hashlib.sha256(token.encode()).hexdigest()} {name} {expires}\n"


def documented() -> dict[str, set[str]]:
    """The contract's tables of errors: reasons by status code."""
    table: dict[str, set[str]] = {}
    for name in ("allocation_service", "batch_service", "plan_service"):
        text = (REPOSITORY / "proto" / "verilocc" / "v1" / f"{name}.proto").read_text()
        code = ""
        for line in text[text.index("//   code ") : text.index("\nservice ")].splitlines()[1:]:
            words = line.removeprefix("//").split("  ")
            if not line.startswith("//   "):
                break
            cells = [w.strip() for w in words if w.strip()]
            if not line.startswith("//    "):
                code = cells.pop(0)
            reasons = {w.strip(" ,") for w in cells[0].split() if w.strip(" ,").isupper()}
            table.setdefault(code, set()).update(reasons)
    return table


def check_statuses(served: Served) -> set[tuple[str, str]]:
    """Code and reason of each request that the server has refused so far; all of them are in the contract."""
    table = documented()
    found = {(e["code"], e["reason"]) for e in served.events() if e["event"] == "refused"}
    assert all(reason in table[code] for code, reason in found), found
    return found
