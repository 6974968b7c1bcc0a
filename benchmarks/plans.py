"""What choosing a plan brings, and what each effort reaches against LLVM's default compile (``pipeline/portfolio.py``).

    .venv/bin/verilocc corpus export --list benchmarks/kernel_corpus.json --out DIR
    .venv/bin/python benchmarks/plans.py DIR [--jobs 1] [--each 10] [--best 3] [--ablated 3] [--log FILE.jsonl]
        [--toolchain triton]

``--each`` kernels of every target are compiled with ``-O=fast`` and ``-O=balanced``, every allocation audited; the
first ``--best`` of every target, where the IR is below ``BEST_BYTES``, also with ``-O=best``, whose searches get
``BEST_SECONDS`` a phase. They are taken in the order of their digests, at most ``--alike`` of one kind
(``iree-mha-gfx950``), with IR below ``--most-bytes``. On the first ``--ablated`` of every target the two effects are
taken apart: registers packed or spread, the default plan or the best of ``balanced``'s, finished without an audit; what
falls short of LLVM's compile counts as that. Cycles are modelled, of final machine code, with loops that run equally
often in all codes of a kernel.

With ``--toolchain triton`` both sides are made by the LLVM in Triton.

An interrupt ends with the results of the kernels that are done; run again with the same log to go on.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from allocators import LIST, figures, one
from common import Log, Row, command, cpu_seconds, options, write
from msgspec.structs import replace

from smt_verifier.outcome import Outcome
from verilocc_mlir.allocators.deterministic import DeterministicAllocator
from verilocc_mlir.cost.model import KernelCost
from verilocc_mlir.cost.together import Reference
from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.pipeline.candidates import Candidate, candidate_costs
from verilocc_mlir.pipeline.compile import compile_module
from verilocc_mlir.pipeline.effort import BESIDE
from verilocc_mlir.pipeline.guard import shortfalls
from verilocc_mlir.pipeline.key import source_digest
from verilocc_mlir.pipeline.plans import DEFAULT, Plan, Planned, planned, plans_of
from verilocc_mlir.pipeline.runs import OURS
from verilocc_mlir.pipeline.settings import Effort, Emit, Settings
from verilocc_mlir.toolchain import ToolchainChoice

BEST_BYTES = 60_000
BEST_SECONDS = 5.0
PARTS = ("llvm", *(effort.value for effort in Effort))
_NOT_KEPT = "falls short"


def chosen(directory: Path, each: int, alike: int, most_bytes: int) -> list[Row]:
    """``each`` kernels of every target, the targets in turn."""
    kinds: Counter[str] = Counter()
    by_target: dict[str, list[Row]] = {}
    for kernel in sorted(json.loads(LIST.read_text())["kernels"], key=lambda k: k["name"].rpartition("-")[2]):
        cpu, kind = kernel["cell"]["target"], kernel["name"].rpartition("-")[0]
        size = (directory / f"{kernel['name']}.ll").stat().st_size
        taken = by_target.setdefault(cpu, [])
        if size < most_bytes and kinds[kind] < alike and len(taken) < each:
            kinds[kind] += 1
            taken.append({"name": kernel["name"], "target": cpu, "rank": len(taken), "bytes": size})
    return [row for rank in range(each) for _, rows in sorted(by_target.items()) for row in rows[rank : rank + 1]]


def llvms(ir: str, settings: Settings) -> tuple[Row, Reference]:
    """LLVM's default compile."""
    given = planned(ir.encode(), "kernel.ll", settings)
    assembly = given.work.compiler.direct(given.ir, "asm").decode()
    reference = Reference.of_assembly(assembly, given.work.target)
    cost = one(reference.costs)
    seconds = sum(run.cpu_seconds for run in given.work.compiler.runs if run.stage == "direct")
    return figures(cost, seconds), reference


