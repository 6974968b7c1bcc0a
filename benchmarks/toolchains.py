"""The same kernels through both drivers: CPU of LLVM's work, and the code against that LLVM's own direct compile.

    python benchmarks/toolchains.py [--kernels DIR] [--only PREFIX …] [--efforts fast balanced] [--once]

Prints a row for each kernel, effort and driver. Each kernel is compiled twice, and the second one counts: with Triton's
driver the workers are there by then, as in the hooks and in a batch. With ``--once`` the CPU is that of the first.
Loops run equally often in ours and in the direct compile; codes that do not compare have no cycles.
"""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from common import command, earlier, kernel_directory, machine, options, tree, write
from models import TARGETS

from verilocc_mlir.cost.together import Reference
from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.pipeline.compile import compile_module
from verilocc_mlir.pipeline.settings import Effort, Emit, Settings
from verilocc_mlir.target.targets import target
from verilocc_mlir.toolchain import ToolchainChoice
from verilocc_mlir.toolchain.choose import choose_tools
from verilocc_mlir.toolchain.drivers.job import CompileOptions
from verilocc_mlir.toolchain.inputs import load_input
from verilocc_mlir.toolchain.ir_compat import to_pre_ra
from verilocc_mlir.toolchain.staged import StagedCompiler

_LLVMS_STEPS = re.compile(r"pre-ra|direct.*|resume-.*|greedy-.*|finish|assemble|link")
_INSTRUCTION = re.compile(r"^\t[a-z]\w+_\w+", re.MULTILINE)


def measured(path: Path, choice: ToolchainChoice, effort: Effort, times: int) -> dict[str, Any]:
    """One kernel through one driver, compiled so many times."""
    row = {"kernel": path.stem, "toolchain": choice.value, "effort": effort.value}
    named = path.name.split(".")[1]
    settings = Settings(cpu=named if named in TARGETS else "", toolchain=choice, emit=Emit.ASM, effort=effort)
    ir = path.read_bytes()
    try:
        compiled = [compile_module(ir, path.name, settings) for _ in range(times)][-1]
        report = compiled.report
        cpu = report.target
        tools = choose_tools(choice)
        compiler = StagedCompiler(tools, CompileOptions(cpu))
        taken = to_pre_ra(compiler, load_input(ir, path=path.name, cpu=cpu, toolchain=tools).text).ir
        direct = compiler.direct(taken, "asm").decode()
        (function,) = report.functions
    except (VeriloccError, ValueError) as error:
        return {**row, "error": str(error).splitlines()[0][:300]}
    ours = (compiled.data or b"").decode()
    return {
        **row,
        "outcome": report.outcome.value,
        "llvm_cpu_s": round(sum(s.seconds for s in report.steps if _LLVMS_STEPS.fullmatch(s.name)), 3),
        "instructions": [len(_INSTRUCTION.findall(text)) for text in (ours, direct)],
        "sgprs": _both(function.resources, function.greedy, "sgprs"),
        "vgprs": _both(function.resources, function.greedy, "vgprs"),
        "spills": _both(function.resources, function.greedy, "vgpr_spills"),
        "cycles": _cycles(ours, direct, cpu),
        "kept": ", ".join(dict.fromkeys((function.plan, function.variant))),
    }


def _both(ours: Any, direct: Any, field: str) -> list[int | None]:
    return [getattr(resources, field, None) for resources in (ours, direct)]


def _cycles(ours: str, direct: str, cpu: str) -> list[int]:
    """Of both codes; 0 for ours where it does not compare with the direct compile."""
    reference = Reference.of_assembly(direct, target(cpu))
    costs = reference.costs_of_assembly(ours)
    return [round(sum(cost.cycles for cost in of.values())) for of in (costs, reference.costs)]


def _row(row: Mapping[str, Any]) -> str:
    name = f"{row['kernel']:<24} {row['toolchain']:<7} {row['effort']:<8}"
    if "error" in row:
        return f"{name} {row['error']}"
    pairs = "  ".join(f"{row[name][0]:>6} ({row[name][1]:>6})" for name in ("instructions", "sgprs", "vgprs", "cycles"))
    return f"{name} {row['outcome']:<8} {row['llvm_cpu_s']:6.3f} s  {pairs}"


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """By driver: verdicts, LLVM's CPU seconds, and ours over a direct compile of the same LLVM; then the two LLVMs."""
    whole: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in rows:
        effort = row.get("effort", Effort.FAST.value)
        name = row["toolchain"] if effort == Effort.FAST.value else f"{row['toolchain']}, {effort}"
        whole.setdefault(name, {})[row["kernel"]] = row
    failed = {row["kernel"] for row in rows if "error" in row}
    done = [name for name in whole.get("llc", {}) if name not in failed]
    on_both = [name for name in done if all(name in of for of in whole.values())]
    result: dict[str, Any] = {"kernels": len(on_both)}
    for choice, of in whole.items():
        chosen = [of[name] for name in on_both]
        result[choice] = {
            "outcomes": dict(Counter(row["outcome"] for row in chosen)),
            "errors": sum("error" in row for row in of.values()),
            "llvm_cpu_s": round(sum(row["llvm_cpu_s"] for row in chosen), 1),
            **{f"{name}_over_direct": _geomean([row[name] for row in chosen]) for name in ("instructions", "cycles")},
            **{
                f"{name}_sums": [sum(row[name][side] or 0 for row in chosen) for side in (0, 1)]
                for name in ("sgprs", "vgprs", "spills")
            },
        }
    if {"triton", "llc"} <= whole.keys():
        sides = [(whole["triton"][name]["cycles"][0], whole["llc"][name]["cycles"][0]) for name in on_both]
        result["cycles_ours_triton_over_ours_llc"] = _geomean(sides)
    return result


def _geomean(pairs: Iterable[Sequence[float]]) -> float | None:
    ratios = [math.log(a / b) for a, b in pairs if a and b]
    return round(math.exp(sum(ratios) / len(ratios)), 4) if ratios else None


def main() -> int:
    """Measure, print and write."""
    parser = options(__doc__, "toolchains.json", kernels=kernel_directory())
    parser.add_argument("--only", nargs="*", default=["gemm_mma_lds.", "attn_d64."], help="beginnings of names")
    parser.add_argument("--every", type=int, default=1, help="take each N-th kernel")
    parser.add_argument("--efforts", nargs="*", type=Effort, default=[Effort.FAST])
    parser.add_argument("--most-bytes", type=int, default=1 << 30, help="of a kernel's IR")
    parser.add_argument("--once", action="store_true", help="compile each kernel once")
    given = parser.parse_args()
    paths = [
        p
        for p in sorted(given.kernels.glob("*.ll"))
        if p.name.startswith(tuple(given.only)) and ".opt." not in p.name and p.stat().st_size < given.most_bytes
    ]
    rows: list[dict[str, Any]] = earlier(given.out).get("kernels", [])
    measured_names = {row["kernel"] for row in rows}
    versions = {choice.value: choose_tools(choice).version_text for choice in list(ToolchainChoice)[1:]}
    for path in paths[:: given.every]:
        if path.stem in measured_names:
            continue
        for effort, choice in product(given.efforts, (ToolchainChoice.LLC, ToolchainChoice.TRITON)):
            rows.append(measured(path, choice, effort, 1 if given.once else 2))
            print(_row(rows[-1]), flush=True)
        result = {"command": command(), "tree": tree(), "machine": machine(), "llvm": versions}
        write(given.out, {**result, "summary": summary(rows), "kernels": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
