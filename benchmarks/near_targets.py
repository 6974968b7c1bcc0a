"""The GPUs of ``TARGETS`` that have no kernels of their own here: the example kernels of the GPU that each is like.

    .venv/bin/python benchmarks/near_targets.py [--targets=gfx1200,gfx1101]

Of each kernel: what becomes of it where nothing but our own allocation counts, and the waves by the cost model and as
llc prints them. A GPU is like the one of its scheduling model that has kernels. For one that is no target, the answer
of the command line.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from common import REPOSITORY, Row, command, options, tree, write

from verilocc_mlir.cost.model import cost_of_assembly
from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.pipeline.compile import compile_module
from verilocc_mlir.pipeline.settings import Emit, Settings
from verilocc_mlir.target.targets import TARGETS, target

LIKE: Mapping[str, str] = {
    gpu.name: other.name
    for gpu in TARGETS.values()
    for other in map(target, ("gfx942", "gfx1100", "gfx1201"))
    if other is not gpu and other.speed_model is gpu.speed_model
}
"""For each GPU without kernels of its own, the one that has them and the same scheduling model."""
FAR = ("gfx906", "gfx908", "gfx1030", "gfx9-generic", "gfx10-3-generic", "gfx1251")


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
    parser.add_argument("--targets", default=",".join((*LIKE, *FAR)))
    arguments = parser.parse_args()
    rows: list[Row] = []
    for cpu in arguments.targets.split(","):
        like = LIKE.get(cpu, "gfx90a" if cpu.startswith("gfx9") else "gfx1100")
        kernels = sorted((REPOSITORY / "examples" / "kernels").glob(f"*.{like}.opt.ll"))
        for path in kernels if cpu in TARGETS else kernels[:1]:
            rows.append({"target": cpu, "like": LIKE.get(cpu, ""), **try_kernel(path, like, cpu)})
            print(rows[-1], file=sys.stderr, flush=True)
    write(arguments.out, {"command": command(), "tree": tree(), "rows": rows})


if __name__ == "__main__":
    main()
