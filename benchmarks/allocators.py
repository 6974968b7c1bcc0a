"""LLVM's allocators and ours side by side on the kernels of ``kernel_corpus.json``.

    .venv/bin/verilocc corpus export --list benchmarks/kernel_corpus.json --out DIR
    .venv/bin/python benchmarks/allocators.py DIR [--jobs 2] [--only TEXT] [--log FILE.jsonl]
        [--sample-every 5] [--exact-seconds 10] [--model DIR] [--out FILE.json]

Per kernel, from the final machine code of each: modelled cycles (``verilocc_mlir.cost``; not measured), waves, vector
registers, registers stored and reloaded by estimated executions, copies, CPU seconds. LLVM's: greedy as it is,
greedy with ``amdgpu-agpr-alloc`` "0" (gfx90a, gfx942, gfx950; "llvm" is the better of the two by modelled cycles), and
basic. Ours: ``verilocc compile`` with each effort, every allocation in it audited: ``fast`` is the deterministic
allocator. On every so many kernels, because they take long, ``best`` (the search) and the exact allocator as well, with
what it proves: no allocation has fewer registers, or fewer copies in as many waves; with ``--model`` also the language
model in DIR, with the deterministic allocator where it has no answer. Copies between VGPRs and AGPRs are counted in the
final code.

The log keeps each kernel as it is done; run again with the same log to go on: what a kernel lacks is measured. A log of
other code is refused, unless ``--other-code`` says that it may be: the results say of each kernel which it was. With
``--summary`` the results are of what the log holds: a sample, since kernels are run in the order of their digests.
"""

from __future__ import annotations

import json
import math
import re
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from common import Log, cpu_seconds, options, write

from smt_verifier.outcome import Outcome
from verilocc_mlir.allocators import Allocator, allocator
from verilocc_mlir.allocators.deterministic import DeterministicAllocator
from verilocc_mlir.allocators.exact import ExactAllocator
from verilocc_mlir.allocators.spread import spread_proposal
from verilocc_mlir.allocators.tables import Tables
from verilocc_mlir.cost.model import KernelCost, cost_of_assembly
from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.pipeline.compile import compile_module
from verilocc_mlir.pipeline.guard import spill_traffic
from verilocc_mlir.pipeline.key import source_digest
from verilocc_mlir.pipeline.settings import Effort, Emit, Settings
from verilocc_mlir.problem.model import AllocationProblem, Proposal
from verilocc_mlir.target.targets import target
from verilocc_mlir.toolchain.drivers.job import CompileOptions
from verilocc_mlir.toolchain.find import find_toolchain
from verilocc_mlir.toolchain.inputs import load_input
from verilocc_mlir.toolchain.ir_compat import to_pre_ra
from verilocc_mlir.toolchain.staged import StagedCompiler

LIST = Path(__file__).parent / "kernel_corpus.json"
RESULT = Path(__file__).parent / "results" / "allocators.json"
_DEFINE = re.compile(r"^(define [^\n]*?amdgpu_kernel[^\n]*?)( #\d+)?( !\w[^\n{]*)? \{$", re.MULTILINE)
_BASIC = ("-sgpr-regalloc=basic", "-wwm-regalloc=basic", "-vgpr-regalloc=basic")
Job = Callable[[], dict[str, Any]]
_EVERYWHERE = (Effort.FAST, Effort.BALANCED)
_OURS = (*(effort.value for effort in Effort), "model")
_FITTING = Effort.BALANCED.value
"""Where this one spills, it is asked whether the registers would have sufficed."""
_BETTER = 0.999
"""Modelled cycles below this share of LLVM's count as better, above its inverse as worse."""


def figures(cost: KernelCost, seconds: float) -> dict[str, Any]:
    """What is kept of one result."""
    return {
        "cycles": round(cost.cycles, 1),
        "bound": cost.bound,
        "waves": cost.occupancy,
        "vectors": cost.vectors,
        "agprs": cost.agprs,
        "sgprs": cost.sgprs,
        "spill_static": cost.spill_stores.static + cost.spill_reloads.static + cost.lane_saves.static,
        "spill_traffic": round(spill_traffic(cost), 1),
        "copies": round(cost.copies.weighted, 1),
        "accumulator_copies": round(cost.accumulator_copies.weighted, 1),
        "dual": round(cost.dual.weighted, 1),
        "cpu_seconds": round(seconds, 3),
    }


