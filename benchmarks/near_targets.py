"""GPUs beside those of ``TARGETS``: each is tried from outside, as docs/extend/target.md says, on the example kernels.

    .venv/bin/python benchmarks/near_targets.py [--targets=gfx1200,gfx1101]

A GPU that differs from one of ``TARGETS`` in facts alone gets an entry made of that one's. The others need rules, and
their row has the answer of the command line.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from common import REPOSITORY, Row, command, options, write

from verilocc_mlir.cost.model import cost_of_assembly
from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.pipeline.compile import compile_module
from verilocc_mlir.pipeline.settings import Emit, Settings
from verilocc_mlir.target.targets import TARGETS, target

_FEWER: Mapping[str, Any] = {"vgpr_total": 1024, "vgpr_granule": 16}
NEAR: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "gfx9-4-generic": ("gfx942", {}),
    "gfx1101": ("gfx1100", {}),
    "gfx1102": ("gfx1100", _FEWER),
    "gfx1103": ("gfx1100", _FEWER),
    "gfx1150": ("gfx1100", _FEWER),
    "gfx1151": ("gfx1100", {}),
    "gfx11-generic": ("gfx1100", _FEWER),
    "gfx1200": ("gfx1201", {}),
    "gfx12-generic": ("gfx1201", {}),
}
"""The one of ``TARGETS`` that a GPU is like, and the facts that differ (AMDGPU.td: Feature1_5xVGPRs)."""
FAR = ("gfx906", "gfx908", "gfx1030", "gfx9-generic", "gfx10-3-generic")


def try_kernel(path: Path, like: str, cpu: str) -> Row:
    """A kernel of ``like`` for ``cpu``: what became of it, and whether the waves are those that llc prints."""
    ir = path.read_bytes().replace(f'"target-cpu"="{like}"'.encode(), f'"target-cpu"="{cpu}"'.encode())
    try:
        done = compile_module(ir, path.name, Settings(cpu=cpu, fallback=False, emit=Emit.HSACO, also=(Emit.ASM,)))
        costs = cost_of_assembly(done.also[Emit.ASM].decode(), target(cpu)).values() if Emit.ASM in done.also else ()
    except VeriloccError as error:
        return {"kernel": path.name, "outcome": "error", "reason": str(error)}
    waves = [(cost.occupancy, cost.llvm_occupancy) for cost in costs if cost.is_kernel]
    return {"kernel": path.name, "outcome": str(done.report.outcome), "waves": waves}


def main() -> None:
    parser = options(__doc__, "near_targets.json")
    parser.add_argument("--targets", default=",".join((*NEAR, *FAR)))
    arguments = parser.parse_args()
    rows: list[Row] = []
    for cpu in arguments.targets.split(","):
        like, facts = NEAR.get(cpu, ("gfx90a" if cpu.startswith("gfx9") else "gfx1100", {}))
        if cpu in NEAR:
            TARGETS[cpu] = replace(target(like), name=cpu, **facts)
        kernels = sorted((REPOSITORY / "examples" / "kernels").glob(f"*.{like}.opt.ll"))
        for path in kernels if cpu in NEAR else kernels[:1]:
            rows.append({"target": cpu, "like": like if cpu in NEAR else "", **try_kernel(path, like, cpu)})
            print(rows[-1], file=sys.stderr, flush=True)
    write(arguments.out, {"command": command(), "rows": rows})


if __name__ == "__main__":
    main()
