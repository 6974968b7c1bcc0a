"""The allocator behind a server: servers that are down, late, or that lie."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support import few

pytest.importorskip("grpc")

import grpc
from batch_support import CPU, kernel
from client_support import NOWHERE, QUICK, answering, flat, honest

from verilocc.v1 import allocation_service_pb2 as allocation
from verilocc.v1 import verdict_pb2
from verilocc_mlir.allocators import AllocationFailure
from verilocc_mlir.cli.main import run
from verilocc_mlir.problem.model import AllocationProblem
from verilocc_mlir.remote.allocator import RemoteAllocator
from verilocc_mlir.remote.client import Client, RemoteError

pytestmark = pytest.mark.usefixtures("no_token")


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


@pytest.fixture(scope="module")
def compiled_here(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The busy kernel, without a server."""
    source = tmp_path_factory.mktemp("here") / "k.ll"
    source.write_text(BUSY)
    out = source.with_suffix(".hsaco")
    assert run(["compile", str(source), f"-mcpu={CPU}", "-q", "-o", str(out)]) == 0
    return out.read_bytes()


@pytest.mark.parametrize("lie", few(list(LIES)[::3], LIES))
def test_lies_are_refuted_here_and_the_local_allocation_is_taken(
    lie: str, compiled_here: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, told = LIES[lie]
    source, out = tmp_path / "k.ll", tmp_path / "k.hsaco"
    source.write_text(BUSY)
    with answering(altered(change)) as asked:
        assert run(["compile", str(source), f"-mcpu={CPU}", "-o", str(out), f"--server={asked.address}"]) == 0
        assert asked.calls == ["Allocate"] * 2
    assert out.read_bytes() == compiled_here
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
