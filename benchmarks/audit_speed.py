"""What audit and prove cost: time and memory by size of the function, its blocks, and its classes of threads.

    .venv/bin/python benchmarks/audit_speed.py [--kernels DIR] [--out benchmarks/results/audit_speed.json] [--quick]
        [--against CHECKOUT] [--rows WHAT/PHASE …]

Each row is a process of its own, so that its peak memory is its own; the solver's worker is added to it. CPU seconds
are of both, the best of ``REPEATS`` runs in that process, and stand beside the same process's time for parsing the two
texts, which says how fast the machine was. Three parts:

* the largest shared kernels (attention, head size 128), both phases, LLVM's allocation audited and, where the
  deterministic allocator places every range, its proposal proved;
* made kernels from 100 to 20,000 instructions (``compile_time.made_kernel``), with the exponent of ``t = c * n**e``;
* shapes: thousands of blocks in a chain, and nested divergent conditions, which make many classes of threads.

``--against`` measures each row with another checkout of the project too, one after the other: ``against_seconds``.
``--rows`` measures these rows alone: ``kernel:NAME``, ``made:N``, ``chain:N``, ``nested:N``, ``straight:N``.

``worker`` compares audits through the worker process with audits with Z3 in the caller, alternating in one process.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from common import command, kernel_directory, machine, options, write
from compile_time import exponent, made_kernel

from smt_verifier.audit import audit
from smt_verifier.prove import prove
from smt_verifier.smt import ProcessSolver, Solver, Z3Solver, default_solver
from verilocc_mlir.allocators import AllocationFailure, allocator
from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.problem.build import Phase as PhaseName
from verilocc_mlir.problem.build import build_problem
from verilocc_mlir.target.targets import target
from verilocc_mlir.toolchain.drivers.job import CompileOptions
from verilocc_mlir.toolchain.find import find_toolchain
from verilocc_mlir.toolchain.ir_compat import to_pre_ra
from verilocc_mlir.toolchain.staged import LlvmPhase, StagedCompiler

REPOSITORY = Path(__file__).resolve().parent.parent
SIZES = (100, 300, 1000, 3000, 5700, 10000, 20000)
BLOCKS = (100, 300, 1000, 3000)
CLASSES = (2, 4, 8, 16, 32, 64)
REPEATS = 2
_T = TypeVar("_T")


def chain(blocks: int) -> str:
    """LLVM IR of a kernel with about so many tiny blocks and few values: uniform branches one after the other."""
    lines = [
        "define amdgpu_kernel void @chain(ptr addrspace(1) %p, i32 %n) {",
        "entry:",
        "  br label %head0",
    ]
    groups = max(1, blocks // 2)
    for g in range(groups):
        before = "entry" if g == 0 else f"head{g - 1}"
        incoming = f"[ %n, %{before} ]" if g == 0 else f"[ %x{g - 1}, %{before} ], [ %y{g - 1}, %body{g - 1} ]"
        lines += [
            f"head{g}:",
            f"  %x{g} = phi i32 {incoming}",
            f"  %c{g} = icmp ult i32 %x{g}, {g + 3}",
            f"  br i1 %c{g}, label %body{g}, label %{f'head{g + 1}' if g + 1 < groups else 'end'}",
            f"body{g}:",
            f"  store volatile i32 %x{g}, ptr addrspace(1) %p",
            f"  %y{g} = mul i32 %x{g}, {2 * g + 3}",
            f"  br label %{f'head{g + 1}' if g + 1 < groups else 'end'}",
        ]
    return "\n".join([*lines, "end:", "  ret void", "}", ""])


def nested(depth: int) -> str:
    """LLVM IR of a kernel with ``depth`` divergent conditions inside each other, values live across all of them."""
    lines = [
        "declare i32 @llvm.amdgcn.workitem.id.x()",
        "define amdgpu_kernel void @nested(ptr addrspace(1) %p, i32 %n) {",
        "entry:",
        "  %id = call i32 @llvm.amdgcn.workitem.id.x()",
        "  %q = getelementptr i32, ptr addrspace(1) %p, i32 %id",
        "  %v0 = load i32, ptr addrspace(1) %q",
        "  br label %head0",
    ]
    for g in range(depth):
        lines += [
            f"head{g}:",
            f"  %w{g} = load volatile i32, ptr addrspace(1) %q",
            f"  %c{g} = icmp ult i32 %w{g}, %n",
            f"  br i1 %c{g}, label %{f'head{g + 1}' if g + 1 < depth else 'inner'}, label %join{g}",
        ]
    lines += ["inner:", "  %i = mul i32 %v0, 3", f"  br label %join{depth - 1}"]
    for g in reversed(range(depth)):
        inside = "inner" if g == depth - 1 else f"join{g + 1}"
        value = "%i" if g == depth - 1 else f"%s{g + 1}"
        lines += [
            f"join{g}:",
            f"  %r{g} = phi i32 [ %w{g}, %head{g} ], [ {value}, %{inside} ]",
            f"  %s{g} = add i32 %r{g}, %w{g}",
            f"  store volatile i32 %s{g}, ptr addrspace(1) %q",
            f"  br label %{f'join{g - 1}' if g else 'end'}",
        ]
    return "\n".join([*lines, "end:", "  ret void", "}", ""])


def straight(size: int) -> str:
    """LLVM IR of a kernel of one block: about ``size`` bitwise operations on 32 values, as in a cipher."""
    choose = random.Random(size)
    lines = [
        "declare i32 @llvm.amdgcn.workitem.id.x()",
        "define amdgpu_kernel void @straight(ptr addrspace(1) %p, i32 %key) {",
        "  %id = call i32 @llvm.amdgcn.workitem.id.x()",
    ]
    for k in range(32):
        lines += [
            f"  %a{k} = mul i32 %id, {k + 7}",
            f"  %q{k} = getelementptr i32, ptr addrspace(1) %p, i32 %a{k}",
            f"  %l{k} = load volatile i32, ptr addrspace(1) %q{k}",
        ]
    values = [f"%l{k}" for k in range(32)]
    for n in range(size):
        left, right = choose.choice(values), choose.choice([*values, "%key", "1540483477"])
        lines.append(f"  %t{n} = {choose.choice(('xor', 'and', 'or', 'xor', 'add'))} i32 {left}, {right}")
        values[choose.randrange(len(values))] = f"%t{n}"
    lines += [f"  store volatile i32 {value}, ptr addrspace(1) %q{k}" for k, value in enumerate(values)]
    return "\n".join([*lines, "  ret void", "}", ""])


def source_of(what: str, kernels: Path) -> tuple[str, str]:
    """LLVM IR and processor of ``kernel:NAME``, ``made:N``, ``chain:N``, ``nested:N`` or ``straight:N``."""
    kind, _, name = what.partition(":")
    if kind == "kernel":
        cpu = next(part for part in name.split(".") if part.startswith("gfx"))
        return (kernels / name).read_text(), cpu
    makers: dict[str, Callable[[int], str]] = {
        "made": lambda size: made_kernel(max(1, size // 32)),
        "chain": chain,
        "nested": nested,
        "straight": straight,
    }
    return makers[kind](int(name)), "gfx942"


def texts_of(what: str, phase: str, kernels: Path) -> tuple[str, str, str]:
    """Machine IR before and after LLVM's allocation of a phase, and the processor."""
    ir, cpu = source_of(what, kernels)
    compiler = StagedCompiler(find_toolchain(), CompileOptions(cpu, tool_seconds=600.0))
    pre = to_pre_ra(compiler, ir).mir
    if phase == "sgpr":
        return pre, compiler.llvm_allocate(pre, LlvmPhase.SGPR), cpu
    middle = compiler.resume(compiler.llvm_allocate(pre, LlvmPhase.SGPR), done=LlvmPhase.SGPR, until=LlvmPhase.VGPR)
    return middle, compiler.llvm_allocate(middle, LlvmPhase.VGPR), cpu