def llvms(ir: str, cpu: str, options: tuple[str, ...] = ()) -> dict[str, Any]:
    """A direct compile by LLVM."""
    compiler = StagedCompiler(find_toolchain(None), CompileOptions(cpu, llc_options=options))
    source = to_pre_ra(compiler, load_input(ir.encode(), path="kernel", cpu=cpu, toolchain=compiler.toolchain).text).ir
    before = len(compiler.runs)
    text = compiler.direct(source, "asm").decode()
    seconds = sum(run.cpu_seconds for run in compiler.runs[before:])
    return figures(one(cost_of_assembly(text, target(cpu))), seconds)


def one(costs: Mapping[str, KernelCost]) -> KernelCost:
    """The kernel of a module that has one."""
    return next(c for c in costs.values() if c.is_kernel)


def ours(ir: str, cpu: str, effort: Effort, allocators: tuple[Allocator, ...] | None = None) -> dict[str, Any]:
    """A compilation of ours."""
    start = cpu_seconds()
    settings = Settings(cpu=cpu, emit=Emit.ASM, effort=effort)
    compiled = compile_module(ir.encode(), "kernel.ll", settings, allocators=allocators)
    seconds = cpu_seconds() - start
    report = compiled.report
    if compiled.data is None or report.outcome is not Outcome.PROVED:
        return {"error": f"{report.outcome}", "cpu_seconds": round(seconds, 3)}
    kernel = next(f for f in report.functions if f.is_kernel)
    found = figures(one(cost_of_assembly(compiled.data.decode(), target(cpu))), seconds)
    direct = sum(s.seconds for s in report.steps if s.name == "direct")
    return {
        **found,
        "proved": True,
        "obligations": sum(p.obligations for p in kernel.phases),
        "allocators": {p.phase: p.allocator for p in kernel.phases},
        "spilled_ranges": sum(len(p.spills) for p in kernel.phases),
        "llc_cpu_seconds": round(direct, 3),
        "notes": list(report.notes),
    }


def unspilled(ir: str, cpu: str) -> dict[str, Any]:
    """Why our allocation fails in each phase where nothing may be spilled: "pressure", or it fits and there is none."""
    report = compile_module(ir.encode(), "kernel.ll", Settings(cpu=cpu, emit=Emit.ASM, spill=False)).report
    kernel = next(f for f in report.functions if f.is_kernel)
    return {p.phase: causes for p in kernel.phases if (causes := [a.cause for a in p.attempts if a.cause])}


class Telling(ExactAllocator):
    """The exact allocator, which keeps its results, and beside each the cost of the deterministic allocator's."""

    def __init__(self, seconds: float, kept: list[dict[str, Any]], hurried: bool = False) -> None:
        super().__init__(seconds, order="waves", hurried=hurried)
        self._kept = kept

    def hurried(self) -> Telling:
        return Telling(self.time_limit_s, self._kept, True)

    def allocate(self, problem: AllocationProblem) -> Proposal:
        found = self.solve(problem)
        tables = Tables(problem)
        ours = tables.cost.of(tables.starts(DeterministicAllocator(packed=True).allocate(problem)))
        self._kept.append(
            {
                "phase": problem.phase,
                "ranges": len(problem.ranges),
                "registers": found.registers,
                "registers_bound": found.registers_bound,
                "registers_deterministic": ours.registers,
                "copies": round(found.copies, 2),
                "copies_bound": round(found.copies_bound, 2),
                "copies_deterministic": round(ours.saves_and_copies, 2),
                "waves_lost": found.cost.lost_waves,
                "waves_lost_deterministic": ours.lost_waves,
            }
        )
        return spread_proposal(problem, found.proposal)


def exact(ir: str, cpu: str, seconds: float) -> dict[str, Any]:
    """A compilation with the exact allocator, and its bounds on each phase."""
    kept: list[dict[str, Any]] = []
    return {**ours(ir, cpu, Effort.FAST, (Telling(seconds, kept),)), "phases": kept}


def without_agprs(ir: str) -> str:
    """The IR with ``"amdgpu-agpr-alloc"="0"`` on its kernels."""
    return _DEFINE.sub(lambda m: f'{m[1]} "amdgpu-agpr-alloc"="0"{m[2] or ""}{m[3] or ""} {{', ir)


def model(ir: str, cpu: str, directory: str) -> dict[str, Any]:
    """A compilation with the language model in a directory."""
    return ours(ir, cpu, Effort.FAST, (allocator(f"model:{directory}"), DeterministicAllocator()))


