"""What the server says of itself: metrics, a log that has nothing of requests, and documented statuses."""

from __future__ import annotations

from datetime import datetime

import pytest
from grpc import StatusCode
from service_support import (
    BAD_INPUT,
    BAD_REQUEST,
    EXHAUSTED,
    LATE,
    LOST,
    SECONDS,
    Client,
    Served,
    check_alive,
    check_statuses,
    metrics,
    mir_request,
    refusal,
    refused,
    said,
    sgpr,
    small_mir,
)

from verilocc.v1 import allocation_service_pb2 as allocation
from verilocc.v1 import audit_service_pb2 as auditing
from verilocc.v1 import problem_pb2

SECRET = "a_word_that_no_log_may_have"


def test_metrics_count_what_happened(served: Served, client: Client) -> None:
    ok = 'verilocc_requests_total{code="OK",method="Allocate",reason=""}'
    bad = 'verilocc_requests_total{code="INVALID_ARGUMENT",method="Allocate",reason="MALFORMED_INPUT"}'
    lost = 'verilocc_requests_total{code="UNAVAILABLE",method="Allocate",reason="WORKER_LOST"}'
    streamed = 'verilocc_requests_total{code="OK",method="AllocateStream",reason=""}'
    refused_ = 'verilocc_requests_total{code="INVALID_ARGUMENT",method="AllocateStream",reason="MALFORMED_REQUEST"}'
    proved = 'verilocc_functions_total{allocator="deterministic",method="Allocate",outcome="proved"}'
    attempts = 'verilocc_attempts_total{allocator="gives-up",ended="allocate"}'
    watched = (ok, bad, lost, streamed, refused_, proved, attempts, "verilocc_workers_lost_total")
    before = metrics(served)
    check_alive(client)
    client.allocation.Allocate(sgpr(small_mir(), "gives-up"), timeout=SECONDS)
    said(client, sgpr(b""))
    said(client, sgpr(small_mir(), "exits"))
    requests = [sgpr(small_mir()), allocation.AllocateRequest()]
    list(client.allocation.AllocateStream(allocation.AllocateStreamRequest(request=r) for r in requests))
    after = metrics(served)
    grown = {name: after[name] - before.get(name, 0.0) for name in watched}
    assert grown == {
        ok: 2, bad: 1, lost: 1, streamed: 1, refused_: 1, proved: 2, attempts: 1, "verilocc_workers_lost_total": 2,
    }  # fmt: skip
    assert after['verilocc_request_seconds_count{method="Allocate"}'] >= 4
    assert after['verilocc_worker_cpu_seconds_total{method="Allocate"}'] > 0
    assert (after["verilocc_workers_busy"], after["verilocc_workers_waiting"]) == (0, 0)


@pytest.mark.long
def test_the_log_has_json_lines_and_nothing_of_requests(served: Served, client: Client) -> None:
    text = small_mir().replace("times3", SECRET)
    client.allocation.Allocate(sgpr(text), timeout=SECONDS)
    for request in (
        sgpr(text.replace("S_ENDPGM 0", f"{SECRET} = = =")),
        sgpr(text, SECRET),
        mir_request(text.encode(), target=SECRET),
        mir_request(b"---\n" + SECRET.encode(), name=SECRET),
        sgpr(text, "raises"),
        sgpr(text, "none"),
        sgpr(text, "exits"),
        sgpr(text, "prints"),
    ):
        failure = client.allocation.Allocate.future(request).exception()
        assert failure is None or refused(failure).reason
    audit = auditing.AuditRequest(before=text.encode(), after=f"---\n{SECRET}".encode(), after_name=SECRET)
    assert refusal(lambda: client.audit.Audit(audit)).reason == "MALFORMED_INPUT"
    list(client.allocation.AllocateStream(iter([allocation.AllocateStreamRequest(id=SECRET, request=sgpr(SECRET))])))
    assert any("in raises" in e["traceback"] for e in served.events() if e["event"] == "defect")
    assert any(e["event"] == "refused" and e["reason"] == "UNKNOWN_ALLOCATOR" for e in served.events())
    for event in served.events():
        assert {"time", "level", "event"} <= set(event)
        datetime.fromisoformat(event["time"])
    assert SECRET not in "".join(served.lines)


@pytest.mark.long
def test_every_status_so_far_is_in_the_contract(served: Served, client: Client) -> None:
    """Those asked for here, and those of all tests before that share the server; those after it are looked at when it
    ends (``served``).
    """
    for request, status in (
        (allocation.AllocateRequest(), BAD_REQUEST),
        (sgpr(b""), BAD_INPUT),
        (sgpr(small_mir(), "no-such"), (StatusCode.NOT_FOUND, "UNKNOWN_ALLOCATOR")),
        (mir_request(target="gfx803"), (StatusCode.FAILED_PRECONDITION, "TARGET_NOT_SUPPORTED")),
        (mir_request(phase=problem_pb2.PHASE_WWM), (StatusCode.FAILED_PRECONDITION, "PHASE_NOT_SUPPORTED")),
        (sgpr(small_mir(), "exits"), LOST),
        (sgpr(small_mir(), "eats"), EXHAUSTED),
        (sgpr(small_mir(), "hangs"), LATE),
    ):
        assert said(client, request) == status
        code, reason = status
        served.event("refused", code=code.name, reason=reason)
    assert len(check_statuses(served)) >= 8
