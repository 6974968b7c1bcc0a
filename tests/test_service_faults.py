"""Whatever is sent and whatever dies: a documented status in time, and the next request is answered."""

from __future__ import annotations

import gzip
import hashlib
import os
import queue
import random
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import grpc
import pytest
from batch_support import VERILOCC
from grpc import StatusCode
from grpc_health.v1 import health_pb2
from service_support import (
    CPU,
    SECONDS,
    Authority,
    Client,
    Served,
    authority,
    connected,
    gone,
    health,
    numbers,
    refusal,
    refused,
    serving,
    serving_terms,
    sgpr,
    small_mir,
    wait_until,
)
from support import REPOSITORY, allocated_by_llvm

from verilocc.v1 import allocation_service_pb2 as allocation
from verilocc.v1 import audit_service_pb2 as auditing
from verilocc.v1 import problem_pb2, verdict_pb2
from verilocc_mlir.errors import InputError
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.problem.build import build_problem
from verilocc_mlir.service import wire
from verilocc_mlir.service.client import Client as OurClient
from verilocc_mlir.service.client import RemoteError, RetryPolicy
from verilocc_mlir.service.security import TlsFiles, TokenBook, channel_credentials
from verilocc_mlir.service.server import ServerLimits
from verilocc_mlir.target.targets import target

MIB = 1 << 20
SECRET = "a_word_that_no_log_may_have"
EXHAUSTED = StatusCode.RESOURCE_EXHAUSTED, "MEMORY_LIMIT"
LOST = StatusCode.UNAVAILABLE, "WORKER_LOST"
LATE = StatusCode.DEADLINE_EXCEEDED, "DEADLINE"
BAD_REQUEST = StatusCode.INVALID_ARGUMENT, "MALFORMED_REQUEST"
BAD_INPUT = StatusCode.INVALID_ARGUMENT, "MALFORMED_INPUT"


# -- one server for all that costs no more than a worker ---------------------------------------------------


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("notes")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, notes: Path) -> Iterator[Served]:
    """One worker, nobody waits, messages of 8 MiB, 4 s for a call without a deadline."""
    with serving_terms(
        f"unix:{tmp_path_factory.mktemp('faults')}/socket",
        limits={
            "workers": 1, "max_waiting": 1, "memory_mib": 700, "max_request_bytes": 8 * MIB, "default_seconds": 4.0,
        },
        metrics="127.0.0.1:0",
        environment={"VERILOCC_TEST_DIRECTORY": str(notes)},
    ) as found:  # fmt: skip
        yield found


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[Client]:
    with connected(served.address) as found:
        yield found


@pytest.fixture(autouse=True)
def fresh(notes: Path) -> None:
    for path in notes.iterdir():
        path.unlink()


def check_alive(client: Client) -> None:
    """A good request is answered."""
    answer = client.allocation.Allocate(sgpr(small_mir()), timeout=SECONDS)
    assert answer.functions[0].outcome == verdict_pb2.OUTCOME_PROVED


def said(client: Client, request: allocation.AllocateRequest) -> tuple[StatusCode, str]:
    """Code and reason of a request that fails; the server's own time limit is what ends it, if anything does."""
    failed = refusal(lambda: client.allocation.Allocate(request))
    return failed.code, failed.reason


# -- workers -----------------------------------------------------------------------------------------------


def test_a_worker_killed_in_its_work_costs_no_answer(served: Served, client: Client, notes: Path) -> None:
    call = client.allocation.Allocate.future(sgpr(small_mir(), "waits"), timeout=SECONDS)
    (first,) = numbers(notes / "pids", 1)
    os.kill(first, signal.SIGKILL)
    _, second = numbers(notes / "pids", 2)
    assert second != first
    (notes / "go").touch()
    assert call.result().functions[0].allocator == "waits"
    check_alive(client)


def test_a_request_that_loses_two_workers_is_given_up(client: Client, notes: Path) -> None:
    call = client.allocation.Allocate.future(sgpr(small_mir(), "waits"), timeout=SECONDS)
    for tried in (1, 2):
        os.kill(numbers(notes / "pids", tried)[-1], signal.SIGKILL)
    failed = refusal(call.result)
    assert (failed.code, failed.reason) == LOST
    check_alive(client)


def test_an_idle_worker_that_died_is_not_missed(served: Served, client: Client, notes: Path) -> None:
    (notes / "go").touch()
    client.allocation.Allocate(sgpr(small_mir(), "waits"), timeout=SECONDS)
    (pid,) = numbers(notes / "pids", 1)
    os.kill(pid, signal.SIGKILL)
    assert gone(pid)
    check_alive(client)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("exits", LOST), ("crashes", LOST), ("quits", LOST), ("interrupts", LOST), ("eats", EXHAUSTED),
        ("eats-natively", EXHAUSTED),
    ],
)  # fmt: skip
def test_what_an_allocator_does_to_its_process_is_a_status(
    client: Client, name: str, expected: tuple[StatusCode, str]
) -> None:
    assert said(client, sgpr(small_mir(), name)) == expected
    check_alive(client)


