"""What ``verilocc compile`` costs beside llc, and how its own steps grow with the size of a function.

    .venv/bin/python benchmarks/compile_time.py [--kernels DIR] [--of-each N] [--against CHECKOUT] [--growth]
                                                [--repeats N] [--out benchmarks/results/compile_time.json]

Cold: the command as a user runs it, the CPU of all its processes to the last descendant, over that of ``llc -O3
-filetype=obj`` on the same file. Resident: the same kernels in a process that stays (``compile_resident.py``), over the
same llc. The least of ``--repeats`` runs of each, alternating; byte code is compiled and caches are warm before the
first, as after an installation. ``--against`` measures another checkout of this project beside this one, in the same
run. ``--of-each`` takes so many kernels of each processor, evenly over their sizes. ``start`` is what the command costs
before it does anything: the interpreter and the modules that a compile loads.

``--growth`` times parse, analyse (``build_problem``) and rewrite on made kernels from 100 to 20,000 instructions and
fits the exponent of ``t = c * n**e``; n log n gives about 1.1 over this range.
"""

from __future__ import annotations

import json
import math
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from common import adopt_orphans, earlier, kernel_directory, machine, options, reap, write

from verilocc_mlir.allocators import allocator
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.problem.build import build_problem
from verilocc_mlir.rewrite import rewrite_function
from verilocc_mlir.target.targets import target
from verilocc_mlir.toolchain.drivers.job import TRIPLE, CompileOptions
from verilocc_mlir.toolchain.find import find_toolchain
from verilocc_mlir.toolchain.staged import LlvmPhase, StagedCompiler

REPOSITORY = Path(__file__).resolve().parent.parent
SIZES = (100, 300, 1000, 3000, 10000, 20000)
REPEATS = 3
STARTS = 9
LONG = 4.0
"""CPU seconds: what takes longer is run once."""
_T = TypeVar("_T")


@dataclass(frozen=True)
class Growth:
    """Best CPU seconds of ``REPEATS`` runs of each step on one made kernel, VGPR phase."""

    instructions: int
    parse: float
    analyse: float
    rewrite: float


@dataclass(frozen=True)
class Checkout:
    """A copy of this project's sources, run by this interpreter."""

    name: str
    directory: Path
    scratch: Path

    def environment(self) -> dict[str, str]:
        """Of its processes: its own sources, byte code kept, a cache of its own."""
        kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")}
        return {
            **kept,
            "PYTHONPATH": str(self.directory),
            "PYTHONPYCACHEPREFIX": str(self.scratch / self.name / "bytecode"),
            "XDG_CACHE_HOME": str(self.scratch / self.name / "cache"),
        }

    def cold(self, kernel: Path) -> float:
        """CPU seconds of the command."""
        out = self.scratch / f"{self.name}.hsaco"
        code = "from verilocc_mlir.cli.main import main; main()"
        arguments = ["compile", str(kernel), f"-mcpu={cpu_of(kernel)}", "-o", str(out)]
        # From elsewhere: the directory one is in comes first when Python looks for modules.
        return cpu_seconds([sys.executable, "-c", code, *arguments], self.environment(), self.scratch)

    def start(self) -> float:
        """CPU seconds of the command up to where it has loaded what a compile needs."""
        load = "__import__('verilocc_mlir.cli.compile') and __import__('verilocc_mlir.pipeline.compile') and 0"
        code = f"import verilocc_mlir.cli.main as m; m.run = lambda _: {load}; m.main()"
        return min(cpu_seconds([sys.executable, "-c", code], self.environment(), self.scratch) for _ in range(STARTS))

    def resident(self, kernels: Sequence[Path]) -> dict[str, dict[str, Any]]:
        """CPU seconds and steps of each kernel, by file name."""
        given = [f"{kernel}:{cpu_of(kernel)}" for kernel in kernels]
        script = str(REPOSITORY / "benchmarks" / "compile_resident.py")
        done = subprocess.run(
            [sys.executable, script, *given], env=self.environment(), check=True, capture_output=True, text=True
        )
        rows: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
        return {Path(row.pop("kernel")).name: row for row in rows}


def cpu_of(kernel: Path) -> str:
    """The processor in a kernel's file name."""
    match = re.search(r"gfx[0-9a-f]+", kernel.name)
    return match[0] if match else ""


