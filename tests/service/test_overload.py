"""More requests than there is room for: refused in time, with the time to stay away, and the others are answered."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import StatusCode
from grpc_health.v1 import health_pb2
from process_support import until
from service_support import (
    LATE,
    SECONDS,
    Client,
    Served,
    answered,
    check_alive,
    connected,
    health,
    numbers,
    refusal,
    refused,
    said,
    serving_terms,
    sgpr,
    small_mir,
    wait_until_waiting,
)

from verilocc.v1 import allocation_service_pb2 as allocation
from verilocc.v1 import verdict_pb2
from verilocc_mlir.remote.client import Client as OurClient
from verilocc_mlir.remote.client import RemoteError, RetryPolicy
from verilocc_mlir.service.server import ServerLimits


def test_overload_is_refused_with_the_time_to_wait(served: Served, client: Client, notes: Path) -> None:
    busy = client.allocation.Allocate.future(sgpr(small_mir(), "waits"), timeout=SECONDS)
    numbers(notes / "pids", 1)
    # The second waits for the worker, until the server's own time for it is over; a third would be too many.
    waiting = client.allocation.Allocate.future(sgpr(small_mir()), timeout=SECONDS)
    wait_until_waiting(served, 1)
    failed = refusal(lambda: client.allocation.Allocate(sgpr(small_mir()), timeout=SECONDS))
    assert (failed.code, failed.reason) == (StatusCode.RESOURCE_EXHAUSTED, "OVERLOADED")
    assert failed.retry is not None
    assert failed.retry > 0
    # What needs no worker is answered under load.
    client.allocation.GetCapabilities(allocation.GetCapabilitiesRequest(), timeout=SECONDS)
    (notes / "go").touch()
    assert busy.result().functions[0].allocator == "waits"
    answer = waiting.result()
    assert answer.functions[0].outcome == verdict_pb2.OUTCOME_PROVED
    assert answer.queue_time.ToTimedelta().total_seconds() > 0


def test_many_at_once_are_no_more_than_may_wait(client: Client, notes: Path) -> None:
    """All arrive before the first of them has a worker."""
    calls = [client.allocation.Allocate.future(sgpr(small_mir(), "waits")) for _ in range(12)]
    numbers(notes / "pids", 1)
    until(lambda: sum(c.done() for c in calls) >= 10, "those that are too many")
    assert sum(c.done() for c in calls) == 10
    (notes / "go").touch()
    failures = [refused(c.exception()) for c in calls if c.exception() is not None]
    assert {(f.code, f.reason) for f in failures} == {(StatusCode.RESOURCE_EXHAUSTED, "OVERLOADED")}
    assert len(failures) == 10


def test_a_deadline_that_passes_in_the_queue(client: Client, notes: Path) -> None:
    """The server says so itself where the time is its own; the first is in work until it is told."""
    busy = client.allocation.Allocate.future(sgpr(small_mir(), "waits"), timeout=SECONDS)
    numbers(notes / "pids", 1)
    assert said(client, sgpr(small_mir())) == LATE
    late = refusal(lambda: client.allocation.Allocate(sgpr(small_mir()), timeout=0.2))
    assert late.code is StatusCode.DEADLINE_EXCEEDED
    (notes / "go").touch()
    assert busy.result().functions[0].allocator == "waits"
    check_alive(client)


def _watched(client: Client, watchers: list[Any]) -> bool:
    """Whether one more watcher of health has a place; it is added."""
    watcher = health(client.channel).Watch(health_pb2.HealthCheckRequest())
    try:
        next(watcher)
    except grpc.RpcError:
        return False
    watchers.append(watcher)
    return True


@pytest.mark.long
def test_a_flood_of_calls_that_need_no_worker_is_bounded(tmp_path: Path) -> None:
    """Watchers of health, each of which stays; all the places that there are but one."""
    limits = ServerLimits(workers=1, max_waiting=0)
    given = {"workers": 1, "max_waiting": 0}
    with serving_terms(f"unix:{tmp_path}/s", limits=given) as served, connected(served.address) as client:
        watchers = [health(client.channel).Watch(health_pb2.HealthCheckRequest()) for _ in range(limits.max_calls - 1)]
        assert {next(watcher).status for watcher in watchers} == {health_pb2.HealthCheckResponse.SERVING}
        check_alive(client)
        # A call is counted for a moment after its answer.
        until(lambda: _watched(client, watchers), "the last place")
        capabilities = allocation.GetCapabilitiesRequest()
        for call in (
            lambda: client.allocation.GetCapabilities(capabilities, timeout=SECONDS),
            lambda: client.allocation.Allocate(sgpr(small_mir()), timeout=SECONDS),
            lambda: health(client.channel).Check(health_pb2.HealthCheckRequest(), timeout=SECONDS),
            lambda: list(client.allocation.AllocateStream(iter(()), timeout=SECONDS)),
        ):
            failed = refusal(call)
            assert (failed.code, failed.reason, failed.retry) == (StatusCode.RESOURCE_EXHAUSTED, "", None)
            assert failed.message == "Concurrent RPC limit exceeded!"
        # Our client stays away for a while, not for good: the place is free again when it comes back.
        policy = RetryPolicy(tries=100, first_seconds=0.05, most_seconds=0.05)
        with OurClient(served.address, policy=policy) as ours, ThreadPoolExecutor(1) as pool:
            with OurClient(served.address, policy=RetryPolicy(tries=1)) as once, pytest.raises(RemoteError):
                once.capabilities()
            asked = pool.submit(ours.capabilities)
            watchers.pop().cancel()
            assert asked.result(SECONDS).limits.workers == 1
        until(lambda: answered(client, SECONDS), "an answer in the place that is free again")
        for watcher in watchers:
            watcher.cancel()