def measure(what: str, phase: PhaseName, kernels: Path, repeats: int) -> dict[str, Any]:
    """One row, in this process."""
    before, after, cpu = texts_of(what, phase, kernels)
    gpu = target(cpu)
    solver = default_solver()
    solver.start()
    parse, (pre, post) = best(lambda: (parse_mir(before), parse_mir(after)), repeats)
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    audited, report = best(lambda: audit(pre, post, gpu), repeats)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + worker_peak(solver)
    function = pre.functions[0]
    row: dict[str, Any] = {
        "what": what,
        "phase": phase,
        "instructions": sum(f.instruction_count for f in pre.functions),
        "blocks": sum(len(f.blocks) for f in pre.functions),
        "parse_seconds": round(parse, 4),
        "audit_outcome": report.outcome.value,
        "audit_goals": sum(f.obligations for f in report.functions),
        "audit_seconds": round(audited, 4),
        "peak_mib": round(peak / 1024, 1),
        "parsed_mib": round(base / 1024, 1),
    }
    try:
        problem = build_problem(pre, function, gpu, phase)
        answer = allocator("deterministic").allocate(problem)
    except (AllocationFailure, UnsupportedError) as error:
        row["prove_outcome"] = f"none: {error.what}"
        return row
    proved, result = best(lambda: prove(problem, answer), repeats)
    row |= {
        "ranges": len(problem.ranges),
        "prove_outcome": result.outcome.value,
        "prove_goals": result.obligations,
        "prove_seconds": round(proved, 4),
    }
    return row


