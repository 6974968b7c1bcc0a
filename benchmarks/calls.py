"""What calls cost: masks of what callees leave alone, the calling convention's, and LLVM's own compile.

    .venv/bin/python benchmarks/calls.py [--efforts fast,balanced] [--convention]

Each program of ``benchmarks/calls`` is compiled by clang (the one beside llc, or on the PATH), and then linked with the
device library, so that its functions are called; IR is taken as it is, for the target in its name. ``promised`` is what
a compile gives, ``convention`` the same with masks of the calling convention (as before masks were made), ``llvm`` a
plain llc, which allocates interprocedurally. Figures are of the final code, for each function alone, with one count of
iterations for each loop; cycles are modelled.
"""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

from common import Row, command, cpu_seconds, options, write

from verilocc_mlir.cost.assembly import parse_assembly
from verilocc_mlir.cost.model import KernelCost
from verilocc_mlir.cost.together import costs_together
from verilocc_mlir.hooks.mlir_compile import find_device_libraries, link_bitcode
from verilocc_mlir.hooks.mlir_target import RocdlTarget
from verilocc_mlir.pipeline import compile as compile_pipeline
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
    if program.suffix == ".ll":
        return program.read_text()
    tools, libraries = find_toolchain(None), find_device_libraries()
    assert libraries is not None, "no ocml.bc: the triton or iree package has it"
    beside = (Path(tools.llc).with_name("clang"), Path(tools.llc).resolve().with_name("clang"))
    clang = next((path for path in beside if path.exists()), None) or shutil.which("clang-22")
    assert clang is not None, "no clang beside llc, and no clang-22 on the PATH"
    arguments = ["-x", "cl", "-cl-std=CL2.0", "-O3", "-nogpulib", "-target", "amdgcn-amd-amdhsa", f"-mcpu={cpu}"]
    compiled = subprocess.run(
        [clang, *arguments, "-S", "-emit-llvm", program, "-o", "-"], check=True, capture_output=True, text=True
    ).stdout
    # A kernel's body is there a second time as a function, which nothing calls.
    name = f"__clang_ocl_kern_imp_{program.stem}"
    compiled = compiled.replace(f"define protected void @{name}(", f"define available_externally void @{name}(")
    constants = RocdlTarget(chip=cpu).control_constants()
    return link_bitcode(tools, compiled, [libraries / "ocml.bc"], constants, timeout=60, where=program.name)


def figures(cost: KernelCost) -> Row:
    """What a function costs."""
    return {
        "cycles": round(cost.cycles, 1),
        "latency": round(cost.latency, 1),
        "waves": cost.occupancy,
        "vectors": cost.vectors,
        "issued": round(cost.issued, 1),
        "scratch": round(cost.scratch.weighted, 1),
        "spill_traffic": spill_traffic(cost),
    }


def ours(ir: str, cpu: str, effort: Effort, llvm: str) -> Row:
    """Figures of a compile beside LLVM's, and what it said."""
    start = cpu_seconds()
    result = compile_module(ir.encode(), "program", Settings(cpu=cpu, effort=effort, emit=Emit.ASM))
    seconds = round(cpu_seconds() - start, 2)
    assert result.data is not None
    functions: dict[str, Row] = {}
    mine, theirs = (parse_assembly(text, target(cpu), where="program") for text in (result.data.decode(), llvm))
    for name, pair in costs_together(mine, theirs, target(cpu)).items():
        if pair.first is not None and pair.second is not None:
            functions[name] = {"ours": figures(pair.first), "llvm": figures(pair.second), "problem": pair.problem}
    row = {"outcome": str(result.report.outcome), "notes": list(result.report.notes)}
    return {**row, "cpu_seconds": seconds, "functions": functions}


def measure(program: Path, cpu: str, effort: Effort, *, convention: bool) -> Row:
    """A program's figures in the three ways."""
    ir = ir_of(program, cpu)
    llvm = StagedCompiler(find_toolchain(None), CompileOptions(cpu)).direct(ir, "asm").decode()
    row: Row = {"program": program.name, "target": cpu, "effort": effort.value}
    row["promised"] = ours(ir, cpu, effort, llvm)

    def by_convention(text: str, *_: object) -> Promises:
        return Promises(text)

    if convention:
        with patch.object(compile_pipeline, "callees_first", by_convention):
            row["convention"] = ours(ir, cpu, effort, llvm)
    return row


def summary(rows: list[Row]) -> Row:
    """Of each effort: the geometric mean of cycles over LLVM's, the worst, and what is stored and reloaded."""
    result: Row = {}
    for effort in dict.fromkeys(row["effort"] for row in rows):
        chosen = [row for row in rows if row["effort"] == effort]
        result[effort] = {
            way: _against_llvm([row[way]["functions"] for row in chosen if way in row])
            for way in ("convention", "promised")
            if any(way in row for row in chosen)
        }
    return result


def _against_llvm(modules: list[dict[str, Row]]) -> Row:
    both = [(f["ours"], f["llvm"]) for module in modules for f in module.values()]
    ratios = [a["cycles"] / b["cycles"] for a, b in both]

    def over(what: str) -> float:
        return round(sum(a[what] for a, _ in both) / max(sum(b[what] for _, b in both), 1), 3)

    def geometric(what: str) -> float:
        logs = [math.log(a[what] / b[what]) for a, b in both if b[what]]
        return round(math.exp(sum(logs) / len(logs)), 3)

    return {
        "modules": len(modules),
        "functions": len(both),
        "cycles_over_llvm": round(math.exp(sum(map(math.log, ratios)) / len(ratios)), 3),
        "worst": round(max(ratios), 3),
        "fewer_waves": sum(a["waves"] < b["waves"] for a, b in both),
        "scratch_over_llvm": over("scratch"),
        "issued_over_llvm": geometric("issued"),
        "more_scratch": sum(a["scratch"] > b["scratch"] for a, b in both),
        "more_issued": sum(a["issued"] > b["issued"] for a, b in both),
        "spill_traffic": sum(a["spill_traffic"] for a, _ in both),
        "spill_traffic_of_llvm": sum(b["spill_traffic"] for _, b in both),
    }


def main() -> None:
    parser = options(__doc__, "calls.json")
    parser.add_argument("--efforts", default="fast")
    parser.add_argument("--convention", action="store_true", help="also with masks of the calling convention")
    parser.add_argument("--programs", default="", help="those whose names begin so")
    arguments = parser.parse_args()
    rows: list[Row] = []
    for program in sorted(p for p in PROGRAMS.iterdir() if p.name.startswith(arguments.programs)):
        for cpu in TARGETS if program.suffix == ".cl" else (program.stem.split(".")[-1],):
            for effort in arguments.efforts.split(","):
                rows.append(measure(program, cpu, Effort(effort), convention=arguments.convention))
                print(program.stem, cpu, effort, file=sys.stderr, flush=True)
    write(arguments.out, {"command": command(), "summary": summary(rows), "rows": rows})


if __name__ == "__main__":
    main()