@pytest.mark.parametrize("name", ["hangs", "spins"])
def test_a_worker_that_hangs_is_replaced_at_the_deadline(client: Client, notes: Path, name: str) -> None:
    assert said(client, sgpr(small_mir(), name)) == LATE
    (pid,) = numbers(notes / "pids", 1)
    assert gone(pid)
    check_alive(client)


def test_short_deadlines_do_not_keep_a_worker_from_starting(client: Client, notes: Path) -> None:
    """Each of these ends a worker, and none waits until the next one is there."""
    for _ in range(3):
        failed = refusal(lambda: client.allocation.Allocate(sgpr(small_mir(), "hangs"), timeout=0.3))
        assert failed.code is StatusCode.DEADLINE_EXCEEDED
    wait_until(lambda: _answered(client, 0.5), "an answer within half a second")


def _answered(client: Client, seconds: float) -> bool:
    call = client.allocation.Allocate.future(sgpr(small_mir()), timeout=seconds)
    return call.exception() is None


def test_a_stuck_solver_costs_the_request_its_time_and_no_more(served: Served, client: Client) -> None:
    """The solver of the worker is stopped, as if it never came to an end; it is ended with its worker."""
    check_alive(client)
    (worker,) = _children(served.pid)
    (solver,) = _children(worker)
    os.kill(solver, signal.SIGSTOP)
    assert said(client, sgpr(small_mir(4))) == LATE
    assert gone(worker)
    assert gone(solver)
    check_alive(client)


def _children(pid: int) -> list[int]:
    return sorted(
        int(child) for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()
    )


def test_a_client_that_goes_away_ends_the_work_and_all_it_started(client: Client, notes: Path) -> None:
    call = client.allocation.Allocate.future(sgpr(small_mir(), "spawns"), timeout=SECONDS)
    (pid,) = numbers(notes / "pids", 1)
    children = numbers(notes / "children", 2)
    call.cancel()
    assert all(map(gone, (pid, *children)))
    check_alive(client)


def test_a_client_of_a_stream_that_goes_away_ends_its_work(client: Client, notes: Path) -> None:
    to_send: queue.Queue[Any] = queue.Queue()
    answers = client.allocation.AllocateStream(iter(to_send.get, None), timeout=SECONDS)
    to_send.put(allocation.AllocateStreamRequest(request=sgpr(small_mir(), "hangs")))
    (pid,) = numbers(notes / "pids", 1)
    answers.cancel()
    to_send.put(None)
    assert gone(pid)
    check_alive(client)


# -- the queue ---------------------------------------------------------------------------------------------


def test_overload_is_refused_with_the_time_to_wait(served: Served, client: Client, notes: Path) -> None:
    busy = client.allocation.Allocate.future(sgpr(small_mir(), "waits"), timeout=SECONDS)
    numbers(notes / "pids", 1)
    # The second waits for the worker, until the server's own time for it is over; a third would be too many.
    waiting = client.allocation.Allocate.future(sgpr(small_mir()), timeout=SECONDS)
    wait_until(lambda: metrics(served)["verilocc_workers_waiting"] == 1, "one that waits")
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
    wait_until(lambda: sum(c.done() for c in calls) >= 10, "those that are too many")
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


def test_a_flood_of_calls_that_need_no_worker_is_bounded(tmp_path: Path) -> None:
    """Watchers of health, each of which stays; all the places that there are but one."""
    limits = ServerLimits(workers=1, max_waiting=0)
    given = {"workers": 1, "max_waiting": 0}
    with serving_terms(f"unix:{tmp_path}/s", limits=given) as served, connected(served.address) as client:
        watchers = [health(client.channel).Watch(health_pb2.HealthCheckRequest()) for _ in range(limits.max_calls - 1)]
        assert {next(watcher).status for watcher in watchers} == {health_pb2.HealthCheckResponse.SERVING}
        check_alive(client)
        watchers.append(health(client.channel).Watch(health_pb2.HealthCheckRequest()))
        next(watchers[-1])
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
        check_alive(client)
        for watcher in watchers:
            watcher.cancel()


# -- messages ----------------------------------------------------------------------------------------------


