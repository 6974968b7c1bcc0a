"""The client: what a server answers, and what is tried again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc")

from client_support import DETERMINISTIC, QUICK, answering, honest, request, served
from grpc import StatusCode
from support import long, pre_ra

from verilocc.v1 import allocation_service_pb2 as allocation
from verilocc.v1 import audit_service_pb2 as auditing
from verilocc.v1 import problem_pb2, verdict_pb2
from verilocc_mlir.allocators import allocator
from verilocc_mlir.cli.main import run
from verilocc_mlir.problem.model import AllocationProblem
from verilocc_mlir.remote.allocator import RemoteAllocator
from verilocc_mlir.remote.client import Client, RemoteError, RetryPolicy
from verilocc_mlir.service.jobs import Terms
from verilocc_mlir.service.running import serving
from verilocc_mlir.service.status import ServiceError

pytestmark = pytest.mark.usefixtures("no_token")


@dataclass(frozen=True)
class Real:
    """Addresses of a ``verilocc serve`` that asks for nothing."""

    socket: str
    loopback: str


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    directory = tmp_path_factory.mktemp("server")
    with served(listen=[f"unix:{directory}/s", "127.0.0.1:0"]) as (socket, loopback):
        yield Real(socket, loopback)


class Failing:
    """Raises the given errors, one a call, then answers."""

    def __init__(self, *errors: ServiceError) -> None:
        self.left = list(errors)

    def __call__(self, request: allocation.AllocateRequest) -> allocation.AllocateResponse:
        if self.left:
            raise self.left.pop(0)
        return honest(request)


LOST = ServiceError(StatusCode.UNAVAILABLE, "WORKER_LOST", "gone", 0.0)
FULL = ServiceError(StatusCode.RESOURCE_EXHAUSTED, "OVERLOADED", "try later", 0.01)


@pytest.mark.parametrize("where", ["socket", *long("loopback", "in this process")])
def test_a_server_allocates_as_the_local_allocator_does(problem: AllocationProblem, real: Real, where: str) -> None:
    with serving() as here:
        address = {"socket": real.socket, "loopback": real.loopback}.get(where, here)
        with Client(address) as client:
            remote = RemoteAllocator(client)
            assert remote.allocate(problem).registers == allocator("deterministic").allocate(problem).registers
            assert (remote.name, remote.address) == (f"remote({address})", address)
            said = client.capabilities()
            assert remote.version == DETERMINISTIC == said.versions.allocator
            assert RemoteAllocator(client).version == remote.version


@pytest.mark.long
def test_the_result_of_compile_is_the_local_one_byte_for_byte(real: Real, demo_kernels: Path, tmp_path: Path) -> None:
    source = demo_kernels / "gemm_mma_lds.gfx942.opt.ll"
    local, remote, report = (tmp_path / name for name in ("local.hsaco", "remote.hsaco", "r.json"))
    assert run(["compile", str(source), "-q", "-o", str(local)]) == 0
    for server in (real.loopback, real.socket, "local"):
        command = ["compile", str(source), "-q", "-o", str(remote), f"--server={server}", f"--report={report}"]
        assert run(command) == 0
        assert remote.read_bytes() == local.read_bytes()
        phases = json.loads(report.read_text())["functions"][0]["phases"]
        assert [p["allocator"] for p in phases] == [f"remote({server})"] * 2
        remote.unlink()


def test_audits_of_a_server(real: Real, demo_kernels: Path) -> None:
    text = pre_ra(demo_kernels / "attn_d64.gfx942.opt.ll")
    with Client(real.socket) as client:
        machine = allocation.MachineIr(text=text.encode(), phase=problem_pb2.PHASE_SGPR)
        mir = client.allocate(allocation.AllocateRequest(mir=machine, return_mir=True)).mir
        answer = client.audit(auditing.AuditRequest(before=text.encode(), after=mir))
        assert answer.outcome == verdict_pb2.OUTCOME_PROVED
        with pytest.raises(RemoteError) as caught:
            client.audit(auditing.AuditRequest(before=text.encode(), after=b"\xff"))
    assert (caught.value.code, caught.value.reason) == ("INVALID_ARGUMENT", "MALFORMED_INPUT")
    assert caught.value.exit_code == 2


def test_a_stream_answers_every_request(real: Real, problem: AllocationProblem) -> None:
    good, bad = request(problem), allocation.AllocateRequest()
    with Client(real.socket) as client:
        found = {one.number: one.result for one in client.allocate_stream([good, bad, good])}
    assert set(found) == {0, 1, 2}
    error = found[1]
    assert isinstance(error, RemoteError)
    assert (error.code, error.reason) == ("INVALID_ARGUMENT", "MALFORMED_REQUEST")
    for number in (0, 2):
        answer = found[number]
        assert isinstance(answer, allocation.AllocateResponse)
        assert answer.functions[0].outcome == verdict_pb2.OUTCOME_PROVED


@pytest.mark.long
def test_a_defect_of_the_server_in_this_process_is_said(problem: AllocationProblem) -> None:
    def factory(_: str) -> Any:
        raise ZeroDivisionError("a defect")

    with serving(Terms(factory=factory)) as address, Client(address) as client:
        for call in (client.allocate_all, lambda r: client.allocate_all([*r, *r])):
            error = call([request(problem)])[0]
            assert isinstance(error, RemoteError)
            assert (error.code, error.reason) == ("INTERNAL", "DEFECT")
            assert "ZeroDivisionError: a defect" in error.message


@pytest.mark.parametrize("errors", [[FULL, LOST, FULL], *long([LOST, LOST], [FULL] * 6)])
def test_what_passes_is_tried_again(problem: AllocationProblem, errors: list[ServiceError]) -> None:
    with answering(Failing(*errors)) as asked, Client(asked.address, policy=QUICK) as client:
        assert client.allocate(request(problem)).functions[0].outcome == verdict_pb2.OUTCOME_PROVED
        assert len(asked.calls) == len(errors) + 1
    with answering(Failing(*errors)) as asked, Client(asked.address, policy=QUICK) as client:
        (one,) = client.allocate_stream([request(problem)])
        assert isinstance(one.result, allocation.AllocateResponse)
        assert len(asked.calls) == len(errors) + 1


@pytest.mark.parametrize(
    "error",
    [
        ServiceError(StatusCode.INVALID_ARGUMENT, "MALFORMED_INPUT", "no"),
        ServiceError(StatusCode.RESOURCE_EXHAUSTED, "MEMORY_LIMIT", "too large"),
        ServiceError(StatusCode.DEADLINE_EXCEEDED, "DEADLINE", "late"),
        ServiceError(StatusCode.INTERNAL, "DEFECT", "a \x1b[31mdefect\n", 0.0),
        ServiceError(StatusCode.RESOURCE_EXHAUSTED, "OVERLOADED", "try in an hour", 3600.0),
    ],
)
def test_what_does_not_pass_is_not(problem: AllocationProblem, error: ServiceError) -> None:
    with answering(Failing(error)) as asked, Client(asked.address, policy=QUICK) as client:
        with pytest.raises(RemoteError) as caught:
            client.allocate(request(problem))
        assert len(asked.calls) == 1
    found = caught.value
    assert (found.code, found.reason, found.retry_seconds) == (error.code.name, error.reason, error.retry_seconds)
    assert found.message == " ".join(error.message.replace("\x1b", " ").split())


CLOSING = ServiceError(StatusCode.CANCELLED, "CANCELLED", "as gRPC says it while a server closes", 0.0)


@pytest.mark.parametrize("error", [LOST, CLOSING], ids=lambda error: error.reason)
def test_tries_at_a_server_that_is_lost_are_few(problem: AllocationProblem, error: ServiceError) -> None:
    with answering(Failing(*[error] * 10)) as asked, Client(asked.address, policy=QUICK) as client:
        with pytest.raises(RemoteError, match=error.reason):
            client.allocate(request(problem))
        assert len(asked.calls) == QUICK.tries


def test_retry_waits_no_less_than_the_server_says() -> None:
    policy = RetryPolicy(tries=3, first_seconds=0.1, most_seconds=5.0)
    waits = [policy.wait(tried, None) for tried in range(1, 9)]
    for tried, wait in enumerate(waits, 1):
        most = min(0.1 * 2 ** (tried - 1), 5.0)
        assert most / 2 <= wait <= most
    assert all(2.0 <= policy.wait(1, 2.0) <= 2.2 for _ in range(20))
    overloaded = RemoteError("a", StatusCode.RESOURCE_EXHAUSTED, "OVERLOADED", "", 2.0)
    assert policy.again(overloaded, 99, 60.0) is not None
    assert policy.again(overloaded, 1, 1.0) is None
    assert policy.again(RemoteError("a", StatusCode.UNAVAILABLE, "", ""), 3, 60.0) is None
    crowded = RemoteError("a", StatusCode.RESOURCE_EXHAUSTED, "", "Concurrent RPC limit exceeded!")
    assert policy.again(crowded, 2, 60.0) is not None
    assert policy.again(crowded, 3, 60.0) is None
    too_large = RemoteError("a", StatusCode.RESOURCE_EXHAUSTED, "", "Received message larger than max (9 vs. 8)")
    assert policy.again(too_large, 1, 60.0) is None


@pytest.mark.parametrize("ids", [["7"], ["0", "0"], ["-0"], ["x"], [""], ["\u0660"]])
def test_a_stream_whose_answers_nobody_asked_for_is_an_error(problem: AllocationProblem, ids: list[str]) -> None:
    with answering(honest, ids=lambda _: ids) as asked, Client(asked.address) as client:
        answers = client.allocate_stream([request(problem)])
        with pytest.raises(RemoteError, match="what was not asked"):
            list(answers)


@pytest.mark.long
def test_a_stream_that_ends_early_leaves_an_error_for_the_rest(problem: AllocationProblem) -> None:
    only_one = answering(honest, ids=lambda number: [number] if number == "1" else [])
    with only_one as asked, Client(asked.address) as client:
        first, second = client.allocate_all([request(problem)] * 2)
    assert isinstance(first, RemoteError)
    assert "without an answer" in first.message
    assert isinstance(second, allocation.AllocateResponse)