def wanted(row: Mapping[str, Any], cpu: str, ir: str, exact_seconds: float, weights: str) -> dict[str, Job]:
    """What a kernel's row lacks."""
    jobs: dict[str, Job] = {
        "greedy": lambda: llvms(ir, cpu),
        "basic": lambda: llvms(ir, cpu, _BASIC),
    }
    if target(cpu).unified_vgpr and '"amdgpu-agpr-alloc"' not in ir:
        jobs["greedy_no_agprs"] = lambda: llvms(without_agprs(ir), cpu)
    for effort in _EVERYWHERE:
        jobs[effort.value] = lambda effort=effort: ours(ir, cpu, effort)
    if exact_seconds:
        jobs[Effort.BEST.value] = lambda: ours(ir, cpu, Effort.BEST)
        jobs["exact"] = lambda: exact(ir, cpu, exact_seconds)
        if weights:
            jobs["model"] = lambda: model(ir, cpu, weights)
    return {label: job for label, job in jobs.items() if label not in row}


def measure(row: Mapping[str, Any], cpu: str, path: str, exact_seconds: float, weights: str) -> dict[str, Any]:
    """All results of one kernel, with those that ``row`` has."""
    ir = Path(path).read_text()
    row = dict(row)
    for label, job in wanted(row, cpu, ir, exact_seconds, weights).items():
        try:
            row[label] = job()
        except VeriloccError as error:
            row[label] = {"error": str(error)[:300]}
    if row[_FITTING].get("spill_traffic", 0) > 0 and "unspilled" not in row:
        row["unspilled"] = unspilled(ir, cpu)
    return row


def best_of_llvm(row: Mapping[str, Any]) -> dict[str, Any]:
    """LLVM's greedy in its better setting."""
    settings = [row[k] for k in ("greedy", "greedy_no_agprs") if k in row and "error" not in row[k]]
    return min(settings, key=lambda f: f["cycles"])


def summary(rows: Iterable[Mapping[str, Any]], effort: str) -> dict[str, Any]:
    """One way of ours against LLVM's better setting, on the kernels it was run on."""
    rows = [r for r in rows if effort in r]
    pairs = [(best_of_llvm(r), r[effort], r) for r in rows if "error" not in r[effort] and "error" not in r["greedy"]]
    troubled = [(a, b) for a, b, _ in pairs if a["spill_traffic"] > 0 or a["accumulator_copies"] > 0]
    rest = [(a, b) for a, b, _ in pairs if not (a["spill_traffic"] > 0 or a["accumulator_copies"] > 0)]
    spilling = [(a, b) for a, b, _ in pairs if a["spill_traffic"] > 0]

    def ratio(found: list[tuple[dict[str, Any], dict[str, Any]]]) -> float | None:
        if not found:
            return None
        return round(math.exp(statistics.fmean(math.log(b["cycles"] / a["cycles"]) for a, b in found)), 4)

    return {
        "kernels": len(pairs),
        "proved": sum(bool(b.get("proved")) for _, b, _ in pairs),
        "ours_in_every_phase": sum(set(b["allocators"].values()) <= {"deterministic"} for _, b, _ in pairs),
        "cycles_ratio_where_llvm_spills_or_copies_between_files": ratio(troubled),
        "kernels_there": len(troubled),
        "cycles_ratio_elsewhere": ratio(rest),
        "cycles_ratio": ratio([(a, b) for a, b, _ in pairs]),
        "cheaper": sum(b["cycles"] < _BETTER * a["cycles"] for a, b, _ in pairs),
        "dearer": sum(b["cycles"] > a["cycles"] / _BETTER for a, b, _ in pairs),
        "fewer_waves": [r["name"] for a, b, r in pairs if b["waves"] < a["waves"]],
        "more_waves": sum(b["waves"] > a["waves"] for a, b, _ in pairs),
        "llvm_spills": len(spilling),
        "spill_less": sum(b["spill_traffic"] < a["spill_traffic"] for a, b in spilling),
        "spill_nothing": sum(b["spill_traffic"] == 0 for _, b in spilling),
        "spills_though_it_fits": [
            r["name"]
            for _, b, r in pairs
            if b["spill_traffic"] > 0 and not any("pressure" in causes for causes in r.get("unspilled", {}).values())
        ],
        "spill_more": [r["name"] for a, b, r in pairs if b["spill_traffic"] > a["spill_traffic"]],
        "accumulator_copies_llvm": sum(a["accumulator_copies"] > 0 for a, _, _ in pairs),
        "accumulator_copies_ours": [r["name"] for _, b, r in pairs if b["accumulator_copies"] > 0],
        "cpu_seconds": round(sum(b["cpu_seconds"] for _, b, _ in pairs), 1),
        "llc_cpu_seconds": round(sum(a["cpu_seconds"] for a, _, _ in pairs), 1),
    }


