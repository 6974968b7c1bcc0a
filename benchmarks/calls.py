"""What calls cost: masks of what callees leave alone, the calling convention's, and LLVM's own compile.

    .venv/bin/python benchmarks/calls.py [--efforts fast,balanced]

Each program of ``benchmarks/calls`` is compiled by clang, and then linked with the device library, so that its
functions are called. ``promised`` is what a compile gives, ``convention`` the same with masks of the calling convention
(as before masks were made), ``llvm`` a plain llc, which allocates interprocedurally. Figures are of the final code, for
each function alone; cycles are modelled.
"""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

from common import Row, command, cpu_seconds, options, write

from verilocc_mlir.cost.model import cost_of_assembly
from verilocc_mlir.hooks.device_libs import find_device_libraries, link_bitcode
from verilocc_mlir.hooks.mlir_target import RocdlTarget
from verilocc_mlir.pipeline import compilation
from verilocc_mlir.pipeline.callees import Promises
from verilocc_mlir.pipeline.compile import compile_module
from verilocc_mlir.pipeline.guard import spill_traffic
from verilocc_mlir.pipeline.settings import Effort, Emit, Settings
from verilocc_mlir.target.targets import target
from verilocc_mlir.toolchain.drivers.job import CompileOptions
from verilocc_mlir.toolchain.find import find_toolchain
from verilocc_mlir.toolchain.staged import StagedCompiler

PROGRAMS = Path(__file__).resolve().parent / "calls"
TARGETS = ("gfx90a", "gfx942", "gfx1100", "gfx1201")


def ir_of(program: Path, cpu: str) -> str:
    """LLVM IR of an OpenCL program, optimised, and then linked with what it needs of the device library."""
    tools, libraries = find_toolchain(None), find_device_libraries()
    assert libraries is not None, "no ocml.bc: the triton or iree package has it"
    clang = Path(tools.llc).resolve().with_name("clang")
    arguments = ["-x", "cl", "-cl-std=CL2.0", "-O3", "-nogpulib", "-target", "amdgcn-amd-amdhsa", f"-mcpu={cpu}"]
    compiled = subprocess.run(
        [clang, *arguments, "-S", "-emit-llvm", program, "-o", "-"], check=True, capture_output=True, text=True
    ).stdout
    # A kernel's body is there a second time as a function, which nothing calls.
    name = f"__clang_ocl_kern_imp_{program.stem}"
    compiled = compiled.replace(f"define protected void @{name}(", f"define available_externally void @{name}(")
    constants = RocdlTarget(chip=cpu).control_constants()
    return link_bitcode(tools, compiled, [libraries / "ocml.bc"], constants, timeout=60, where=program.name)


def figures(assembly: str, cpu: str) -> dict[str, Row]:
    """What the functions of a text cost."""
    return {
        name: {
            "cycles": round(cost.cycles, 1),
            "latency": round(cost.latency, 1),
            "waves": cost.occupancy,
            "vectors": cost.vectors,
            "spill_traffic": spill_traffic(cost),
        }
        for name, cost in cost_of_assembly(assembly, target(cpu)).items()
    }


def ours(ir: str, cpu: str, effort: Effort) -> Row:
    """Figures of a compile, and what it said."""
    start = cpu_seconds()
    result = compile_module(ir.encode(), "program", Settings(cpu=cpu, effort=effort, emit=Emit.ASM))
    assert result.data is not None
    row = {"outcome": str(result.report.outcome), "notes": list(result.report.notes)}
    return {**row, "cpu_seconds": round(cpu_seconds() - start, 2), "functions": figures(result.data.decode(), cpu)}


def measure(program: Path, cpu: str, effort: Effort) -> Row:
    """A program's figures in the three ways."""
    ir = ir_of(program, cpu)
    row: Row = {"program": program.stem, "target": cpu, "effort": effort.value, "promised": ours(ir, cpu, effort)}

    def by_convention(text: str, *_: object) -> Promises:
        return Promises(text)

    with patch.object(compilation, "callees_first", by_convention):
        row["convention"] = ours(ir, cpu, effort)
    direct = StagedCompiler(find_toolchain(None), CompileOptions(cpu)).direct(ir, "asm").decode()
    return {**row, "llvm": {"functions": figures(direct, cpu)}}


def summary(rows: list[Row]) -> Row:
    """Of each effort: the geometric mean of cycles over LLVM's, the worst, and what is stored and reloaded."""
    result: Row = {}
    for effort in dict.fromkeys(row["effort"] for row in rows):
        chosen = [row for row in rows if row["effort"] == effort]
        result[effort] = {
            way: _against_llvm([(row[way]["functions"], row["llvm"]["functions"]) for row in chosen])
            for way in ("convention", "promised")
        }
    return result


def _against_llvm(pairs: list[tuple[dict[str, Row], dict[str, Row]]]) -> Row:
    both = [(a[name], b[name]) for a, b in pairs for name in b if name in a]
    ratios = [a["cycles"] / b["cycles"] for a, b in both]
    return {
        "functions": len(both),
        "cycles_over_llvm": round(math.exp(sum(map(math.log, ratios)) / len(ratios)), 3),
        "worst": round(max(ratios), 3),
        "fewer_waves": sum(a["waves"] < b["waves"] for a, b in both),
        "spill_traffic": sum(a["spill_traffic"] for a, _ in both),
        "spill_traffic_of_llvm": sum(b["spill_traffic"] for _, b in both),
    }


def main() -> None:
    parser = options(__doc__, "calls.json")
    parser.add_argument("--efforts", default="fast")
    arguments = parser.parse_args()
    rows: list[Row] = []
    for program in sorted(PROGRAMS.glob("*.cl")):
        for cpu in TARGETS:
            for effort in arguments.efforts.split(","):
                rows.append(measure(program, cpu, Effort(effort)))
                print(program.stem, cpu, effort, file=sys.stderr, flush=True)
    write(arguments.out, {"command": command(), "summary": summary(rows), "rows": rows})


if __name__ == "__main__":
    main()