def compiled(ir: str, settings: Settings, effort: Effort, llvm: Reference) -> Row:
    """A compilation, proved, with the name of what was kept; its loops run as often as in LLVM's compile."""
    start = cpu_seconds()
    asked = replace(settings, emit=Emit.ASM, effort=effort, allocator_seconds=BEST_SECONDS)
    done = compile_module(ir.encode(), "kernel.ll", asked)
    seconds = cpu_seconds() - start
    if done.data is None or done.report.outcome is not Outcome.PROVED:
        return {"error": str(done.report.outcome)}
    comparable = llvm.costs_of_assembly(done.data.decode())
    if not comparable:
        return {"error": "it does not do the work of LLVM's compile"}
    cost = one(comparable)
    kernel = next(f for f in done.report.functions if f.is_kernel)
    return {
        **figures(cost, seconds),
        "proved": True,
        "kept": ", ".join(dict.fromkeys((kernel.plan, kernel.variant))),
        "allocators": {p.phase: p.allocator for p in kernel.phases},
    }


def least(given: Planned, llvm: KernelCost, plans: Sequence[Plan]) -> Row:
    """The cheapest under some plans that does not fall short of LLVM's compile, else LLVM's; nothing is audited."""
    start = cpu_seconds()
    found: dict[str, KernelCost] = {}
    for cost in candidate_costs(given, [Candidate(plan, variant) for variant in (OURS, BESIDE) for plan in plans]):
        if cost.costs and not shortfalls(one(cost.costs), llvm):
            found.setdefault(cost.candidate.plan.name, one(cost.costs))
    name = min(found, key=lambda n: found[n].cycles, default=_NOT_KEPT)
    return {"plan": name, **figures(found.get(name, llvm), cpu_seconds() - start)}


def ablation(ir: str, settings: Settings) -> Row:
    """The two effects apart and together."""
    spread = planned(ir.encode(), "kernel.ll", settings)
    llvm = one(spread.direct_cost())
    # With the same trip counts, and none of what was allocated.
    packed = replace(spread, allocators=(DeterministicAllocator(packed=True),), _runs={}, _costs_of_texts={})
    first = spread.cost(DEFAULT) or {llvm.name: llvm}
    plans = (DEFAULT, *plans_of(Effort.BALANCED, first))
    return {
        "neither": least(packed, llvm, (DEFAULT,)),
        "spread": least(spread, llvm, (DEFAULT,)),
        "plans": least(packed, llvm, plans),
        "both": least(spread, llvm, plans),
    }


def measure(row: Row, what: str, directory: str, toolchain: ToolchainChoice) -> Row:
    """One part of a kernel's results: ``llvm`` and an effort, or ``ablation``."""
    ir, settings = (Path(directory) / f"{row['name']}.ll").read_text(), Settings(row["target"], toolchain=toolchain)
    try:
        if what == "ablation":
            return {**row, what: ablation(ir, settings)}
        llvm, cost = llvms(ir, settings)
        return {**row, "llvm": llvm, what: compiled(ir, settings, Effort(what), cost)}
    except VeriloccError as error:
        return {**row, "error": f"{what}: {str(error)[:300]}"}


def parts(kernels: Sequence[Row], best: int, ablated: int) -> list[tuple[Row, str]]:
    """What is measured, in an order in which a part of a run is a sample of the whole."""
    jobs: list[tuple[Row, str]] = [
        *((k, e.value) for k in kernels for e in (Effort.FAST, Effort.BALANCED)),
        *((k, "ablation") for k in kernels if k["rank"] < ablated),
        *((k, Effort.BEST.value) for k in kernels if k["rank"] < best and k["bytes"] < BEST_BYTES),
    ]
    return jobs


def ratio(pairs: Iterable[tuple[Row, Row]]) -> float | None:
    """The geometric mean of the second's modelled cycles over the first's."""
    logarithms = [math.log(b["cycles"] / a["cycles"]) for a, b in pairs]
    return round(math.exp(statistics.fmean(logarithms)), 4) if logarithms else None


