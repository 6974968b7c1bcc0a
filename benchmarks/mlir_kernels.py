"""Generated MLIR kernels through the MLIR pass: verdicts, who allocated each phase, registers, waves, seconds.

    .venv/bin/python benchmarks/mlir_kernels.py [--count 200] [--seed 0] [--jobs N] [--out FILE.json]

Each kernel of ``examples/mlir_kernels`` is lowered, run through ``verilocc-allocate`` and must leave a ``gpu.binary``.
The results file is rewritten every few kernels; started again, the run goes on behind what it holds. Needs the mlir
extra.
"""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from statistics import median
from typing import Any

from common import cores, earlier, options, write

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from examples.mlir_kernels import TARGETS, Config, sample  # noqa: E402
from examples.mlir_kernels.lower import LOWERING, session  # noqa: E402
from smt_verifier.outcome import Outcome  # noqa: E402
from verilocc_mlir.hooks.mlir_pipeline import (  # noqa: E402
    PASS_NAME,
    ModuleResult,
    parse_pipeline,
)
from verilocc_mlir.results.compile import FunctionReport  # noqa: E402

_SAVE_EVERY = 10


def compile_kernel(config: Config) -> dict[str, Any]:
    """The row of one kernel: lowered and run through the pass in this process."""
    started = time.monotonic()
    bindings, context = session()
    with context:
        module = bindings.ir.Module.parse(config.mlir())
    text = f"builtin.module({LOWERING.format(chip=config.target)},{PASS_NAME})"
    pipeline = parse_pipeline(text, context)
    error = ""
    try:
        pipeline.run(module)
    except bindings.ir.MLIRError as failure:
        error = str(failure)
    results = pipeline.passes[0].results
    operations = [str(op.operation.name) for op in module.body.operations]
    return row(config, results[0] if results else None, operations, error, time.monotonic() - started)


def row(
    config: Config, result: ModuleResult | None, operations: list[str], error: str, seconds: float
) -> dict[str, Any]:
    """A kernel's outcome as plain data."""
    reports = result.reports if result else ()
    functions = [function for report in reports for function in report.functions]
    return {
        "kernel": config.name,
        "target": config.target,
        "verdict": result.verdict if result else "failed",
        "reason": error or (result.reason if result else ""),
        "why": last_reason(functions) or error,
        "operations": operations,
        "instructions": sum(f.instructions for f in functions),
        "phases": [
            {
                "phase": p.phase,
                "allocator": p.allocator,
                "outcome": str(p.outcome),
                "fallback": p.fallback,
                "reason": p.fallback_reason,
            }
            for f in functions
            for p in f.phases
        ],
        "ours": _resources(functions[0].resources) if functions else None,
        "greedy": _resources(functions[0].greedy) if functions else None,
        "cpu_seconds": round(sum(report.cpu_seconds for report in reports), 2),
        "seconds": round(seconds, 2),
    }


def last_reason(functions: list[FunctionReport]) -> str:
    """Why the first phase that is not proved is not, or ``""``."""
    for function in functions:
        for phase in function.phases:
            if phase.outcome is not Outcome.PROVED:
                return f"{phase.outcome}, {phase.allocator}: {phase.attempts[-1].reason}"
    return ""


def _resources(found: Any) -> dict[str, int] | None:
    names = ("sgprs", "vgprs", "agprs", "sgpr_spills", "vgpr_spills", "waves")
    return {name: getattr(found, name) for name in names} if found else None


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """A Markdown table, a line for each target, and each reason for a fallback."""
    lines = [
        "| target | kernels | proved | phases ours | waves not below greedy's | instructions | CPU-s median, most |",
        "|---|---|---|---|---|---|---|",
    ]
    for target in sorted({r["target"] for r in rows}, key=TARGETS.index):
        mine = [r for r in rows if r["target"] == target]
        phases = [p for r in mine for p in r["phases"]]
        both = [r for r in mine if r["ours"] and r["greedy"]]
        sizes = [r["instructions"] for r in mine if r["instructions"]] or [0]
        seconds = [r["cpu_seconds"] for r in mine]
        lines.append(
            f"| {target} | {len(mine)} | {sum(r['verdict'] == 'proved' for r in mine)} "
            f"| {sum(not p['fallback'] for p in phases)} of {len(phases)} "
            f"| {sum(r['ours']['waves'] >= r['greedy']['waves'] for r in both)} of {len(both)} "
            f"| {min(sizes)}-{max(sizes)} | {median(seconds):.1f}, {max(seconds):.1f} |"
        )
    proved = [r for r in rows if r["verdict"] == "proved"]
    others = [r for r in rows if r["verdict"] != "proved"]
    taken = Counter(alike(p["phase"], p["reason"]) for r in proved for p in r["phases"] if p["fallback"])
    lines.append(f"{len(proved)} of {len(rows)} kernels proved; LLVM's allocation of a phase took the place of ours:")
    lines += [f"* {count} times, {reason}" for reason, count in taken.most_common()]
    failed = Counter(alike(r["phases"][-1]["phase"] if r["phases"] else "", r["why"]) for r in others)
    lines.append(f"{len(others)} kernels are not proved:")
    return [*lines, *(f"* {count} times, {reason}" for reason, count in failed.most_common())]


def alike(phase: str, reason: str) -> str:
    """A reason without its numbers, registers and places, to count it by."""
    text = re.sub(r" \[block.*", "", reason)
    text = re.sub(r"%\d+(\.\w+)?|\$\w+|\b[vsa]\d+\b|\b(?:[vas]reg|vgpr|agpr)_\w+", "R", text)
    text = re.sub(r"\bbb\.\d+|line \d+|\b\d+ (?=[VSA]GPRs)|(?<=, )\d+ (?=are free)", "N ", text)
    return f"{phase.upper()}: {text}"


def save(path: Path, rows: list[dict[str, Any]]) -> None:
    """The rows in an order that does not depend on which kernel was done first."""
    write(path, {"kernels": sorted(rows, key=lambda r: (TARGETS.index(r["target"]), r["kernel"]))})


def missing(configs: list[Config], rows: list[dict[str, Any]]) -> Iterator[Config]:
    """Configurations that the results do not have yet."""
    done = {(r["target"], r["kernel"]) for r in rows}
    return (config for config in configs if (config.target, config.name) not in done)


def main() -> int:
    """Run, with progress on standard error and the summary on standard output."""
    parser = options(__doc__, "mlir_kernels.json", jobs=cores())
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rows: list[dict[str, Any]] = earlier(given.out).get("kernels", [])
    todo = list(missing(list(sample(given.count, given.seed)), rows))
    with ProcessPoolExecutor(given.jobs) as pool:
        pending = [pool.submit(compile_kernel, config) for config in todo]
        for number, future in enumerate(as_completed(pending), 1):
            rows.append(future.result())
            last = rows[-1]
            print(f"{number}/{len(todo)} {last['target']} {last['kernel']}: {last['verdict']}", file=sys.stderr)
            if number % _SAVE_EVERY == 0:
                save(given.out, rows)
    save(given.out, rows)
    print("\n".join(summary(rows)))
    return 0 if all(r["verdict"] == "proved" for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