def test_a_message_over_the_limit(client: Client) -> None:
    failed = refusal(lambda: client.raw("Allocate", b"\0" * (100 * MIB)))
    assert failed.code is StatusCode.RESOURCE_EXHAUSTED
    packed = sgpr("\n" * (100 * MIB)).SerializeToString()
    failed = refusal(lambda: client.raw("Allocate", packed, compression=grpc.Compression.Gzip))
    assert failed.code is StatusCode.RESOURCE_EXHAUSTED
    check_alive(client)


@pytest.mark.parametrize("method", ["Allocate", "Audit", "GetCapabilities"])
@pytest.mark.parametrize(
    "data", [b"\xff" * 20, b"\x0a\xff\xff\xff\xff\x7f", gzip.compress(b"x" * 99, mtime=0)], ids=["ones", "long", "gzip"]
)
def test_bytes_that_are_no_message(client: Client, method: str, data: bytes) -> None:
    failed = refusal(lambda: client.raw(method, data))
    assert (failed.code, failed.reason) == BAD_REQUEST
    check_alive(client)


def test_a_stream_with_bytes_that_are_no_message_ends_with_what_was_accepted(client: Client) -> None:
    """Nothing says whose request that was: the stream is over, what was read before is answered."""
    stream: Any = client.channel.stream_stream("/verilocc.v1.AllocationService/AllocateStream")
    good = allocation.AllocateStreamRequest(id="good", request=sgpr(small_mir())).SerializeToString()
    answers = stream(iter([good, b"\xff" * 20, good]), timeout=SECONDS)
    assert allocation.AllocateStreamResponse.FromString(next(answers)).id == "good"
    failed = refusal(lambda: next(answers))
    assert (failed.code, failed.reason) == BAD_REQUEST
    check_alive(client)


def test_random_bytes_and_random_edits_of_a_problem(client: Client) -> None:
    """Field by field of the contract, each with another value now and then."""
    file = parse_mir(small_mir())
    problem = build_problem(file, file.functions[0], target(CPU), "sgpr")
    good = allocation.AllocateRequest(problem=wire.problem_message(problem)).SerializeToString()
    chosen = random.Random(5)
    for number in range(150):
        data = bytearray(good)
        for _ in range(chosen.randint(1, 4)):
            data[chosen.randrange(len(data))] = chosen.randrange(256)
        try:
            answer = allocation.AllocateResponse.FromString(client.raw("Allocate", bytes(data)))
        except grpc.RpcError as error:
            failed = refused(error)
            assert failed.reason in documented()[failed.code.name], (number, failed)
            assert failed.code is not StatusCode.INTERNAL, (number, failed, bytes(data).hex())
        else:
            proved = verdict_pb2.OUTCOME_PROVED
            assert all((f.outcome == proved) >= bool(f.assignments) for f in answer.functions)
    check_alive(client)


def _mir_request(text: bytes = b"", **fields: Any) -> allocation.AllocateRequest:
    mir = {"text": text or small_mir().encode(), "target": CPU, "phase": problem_pb2.PHASE_SGPR}
    given = {k: fields.pop(k) for k in ("target", "phase", "name") if k in fields}
    return allocation.AllocateRequest(mir=allocation.MachineIr(**{**mir, **given}), **fields)


