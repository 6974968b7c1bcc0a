"""The same kernels through both drivers: CPU of LLVM's work, and the code against that LLVM's own direct compile.

    python benchmarks/toolchains.py [--kernels DIR] [--only PREFIX …]

Prints a row for each kernel and driver. Each kernel is compiled twice, and the second one counts: with Triton's driver
the workers are there by then, as in the hooks and in a batch.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from common import command, kernel_directory, machine, options, tree, write

from verilocc_mlir.cost.model import cost_of_assembly
from verilocc_mlir.pipeline.compile import compile_module
from verilocc_mlir.pipeline.settings import Emit, Settings
from verilocc_mlir.target.targets import target
from verilocc_mlir.toolchain.choice import ToolchainChoice
from verilocc_mlir.toolchain.choose import choose_tools
from verilocc_mlir.toolchain.drivers.job import CompileOptions
from verilocc_mlir.toolchain.staged import StagedCompiler

_LLVMS_STEPS = re.compile(r"pre-ra|direct.*|resume-.*|greedy-.*|finish|link")
_INSTRUCTION = re.compile(r"^\t[a-z]\w+_\w+", re.MULTILINE)


def measured(path: Path, choice: ToolchainChoice) -> dict[str, Any]:
    """One kernel through one driver."""
    cpu = path.name.split(".")[1]
    settings = Settings(cpu=cpu, toolchain=choice, emit=Emit.ASM)
    ir = path.read_bytes()
    compiled = [compile_module(ir, path.name, settings) for _ in range(2)][-1]
    report = compiled.report
    direct = StagedCompiler(choose_tools(choice), CompileOptions(cpu)).direct(ir, "asm").decode()
    ours = (compiled.data or b"").decode()
    (function,) = report.functions
    return {
        "kernel": path.stem,
        "toolchain": choice.value,
        "outcome": report.outcome.value,
        "llvm_cpu_s": round(sum(s.seconds for s in report.steps if _LLVMS_STEPS.fullmatch(s.name)), 3),
        "instructions": [len(_INSTRUCTION.findall(text)) for text in (ours, direct)],
        "sgprs": _both(function.resources, function.greedy, "sgprs"),
        "vgprs": _both(function.resources, function.greedy, "vgprs"),
        "cycles": [round(_cycles(text, cpu)) for text in (ours, direct)],
    }


def _both(ours: Any, direct: Any, field: str) -> list[int | None]:
    return [getattr(resources, field, None) for resources in (ours, direct)]


def _cycles(assembly: str, cpu: str) -> float:
    return sum(cost.cycles for cost in cost_of_assembly(assembly, target(cpu)).values())


def _row(row: Mapping[str, Any]) -> str:
    pairs = "  ".join(f"{row[name][0]:>6} ({row[name][1]:>6})" for name in ("instructions", "sgprs", "vgprs", "cycles"))
    return f"{row['kernel']:<24} {row['toolchain']:<7} {row['outcome']:<8} {row['llvm_cpu_s']:6.3f} s  {pairs}"


def main() -> int:
    """Measure, print and write."""
    parser = options(__doc__, "toolchains.json", kernels=kernel_directory())
    parser.add_argument("--only", nargs="*", default=["gemm_mma_lds.", "attn_d64."], help="beginnings of names")
    given = parser.parse_args()
    paths = [
        p for p in sorted(given.kernels.glob("*.ll")) if p.name.startswith(tuple(given.only)) and ".opt." not in p.name
    ]
    rows: list[dict[str, Any]] = []
    for path in paths:
        for choice in (ToolchainChoice.LLC, ToolchainChoice.TRITON):
            rows.append(measured(path, choice))
            print(_row(rows[-1]), flush=True)
    versions = {choice.value: choose_tools(choice).version_text for choice in list(ToolchainChoice)[1:]}
    write(given.out, {"command": command(), "tree": tree(), "machine": machine(), "llvm": versions, "kernels": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