def worker_peak(solver: ProcessSolver) -> int:
    """Peak resident memory of the solver's workers, KiB."""
    total = 0
    for pid in solver.pool.pids():
        status = Path(f"/proc/{pid}/status").read_text()
        total += int(status.partition("VmHWM:")[2].split()[0])
    return total


def compare_solvers(what: str, phase: PhaseName, kernels: Path) -> dict[str, Any]:
    """The audit through the worker process and with Z3 in this process, alternating."""
    before, after, cpu = texts_of(what, phase, kernels)
    pre, post, gpu = parse_mir(before), parse_mir(after), target(cpu)
    solvers: dict[str, Solver] = {"worker": default_solver(), "in_process": Z3Solver()}
    row: dict[str, Any] = {"what": what, "phase": phase}
    times: dict[str, list[float]] = {name: [] for name in solvers}
    for _ in range(5):
        for name, solver in solvers.items():
            seconds, report = best(lambda solver=solver: audit(pre, post, gpu, solver=solver), 1)
            times[name].append(seconds)
            row[f"{name}_outcome"] = report.outcome.value
    return row | {f"{name}_seconds": round(min(seconds), 4) for name, seconds in times.items()}


def best(action: Callable[[], _T], repeats: int) -> tuple[float, _T]:
    """Least CPU seconds of a few runs, solver included, and the last result."""
    times: list[float] = []
    while True:
        start = cpu_seconds()
        result = action()
        times.append(cpu_seconds() - start)
        if len(times) >= repeats:
            return min(times), result


def cpu_seconds() -> float:
    """CPU time of this process and its solver workers."""
    return time.process_time() + default_solver().cpu_seconds


def in_a_process(
    mode: str, what: str, phase: str, kernels: Path, repeats: int, checkout: Path = REPOSITORY
) -> dict[str, Any]:
    """A row from a process of its own, with the code of that checkout."""
    script = str(checkout / "benchmarks" / Path(__file__).name)
    command = [sys.executable, script, "--row", mode, what, phase, str(repeats), "--kernels", str(kernels)]
    path = os.pathsep.join(str(p) for p in (checkout, checkout / "model"))
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=False, env={**os.environ, "PYTHONPATH": path}
    )
    if done.returncode != 0:
        return {"what": what, "phase": phase, "failed": done.returncode}
    row: dict[str, Any] = json.loads(done.stdout)
    return row


def exponents(rows: list[dict[str, Any]], size: str) -> dict[str, float]:
    """Fitted exponents of the rows' seconds over their size."""
    found: dict[str, float] = {}
    for step in ("parse", "audit", "prove"):
        points = [(row[size], row[f"{step}_seconds"]) for row in rows if f"{step}_seconds" in row]
        large = points[-4:]
        if len(large) >= 2:
            scale = 900 / max(1, min(n for n, _ in large))
            found[step] = round(exponent([(int(n * max(1.0, scale)), max(t, 1e-4)) for n, t in large]), 2)
    return found