UNSUPPORTED = StatusCode.FAILED_PRECONDITION
LLVM_IR = b'target triple = "amdgcn-amd-amdhsa"\ndefine amdgpu_kernel void @f() { ret void }\n'


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        pytest.param(allocation.AllocateRequest(), BAD_REQUEST, id="nothing"),
        pytest.param(sgpr(b"", ""), BAD_INPUT, id="empty text"),
        pytest.param(sgpr(b"---\nname: \xff\xfe\n", ""), BAD_INPUT, id="not UTF-8"),
        pytest.param(sgpr(b"---\nname: x\0y\n", ""), BAD_INPUT, id="a zero"),
        pytest.param(sgpr(b" \n\t\n", ""), BAD_INPUT, id="white space"),
        pytest.param(sgpr(LLVM_IR, ""), BAD_INPUT, id="LLVM IR"),
        pytest.param(sgpr(b"BC\xc0\xde" + b"\0" * 100, ""), BAD_INPUT, id="bitcode"),
        pytest.param(sgpr(b"\x7fELF" + b"\0" * 100, ""), BAD_INPUT, id="ELF"),
        pytest.param(sgpr(b"module { func.func @f() { return } }\n", ""), BAD_INPUT, id="MLIR"),
        pytest.param(_mir_request(target="gfx803"), (UNSUPPORTED, "TARGET_NOT_SUPPORTED"), id="gfx803"),
        pytest.param(_mir_request(target="x" * 100_000), (UNSUPPORTED, "TARGET_NOT_SUPPORTED"), id="a long target"),
        pytest.param(_mir_request(phase=problem_pb2.PHASE_WWM), (UNSUPPORTED, "PHASE_NOT_SUPPORTED"), id="WWM"),
        pytest.param(
            allocation.AllocateRequest(allocator=b"\xff".decode("latin-1"), mir=allocation.MachineIr()),
            (StatusCode.NOT_FOUND, "UNKNOWN_ALLOCATOR"), id="Latin-1",
        ),
        pytest.param(_mir_request(phase=0), BAD_REQUEST, id="no phase"),
        pytest.param(_mir_request(phase=77), BAD_REQUEST, id="unknown phase"),
        pytest.param(_mir_request(allocator="no-such"), (StatusCode.NOT_FOUND, "UNKNOWN_ALLOCATOR"), id="allocator"),
        pytest.param(
            _mir_request(allocator="ä" * MIB), (StatusCode.NOT_FOUND, "UNKNOWN_ALLOCATOR"), id="a long allocator"
        ),
        pytest.param(_mir_request(max_attempts=-1), BAD_REQUEST, id="attempts below"),
        pytest.param(_mir_request(max_attempts=33), BAD_REQUEST, id="attempts above"),
        pytest.param(_mir_request(b"---\nname: f\n", name="n" * MIB), BAD_INPUT, id="a long name"),
        pytest.param(
            allocation.AllocateRequest(problem=problem_pb2.AllocationProblem()), BAD_INPUT, id="an empty problem"
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_request(
    client: Client, request_: allocation.AllocateRequest, expected: tuple[StatusCode, str]
) -> None:
    failed = refusal(lambda: client.allocation.Allocate(request_))
    assert (failed.code, failed.reason) == expected, failed.message
    assert failed.message
    assert len(failed.message) < 1100


def test_a_processor_that_nothing_names(client: Client) -> None:
    text = small_mir().replace('"target-cpu"="gfx942"', "").encode()
    failed = refusal(lambda: client.allocation.Allocate(_mir_request(text, target="")))
    assert (failed.code, failed.reason) == BAD_INPUT
    assert "processor" in failed.message


def test_text_that_is_allocated_already(client: Client) -> None:
    """No virtual register is left to place: nothing to do, or refused; never an error without a reason."""
    done = allocated_by_llvm(small_mir(), CPU, 0, 2).encode()
    failed = refusal(lambda: client.allocation.Allocate(_mir_request(done)))
    assert (failed.code, failed.reason) == BAD_INPUT
    assert "allocated" in failed.message


# -- bombs -------------------------------------------------------------------------------------------------


def _with_body(lines: str, registers: str = "") -> bytes:
    head = f"---\nname: f\ntracksRegLiveness: true\n{registers}body: |\n"
    return f"{head}  bb.0:\n{lines}\n    S_ENDPGM 0\n...\n".encode()


def _blocks(count: int) -> bytes:
    body = "".join(
        f"  bb.{n}:\n    successors: %bb.{n + 1}\n    %{n}:sreg_32 = S_MOV_B32 {n}\n    S_BRANCH %bb.{n + 1}\n"
        for n in range(count)
    )
    return f"---\nname: f\ntracksRegLiveness: true\nbody: |\n{body}  bb.{count}:\n    S_ENDPGM 0\n...\n".encode()


BOMBS = {
    "braces": b"---\nname: f\nframeInfo: " + b"{" * 500_000,
    "brackets": b"---\nname: f\nliveins: " + b"[" * 500_000,
    "parentheses": _with_body("    S_NOP " + "(" * 200_000),
    "nested debug locations": _with_body("    S_NOP 0, debug-location !DILocation(line: " + "!D(" * 100_000),
    "operands": _with_body("    S_NOP " + "0, " * 1_000_000 + "0"),
    "operands of a bundle": _with_body("    BUNDLE " + "implicit %0:sreg_32, " * 100_000 + "implicit %0 {\n    }"),
    "blocks": _blocks(10_000),
    "a large register number": _with_body("    %99999999999999999999:sreg_32 = S_MOV_B32 0"),
    "a number of 10,000 digits": _with_body(f"    %{'9' * 10_000}:sreg_32 = S_MOV_B32 0"),
    "an immediate of 10,000 digits": _with_body(f"    %0:sreg_32 = S_MOV_B32 {'9' * 10_000}"),
    "a large frame offset": _with_body(
        "    S_NOP 0", f"stack:\n  - {{ id: 0, offset: {'9' * 5000}, size: {'9' * 5000}, alignment: 4 }}\n"
    ),
    "a large block number": _with_body(f"    S_BRANCH %bb.{'9' * 5000}"),
    "many registers": _with_body(
        "    S_NOP 0",
        "registers:\n" + "".join(f"  - {{ id: {n}, class: sreg_32 }}\n" for n in range(50_000)),
    ),
    "definitions": _with_body("\n".join(f"    %{n}:sreg_32 = S_MOV_B32 {n}" for n in range(20_000))),
    "quotes": b'---\nname: "' + b"\\" * 1_000_001 + b'"\nbody: |\n',
    "IR that does not end": b"--- |\n" + b"  @a = global i32 0\n" * 100_000,
    "documents": b"---\nname: f\n...\n" * 50_000,
    "an alias": b"---\nname: &a [*a, *a]\nbody: |\n  bb.0:\n...\n",
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_an_answer_or_a_documented_status(client: Client, name: str) -> None:
    request = _mir_request(BOMBS[name])
    try:
        answer = client.allocation.Allocate(request)
    except grpc.RpcError as error:
        failed = refused(error)
        assert (failed.code, failed.reason) in {BAD_INPUT, EXHAUSTED, LATE, (UNSUPPORTED, "NOT_SUPPORTED")}, failed
    else:
        assert all((f.outcome == verdict_pb2.OUTCOME_PROVED) or f.reason for f in answer.functions)
    check_alive(client)


# -- what the server says of itself ------------------------------------------------------------------------


def metrics(served: Served) -> dict[str, float]:
    """A scrape: series with their labels as they are written, and their values."""
    port = served.event("metrics")["port"]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=SECONDS) as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, _, value in (x.rpartition(" ") for x in lines if not x.startswith("#"))}


