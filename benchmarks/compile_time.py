"""What ``verilocc compile`` costs, and how its own steps grow with the size of a function.

    .venv/bin/python benchmarks/compile_time.py [--kernels DIR] [--out benchmarks/results/compile_time.json]

Part 1 compiles the attention kernels of head size 128 (the largest of the set, up to 2,313 instructions before
allocation), each in a process of its own, and records CPU seconds of the whole process tree with the report's
breakdown. Part 2 times parse, analyse (``build_problem``) and rewrite on made kernels from 100 to 20,000 instructions
and fits the exponent of ``t = c * n**e``; n log n gives about 1.1 over this range. Prints both as tables.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from verilocc_mlir.allocators import allocator
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.problem.build import build_problem
from verilocc_mlir.rewrite import rewrite_function
from verilocc_mlir.target.targets import target
from verilocc_mlir.toolchain.find import find_toolchain
from verilocc_mlir.toolchain.staged import CompileOptions, Phase, StagedCompiler

REPOSITORY = Path(__file__).resolve().parent.parent
SIZES = (100, 300, 1000, 3000, 10000, 20000)
REPEATS = 3
_T = TypeVar("_T")


@dataclass(frozen=True)
class Growth:
    """Best CPU seconds of ``REPEATS`` runs of each step on one made kernel, VGPR phase."""

    instructions: int
    parse: float
    analyse: float
    rewrite: float


def compile_kernel(source: Path) -> dict[str, Any]:
    """Compile one kernel and return its costs."""
    match = re.search(r"gfx[0-9a-f]+", source.name)
    cpu = match[0] if match else ""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.json"
        command = [
            sys.executable, "-m", "verilocc_mlir.cli.main", "compile", str(source), f"-mcpu={cpu}",
            "-o", str(Path(scratch) / "k.hsaco"), f"--report={report}", "--quiet",
        ]  # fmt: skip
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        start = time.monotonic()
        done = subprocess.run(command, check=False)
        elapsed = time.monotonic() - start
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        data: dict[str, Any] = json.loads(report.read_text())
    cpu_seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "kernel": source.name,
        "exit_code": done.returncode,
        "instructions": sum(f["instructions"] for f in data["functions"]),
        "cpu_seconds": round(cpu_seconds, 2),
        "wall_seconds": round(elapsed, 2),
        "steps": {s["name"]: s["cpu_seconds"] for s in data["time"]["steps"]},
        "phases": {p["phase"]: p["allocator"] for f in data["functions"] for p in f["phases"]},
    }


def made_kernel(groups: int) -> str:
    """LLVM IR of a kernel with ``groups`` blocks under conditions and eight values that live through all of them."""
    lines = [
        "declare i32 @llvm.amdgcn.workitem.id.x()",
        "define amdgpu_kernel void @made(ptr addrspace(1) %p, i32 %n) {",
        "entry:",
        "  %id = call i32 @llvm.amdgcn.workitem.id.x()",
        *(f"  %a0.{k} = uitofp i32 {k + 1} to float" for k in range(8)),
        "  br label %head0",
    ]
    for g in range(groups):
        lines += [
            f"head{g}:",
            *(f"  %h{g}.{k} = phi float [ %a{g}.{k}, %{'entry' if g == 0 else f'join{g - 1}'} ]" for k in range(8)),
            f"  %c{g} = icmp ult i32 %id, {g + 3}",
            f"  br i1 %c{g}, label %body{g}, label %join{g}",
            f"body{g}:",
            f"  %i{g} = add i32 %id, {g * 7}",
            f"  %q{g} = getelementptr float, ptr addrspace(1) %p, i32 %i{g}",
            f"  %v{g} = load float, ptr addrspace(1) %q{g}",
            *(
                f"  %b{g}.{k} = call float @llvm.fma.f32(float %h{g}.{k}, float %v{g}, float %h{g}.{(k + 1) % 8})"
                for k in range(8)
            ),
            f"  store float %b{g}.0, ptr addrspace(1) %q{g}",
            f"  br label %join{g}",
            f"join{g}:",
            *(f"  %a{g + 1}.{k} = phi float [ %h{g}.{k}, %head{g} ], [ %b{g}.{k}, %body{g} ]" for k in range(8)),
            f"  br label %head{g + 1}" if g + 1 < groups else "  br label %end",
        ]
    lines += ["end:"]
    for k in range(8):
        lines += [
            f"  %e{k} = getelementptr float, ptr addrspace(1) %p, i32 {k}",
            f"  store float %a{groups}.{k}, ptr addrspace(1) %e{k}",
        ]
    return "\n".join([*lines, "  ret void", "}", "declare float @llvm.fma.f32(float, float, float)", ""])


def growth(size: int) -> Growth:
    """Times on a made kernel of about ``size`` instructions before the VGPR phase."""
    compiler = StagedCompiler(find_toolchain(), CompileOptions("gfx942", timeout=600.0))
    per_group = 32
    pre = compiler.to_pre_ra(made_kernel(max(1, size // per_group)))
    text = compiler.resume(compiler.llvm_allocate(pre, Phase.SGPR), done=Phase.SGPR, until=Phase.VGPR)
    gpu, chosen = target("gfx942"), allocator("deterministic")
    parse, file = best(lambda: parse_mir(text))
    function = file.functions[0]
    analyse, problem = best(lambda: build_problem(file, function, gpu, "vgpr"))
    proposal = chosen.allocate(problem)
    rewrite, _ = best(lambda: rewrite_function(file, function, problem, proposal, gpu))
    return Growth(function.instruction_count, parse, analyse, rewrite)


def best(action: Callable[[], _T]) -> tuple[float, _T]:
    """Least CPU seconds of a few runs, and the last result."""
    times: list[float] = []
    for _ in range(REPEATS - 1):
        start = time.process_time()
        action()
        times.append(time.process_time() - start)
    start = time.process_time()
    result = action()
    return min([*times, time.process_time() - start]), result


def exponent(points: list[tuple[int, float]]) -> float:
    """Slope of log t over log n by least squares, from 1,000 instructions on, where constants no longer count."""
    logs = [(math.log(n), math.log(t)) for n, t in points if n >= 900]
    mean_n = sum(x for x, _ in logs) / len(logs)
    mean_t = sum(y for _, y in logs) / len(logs)
    return sum((x - mean_n) * (y - mean_t) for x, y in logs) / sum((x - mean_n) ** 2 for x, _ in logs)


def default_kernels() -> Path:
    """``$VERILOCC_KERNELS``, or the shared set beside the repository."""
    return Path(os.environ.get("VERILOCC_KERNELS", REPOSITORY.parent / "shared" / "kernels"))


def main() -> int:
    """Run both parts, print them, write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", type=Path, default=default_kernels())
    parser.add_argument("--out", type=Path, default=REPOSITORY / "benchmarks" / "results" / "compile_time.json")
    arguments = parser.parse_args()
    sources = sorted(arguments.kernels.glob("attn_d128_causal.*.ll"))
    if not sources:
        print(f"no attn_d128_causal.*.ll in {arguments.kernels}; give --kernels DIR", file=sys.stderr)
        return 2
    compiled = [compile_kernel(source) for source in sources]
    for row in compiled:
        steps = ", ".join(f"{k} {v:.2f}" for k, v in sorted(row["steps"].items(), key=lambda kv: -kv[1]) if v >= 0.05)
        print(
            f"{row['kernel']:36} {row['instructions']:6} instructions  exit {row['exit_code']}"
            f"  {row['cpu_seconds']:6.2f} CPU-s  {row['wall_seconds']:6.2f} s  ({steps})"
        )
    grown = [growth(size) for size in SIZES]
    print("instructions   parse  analyse  rewrite   (CPU-s)")
    for g in grown:
        print(f"{g.instructions:12} {g.parse:7.3f} {g.analyse:8.3f} {g.rewrite:8.3f}")
    exponents = {
        "parse": exponent([(g.instructions, g.parse) for g in grown]),
        "analyse": exponent([(g.instructions, g.analyse) for g in grown]),
        "rewrite": exponent([(g.instructions, g.rewrite) for g in grown]),
    }
    print("exponents: " + ", ".join(f"{name} {value:.2f}" for name, value in exponents.items()))
    record = {
        "machine": {"python": platform.python_version(), "cores": os.cpu_count(), "architecture": platform.machine()},
        "llvm": find_toolchain().version_text,
        "compile": compiled,
        "growth": [
            {
                "instructions": g.instructions,
                "parse": round(g.parse, 4),
                "analyse": round(g.analyse, 4),
                "rewrite": round(g.rewrite, 4),
            }
            for g in grown
        ],
        "exponents": {name: round(value, 3) for name, value in exponents.items()},
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