def evenly(kernels: Sequence[Path], count: int) -> list[Path]:
    """So many kernels of each processor, evenly over the sizes of their files; all where there are fewer."""
    chosen: list[Path] = []
    for cpu in sorted({cpu_of(kernel) for kernel in kernels}):
        by_size = sorted((k for k in kernels if cpu_of(k) == cpu), key=lambda k: (k.stat().st_size, k.name))
        chosen += [by_size[(2 * n + 1) * len(by_size) // (2 * count)] for n in range(count)] if count else by_size
    return sorted(dict.fromkeys(chosen))


def cpu_seconds(command: Sequence[str], environment: dict[str, str], directory: Path) -> float:
    """CPU of a command and of all that it starts, to the last one: orphans come to this process, and are waited for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with subprocess.Popen(
        command, env=environment, cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        process.wait()
    reap(wait=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measured(
    kernels: Sequence[Path], checkouts: Sequence[Checkout], scratch: Path, repeats: int
) -> list[dict[str, Any]]:
    """A row a kernel: CPU seconds of llc, and of each checkout, cold and resident."""
    llc = [str(find_toolchain().llc), "-O3", f"-mtriple={TRIPLE}", "-filetype=obj"]
    for checkout in checkouts:
        checkout.cold(kernels[0])
    rows: dict[str, dict[str, Any]] = {}
    for kernel in kernels:
        command = [*llc, f"-mcpu={cpu_of(kernel)}", str(kernel), "-o", str(scratch / "k.o")]
        times: dict[str, list[float]] = {}
        for _ in range(repeats):
            times.setdefault("llc", []).append(cpu_seconds(command, dict(os.environ), scratch))
            for checkout in checkouts:
                if min(times.get(checkout.name, [0.0])) < LONG:
                    times.setdefault(checkout.name, []).append(checkout.cold(kernel))
        least = {name: round(min(of), 4) for name, of in times.items()}
        rows[kernel.name] = {"kernel": kernel.name, "llc": least.pop("llc"), "cold": least, "resident": {}}
        print(f"{kernel.name:36} llc {rows[kernel.name]['llc']:.3f}  cold {least}", flush=True)
    for checkout in checkouts:
        for name, row in checkout.resident(kernels).items():
            rows[name]["resident"][checkout.name] = row
    return list(rows.values())


def summary(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> dict[str, Any]:
    """Of each checkout: time over llc's, the median kernel's and that of all together."""
    llc = sum(row["llc"] for row in rows)
    found: dict[str, Any] = {}
    for name in names:
        cold = [row["cold"][name] for row in rows]
        resident = [sum(row["resident"][name]["python_tools_solver"]) for row in rows]
        parts = [round(sum(row["resident"][name]["python_tools_solver"][k] for row in rows), 2) for k in range(3)]
        found[name] = {
            way: {
                "median": round(statistics.median(t / row["llc"] for t, row in zip(times, rows, strict=True)), 1),
                "all": round(sum(times) / llc, 1),
            }
            for way, times in (("cold", cold), ("resident", resident))
        }
        found[name]["resident_python_tools_solver"] = parts
    return found


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
    compiler = StagedCompiler(find_toolchain(), CompileOptions("gfx942", tool_seconds=600.0))
    per_group = 32
    pre = compiler.to_pre_ra(made_kernel(max(1, size // per_group)))
    text = compiler.resume(compiler.llvm_allocate(pre, LlvmPhase.SGPR), done=LlvmPhase.SGPR, until=LlvmPhase.VGPR)
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


def growths() -> dict[str, Any]:
    """Times on made kernels, and their exponents; printed as a table."""
    grown = [growth(size) for size in SIZES]
    print("instructions   parse  analyse  rewrite   (CPU-s)")
    for g in grown:
        print(f"{g.instructions:12} {g.parse:7.3f} {g.analyse:8.3f} {g.rewrite:8.3f}")
    steps = ("parse", "analyse", "rewrite")
    exponents = {step: round(exponent([(g.instructions, getattr(g, step)) for g in grown]), 3) for step in steps}
    print("exponents: " + ", ".join(f"{name} {value:.2f}" for name, value in exponents.items()))
    rows = [{"instructions": g.instructions, **{step: round(getattr(g, step), 4) for step in steps}} for g in grown]
    return {"growth": rows, "exponents": exponents}


def main() -> int:
    """Measure, print, write the JSON file; what is not measured now stays in it."""
    parser = options(__doc__, "compile_time.json", kernels=kernel_directory())
    parser.add_argument("--only", default="", help="regular expression for file names")
    parser.add_argument("--of-each", type=int, default=0, metavar="N")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--against", type=Path, help="directory of another checkout")
    parser.add_argument("--growth", action="store_true")
    given = parser.parse_args()
    kernels = [k for k in sorted(given.kernels.glob("*.ll")) if ".opt." not in k.name and re.search(given.only, k.name)]
    kernels = evenly(kernels, given.of_each)
    if not kernels:
        print(f"no kernels in {given.kernels}; give --kernels DIR", file=sys.stderr)
        return 2
    record = earlier(given.out)
    record["machine"] = machine()
    record["llvm"] = find_toolchain().version_text
    adopt_orphans()
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        checkouts = [Checkout("now", REPOSITORY, scratch)]
        if given.against is not None:
            checkouts.insert(0, Checkout("before", given.against.resolve(), scratch))
        rows = measured(kernels, checkouts, scratch, given.repeats)
        record["repeats"] = given.repeats
        record["start"] = {checkout.name: round(checkout.start(), 3) for checkout in checkouts}
        record["over_llc"] = summary(rows, [checkout.name for checkout in checkouts])
        record["kernels"] = rows
    print(json.dumps({"start": record["start"], "over_llc": record["over_llc"]}, indent=1))
    if given.growth:
        record.update(growths())
    write(given.out, record)
    return 0


if __name__ == "__main__":
    sys.exit(main())