def test_metrics_count_what_happened(served: Served, client: Client) -> None:
    ok = 'verilocc_requests_total{code="OK",method="Allocate",reason=""}'
    bad = 'verilocc_requests_total{code="INVALID_ARGUMENT",method="Allocate",reason="MALFORMED_INPUT"}'
    lost = 'verilocc_requests_total{code="UNAVAILABLE",method="Allocate",reason="WORKER_LOST"}'
    streamed = 'verilocc_requests_total{code="OK",method="AllocateStream",reason=""}'
    refused_ = 'verilocc_requests_total{code="INVALID_ARGUMENT",method="AllocateStream",reason="MALFORMED_REQUEST"}'
    proved = 'verilocc_functions_total{allocator="deterministic",method="Allocate",outcome="proved"}'
    attempts = 'verilocc_attempts_total{allocator="gives-up",ended="allocate"}'
    watched = (ok, bad, lost, streamed, refused_, proved, attempts, "verilocc_workers_lost")
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
        ok: 2, bad: 1, lost: 1, streamed: 1, refused_: 1, proved: 2, attempts: 1, "verilocc_workers_lost": 2,
    }  # fmt: skip
    assert after['verilocc_request_seconds_count{method="Allocate"}'] >= 4
    assert after['verilocc_worker_cpu_seconds_total{method="Allocate"}'] > 0
    assert (after["verilocc_workers_busy"], after["verilocc_workers_waiting"]) == (0, 0)


