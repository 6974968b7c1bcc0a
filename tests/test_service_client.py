"""The client, the allocator behind a server, and ``verilocc compile --server``: servers that are real, down, slow,
overloaded, or that lie.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc")
pytest.importorskip("cryptography")

import grpc
from batch_support import CPU, kernel, kernels
from client_support import Certificates, answering, certificates, honest, served
from grpc import StatusCode
from support import pre_ra

from smt_verifier.outcome import Outcome
from verilocc.v1 import allocation_service_pb2 as allocation
from verilocc.v1 import audit_service_pb2 as auditing
from verilocc.v1 import problem_pb2, verdict_pb2
from verilocc_mlir.allocators import AllocationFailure, allocator
from verilocc_mlir.allocators.deterministic import DeterministicAllocator
from verilocc_mlir.allocators.remote import RemoteAllocator
from verilocc_mlir.cli.main import run
from verilocc_mlir.cli.server import FACTORY
from verilocc_mlir.errors import InputError
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.pipeline.batch.local import LocalExecutor
from verilocc_mlir.pipeline.batch.plan import plan
from verilocc_mlir.pipeline.batch.run import BatchOptions, compile_batch
from verilocc_mlir.pipeline.compile import compile_module
from verilocc_mlir.pipeline.key import Keys
from verilocc_mlir.pipeline.settings import Emit, ServerAccess, Settings
from verilocc_mlir.problem.build import build_problem
from verilocc_mlir.problem.model import AllocationProblem, Proposal
from verilocc_mlir.service.client import Client, RemoteError, RetryPolicy
from verilocc_mlir.service.inprocess import serving
from verilocc_mlir.service.jobs import Terms
from verilocc_mlir.service.status import ServiceError
from verilocc_mlir.service.wire import problem_message
from verilocc_mlir.store import Store
from verilocc_mlir.target.targets import target
from verilocc_mlir.toolchain.find import find_toolchain

TOKEN = "a-token-of-tests"
QUICK = RetryPolicy(tries=4, first_seconds=0.01, most_seconds=0.02)
NOWHERE = "127.0.0.1:1"
"""No server listens on port 1 of a machine that runs tests."""


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VERILOCC_TOKEN", raising=False)


@pytest.fixture(scope="module")
def text(demo_kernels: Path) -> str:
    """Machine IR before allocation."""
    return pre_ra(demo_kernels / "attn_d64.gfx942.opt.ll")


@pytest.fixture(scope="module")
def problem(text: str) -> AllocationProblem:
    file = parse_mir(text, "attn.mir")
    return build_problem(file, file.functions[0], target("gfx942"), "sgpr")


@dataclass(frozen=True)
class Real:
    """Addresses of ``verilocc serve``: open ones, and one that wants a client certificate and a token."""

    socket: str
    loopback: str
    guarded: str
    files: Certificates
    token: Path


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    directory = tmp_path_factory.mktemp("server")
    files = certificates(directory / "tls")
    tokens, token = directory / "tokens", directory / "token"
    tokens.write_text(f"{hashlib.sha256(TOKEN.encode()).hexdigest()} tests\n")
    token.write_text(f"{TOKEN}\n")
    guard = (
        f"--tls-cert={files.server[0]}", f"--tls-key={files.server[1]}", f"--tls-client-ca={files.ca}",
        f"--tokens={tokens}",
    )  # fmt: skip
    with (
        served(listen=[f"unix:{directory}/s", "127.0.0.1:0"]) as (socket, loopback),
        served(*guard, listen=["127.0.0.1:0"]) as (guarded,),
    ):
        yield Real(socket, loopback, guarded, files, token)


def request(problem: AllocationProblem) -> allocation.AllocateRequest:
    return allocation.AllocateRequest(problem=problem_message(problem))


class Failing:
    """Raises the given errors, one a call, then answers."""

    def __init__(self, *errors: ServiceError) -> None:
        self.left = list(errors)

    def __call__(self, request: allocation.AllocateRequest) -> allocation.AllocateResponse:
        if self.left:
            raise self.left.pop(0)
        return honest(request)


DETERMINISTIC = f"{DeterministicAllocator.name} {DeterministicAllocator.version}"
LOST = ServiceError(StatusCode.UNAVAILABLE, "WORKER_LOST", "gone", 0.0)
FULL = ServiceError(StatusCode.RESOURCE_EXHAUSTED, "OVERLOADED", "try later", 0.01)


# A server that is there.


@pytest.mark.parametrize("where", ["socket", "loopback", "in this process"])
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


def test_audits_of_a_server(real: Real, text: str) -> None:
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


def test_a_defect_of_the_server_in_this_process_is_said(problem: AllocationProblem) -> None:
    def factory(_: str) -> Any:
        raise ZeroDivisionError("a defect")

    with serving(Terms(factory=factory)) as address, Client(address) as client:
        for call in (client.allocate_all, lambda r: client.allocate_all([*r, *r])):
            error = call([request(problem)])[0]
            assert isinstance(error, RemoteError)
            assert (error.code, error.reason) == ("INTERNAL", "DEFECT")
            assert "ZeroDivisionError: a defect" in error.message


# Tokens and TLS.


def test_a_guarded_server_takes_certificate_and_token(
    real: Real, problem: AllocationProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = ServerAccess(real.files.ca, *real.files.client, real.token)
    with Client(real.guarded, access) as client:
        assert client.allocate(request(problem)).functions[0].outcome == verdict_pb2.OUTCOME_PROVED
    monkeypatch.setenv("VERILOCC_TOKEN", TOKEN)
    with Client(real.guarded, ServerAccess(real.files.ca, *real.files.client)) as client:
        assert client.capabilities().allocators[0].name == "deterministic"


def test_a_guarded_server_refuses_what_it_must(real: Real, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("another")
    stranger = certificates(tmp_path / "other")
    cases = [
        (ServerAccess(real.files.ca, *real.files.client), "UNAUTHENTICATED", "TOKEN_MISSING"),
        (ServerAccess(real.files.ca, *real.files.client, wrong), "UNAUTHENTICATED", "TOKEN_UNKNOWN"),
        (ServerAccess(real.files.ca, token=real.token), "UNAVAILABLE", ""),
        (ServerAccess(stranger.ca, *real.files.client, real.token), "UNAVAILABLE", ""),
        (ServerAccess(real.files.ca, *stranger.client, real.token), "UNAVAILABLE", ""),
    ]
    for access, code, reason in cases:
        with Client(real.guarded, access, QUICK) as client, pytest.raises(RemoteError) as caught:
            client.capabilities(20.0)
        assert (caught.value.code, caught.value.reason) == (code, reason)


def test_compile_with_tls_and_token(real: Real, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "k.ll"
    source.write_text(kernel(3))
    command = [
        "compile", str(source), f"-mcpu={CPU}", f"--server={real.guarded}", f"--server-ca={real.files.ca}",
        f"--server-cert={real.files.client[0]}", f"--server-key={real.files.client[1]}",
    ]  # fmt: skip
    assert run([*command, f"--server-token={real.token}"]) == 0
    assert "remote:" not in capsys.readouterr().out
    assert run(command) == 0
    assert f"remote: times3, SGPR: {real.guarded}: UNAUTHENTICATED, TOKEN_MISSING: " in flat(capsys.readouterr().out)


def flat(text: str) -> str:
    """Without the line breaks of a console."""
    return " ".join(text.split())


def test_a_token_goes_nowhere_without_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    with pytest.raises(InputError, match="not sent over the network without TLS"):
        Client("192.0.2.1:50551", ServerAccess(token=token, insecure=True))
    monkeypatch.setenv("VERILOCC_TOKEN", TOKEN)
    with pytest.raises(InputError, match=r"(?s)not sent over the network.*\$VERILOCC_TOKEN"):
        Client("192.0.2.1:50551", ServerAccess(insecure=True))
    # A proxy is no part of this machine, though the address behind it is.
    with answering(honest) as proxy, answering(honest) as asked:
        monkeypatch.setenv("http_proxy", f"http://{proxy.address}")
        with Client(asked.address) as client, pytest.raises(RemoteError, match="MALFORMED_REQUEST"):
            client.allocate(allocation.AllocateRequest())
    assert proxy.calls == []
    assert [h["authorization"] for h in asked.headers] == [f"Bearer {TOKEN}"]


@pytest.mark.parametrize("content", [b"", b"two words\n", b"two\nlines\n", b"\xff\xfe", "t\u00f6ken".encode()])
def test_what_is_no_token_is_said(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(InputError, match="token"):
        Client(NOWHERE, ServerAccess(token=path))
    with pytest.raises(InputError, match="cannot be read"):
        Client(NOWHERE, ServerAccess(token=tmp_path / "none"))


@pytest.mark.parametrize(
    ("address", "access", "message"),
    [
        ("localhost", ServerAccess(), "is not HOST:PORT"),
        ("localhost:70000", ServerAccess(), "is not HOST:PORT"),
        (NOWHERE, ServerAccess(certificate=Path("c.pem")), "needs its key"),
        (NOWHERE, ServerAccess(ca=Path("/no/ca.pem")), "cannot be read"),
        ("unix:/s", ServerAccess(ca=Path("ca.pem")), "TLS is not used there"),
        (NOWHERE, ServerAccess(ca=Path("ca.pem"), insecure=True), "TLS is not used there"),
    ],
)
def test_wrong_ways_to_a_server_are_bad_input(address: str, access: ServerAccess, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Client(address, access)


# Trying again.


@pytest.mark.parametrize("errors", [[LOST, LOST], [FULL] * 6, [FULL, LOST, FULL]])
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


def test_tries_at_a_server_that_is_lost_are_few(problem: AllocationProblem) -> None:
    with answering(Failing(*[LOST] * 10)) as asked, Client(asked.address, policy=QUICK) as client:
        with pytest.raises(RemoteError, match="WORKER_LOST"):
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


def test_a_stream_that_ends_early_leaves_an_error_for_the_rest(problem: AllocationProblem) -> None:
    only_one = answering(honest, ids=lambda number: [number] if number == "1" else [])
    with only_one as asked, Client(asked.address) as client:
        first, second = client.allocate_all([request(problem)] * 2)
    assert isinstance(first, RemoteError)
    assert "without an answer" in first.message
    assert isinstance(second, allocation.AllocateResponse)


# A server that is not there, or late.


def test_a_server_that_is_down_is_asked_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], problem: AllocationProblem
) -> None:
    source, out, local = tmp_path / "k.ll", tmp_path / "k.hsaco", tmp_path / "local.hsaco"
    source.write_text(kernel(3))
    assert run(["compile", str(source), f"-mcpu={CPU}", "-q", "-o", str(local)]) == 0
    assert run(["compile", str(source), f"-mcpu={CPU}", "-o", str(out), f"--server={NOWHERE}"]) == 0
    assert out.read_bytes() == local.read_bytes()
    shown = flat(capsys.readouterr().out)
    assert f"remote: times3, SGPR: {NOWHERE}: UNAVAILABLE: " in shown
    assert "not asked again for a while; local allocation instead" in shown
    assert "times3 SGPR deterministic 2 proved" in shown

    with Client(NOWHERE, policy=QUICK) as client:
        remote = RemoteAllocator(client)
        with pytest.raises(AllocationFailure) as caught:
            remote.allocate(problem)
        assert (caught.value.reason, remote.version) == ("remote", "unknown")
        with pytest.raises(AllocationFailure, match="not asked again"):
            remote.allocate(problem)


def test_a_server_that_comes_back_is_asked_again(problem: AllocationProblem, tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/s"
    with Client(address) as client:
        remote = RemoteAllocator(client, rest_seconds=0.0)
        with pytest.raises(AllocationFailure):
            remote.allocate(problem)
        with answering(honest, address):
            assert len(remote.allocate(problem).registers) == len(problem.ranges)


def test_a_server_that_hangs_costs_its_time_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, end = tmp_path / "k.ll", threading.Event()
    source.write_text(kernel(3))

    def hang(_: allocation.AllocateRequest) -> allocation.AllocateResponse:
        end.wait(60)
        return allocation.AllocateResponse()

    with answering(hang) as asked:
        try:
            command = ["compile", str(source), f"-mcpu={CPU}", f"--server={asked.address}", "--server-seconds=0.5"]
            assert run(command) == 0
        finally:
            end.set()
        assert asked.calls == ["Allocate"]
    shown = flat(capsys.readouterr().out)
    assert f"remote: times3, SGPR: {asked.address}: DEADLINE_EXCEEDED" in shown
    assert "remote: times3, VGPR:" in shown


def test_a_server_that_declines_is_asked_the_next_time(problem: AllocationProblem) -> None:
    def declined(_: allocation.AllocateRequest) -> allocation.AllocateResponse:
        unknown = allocation.FunctionAllocation(outcome=verdict_pb2.OUTCOME_UNKNOWN, reason="too many\x07 registers")
        return allocation.AllocateResponse(functions=[unknown])

    with answering(declined) as asked, Client(asked.address) as client:
        remote = RemoteAllocator(client)
        for _ in range(2):
            with pytest.raises(AllocationFailure, match="no allocation: too many registers") as caught:
                remote.allocate(problem)
            assert caught.value.reason == "declined"
        assert len(asked.calls) == 2


# A server that lies.


def altered(change: Callable[[Any], None]) -> Callable[[allocation.AllocateRequest], allocation.AllocateResponse]:
    def answer(request: allocation.AllocateRequest) -> allocation.AllocateResponse:
        found = honest(request)
        change(found)
        return found

    return answer


def same_register(answer: Any) -> None:
    """All of a width in one place."""
    first: dict[int, str] = {}
    for one in answer.functions[0].assignments:
        one.physical_register = first.setdefault(one.physical_register.count("_"), one.physical_register)


def out_of_budget(answer: Any) -> None:
    for one in answer.functions[0].assignments:
        if one.physical_register[:4] in ("sgpr", "vgpr"):
            one.physical_register = "_".join(
                f"{part[:4]}{int(part[4:]) + 700}" for part in one.physical_register.split("_")
            )


def renamed(name: str) -> Callable[[Any], None]:
    def change(answer: Any) -> None:
        answer.functions[0].assignments[0].physical_register = name

    return change


BUSY = """
target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @busy(ptr addrspace(1) %p, i32 %m, i32 %n) {
  %id = call i32 @llvm.amdgcn.workitem.id.x()
  %other = add i32 %id, %m
  %q = getelementptr i32, ptr addrspace(1) %p, i32 %id
  %r = getelementptr i32, ptr addrspace(1) %p, i32 %other
  %v = load i32, ptr addrspace(1) %q
  %w = load i32, ptr addrspace(1) %r
  %x = mul i32 %v, %n
  %y = mul i32 %w, %m
  store i32 %x, ptr addrspace(1) %r
  store i32 %y, ptr addrspace(1) %q
  ret void
}
"""
"""Vector values that need registers of their own."""

LIES: dict[str, tuple[Callable[[Any], None], str]] = {
    "all in one register": (same_register, "its proposal: refuted by "),
    "registers that are not in the budget": (out_of_budget, "its proposal: refuted by "),
    "registers of another file": (renamed("agpr0"), "its proposal: refuted by "),
    "the null register": (renamed("sgpr_null"), "its proposal: refuted by "),
    "no such register": (renamed("xgpr1"), "a register that there is not: 'xgpr1'"),
    "another spelling": (renamed("sgpr04"), "a register that there is not: 'sgpr04'"),
    "a long number": (renamed("sgpr" + "9" * 5000), "a register that there is not"),
    "digits that are none": (renamed("sgpr\u0661"), "a register that there is not"),
    "control characters": (renamed("\x1b[2J\n"), "a register that there is not: '[2J'"),
    "no register": (renamed(""), "a register that there is not: ''"),
    "a range that is missing": (lambda a: a.functions[0].assignments.pop(), "ranges a register"),
    "a range twice": (
        lambda a: a.functions[0].assignments.append(a.functions[0].assignments[0]), "it answered twice",
    ),
    "a range that there is not": (
        lambda a: a.functions[0].assignments.append(allocation.Assignment(range=-5, physical_register="sgpr4")),
        "what was not asked: range -5",
    ),
    "no function": (lambda a: a.functions.pop(), "it answered one problem with 0"),
    "two functions": (lambda a: a.functions.append(a.functions[0]), "it answered one problem with 2"),
    "nothing": (lambda a: a.Clear(), "it answered one problem with 0"),
    "no verdict": (lambda a: a.functions[0].ClearField("outcome"), "no allocation: it does not say why"),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_lies_are_refuted_here_and_the_local_allocation_is_taken(
    lie: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, told = LIES[lie]
    source, out, local = tmp_path / "k.ll", tmp_path / "k.hsaco", tmp_path / "local.hsaco"
    source.write_text(BUSY)
    assert run(["compile", str(source), f"-mcpu={CPU}", "-q", "-o", str(local)]) == 0
    with answering(altered(change)) as asked:
        assert run(["compile", str(source), f"-mcpu={CPU}", "-o", str(out), f"--server={asked.address}"]) == 0
        assert asked.calls == ["Allocate"] * 2
    assert out.read_bytes() == local.read_bytes()
    shown = flat(capsys.readouterr().out)
    # One scalar value after the other: they may well be in one place.
    for phase in ("VGPR",) if change is same_register else ("SGPR", "VGPR"):
        line = shown[shown.index(f"remote: busy, {phase}: {asked.address}: ") :]
        assert told in line[: line.index("; local allocation instead")]
    assert "deterministic 2 proved" in shown


def test_what_is_no_answer_at_all(problem: AllocationProblem) -> None:
    """Bytes that are no message, and a server of something else."""
    server = grpc.server(ThreadPoolExecutor(1))
    handler = grpc.unary_unary_rpc_method_handler(lambda _, __: b"\xff\xff")
    methods = {"Allocate": handler}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("verilocc.v1.AllocationService", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with Client(f"127.0.0.1:{port}") as client:
            with pytest.raises(AllocationFailure, match="INTERNAL") as caught:
                RemoteAllocator(client).allocate(problem)
            assert caught.value.reason == "remote"
            with pytest.raises(RemoteError, match="UNIMPLEMENTED"):
                client.capabilities()
    finally:
        server.stop(0).wait()


# The pipeline and the command line.


def test_a_library_call_with_a_server_needs_its_allocator() -> None:
    settings = Settings(cpu=CPU, server="127.0.0.1:1")
    with pytest.raises(InputError, match="is not said"):
        compile_module(kernel(3).encode(), "k.ll", settings)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--server=nonsense"], "is not HOST:PORT"),
        (["--server=127.0.0.1:1", "--allocator=llvm"], "leave one of the two out"),
        (["--server=127.0.0.1:1", "--server-cert=c.pem"], "needs its key"),
    ],
)
def test_wrong_options_are_one_error(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "k.ll"
    source.write_text(kernel(3))
    assert run(["compile", str(source), f"-mcpu={CPU}", *options]) == 2
    assert message in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["k.ll"]


@dataclass(frozen=True)
class Another:
    """The deterministic allocator under a name that is known to a server alone."""

    name: str = "another"
    version: str = "7"

    def allocate(self, problem: AllocationProblem) -> Proposal:
        return allocator("deterministic").allocate(problem)


ANOTHER = Another()


def test_compile_asks_a_server_for_the_allocator_that_it_lists(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    offers = Terms(("another", "deterministic"), factory=lambda n: ANOTHER if n == "another" else allocator(n))
    source, report = tmp_path / "k.ll", tmp_path / "r.json"
    source.write_text(kernel(3))
    with serving(offers) as address, Client(address) as client:
        for name, version in (("", "another 7"), ("another", "another 7"), ("deterministic", DETERMINISTIC)):
            assert RemoteAllocator(client, allocator=name).version == version

        def compiled(server: str, *options: str) -> tuple[str, set[str], str]:
            command = ["compile", str(source), f"-mcpu={CPU}", f"--server={server}", f"--report={report}", *options]
            assert run(command) == 0
            found = json.loads(report.read_text())
            used = {p["allocator"] for f in found["functions"] for p in f["phases"]}
            return found["allocator"], used, flat(capsys.readouterr().out)

        assert compiled(address, "--allocator=another")[:2] == ("another", {f"remote({address})"})
        for name in ("another", "nonsense"):
            asked, used, shown = compiled("local", f"--allocator={name}")
            assert (asked, used) == (name, {"deterministic"})
            said = f"it has no allocator called '{name}'; it has: deterministic"
            assert f"remote: times3, SGPR: local: {said}; local allocation instead" in shown


def test_what_is_asked_of_a_server_has_the_name_in_it(problem: AllocationProblem) -> None:
    """The server of this test does not say what it has: the question itself shows it."""
    names: list[str] = []

    def noted(asked: allocation.AllocateRequest) -> allocation.AllocateResponse:
        names.append(asked.allocator)
        return honest(asked)

    with answering(noted) as asked, Client(asked.address) as client:
        RemoteAllocator(client, allocator="deterministic").allocate(problem)
        RemoteAllocator(client).allocate(problem)
    assert names == ["deterministic", ""]


def many(tmp_path: Path, *options: str) -> dict[str, Any]:
    """The summary of compile-many over the kernels in ``in``."""
    summary = tmp_path / "summary.json"
    command = ["compile-many", str(tmp_path / "in"), "-o", str(tmp_path / "out"), f"-mcpu={CPU}", "-q", "-j1"]
    assert run([*command, f"--cache={tmp_path / 'store'}", f"--report={summary}", "--reports", *options]) == 0
    return json.loads(summary.read_text())


def test_a_batch_keeps_results_of_a_server_apart_from_local_ones(tmp_path: Path) -> None:
    kernels(tmp_path / "in", 2)
    journal = tmp_path / "out" / "verilocc-batch.jsonl"

    def origins(*options: str) -> tuple[set[str], set[str | None]]:
        found = many(tmp_path, *options)
        reports = [json.loads(p.read_text()) for p in sorted((tmp_path / "out").glob("*.report.json"))]
        used = {p["allocator"] for r in reports for f in r["functions"] for p in f["phases"]}
        return {i["origin"] for i in found["inputs"]}, used

    address = f"unix:{tmp_path}/s"
    with served(listen=[address]):
        remote = {f"remote({address})"}
        assert origins() == ({"compiled"}, {"deterministic"})
        assert origins(f"--server={address}") == ({"compiled"}, remote)
        assert origins(f"--server={address}") == ({"journal"}, remote)
        journal.unlink()
        assert origins(f"--server={address}") == ({"cache"}, remote)
        assert origins() == ({"cache"}, {"deterministic"})
    journal.unlink()
    # The server is gone: what it made cannot be had under the name of what it is now, nor is it made up for.
    for _ in range(2):
        assert origins(f"--server={address}") == ({"compiled"}, {"deterministic"})
    with served(listen=[address]):
        assert origins(f"--server={address}") == ({"cache"}, remote)


def test_a_server_that_comes_while_a_batch_runs_has_its_results_under_its_own_name(tmp_path: Path) -> None:
    kernels(tmp_path / "in", 2)
    address = f"unix:{tmp_path}/s"
    settings = Settings(cpu=CPU, server=address)
    store, inputs = Store(tmp_path / "store"), plan([tmp_path / "in"], tmp_path / "out", Emit.HSACO)
    toolchain = find_toolchain()

    def keys(version: str) -> Keys:
        return Keys(settings, toolchain, version)

    def began_with(version: str) -> set[tuple[str, bool]]:
        """Origins, and whether the key is that of the server that allocated."""
        executor = LocalExecutor(1, 60, FACTORY)
        items = list(compile_batch(inputs, executor, BatchOptions(settings, keys(version), store)))
        assert {i.outcome for i in items} == {Outcome.PROVED}
        return {(i.origin.value, i.key == keys(DETERMINISTIC).of(i.input_sha256)) for i in items}

    (tmp_path / "out").mkdir()
    # It was down when the run began, and nobody allocates in its name: nothing is kept.
    assert began_with("unknown") == {("compiled", False)}
    assert [p for p in (tmp_path / "store").rglob("*") if p.is_file()] == []
    with served(listen=[address]):
        # Down at the start, or another one, and there when it was asked.
        assert began_with("unknown") == {("compiled", True)}
        assert began_with("unknown") == {("compiled", True)}
        assert began_with("deterministic 0") == {("compiled", True)}
        assert began_with(DETERMINISTIC) == {("journal", True)}
        assert began_with("deterministic 0") == {("compiled", True)}


def test_a_batch_has_no_server_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernels(tmp_path / "in", 1)
    assert run(["compile-many", str(tmp_path / "in"), "--server=local"]) == 2
    assert "verilocc serve" in capsys.readouterr().err
