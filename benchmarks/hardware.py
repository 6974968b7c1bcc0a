"""The cost model beside measured times: kernels of Kernel Tuner's benchmark hub, compiled, costed and put in order.

    python benchmarks/hardware.py --hub DIR [--tuning DIR] [--llvm14 DIR] [--llvm22 DIR]

``--hub`` is a checkout of AutoTuningAssociation/benchmark_hub, ``--tuning`` one of
MiloLurati/AutoTuning_AMD_vs_Nvidia_GPUs, whose convolution was measured on MI250X; without it that set keeps the rows
of the run before. Clang and llc of LLVM 22 compile the kernels, those of LLVM 14 the convolution for MI250X: it was
measured in December 2023 on LUMI, which had ROCm 5.2 then. Which configurations are taken stands in the rows that are
there (``results/hardware_rows.json.xz``): samples by measured time, and whole groups of one size of work-group.

``--formula`` compiles nothing: it puts the rows that are there in order by ``cost/unhidden.py`` as it is now.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from common import RESULTS, Row, command, machine, options, tree, write
from hardware_kernels import ENTRIES, GPUS, Places, active_share, compiled, launch, loops
from hardware_report import packed, read_rows, summary
from msgspec.structs import replace

from verilocc_mlir.cost.assembly import Function, parse_assembly
from verilocc_mlir.cost.compare import spill_traffic
from verilocc_mlir.cost.model import KernelCost, cost_of_function
from verilocc_mlir.cost.trips import parse_loops
from verilocc_mlir.cost.unhidden import UNITS
from verilocc_mlir.target.targets import target

ROWS = RESULTS / "hardware_rows.json.xz"
DEFAULT_LLVM = Path("/usr/lib")


def costed(kernel: str, gpu: str, params: dict[str, int], ir: str, assembly: str, opt: Path) -> KernelCost:
    """The kernel's cost, started with the work-groups of the configuration."""
    device = target(GPUS[gpu].arch)
    function = next(f for f in parse_assembly(assembly, device) if f.name == ENTRIES[kernel])
    extents = params["block_size_x"], params["block_size_y"], 1
    function = replace(function, figures=replace(function.figures, extents=extents))
    passes = ["-passes=function(print<loops>,print<scalar-evolution>)", "-scalar-evolution-classify-expressions=0"]
    run = subprocess.run([opt, *passes, "-disable-output", "-"], input=ir, capture_output=True, text=True, check=True)
    known = parse_loops(run.stderr).get(function.name, ())
    first = cost_of_function(function, device, known)
    return cost_of_function(_unnamed(function), device, loops(kernel, params, first))


def _unnamed(function: Function) -> Function:
    """Without the names of IR blocks, so that loops are matched by their order."""
    return replace(function, blocks=tuple(replace(block, ir_name="") for block in function.blocks))


def row_of(old: Row, places: Places, llvms: dict[int, Path]) -> Row:
    """A configuration, compiled and costed again."""
    kernel, gpu = old["kernel"], old["gpu"]
    version = 14 if (kernel, gpu) == ("convolution", "MI250X") else 22
    source = places.source(kernel, gpu)
    if source is None:
        return old
    entry = places.measured(kernel, gpu)[old["key"]]
    params: dict[str, int] = entry["params"]
    ir, assembly = compiled(kernel, gpu, params, source, llvms[version])
    cost = costed(kernel, gpu, params, ir, assembly, llvms[22] / "opt")
    started = launch(kernel, gpu, params)
    return {
        "set": old["set"],
        "kernel": kernel,
        "gpu": gpu,
        "llvm": version,
        "key": old["key"],
        "x": params["block_size_x"],
        "y": params["block_size_y"],
        "tile": params["tile_size_x"] * params["tile_size_y"],
        "strided": int(params["tile_size_x"] > 1 and params.get("tile_stride_x") == 0),
        "ms": round(entry["ms"], 4),
        "waves": round(started["waves"] * active_share(kernel, gpu, params), 1),
        "groups": started["groups"],
        "latency": round(cost.latency, 1),
        "unhidden": round(cost.unhidden, 1),
        "occupancy": cost.occupancy,
        **{name: round(getattr(cost, name), 1) for name in UNITS},
        "instructions": cost.instructions.weighted,
        "spills": spill_traffic(cost),
        "lds_bytes": cost.lds_bytes,
    }


def main() -> None:
    """Compile, cost, correlate, and write the rows and the summary."""
    parser = options(__doc__, "hardware.json")
    parser.add_argument("--hub", type=Path)
    parser.add_argument("--tuning", type=Path)
    parser.add_argument("--llvm14", type=Path, default=DEFAULT_LLVM / "llvm-14" / "bin")
    parser.add_argument("--llvm22", type=Path, default=DEFAULT_LLVM / "llvm-22" / "bin")
    parser.add_argument("--formula", action="store_true", help="only put the rows that are there in order")
    given = parser.parse_args()
    rows = read_rows(ROWS)
    if not given.formula:
        if given.hub is None:
            parser.error("--hub DIR is wanted, or --formula")
        places, llvms = Places(given.hub, given.tuning), {14: given.llvm14, 22: given.llvm22}
        for number, old in enumerate(rows):
            rows[number] = row_of(old, places, llvms)
            if number % 100 == 99:
                print(f"{number + 1} of {len(rows)}", file=sys.stderr, flush=True)
        ROWS.write_bytes(packed(rows))
    write(given.out, {"command": command(), "tree": tree(), "machine": machine(), **summary(rows)})


if __name__ == "__main__":
    main()