def with_other(row: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """A row with what the other checkout took for the same audit."""
    keys = ("audit_seconds", "audit_outcome", "audit_goals", "peak_mib")
    return row | {f"against_{key.removeprefix('audit_')}": other[key] for key in keys if key in other}


def ratios(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Audit seconds over the other checkout's: of the sums, and the median over the rows."""
    both = [(row["audit_seconds"], row["against_seconds"]) for row in rows if "against_seconds" in row]
    if not both:
        return {}
    return {
        "sum": round(sum(here for here, _ in both) / sum(there for _, there in both), 3),
        "median": round(statistics.median(here / there for here, there in both), 3),
    }


def measured(cases: list[tuple[str, str]], kernels: Path, repeats: int, against: Path | None) -> list[dict[str, Any]]:
    """A row for each case and phase, shown as it comes; with ``against``, of that checkout too."""
    rows: list[dict[str, Any]] = []
    for what, phase in cases:
        row = in_a_process("cost", what, phase, kernels, repeats)
        if against is not None:
            row = with_other(row, in_a_process("cost", what, phase, kernels, repeats, against))
        rows.append(row)
        show(row)
    return rows


def show(row: dict[str, Any]) -> None:
    """One line."""
    size = f"{row.get('instructions', 0):6} instr {row.get('blocks', 0):5} blocks"
    audited = f"audit {row.get('audit_seconds', 0):7.3f} {row.get('audit_outcome', 'FAILED')}"
    proved = f"prove {row.get('prove_seconds', 0):7.3f} {row.get('prove_outcome', '')[:12]:12}"
    parsed = f"parse {row.get('parse_seconds', 0):7.3f}"
    print(
        f"{row['what']:44} {row['phase']:5} {size}  {parsed}  {audited}  {proved}",
        row.get("peak_mib", 0),
        "MiB",
        f"against {row['against_seconds']:.3f}" if "against_seconds" in row else "",
        flush=True,
    )


def main() -> int:
    """Run all parts, print them, write the JSON file."""
    parser = options(__doc__, "audit_speed.json", kernels=kernel_directory())
    parser.add_argument("--quick", action="store_true", help="sizes up to 3,000, one run each")
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="measure this checkout's code as well")
    parser.add_argument("--rows", nargs="+", metavar="WHAT/PHASE", help="measure these rows alone")
    parser.add_argument("--row", nargs=4, metavar=("MODE", "WHAT", "PHASE", "REPEATS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    kernels: Path = arguments.kernels
    if arguments.row:
        mode, what, phase, repeats = arguments.row
        row = measure(what, phase, kernels, int(repeats)) if mode == "cost" else compare_solvers(what, phase, kernels)
        print(json.dumps(row))
        return 0
    repeats = 1 if arguments.quick else REPEATS
    sources = sorted(path.name for path in kernels.glob("attn_d128_causal.*.ll"))
    if not sources:
        print(f"no attn_d128_causal.*.ll in {kernels}; give --kernels DIR", file=sys.stderr)
        return 2
    both: tuple[PhaseName, ...] = ("sgpr", "vgpr")
    small = arguments.quick
    # The shapes differ in control flow, which both phases see alike.
    parts: dict[str, list[tuple[str, str]]] = {
        "kernels": [(f"kernel:{name}", phase) for name in sources for phase in both],
        "made": [(f"made:{size}", phase) for size in SIZES if size <= 3000 or not small for phase in both],
        "blocks": [(f"chain:{size}", "vgpr") for size in BLOCKS if size <= 1000 or not small],
        "classes": [(f"nested:{depth}", "vgpr") for depth in CLASSES if depth <= 16 or not small],
    }
    if arguments.rows:
        parts = {"rows": [(what, phase) for what, _, phase in (row.rpartition("/") for row in arguments.rows)]}
    sizes = {"made": "instructions", "blocks": "blocks", "classes": "instructions"}
    record: dict[str, Any] = {
        "command": command(),
        "machine": machine(),
        "llvm": find_toolchain().version_text,
        "repeats": repeats,
        "load_average_before": os.getloadavg()[0],
    }
    for part, cases in parts.items():
        rows = record[part] = measured(cases, kernels, repeats, arguments.against)
        if part in sizes:
            record[f"{part}_exponents"] = {
                phase: exponents([r for r in rows if r["phase"] == phase and "failed" not in r], sizes[part])
                for phase in dict.fromkeys(phase for _, phase in cases)
            }
            print(f"{part}: exponents {record[f'{part}_exponents']}")
    if arguments.against is not None:
        record["over_against"] = ratios([row for part in parts for row in record[part]])
        print(f"audit over the other checkout's: {record['over_against']}")
    if arguments.rows:
        write(arguments.out, record)
        return 0
    record["worker"] = [
        in_a_process("solvers", f"kernel:{name}", "vgpr", kernels, repeats)
        for name in (sources[0], "attn_d64.gfx942.opt.ll", "gemm_naive.gfx942.ll")
    ]
    for row in record["worker"]:
        print(row)
    write(arguments.out, record)
    return 0


if __name__ == "__main__":
    sys.exit(main())
