"""More requests than there is room for: refused in time, with the time to stay away, and the others are answered."""

from __future__ import annotations

from pathlib import Path

from grpc import StatusCode
from process_support import until
from service_support import (
    LATE,
    SECONDS,
    Client,
    Served,
    check_alive,
    numbers,
    refusal,
    refused,
    said,
    sgpr,
    small_mir,
    wait_until_waiting,
)

from verilocc.v1 import allocation_service_pb2 as allocation
from verilocc.v1 import verdict_pb2


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