def test_the_log_has_json_lines_and_nothing_of_requests(served: Served, client: Client) -> None:
    text = small_mir().replace("times3", SECRET)
    client.allocation.Allocate(sgpr(text), timeout=SECONDS)
    for request in (
        sgpr(text.replace("S_ENDPGM 0", f"{SECRET} = = =")),
        sgpr(text, SECRET),
        _mir_request(text.encode(), target=SECRET),
        _mir_request(b"---\n" + SECRET.encode(), name=SECRET),
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


def test_every_status_so_far_is_in_the_contract(served: Served) -> None:
    """Runs last of those that share the server: its log has the status of each request that failed."""
    table = documented()
    found = {(e["code"], e["reason"]) for e in served.events() if e["event"] == "refused"}
    assert found
    assert all(reason in table[code] for code, reason in found), found


def documented() -> dict[str, set[str]]:
    """The contract's table of errors: reasons by status code."""
    text = (REPOSITORY / "proto" / "verilocc" / "v1" / "allocation_service.proto").read_text()
    table: dict[str, set[str]] = {}
    code = ""
    for line in text[text.index("//   code ") : text.index("service AllocationService")].splitlines()[1:]:
        words = line.removeprefix("//").split("  ")
        if not line.startswith("//   "):
            break
        cells = [w.strip() for w in words if w.strip()]
        if not line.startswith("//    "):
            code = cells.pop(0)
        reasons = {w.strip(" ,") for w in cells[0].split() if w.strip(" ,").isupper()}
        table.setdefault(code, set()).update(reasons)
    return table


# -- the end -----------------------------------------------------------------------------------------------


def test_the_end_waits_for_what_was_accepted(tmp_path: Path) -> None:
    """Under load: two in work, two waiting, a stream; new ones are told to go elsewhere; nothing is left."""
    path = tmp_path / "socket"
    environment = {"VERILOCC_TEST_DIRECTORY": str(tmp_path)}
    limits = {"workers": 2, "max_waiting": 8}
    with serving_terms(f"unix:{path}", limits=limits, environment=environment) as served:
        with connected(served.address) as client:
            watching = health(client.channel).Watch(health_pb2.HealthCheckRequest(service="verilocc.v1.AuditService"))
            assert next(watching).status == health_pb2.HealthCheckResponse.SERVING
            to_send: queue.Queue[Any] = queue.Queue()
            answers = client.allocation.AllocateStream(iter(to_send.get, None), timeout=SECONDS)
            to_send.put(allocation.AllocateStreamRequest(id="one", request=sgpr(small_mir(), "waits")))
            pids = numbers(tmp_path / "pids", 1)
            calls = [client.allocation.Allocate.future(sgpr(small_mir(), "waits"), timeout=SECONDS) for _ in range(3)]
            pids = numbers(tmp_path / "pids", 2)
            left = served.descendants()
            assert set(pids) <= left
            served.process.send_signal(signal.SIGTERM)
            assert served.event("draining")["busy"] == 2
            assert next(watching).status == health_pb2.HealthCheckResponse.NOT_SERVING
            failed = refusal(lambda: client.allocation.Allocate(sgpr(small_mir()), timeout=SECONDS))
            assert (failed.code, failed.reason) == (StatusCode.UNAVAILABLE, "DRAINING")
            to_send.put(allocation.AllocateStreamRequest(id="late", request=sgpr(small_mir())))
            (tmp_path / "go").touch()
            assert [c.result().functions[0].allocator for c in calls] == ["waits"] * 3
            assert next(answers).id == "one"
            ended = refusal(lambda: next(answers))
            assert (ended.code, ended.reason) == (StatusCode.UNAVAILABLE, "DRAINING")
            to_send.put(None)
            assert served.process.wait(SECONDS) == 0
        assert all(map(gone, left))
        assert not path.exists()
        assert served.event("ended")["finished"] is True


def test_a_second_signal_does_not_wait(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    environment = {"VERILOCC_TEST_DIRECTORY": str(tmp_path)}
    with (
        serving_terms(f"unix:{path}", limits={"workers": 1}, environment=environment) as served,
        connected(served.address) as client,
    ):
        calls = [client.allocation.Allocate.future(sgpr(small_mir(), "spawns"), timeout=SECONDS) for _ in range(2)]
        (pid,) = numbers(tmp_path / "pids", 1)
        left = {pid, *numbers(tmp_path / "children", 2), *served.descendants()}
        served.process.send_signal(signal.SIGTERM)
        served.event("draining")
        assert served.stop() == 130
        failures = [refusal(c.result) for c in calls]
        assert {f.code for f in failures} == {StatusCode.UNAVAILABLE}
        assert {f.reason for f in failures} <= {"WORKER_LOST", "DRAINING"}
        assert all(map(gone, left))
        assert not path.exists()
        assert served.event("ended")["finished"] is False


def test_calls_that_outlast_the_time_to_drain_are_given_up(tmp_path: Path) -> None:
    environment = {"VERILOCC_TEST_DIRECTORY": str(tmp_path)}
    with (
        serving_terms(f"unix:{tmp_path}/s", environment=environment, drain_seconds=0.2) as served,
        connected(served.address) as client,
    ):
        call = client.allocation.Allocate.future(sgpr(small_mir(), "hangs"), timeout=SECONDS)
        numbers(tmp_path / "pids", 1)
        assert served.stop() == 130
        failed = refusal(call.result)
        assert (failed.code, failed.reason) == LOST


def test_nothing_outlives_a_server_that_is_killed(tmp_path: Path) -> None:
    environment = {"VERILOCC_TEST_DIRECTORY": str(tmp_path)}
    with (
        serving_terms(f"unix:{tmp_path}/s", environment=environment) as served,
        connected(served.address) as client,
    ):
        check_alive(client)
        call = client.allocation.Allocate.future(sgpr(small_mir(), "spawns"), timeout=SECONDS)
        left = {*numbers(tmp_path / "pids", 1), *numbers(tmp_path / "children", 2), *served.descendants()}
        served.stop(signal.SIGKILL)
        assert all(map(gone, left))
        assert refusal(call.result).code is StatusCode.UNAVAILABLE
        # The socket that it left is no obstacle.
        with serving(listen=f"unix:{tmp_path}/s") as again, connected(again.address) as next_client:
            check_alive(next_client)


# -- the start ---------------------------------------------------------------------------------------------


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


def test_an_address_in_use(tmp_path: Path) -> None:
    with serving("--metrics=127.0.0.1:0", listen=f"unix:{tmp_path}/s") as served, connected(served.address) as client:
        assert "in use" in start_fails(f"--listen=unix:{tmp_path}/s")
        check_alive(client)
        port = served.event("metrics")["port"]
        assert f"127.0.0.1:{port}" in start_fails(f"--listen=127.0.0.1:{port}")
        assert f"127.0.0.1:{port}" in start_fails(f"--listen=unix:{tmp_path}/t", f"--metrics=127.0.0.1:{port}")
        assert not (tmp_path / "t").exists()
        assert served.stop() == 0


def test_bad_addresses(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    for address, words in {
        "0.0.0.0:0": "there is no TLS",
        "[::]:0": "there is no TLS",
        "nonsense": "is not HOST:PORT",
        "127.0.0.1:99999": "is not HOST:PORT",
        f"unix:{tmp_path}/none/s": "there is no directory",
        f"unix:{tmp_path}/file": "is there and no socket",
    }.items():
        assert words in start_fails(f"--listen={address}")
    assert (tmp_path / "file").read_text() == "kept"


def test_what_says_that_it_is_ready_has_its_solvers(tmp_path: Path) -> None:
    """Nobody has asked anything yet."""
    with serving(listen=f"unix:{tmp_path}/s") as served, connected(served.address) as client:
        assert health(client.channel).Check(health_pb2.HealthCheckRequest()).status == 1
        workers = _children(served.pid)
        assert [len(_children(worker)) for worker in workers] == [1, 1]
        solvers = [_children(worker) for worker in workers]
        check_alive(client)
        assert [_children(worker) for worker in workers] == solvers


def test_a_server_whose_solver_does_not_load_is_not_ready(tmp_path: Path) -> None:
    (tmp_path / "z3").mkdir()
    (tmp_path / "z3" / "__init__.py").write_text("raise ImportError('a library that is not there')\n")
    said = start_fails(f"--listen=unix:{tmp_path}/s", PYTHONPATH=str(tmp_path))
    assert "the solver does not answer: " in said
    assert "a library that is not there" in said
    assert not (tmp_path / "s").exists()


def test_terms_that_cannot_be_loaded_are_one_message(tmp_path: Path) -> None:
    with serving_terms(f"unix:{tmp_path}/s", terms="no_such_module:TERMS") as served:
        assert served.process.wait(SECONDS) != 0
        assert not (tmp_path / "s").exists()


# -- tokens ------------------------------------------------------------------------------------------------


def token_line(token: str, name: str, expires: str = "") -> str:
    return f"{hashlib.sha256(token.encode()).hexdigest()} {name} {expires}\n"


def test_tokens_are_asked_for_and_can_be_taken_away(tmp_path: Path) -> None:
    now = datetime.now(timezone.utc)
    path = tmp_path / "tokens"
    good, other = token_line("good", "ci"), token_line("other", "node")
    old = token_line("old", "old", (now - timedelta(days=1)).isoformat())
    new = token_line("new", "new", (now + timedelta(days=1)).isoformat())
    path.write_text(f"# who may call\n{good}{other}{old}{new}")
    with serving("--workers=1", "--tokens", path) as served, connected(served.address) as client:

        def call(authorization: str | None) -> str:
            """The reason for which a call is refused, "" if it is answered."""
            metadata = () if authorization is None else (("authorization", authorization),)
            for method in (
                lambda: client.allocation.Allocate(sgpr(small_mir()), timeout=SECONDS, metadata=metadata),
                lambda: client.allocation.GetCapabilities(
                    allocation.GetCapabilitiesRequest(), timeout=SECONDS, metadata=metadata
                ),
                lambda: list(client.allocation.AllocateStream(iter(()), timeout=SECONDS, metadata=metadata)),
            ):
                try:
                    method()
                except grpc.RpcError as error:
                    failed = refused(error)
                    assert failed.code is StatusCode.UNAUTHENTICATED
                    found = failed.reason
                else:
                    found = ""
            return found

        for authorization, expected in {
            None: "TOKEN_MISSING",
            "": "TOKEN_MISSING",
            "Basic good": "TOKEN_MISSING",
            "Bearer ": "TOKEN_MISSING",
            "Bearer wrong": "TOKEN_UNKNOWN",
            "Bearer " + good.split()[0]: "TOKEN_UNKNOWN",
            "Bearer old": "TOKEN_EXPIRED",
            "Bearer new": "",
            "bearer good": "",
            "Bearer other": "",
        }.items():
            assert call(authorization) == expected, authorization
        # One is taken away, one is given.
        path.write_text(good + token_line("fresh", "later"))
        assert (call("Bearer other"), call("Bearer good"), call("Bearer fresh")) == ("TOKEN_UNKNOWN", "", "")
        # A line that is none: what was known stays, and the log says that the change was not taken.
        path.write_text(good[:30])
        assert (call("Bearer good"), call("Bearer fresh")) == ("", "")
        assert served.event("tokens not read")["level"] == "error"
        # The last one is taken away.
        path.write_text("# nobody\n")
        assert (call("Bearer good"), call("Bearer fresh")) == ("TOKEN_UNKNOWN", "TOKEN_UNKNOWN")
        assert health(client.channel).Check(health_pb2.HealthCheckRequest()).status == 1
        assert {e.get("caller") for e in served.events() if e["event"] == "answered"} >= {"ci", "node"}
        assert not {"good", "fresh"} & set("".join(served.lines).replace('"', " ").split())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot be read"),
        (b"", "no token in this file"),
        (b"# nothing\n", "no token in this file"),
        (b"\xff\xfe", "cannot be read"),
        (b"abc ci\n", "not a token's line"),
        (b"g" * 64 + b" ci\n", "not a token's line"),
        (b"a" * 64 + b"\n", "not a token's line"),
        (b"a" * 64 + b" ci tomorrow\n", "is not a time"),
        (b"a" * 64 + b" ci 2027-01-31T00:00:00\n", "has no offset"),
    ],
)
def test_a_bad_token_file(tmp_path: Path, text: bytes | None, words: str) -> None:
    path = tmp_path / "tokens"
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(InputError, match=words) as error:
        TokenBook(path)
    assert str(path) in error.value.where


def test_a_bad_token_file_keeps_the_server_from_starting(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("abc ci\n")
    assert "tokens:1: not a token's line" in start_fails("--listen=127.0.0.1:0", "--tokens", tmp_path / "tokens")


# -- TLS ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("tls"), "ours")


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("foreign"), "foreign")


def tls(ca: Authority, pair: tuple[Path, Path] | None = None) -> grpc.ChannelCredentials:
    return channel_credentials(ca.path, *(pair or (None, None)))


def check_unreachable(served: Served, credentials: grpc.ChannelCredentials | None) -> None:
    with connected(served.address, credentials) as client:
        failed = refusal(lambda: client.allocation.GetCapabilities(allocation.GetCapabilitiesRequest(), timeout=10))
        assert failed.code is StatusCode.UNAVAILABLE


def test_tls_and_clients_with_certificates(ours: Authority, foreign: Authority, tmp_path: Path) -> None:
    certificate, key = ours.sign("server")
    given = ("--workers=1", "--tls-cert", certificate, "--tls-key", key)
    with serving(*given, f"--listen=unix:{tmp_path}/s") as served, connected(served.address, tls(ours)) as client:
        check_alive(client)
        check_unreachable(served, tls(foreign))
        check_unreachable(served, None)
        with connected(f"unix:{tmp_path}/s") as local:
            check_alive(local)
        # Handshakes that fail say nothing that is not a line of the log's form.
        assert served.events()
    with serving(*given, "--tls-client-ca", ours.path) as served:
        with connected(served.address, tls(ours, ours.sign("client"))) as client:
            check_alive(client)
        check_unreachable(served, tls(ours))
        check_unreachable(served, tls(ours, foreign.sign("client")))
        check_unreachable(served, tls(ours, ours.sign("old client", (-2, -1))))
        assert served.events()


def test_a_certificate_that_expired(ours: Authority) -> None:
    certificate, key = ours.sign("expired", (-2, -1))
    with serving("--workers=1", "--tls-cert", certificate, "--tls-key", key) as served:
        check_unreachable(served, tls(ours))


def test_tls_files_that_are_none(ours: Authority, foreign: Authority, tmp_path: Path) -> None:
    certificate, key = ours.sign("server")
    junk = tmp_path / "junk.pem"
    junk.write_text("junk")
    for files, words in {
        (junk, key, None): "not a certificate chain and its key",
        (certificate, junk, None): "not a certificate chain and its key",
        (certificate, foreign.sign("other")[1], None): "not a certificate chain and its key",
        (certificate, key, junk): "no certificate in this file",
        (tmp_path / "none", key, None): "cannot be read",
    }.items():
        with pytest.raises(InputError, match=words):
            TlsFiles(*files).credentials()
    assert "not a certificate chain" in start_fails("--listen=127.0.0.1:0", "--tls-cert", junk, "--tls-key", key)
    assert "--tls-key" in start_fails("--listen=127.0.0.1:0", "--tls-cert", certificate)
    assert "--tls-cert" in start_fails("--listen=127.0.0.1:0", "--tls-client-ca", ours.path)
