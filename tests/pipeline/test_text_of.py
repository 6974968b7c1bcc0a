"""The machine IR that a server is sent states the very problem that is solved here, spill code and callees included."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from builders import kernel, loads, stores
from support import DEMO_KERNELS, TEST_DATA

from smt_verifier.outcome import Outcome
from verilocc_mlir.allocators import Reading, allocator
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.pipeline.compile import compile_module
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.problem.build import build_problem
from verilocc_mlir.problem.model import AllocationProblem, Phase, Proposal
from verilocc_mlir.target.targets import target


@dataclass(frozen=True)
class Reads:
    """Answers what the text states, and keeps whether that is the problem."""

    same: list[bool] = field(default_factory=list[bool], hash=False)
    name: str = "reads"
    version: str = "1"

    def allocate(self, problem: AllocationProblem) -> Proposal:
        raise AssertionError("there is a text")

    def allocate_text(self, text: str, problem: AllocationProblem) -> Proposal:
        file = parse_mir(text, "sent")
        function = next(f for f in file.functions if f.name == problem.function)
        phase: Phase = "sgpr" if problem.phase == "sgpr" else "vgpr"
        self.same.append(build_problem(file, function, target(problem.target), phase) == problem)
        return allocator("deterministic").allocate(problem)


TIGHT = kernel([*loads(24), *stores([f"%v{n}" for n in range(24)])], 16)
ATTENTION = (DEMO_KERNELS / "attn_d64.gfx1100.opt.ll").read_text()
ATTENTION = ATTENTION.replace('"amdgpu-flat', '"amdgpu-num-vgpr"="100" "amdgpu-flat')


@pytest.mark.parametrize(
    ("text", "cpu", "questions"),
    [
        # As it is, and with spill code, whose classes stand in no operand.
        (TIGHT, "gfx1100", 3),
        pytest.param(ATTENTION, "gfx1100", 4, marks=pytest.mark.long),
        # AGPRs and VGPRs share a file: what may be in either gets another class first.
        ((DEMO_KERNELS / "gemm_mma_lds.gfx942.opt.ll").read_text(), "gfx942", 2),
        # What the callers of a function count on stands in the callers.
        ((TEST_DATA / "callees" / "two_levels.ll").read_text(), "gfx942", 6),
    ],
    ids=["spills", "spills more and more", "one file", "callees"],
)
def test_it_states_the_problem(text: str, cpu: str, questions: int) -> None:
    reads = Reads()
    assert isinstance(reads, Reading)
    done = compile_module(text.encode(), "k.ll", Settings(cpu=cpu), allocators=(reads,))
    assert done.report.outcome is Outcome.PROVED
    assert len(reads.same) >= questions
    assert all(reads.same)
