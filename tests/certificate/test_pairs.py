"""What LLVM allocates is certified: kernels, and random machine IR that exercises rules about threads."""

from __future__ import annotations

from pathlib import Path

import pytest
from allocation import Pair, allocated, phases_of_kernel
from random_mir import random_features, random_mir
from support import kernel_paths

from smt_verifier.certificate.produce import certify
from smt_verifier.certificate.write import write_certificate
from smt_verifier.checker.certificate import read_certificate
from smt_verifier.checker.check import check, prepare
from smt_verifier.checker.text import read

KERNELS = ("gemm_mma_lds.gfx942.opt", "gemm_mma_lds.gfx1201.opt")
SEEDS = [
    pytest.param(101, "gfx1250", "basic", id="if and else"),
    pytest.param(100, "gfx1201", "basic", id="behind a loop"),
    pytest.param(104, "gfx950", "greedy", id="copies of virtual registers"),
]


def assert_accepted(pair: Pair) -> None:
    before, after = read(pair.pre), read(pair.post)
    for function in before.functions:
        both = prepare(before, after, function.name, pair.cpu)
        made = certify(both)
        assert made.refused is None, made.refused
        text = write_certificate(made.certificate, both.before.grain)
        assert read_certificate(text, both.before.grain).function == function.name
        assert check(pair.pre, pair.post, text, pair.cpu).operands > 0


@pytest.mark.parametrize("path", [pytest.param(p, id=p.stem) for p in kernel_paths() if p.stem in KERNELS])
@pytest.mark.parametrize("phase", [0, 1], ids=["sgpr", "vgpr"])
def test_both_phases_of_a_kernel(path: Path, phase: int) -> None:
    assert_accepted(phases_of_kernel(path)[phase])


@pytest.mark.parametrize(("seed", "cpu", "allocator"), SEEDS)
def test_the_scalar_phase_of_random_machine_ir(seed: int, cpu: str, allocator: str) -> None:
    assert_accepted(allocated(random_mir(seed, cpu, random_features(seed)), cpu, 0, allocator))
