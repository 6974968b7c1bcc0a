"""What the service says beside its verdicts: what is left to do, what the work cost, and what it logs and traces."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import REPOSITORY, long, pre_ra

pytest.importorskip("grpc", reason="the extra 'service' is not installed")

import grpc
from case_support import CASES
from certificate_support import authority
from service_allocators import DIRECTORY
from service_support import sgpr, small_mir

from verilocc.v1 import allocation_service_pb2 as allocation
from verilocc.v1 import audit_service_pb2 as auditing
from verilocc.v1 import problem_pb2, verdict_pb2
from verilocc_mlir.service import jobs
from verilocc_mlir.service.pool import Pace, WorkerPool
from verilocc_mlir.service.status import ServiceError


def request(text: str) -> bytes:
    mir = allocation.MachineIr(text=text.encode(), target="gfx942", phase=problem_pb2.PHASE_SGPR)
    return allocation.AllocateRequest(mir=mir, return_mir=True).SerializeToString()


def test_an_audit_says_what_a_later_phase_is_to_allocate(demo_kernels: Path) -> None:
    text = pre_ra(demo_kernels / "gemm_mma_lds.gfx942.opt.ll")
    after = allocation.AllocateResponse.FromString(jobs.run("Allocate", request(text), 60)).mir
    asked = auditing.AuditRequest(before=text.encode(), after=after, target="gfx942", after_name="scalar.mir")
    answer = auditing.AuditResponse.FromString(jobs.run("Audit", asked.SerializeToString(), 60))
    assert answer.outcome == verdict_pb2.OUTCOME_PROVED
    (note,) = answer.notes
    assert "scalar.mir still has" in note
    assert "virtual registers, which a later phase is to allocate" in note


def test_an_audit_asks_llvm_for_long_branches() -> None:
    before, after = (
        (CASES / f"right_near_branch_over_duplicated_copies.{side}.mir").read_bytes() for side in ("before", "after")
    )
    asked = auditing.AuditRequest(before=before, after=after, target="gfx942")
    answer = auditing.AuditResponse.FromString(jobs.run("Audit", asked.SerializeToString(), 60))
    (function,) = answer.functions
    assert answer.outcome == verdict_pb2.OUTCOME_PROVED
    assert list(function.verdict.premises) == ["near-branches"]


@pytest.mark.long
def test_the_cost_of_a_request_has_the_solver_in_it(demo_kernels: Path) -> None:
    payload = request(pre_ra(demo_kernels / "gemm_mma_lds.gfx942.opt.ll"))

    async def work() -> tuple[float, float]:
        pool = WorkerPool(workers=1, max_waiting=0)
        await pool.start()
        try:
            done = await pool.run("Allocate", payload, 60)
        finally:
            await pool.close()
        steps = allocation.AllocateResponse.FromString(done.data).steps
        return done.cpu, sum(step.cpu_time.ToTimedelta().total_seconds() for step in steps)

    whole, steps = asyncio.run(work())
    # The steps count their solver's time: the whole is no less than its parts.
    assert whole >= steps > 0


@pytest.mark.long
@pytest.mark.parametrize("turns", [0, *long(1, 2, 3)])
def test_a_client_that_goes_away_as_its_turn_comes_is_not_worked_for(
    turns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever number of the loop's turns lies between the worker that is free and the client that is gone."""
    monkeypatch.setenv(DIRECTORY, str(tmp_path))
    # However late this process is for its turns, there is no answer before the client is gone.
    endless = sgpr(small_mir(), "hangs").SerializeToString()

    async def work() -> bool:
        pool = WorkerPool(workers=1, max_waiting=1, terms="service_allocators:TERMS")
        await pool.start()
        try:
            first, second = (asyncio.ensure_future(pool.run("Allocate", payload, 60)) for payload in (b"", endless))
            await asyncio.wait({first})
            for _ in range(turns):
                await asyncio.sleep(0)
            assert second.cancel()
            await asyncio.wait({second})
            gone = second.cancelled()
            # Nothing is lost with it, neither the worker nor its place in the queue.
            with pytest.raises(ServiceError, match="MALFORMED_REQUEST"):
                await pool.run("Allocate", b"", 60)
            assert (pool.counts.busy, pool.counts.waiting) == (0, 0)
            return gone and isinstance(first.exception(), ServiceError)
        finally:
            await pool.close()

    assert asyncio.run(work())


