"""The cost model over what llc writes: components, loops, totals."""

from __future__ import annotations

import pytest
from support import cpu_of, few, kernel_paths, run_llc

from verilocc_mlir.cost.model import cost_of_assembly
from verilocc_mlir.errors import InputError
from verilocc_mlir.target.targets import target

KERNELS = [p for p in kernel_paths() if p.name.endswith(".opt.ll")]


@pytest.mark.parametrize("path", few(KERNELS[::3], KERNELS), ids=lambda p: p.name.removesuffix(".opt.ll"))
def test_components_agree_with_llc(path) -> None:
    cpu = cpu_of(path)
    assembly = run_llc(path.read_text(), cpu, mir=False)
    for cost in cost_of_assembly(assembly, target(cpu)).values():
        assert cost.occupancy == cost.llvm_occupancy
        assert cost.cycles == cost.unhidden + max(cost.bounds["latency"], cost.work)
        assert (cost.bound == "latency") == (cost.bounds["latency"] >= cost.work)
        parts = cost.waits + cost.dependencies + cost.busy + cost.hazards + cost.branches
        assert 0 <= parts < cost.latency


def test_truncated_text_is_refused() -> None:
    path = KERNELS[0]
    cpu = cpu_of(path)
    assembly = run_llc(path.read_text(), cpu, mir=False)
    with pytest.raises(InputError, match="truncated"):
        cost_of_assembly(assembly[: assembly.index("s_endpgm")], target(cpu))
