"""Calls that are opened and left open, in raw HTTP/2: they keep nobody out, and log and metrics show them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from grpc import StatusCode
from grpc_health.v1 import health_pb2
from http2_support import GOAWAY, raw_connection
from process_support import until
from service_support import (
    SECONDS,
    Client,
    Served,
    check_alive,
    check_statuses,
    connected,
    health,
    metrics,
    refusal,
    serving,
    sgpr,
    small_mir,
    token_line,
)
from support import few

from verilocc.v1 import allocation_service_pb2 as allocation
from verilocc_mlir.remote.client import Client as OurClient
from verilocc_mlir.service import server as server_module
from verilocc_mlir.service.limits import OPEN_CALLS, ServerLimits
from verilocc_mlir.service.running import serving as serving_here

LIMITS = ServerLimits(workers=1, max_waiting=1)
ALLOCATE = "/verilocc.v1.AllocationService/Allocate"
WATCH = "/grpc.health.v1.Health/Watch"
MANY = 300


@pytest.fixture(scope="module")
def small() -> Iterator[Served]:
    """A server without tokens that has few places."""
    with serving("--workers=1", "--max-waiting=1", "--metrics=127.0.0.1:0") as served:
        yield served
        check_statuses(served)


def _open_calls(served: Served, count: int) -> None:
    until(lambda: metrics(served)["verilocc_open_calls"] == count, f"{count} open calls")


def _check_health(client: Client) -> None:
    """Health answers at once and to who watches."""
    request = health_pb2.HealthCheckRequest()
    assert health(client.channel).Check(request, timeout=SECONDS).status == health_pb2.HealthCheckResponse.SERVING
    watching = health(client.channel).Watch(request, timeout=SECONDS)
    assert next(watching).status == health_pb2.HealthCheckResponse.SERVING
    watching.cancel()


@pytest.mark.parametrize(
    ("path", "message", "left"),
    few(
        [(ALLOCATE, None, LIMITS.connection_streams), (WATCH, b"", OPEN_CALLS)],
        [
            (ALLOCATE, None, LIMITS.connection_streams),
            ("/verilocc.v1.AllocationService/AllocateStream", None, LIMITS.connection_streams),
            ("/verilocc.v1.AuditService/Audit", None, LIMITS.connection_streams),
            (WATCH, b"", OPEN_CALLS),
            (WATCH, None, OPEN_CALLS),
            ("/grpc.health.v1.Health/Check", None, OPEN_CALLS),
            ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", None, OPEN_CALLS),
        ],
    ),
)
def test_many_calls_of_one_connection_keep_nobody_out(
    small: Served, path: str, message: bytes | None, left: int
) -> None:
    with raw_connection(small.address) as raw:
        raw.open(path, MANY, message)
        _open_calls(small, left)
        with connected(small.address) as client:
            _check_health(client)
            check_alive(client)
            client.allocation.GetCapabilities(allocation.GetCapabilitiesRequest(), timeout=SECONDS)
    _open_calls(small, 0)


def test_one_caller_has_half_of_the_calls_and_health_answers_all_the_same(small: Served) -> None:
    most = LIMITS.caller_calls
    with raw_connection(small.address) as one, raw_connection(small.address) as other:
        for raw in (one, other):
            raw.open(ALLOCATE, MANY)
        _open_calls(small, most)
        with connected(small.address) as client:
            _check_health(client)
            for call in (
                lambda: client.allocation.Allocate(sgpr(small_mir()), timeout=SECONDS),
                lambda: client.allocation.GetCapabilities(allocation.GetCapabilitiesRequest(), timeout=SECONDS),
                lambda: list(client.allocation.AllocateStream(iter(()), timeout=SECONDS)),
            ):
                failed = refusal(call)
                assert (failed.code, failed.reason) == (StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_CALLS")
                assert failed.retry
        small.event("refused", reason="TOO_MANY_CALLS", method="Allocate")
        refused = 'verilocc_requests_total{code="RESOURCE_EXHAUSTED",method="Allocate",reason="TOO_MANY_CALLS"}'
        assert metrics(small)[refused] >= 1
        # Our client comes back when there is room.
        with OurClient(small.address) as ours, ThreadPoolExecutor(1) as pool:
            asked = pool.submit(ours.capabilities)
            until(lambda: metrics(small)[refused.replace("Allocate", "GetCapabilities")] >= 2, "a refused client")
            one.close()
            assert asked.result(SECONDS).limits.workers == 1
    _open_calls(small, 0)


def test_calls_without_a_token_hold_nothing(tmp_path: Path) -> None:
    """They are refused before anything of them is read; who has a token is answered meanwhile."""
    (tmp_path / "tokens").write_text(token_line("good", "ci"))
    arguments = ("--workers=1", "--max-waiting=1", "--metrics=127.0.0.1:0", "--tokens", tmp_path / "tokens")
    with serving(*arguments) as served, connected(served.address) as client, ExitStack() as stack:
        for method in ("Allocate", "AllocateStream"):
            for authorization, reason in (("", "TOKEN_MISSING"), ("Bearer wrong", "TOKEN_UNKNOWN")):
                raw = stack.enter_context(raw_connection(served.address))
                raw.open(f"/verilocc.v1.AllocationService/{method}", MANY, authorization=authorization)
                served.event("refused", reason=reason, method=method)
                series = f'verilocc_requests_total{{code="UNAUTHENTICATED",method="{method}",reason="{reason}"}}'
                assert metrics(served)[series] >= 1
        _check_health(client)
        _open_calls(served, 0)
        authorized = (("authorization", "Bearer good"),)
        assert client.allocation.Allocate(sgpr(small_mir()), timeout=SECONDS, metadata=authorized).functions


def test_health_reads_no_long_requests(small: Served) -> None:
    with connected(small.address) as client:
        request = health_pb2.HealthCheckRequest(service="x" * 5000)
        failed = refusal(lambda: health(client.channel).Check(request, timeout=SECONDS))
        assert (failed.code, failed.reason) == (StatusCode.RESOURCE_EXHAUSTED, "TOO_LARGE")
        _check_health(client)


@pytest.mark.parametrize("name", ["_CONNECTION_IDLE_MS", "_CONNECTION_AGE_MS"])
def test_connections_that_are_idle_or_old_are_told_to_end(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, name, 50)
    with serving_here(limits=LIMITS) as address, raw_connection(address) as raw:
        until(lambda: raw.received[GOAWAY], "that the server ends the connection")
