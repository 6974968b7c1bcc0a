"""How often the exact allocator proves the fewest registers: shared kernels and generated MLIR kernels, both phases.

    .venv/bin/python benchmarks/exact_closes.py [--generated 60] [--seed 5] [--ranges 500] [--seconds 60]
        [--out benchmarks/results/exact_closes.json]

Each phase of each function with at most ``--ranges`` live ranges is solved on its own, one after the other. A row says
what the deterministic allocator takes, what was found, and the bound proved; "pressure" rows need spilling before any
allocator can answer, and do not count. The results file is written after every row; started again, the run goes on
behind what it holds. Needs OR-Tools; the generated kernels need the mlir extra.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common import earlier, options, write

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tests")]

from allocators_support import Compiled, compile_phases, compiled_kernel, violations  # noqa: E402
from support import kernel_paths, run_llc  # noqa: E402

from verilocc_mlir.allocators import AllocationFailure  # noqa: E402
from verilocc_mlir.allocators.exact import ExactAllocator  # noqa: E402
from verilocc_mlir.allocators.tables import Tables  # noqa: E402
from verilocc_mlir.problem.model import AllocationProblem, Proposal  # noqa: E402
from verilocc_mlir.toolchain.ir_compat import downgrade  # noqa: E402


def shared() -> Iterator[tuple[str, Compiled]]:
    """Every shared kernel through both phases."""
    for path in kernel_paths():
        yield path.stem, compiled_kernel(path)


def generated(count: int, seed: int) -> Iterator[tuple[str, Compiled]]:
    """Generated kernels; those whose IR this llc does not read are left out, and said."""
    from examples.mlir_kernels import kernels

    for config, ir in kernels(count, seed):
        name = f"{config.name}.{config.target}"
        try:
            pre = run_llc(downgrade(ir).text, config.target, "-stop-before=greedy,0", mir=False)
        except AssertionError as error:
            print(f"{name}: {str(error).splitlines()[0][:120]}", file=sys.stderr)
            continue
        yield name, compile_phases(pre, config.target, ("sgpr", "vgpr"))


def row(question: AllocationProblem, known: Proposal | None, seconds: float) -> dict[str, Any]:
    """One problem's outcome as plain data."""
    tables = Tables(question)
    found: dict[str, Any] = {
        "function": question.function,
        "target": question.target,
        "phase": question.phase,
        "ranges": sum(1 for r in question.ranges if r.groups),
        "deterministic": tables.cost.of(tables.starts(known)).registers if known else None,
    }
    try:
        result = ExactAllocator(seconds).solve(question)
    except AllocationFailure as failure:
        return {**found, "result": failure.reason}
    assert not violations(question, result.proposal)
    return {
        **found,
        "result": "optimal" if result.registers_optimal else "open",
        "registers": result.registers,
        "registers_bound": result.registers_bound,
        "copies": result.copies,
        "copies_bound": round(result.copies_bound, 3),
        "seconds": round(result.seconds, 2),
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts of what the rows say."""
    counted = [r for r in rows if r["result"] != "pressure"]
    solved = [r for r in counted if "seconds" in r]
    closed = [r for r in counted if r["result"] in ("optimal", "infeasible")]
    times = sorted(r["seconds"] for r in solved)
    return {
        "functions": len(counted),
        "closed": len(closed),
        "part": round(len(closed) / len(counted), 4) if counted else None,
        "need_spilling": len(rows) - len(counted),
        "fewer_registers_than_deterministic": sum(r["registers"] < (r["deterministic"] or 10**9) for r in solved),
        "copies_closed_too": sum(r["result"] == "optimal" and r["copies_bound"] >= r["copies"] for r in solved),
        "open_gap": {
            f"{r['name']} {r['phase']}": r["registers"] - r["registers_bound"] for r in solved if r not in closed
        },
        "median_seconds": times[len(times) // 2] if times else None,
    }


def main() -> int:
    """Run what the results do not hold yet; exit code 1 if less than 90 % close."""
    parser = options(__doc__, "exact_closes.json")
    parser.add_argument("--generated", type=int, default=60, metavar="N", help="generated kernels, 0 for none")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--ranges", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args()
    rows: list[dict[str, Any]] = earlier(given.out).get("rows", [])
    done = {(r["name"], r["phase"], r["function"]) for r in rows}
    sources = [shared()] + ([generated(given.generated, given.seed)] if given.generated else [])
    for name, compiled in (pair for source in sources for pair in source):
        for run in (run for runs in compiled.runs.values() for run in runs):
            question = run.problem
            live = sum(1 for r in question.ranges if r.groups)
            if live > given.ranges or (name, question.phase, question.function) in done:
                continue
            rows.append({"name": name, **row(question, run.proposal, given.seconds)})
            last = rows[-1]
            print(f"{name} {question.phase}: {live} ranges, {last['result']}", file=sys.stderr, flush=True)
            found: dict[str, Any] = {
                "command": "benchmarks/exact_closes.py",
                "seconds_each": given.seconds,
                "largest": given.ranges,
                "summary": summary(rows),
                "rows": rows,
            }
            write(given.out, found)
    print(json.dumps(summary(rows), indent=1))
    return 0 if rows and summary(rows)["part"] >= 0.9 else 1


if __name__ == "__main__":
    sys.exit(main())
