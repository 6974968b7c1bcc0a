"""What answers of the service say beside their verdicts: what is left to do, and what the work cost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support import pre_ra

pytest.importorskip("grpc", reason="the extra 'service' is not installed")

from verilocc.v1 import allocation_service_pb2 as allocation
from verilocc.v1 import audit_service_pb2 as auditing
from verilocc.v1 import problem_pb2, verdict_pb2
from verilocc_mlir.service import jobs
from verilocc_mlir.service.pool import WorkerPool


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
