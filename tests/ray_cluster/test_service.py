"""The service on a Ray cluster of this machine: several processes, some of them killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from batch_support import CPU
from cluster_support import MARKS, listening, needs_ray, stopped
from process_support import gone, lines_of, listens_beyond_loopback, parent_of, until
from service_support import SECONDS, Client, connected, mir_request, refusal, small_mir
from support import REPOSITORY, allocated_by_llvm

from verilocc.v1 import allocation_service_pb2 as allocation
from verilocc.v1 import audit_service_pb2 as auditing
from verilocc.v1 import verdict_pb2
from verilocc_mlir.errors import InputError
from verilocc_mlir.ray_cluster import Cluster, load_ray
from verilocc_mlir.service import jobs as service_jobs

pytestmark = MARKS

STREAM = "/verilocc.v1.AllocationService/AllocateStream"


def request(allocator: str = "") -> allocation.AllocateRequest:
    return mir_request(name="k3", return_mir=True, allocator=allocator)


def allocate(caller: Client, allocator: str = "", seconds: float = SECONDS) -> allocation.AllocateResponse:
    return caller.allocation.Allocate(request(allocator), timeout=seconds)


@pytest.fixture
def held(hold: Path) -> Iterator[Path]:
    """The allocator waits until the test removes this file; nobody has asked it yet."""
    (hold / "pids").unlink(missing_ok=True)
    (hold / "hold").touch()
    yield hold / "hold"
    (hold / "hold").unlink(missing_ok=True)


@pytest.mark.long
@needs_ray
def test_a_server_joins_a_cluster_grows_drains_and_leaves_it(cluster: Cluster, held: Path) -> None:
    ray = load_ray()
    code = """
        import sys
        from verilocc_mlir.service.ray_serve import Options, serve
        from verilocc_mlir.service.limits import ServerLimits
        limits = ServerLimits(workers=1)
        sys.exit(serve(Options(limits, sys.argv[1], "127.0.0.1:0", replicas=(1, 2), terms="ray_support:TERMS")))
    """
    address = ray.get_runtime_context().gcs_address
    server = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), address], cwd=REPOSITORY, stderr=subprocess.PIPE, text=True
    )
    try:
        pids = held.with_name("pids")
        with connected(listening(server)) as caller, ThreadPoolExecutor(64) as pool:
            answers: list[Future[allocation.AllocateResponse]] = []

            def replicas() -> int:
                answers.append(pool.submit(allocate, caller, "waiting", 110))
                time.sleep(2)
                return len({parent_of(int(pid)) for pid in lines_of(pids)})

            until(lambda: replicas() == 2, "two replicas", 100)
            server.send_signal(signal.SIGTERM)
            time.sleep(1)
            held.unlink()
            outcomes = {answer.result(60).functions[0].outcome for answer in answers}
            assert outcomes == {verdict_pb2.OUTCOME_PROVED}
    finally:
        held.unlink(missing_ok=True)
        code_, said = stopped(server)
    assert code_ == 0, said
    assert '"event": "ended"' in said
    assert not [actor for actor in ray.util.list_named_actors(True) if actor["namespace"] == "serve"]
    assert ray.get(ray.remote(num_cpus=2)(lambda: 7).remote(), timeout=30) == 7


@pytest.fixture(scope="module")
def caller(cluster: Cluster) -> Iterator[Client]:
    from verilocc_mlir.service.limits import ServerLimits
    from verilocc_mlir.service.ray_serve import Options, deployed

    limits = ServerLimits(max_request_bytes=1 << 20, workers=1, max_waiting=1, streams=1)
    with (
        deployed(Options(limits, listen="127.0.0.1:0", terms="ray_support:TERMS"), cluster) as port,
        connected(f"127.0.0.1:{port}") as found,
    ):
        yield found


@pytest.mark.long
@needs_ray
def test_a_client_allocates_and_audits_through_the_ingress(caller: Client) -> None:
    offered = caller.allocation.GetCapabilities(allocation.GetCapabilitiesRequest(), timeout=SECONDS)
    assert [a.name for a in offered.allocators] == ["deterministic", "waiting"]
    assert offered.limits.workers == 1
    found = allocate(caller)
    here = allocation.AllocateResponse.FromString(service_jobs.run("Allocate", request().SerializeToString(), 60))
    assert found.functions == here.functions
    assert found.mir == here.mir
    assert found.functions[0].outcome == verdict_pb2.OUTCOME_PROVED
    before = small_mir()
    audit = auditing.AuditRequest(before=before.encode(), after=found.mir)
    assert caller.audit.Audit(audit, timeout=SECONDS).outcome == verdict_pb2.OUTCOME_PROVED
    broken = allocated_by_llvm(before, CPU, 0, 0).replace("$sgpr0_sgpr1", "$sgpr2_sgpr3", 1)
    wrong = auditing.AuditRequest(before=before.encode(), after=broken.encode())
    assert caller.audit.Audit(wrong, timeout=SECONDS).outcome != verdict_pb2.OUTCOME_PROVED


@pytest.mark.long
@needs_ray
@pytest.mark.parametrize(
    ("method", "given", "code", "why"),
    [
        ("Allocate", b"\xff\xff", "INVALID_ARGUMENT", "MALFORMED_REQUEST"),
        ("GetCapabilities", b"\xff\xff", "INVALID_ARGUMENT", "MALFORMED_REQUEST"),
        ("Allocate", allocation.AllocateRequest(), "INVALID_ARGUMENT", "MALFORMED_REQUEST"),
        ("Audit", auditing.AuditRequest(before=b"x", after=b"y", target=CPU), "INVALID_ARGUMENT", "MALFORMED_INPUT"),
        ("Allocate", allocation.AllocateRequest(allocator="none"), "NOT_FOUND", "UNKNOWN_ALLOCATOR"),
        (
            "Allocate",
            allocation.AllocateRequest(mir=allocation.MachineIr(text=b"x", target="gfx000")),
            "FAILED_PRECONDITION",
            "TARGET_NOT_SUPPORTED",
        ),
        ("Allocate", bytes((1 << 20) + 1), "RESOURCE_EXHAUSTED", ""),
    ],
)
def test_wrong_input_gets_its_status(caller: Client, method: str, given: Any, code: str, why: str) -> None:
    data = given if isinstance(given, bytes) else given.SerializeToString()
    failed = refusal(lambda: caller.raw(method, data))
    assert (failed.code, failed.reason, failed.retry) == (grpc.StatusCode[code], why, None)


@pytest.mark.long
@needs_ray
def test_a_stream_is_answered_request_by_request(caller: Client) -> None:
    asked = [allocation.AllocateStreamRequest(id=str(n), request=request()) for n in range(4)]
    asked[2].request.allocator = "none"
    open_stream = caller.channel.stream_stream(STREAM)
    answers = open_stream((one.SerializeToString() for one in asked), timeout=60)
    found = {a.id: a for a in map(allocation.AllocateStreamResponse.FromString, answers)}
    assert sorted(found) == ["0", "1", "2", "3"]
    assert found["2"].error.reason == "UNKNOWN_ALLOCATOR"
    assert {found[n].response.functions[0].outcome for n in "013"} == {verdict_pb2.OUTCOME_PROVED}
    failed = refusal(lambda: list(open_stream(iter([b"\xff\xff"]), timeout=60)))
    # The ingress sends no details with a stream that fails.
    assert (failed.code, failed.reason, failed.retry) == (grpc.StatusCode.INVALID_ARGUMENT, "", None)


@pytest.mark.long
@needs_ray
def test_a_request_of_a_stream_that_is_too_large_ends_it(caller: Client) -> None:
    good = allocation.AllocateStreamRequest(id="good", request=request()).SerializeToString()
    given = allocation.MachineIr(text=b"\n" * (1 << 20))
    large = allocation.AllocateStreamRequest(request=allocation.AllocateRequest(mir=given)).SerializeToString()
    answers = caller.channel.stream_stream(STREAM)(iter([good, large]), timeout=60)
    assert allocation.AllocateStreamResponse.FromString(next(answers)).id == "good"
    failed = refusal(lambda: list(answers))
    assert (failed.code, failed.reason, failed.retry) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "", None)


@pytest.mark.long
@needs_ray
def test_an_application_that_is_there_is_not_replaced(caller: Client, cluster: Cluster) -> None:
    from verilocc_mlir.service.limits import ServerLimits
    from verilocc_mlir.service.ray_serve import Options, deployed

    with (
        pytest.raises(InputError, match="has an application 'verilocc' already"),
        deployed(Options(ServerLimits(workers=1), listen="127.0.0.1:0"), cluster),
    ):
        raise AssertionError
    assert allocate(caller).functions[0].outcome == verdict_pb2.OUTCOME_PROVED


@pytest.mark.long
@needs_ray
def test_no_other_machine_reaches_a_replica(caller: Client, held: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(allocate, caller, "waiting")
        (pid,) = lines_of(held.with_name("pids"))
        assert listens_beyond_loopback(parent_of(int(pid))) == []
        held.unlink()
        assert answer.result(SECONDS).functions[0].outcome == verdict_pb2.OUTCOME_PROVED


@pytest.mark.long
@needs_ray
def test_a_worker_that_is_killed_costs_no_answer(caller: Client, held: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(allocate, caller, "waiting")
        (pid,) = lines_of(held.with_name("pids"))
        os.kill(int(pid), signal.SIGKILL)
        assert lines_of(held.with_name("pids"), 2)[1] != pid
        held.unlink()
        assert answer.result(60).functions[0].allocator == "waiting"


@pytest.mark.long
@needs_ray
def test_what_cannot_wait_is_refused_with_a_time_to_come_back(caller: Client, held: Path) -> None:
    """Of two more there is room for one: whichever comes second is refused."""
    call = caller.allocation.Allocate.future
    calls = [call(request("waiting"), timeout=SECONDS)]
    lines_of(held.with_name("pids"))
    calls += [call(request("waiting"), timeout=SECONDS) for _ in range(2)]
    until(lambda: sum(one.done() for one in calls) == 1)
    (late,) = (one for one in calls if one.done())
    failed = refusal(late.result)
    assert (failed.code, failed.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "OVERLOADED")
    assert failed.retry
    calls.remove(late)
    held.unlink()
    assert {one.result().functions[0].outcome for one in calls} == {verdict_pb2.OUTCOME_PROVED}


@pytest.mark.long
@needs_ray
def test_a_call_whose_deadline_passes_frees_its_worker(caller: Client, held: Path) -> None:
    """It gives up what nobody waits for, and has the next call, though what it waited for has not come."""
    assert refusal(lambda: allocate(caller, "waiting", 1)).code is grpc.StatusCode.DEADLINE_EXCEEDED
    assert lines_of(held.with_name("pids"))
    assert allocate(caller).functions[0].outcome == verdict_pb2.OUTCOME_PROVED


@pytest.mark.long
@needs_ray
def test_a_replica_that_is_killed_is_replaced(caller: Client, held: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        answer: Future[allocation.AllocateResponse] = pool.submit(allocate, caller, "waiting")
        (pid,) = lines_of(held.with_name("pids"))
        os.kill(parent_of(int(pid)), signal.SIGKILL)
        failed = refusal(lambda: answer.result(60))
    assert failed.code in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE)
    assert gone(int(pid))
    held.unlink()

    def ask() -> int:
        try:
            return allocate(caller, seconds=10).functions[0].outcome
        except grpc.RpcError:
            return verdict_pb2.OUTCOME_UNSPECIFIED

    assert until(ask, "an outcome") == verdict_pb2.OUTCOME_PROVED


@pytest.mark.long
@needs_ray
def test_more_replicas_than_the_machine_has_room_for() -> None:
    from verilocc_mlir.service.limits import ServerLimits
    from verilocc_mlir.service.ray_serve import Options, deployed

    with (
        pytest.raises(InputError, match="need more than the"),
        deployed(Options(ServerLimits(workers=10_000)), Cluster(started=True)),
    ):
        raise AssertionError