def exact_summary(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What the exact allocator proved, and how far the deterministic one is from it."""
    phases = [p for r in rows if "exact" in r for p in r["exact"].get("phases", ())]
    return {
        "kernels": sum("exact" in r for r in rows),
        "proved": sum(bool(r["exact"].get("proved")) for r in rows if "exact" in r),
        "phases": len(phases),
        "registers_closed": sum(p["registers_bound"] >= p["registers"] for p in phases),
        "copies_closed": sum(p["copies_bound"] >= p["copies"] for p in phases),
        "deterministic_at_register_bound": sum(p["registers_deterministic"] <= p["registers_bound"] for p in phases),
        "deterministic_as_many_waves": sum(p["waves_lost_deterministic"] <= p["waves_lost"] for p in phases),
        "deterministic_as_few_copies": sum(p["copies_deterministic"] <= p["copies"] for p in phases),
    }


def main() -> int:
    parser = options(__doc__, RESULT.name, jobs=2)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--sample-every", type=int, default=5, metavar="N", help="0: never")
    parser.add_argument("--exact-seconds", type=float, default=10.0, help="for one phase")
    parser.add_argument("--model", default="", metavar="DIR", help="the language model, on the same kernels as exact")
    parser.add_argument("--summary", action="store_true", help="of what the log holds, nothing is run")
    parser.add_argument("--other-code", action="store_true", help="go on with a log of other code")
    parser.add_argument("--log", type=Path, default=Path("out/allocators.jsonl"))
    given = parser.parse_args()
    kernels = [k for k in json.loads(LIST.read_text())["kernels"] if given.only in k["name"]]
    log = Log(given.log)
    done: dict[str, dict[str, Any]] = {}
    digest = source_digest()
    for row in log.rows():
        if row["sources"] != digest and not given.other_code:
            print(f"{given.log} is of other code; remove it, name another, or say --other-code", file=sys.stderr)
            return 2
        done[row["name"]] = row
    start = time.monotonic()
    sample = {k["name"] for k in kernels[:: given.sample_every]} if given.sample_every else set[str]()
    # In an order that mixes targets, so that a part of a run is a sample of the whole.
    left: list[tuple[Any, ...]] = []
    for k in sorted(kernels, key=lambda k: k["sha256"]) if not given.summary else ():
        name, cpu, path = k["name"], k["cell"]["target"], given.directory / f"{k['name']}.ll"
        row = done.get(name, {"name": name, "target": cpu})
        job = row, cpu, str(path), given.exact_seconds if name in sample else 0.0, given.model
        if wanted(row, cpu, path.read_text(), *job[3:]):
            left.append(job)
    with ProcessPoolExecutor(given.jobs) as pool:
        waiting = [pool.submit(measure, *job) for job in left]
        try:
            for number, future in enumerate(as_completed(waiting), 1):
                row = future.result()
                row["sources"] = " ".join(dict.fromkeys((*row.get("sources", digest).split(), digest)))
                done[row["name"]] = row
                log.add(row)
                print(f"{number} of {len(left)}, {time.monotonic() - start:.0f} s: {line_of(row)}", flush=True)
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            print(f"interrupted; {len(done)} of {len(kernels)} are in {given.log}", file=sys.stderr)
            return 130
    rows = [done[k["name"]] for k in kernels if k["name"] in done]
    result = {
        "command": f"benchmarks/allocators.py DIR --sample-every={given.sample_every} "
        f"--exact-seconds={given.exact_seconds:g}" + (" --model=DIR" if given.model else ""),
        "sources": dict(Counter(r["sources"] for r in rows)),
        "kernels_done": f"{len(rows)} of {len(kernels)}",
        "note": "cycles are modelled, not measured",
        "summary": {label: summary(rows, label) for label in _OURS},
        "exact": exact_summary(rows),
        "kernels": rows,
    }
    write(given.out, result)
    print(json.dumps(result["summary"], indent=1))
    return 0


def line_of(row: Mapping[str, Any]) -> str:
    """Progress in a line."""
    if "error" in row["greedy"]:
        return f"{row['name']}: {row['greedy']['error'][:80]}"
    llvm = best_of_llvm(row)
    parts = [f"llvm {llvm['cycles']:.0f} w{llvm['waves']} s{llvm['spill_traffic']:.0f}"]
    for label in (label for label in _OURS if label in row):
        found = row[label]
        parts.append(
            f"{label} {found['error'][:40]}"
            if "error" in found
            else f"{label} {found['cycles']:.0f} w{found['waves']} s{found['spill_traffic']:.0f}"
        )
    return f"{row['name']}: " + "; ".join(parts)


if __name__ == "__main__":
    sys.exit(main())