def test_the_time_to_stay_away_is_what_requests_take() -> None:
    pace = Pace()
    assert (pace.wait(0, 2), pace.wait(4, 2)) == (1.0, 3.0)
    pace.note(8.0)
    assert (pace.wait(0, 2), pace.wait(4, 2)) == (8.0, 24.0)
    for _ in range(200):
        pace.note(0.5)
    assert pace.wait(4, 2) == pytest.approx(1.5)
    # One that is slow, or none that takes any time at all, does not send clients away for good or have them at once.
    pace.note(600.0)
    assert pace.wait(1000, 1) == 60.0
    for _ in range(500):
        pace.note(0.0)
    assert pace.wait(1, 2) == 0.1


@pytest.mark.long
def test_a_pool_says_what_its_own_requests_take(demo_kernels: Path) -> None:
    payload = request(pre_ra(demo_kernels / "gemm_mma_lds.gfx942.opt.ll"))

    async def work() -> tuple[float, float | None, float | None]:
        pool = WorkerPool(workers=1, max_waiting=0)
        await pool.start()
        try:
            done = await pool.run("Allocate", payload, 60)
            busy = asyncio.ensure_future(pool.run("Allocate", payload, 60))
            await asyncio.sleep(0)
            with pytest.raises(ServiceError) as refused:
                await pool.run("Allocate", payload, 60)
            mean = pool.pace.mean
            await busy
        finally:
            await pool.close()
        return done.worked, mean, refused.value.retry_seconds

    worked, mean, retry = asyncio.run(work())
    assert mean == worked
    assert retry == max(worked, 0.1)


def spans(text: str) -> list[dict[str, Any]]:
    """JSON objects, one after the other."""
    found: list[dict[str, Any]] = []
    decoder = json.JSONDecoder()
    while text := text.strip():
        one, end = decoder.raw_decode(text)
        found.append(one)
        text = text[end:]
    return found


@pytest.mark.long
def test_logs_and_spans_say_what_happened(tmp_path: Path) -> None:
    pem, key = authority(tmp_path, "ca").sign("server")
    address = f"unix:{tmp_path / 's'}"
    process = subprocess.Popen(
        [
            sys.executable, "-m", "verilocc_mlir.cli.main", "serve", "--workers=1", "--traces=console",
            "--listen=127.0.0.1:0", f"--listen={address}", f"--tls-cert={pem}", f"--tls-key={key}",
        ],
        cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        logged = [json.loads(process.stderr.readline()) for _ in range(2)]
        mir = allocation.MachineIr(text=b"x", target="gfx803", phase=problem_pb2.PHASE_SGPR)
        with grpc.insecure_channel(address) as channel:
            for method, message in (
                ("GetCapabilities", allocation.GetCapabilitiesRequest()),
                ("Allocate", allocation.AllocateRequest(mir=mir)),
            ):
                call = channel.unary_unary(f"/verilocc.v1.AllocationService/{method}")
                refusal = call.future(message.SerializeToString(), timeout=60).exception()
        assert isinstance(refusal, grpc.RpcError)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    # The socket's clients speak plain text, whatever certificate the port has.
    assert [line["tls"] for line in logged] == [True, False]
    fine, refused = spans(out)
    assert (fine["name"], fine["status"]["status_code"]) == ("GetCapabilities", "UNSET")
    assert (refused["name"], refused["status"]["status_code"]) == ("Allocate", "ERROR")
    assert "'gfx803' is not supported" in refused["status"]["description"]
    assert refused["attributes"]["verilocc.reason"] == "TARGET_NOT_SUPPORTED"
    assert refused["attributes"]["rpc.grpc.status_code"] == grpc.StatusCode.FAILED_PRECONDITION.value[0]
    assert refused["events"] == []