def summary(rows: Sequence[Row], effort: str) -> Row:
    """One effort against LLVM's default compile."""
    rows = [r for r in rows if r.get(effort, {}).get("proved")]
    pairs = [(r["llvm"], r[effort]) for r in rows]
    if not pairs:
        return {"kernels": 0}
    spilling = [(a, b) for a, b in pairs if a["spill_traffic"] or a["accumulator_copies"]]
    worst = max(rows, key=lambda r: r[effort]["cycles"] / r["llvm"]["cycles"])
    seconds = [(a["cpu_seconds"], b["cpu_seconds"]) for a, b in pairs]
    return {
        "kernels": len(pairs),
        "cycles": ratio(pairs),
        "cycles_where_llvm_spills_or_copies_between_files": ratio(spilling),
        "kernels_there": len(spilling),
        "cycles_elsewhere": ratio(pair for pair in pairs if pair not in spilling),
        "worst": [worst["name"], round(worst[effort]["cycles"] / worst["llvm"]["cycles"], 4)],
        "more_spills": [r["name"] for r in rows if r[effort]["spill_traffic"] > r["llvm"]["spill_traffic"]],
        "fewer_spills": sum(b["spill_traffic"] < a["spill_traffic"] for a, b in pairs),
        "fewer_waves": [r["name"] for r in rows if r[effort]["waves"] < r["llvm"]["waves"]],
        "more_waves": sum(b["waves"] > a["waves"] for a, b in pairs),
        "kept": dict(Counter(r[effort]["kept"] for r in rows).most_common()),
        "bound_by_a_unit": sum(b["bound"] != "latency" for _, b in pairs),
        "cpu_seconds": round(sum(b for _, b in seconds), 1),
        "llc_cpu_seconds": round(sum(a for a, _ in seconds), 1),
        "cpu_over_llc_median": round(statistics.median(b / a for a, b in seconds), 1),
    }


def effects(rows: Sequence[Row]) -> Row:
    """The two effects apart and together, over LLVM's default compile."""
    rows = [r for r in rows if "ablation" in r]
    names = ("neither", "spread", "plans", "both")
    return {"kernels": len(rows), **{n: ratio((r["llvm"], r["ablation"][n]) for r in rows) for n in names}}


def groups(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of every target, and of every family (``triton-mha``)."""
    result: dict[str, list[Row]] = {}
    for row in rows:
        family = "-".join(row["name"].split("-")[:2])
        for group in (row["target"], family):
            result.setdefault(group, []).append(row)
    return dict(sorted(result.items()))


def main() -> int:
    parser = options(__doc__, "plans.json", jobs=1)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--each", type=int, default=10, help="kernels of every target")
    parser.add_argument("--alike", type=int, default=2, help="of one kind")
    parser.add_argument("--most-bytes", type=int, default=70_000, help="of a kernel's IR")
    parser.add_argument("--best", type=int, default=3, help="of these with -O=best")
    parser.add_argument("--ablated", type=int, default=3, help="of these with the effects taken apart")
    parser.add_argument(
        "--toolchain", type=ToolchainChoice, default=ToolchainChoice.LLC, help="whose LLVM, on both sides"
    )
    parser.add_argument("--log", type=Path, default=Path("out/plans.jsonl"))
    parser.add_argument("--summary", action="store_true", help="of what the log holds, nothing is run")
    given = parser.parse_args()
    log = Log(given.log)
    done: dict[str, Row] = {}
    for row in log.rows():
        done[row["name"]] = {**done.get(row["name"], {}), **row}
    kernels = chosen(given.directory, given.each, given.alike, given.most_bytes)
    left = [(k, what) for k, what in parts(kernels, given.best, given.ablated) if what not in done.get(k["name"], {})]
    with ProcessPoolExecutor(given.jobs) as pool:
        waiting = [
            pool.submit(measure, *job, str(given.directory), given.toolchain) for job in left if not given.summary
        ]
        try:
            for future in as_completed(waiting):
                new: Row = {**future.result(), "sources": source_digest()}
                done[new["name"]] = {**done.get(new["name"], {}), **new}
                log.add(new)
                print(new["name"], *(f"{part} {new[part].get('cycles')}" for part in PARTS if part in new), flush=True)
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
    rows = [done[k["name"]] for k in kernels if "llvm" in done.get(k["name"], {})]
    result = {
        "command": command().replace(str(given.directory), "DIR"),
        "sources": dict(Counter(r["sources"] for r in rows)),
        "note": "cycles are modelled, not measured",
        "kernels_done": f"{len(rows)} of {len(kernels)}",
        "failed": {r["name"]: r["error"] for r in rows if "error" in r},
        "summary": {effort.value: summary(rows, effort.value) for effort in Effort},
        "ablation": effects(rows),
        "groups": {
            name: {e.value: summary(of, e.value) for e in Effort} | {"ablation": effects(of)}
            for name, of in groups(rows).items()
        },
        "kernels": rows,
    }
    write(given.out, result)
    print(json.dumps([result["summary"], result["ablation"]], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
