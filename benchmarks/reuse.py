"""What it brings to put off the reuse of registers (``verilocc_mlir/allocators/spread.py``).

    .venv/bin/verilocc corpus export --list benchmarks/kernel_corpus.json --out DIR
    .venv/bin/python benchmarks/reuse.py DIR [--jobs 2] [--each 9] [--audited 19] [--log FILE.jsonl]

Each kernel is allocated twice, with the step ("spread") and without it ("packed"). The first ``--audited`` kernels are
compiled with ``-O=fast``, every allocation audited; of the others our allocation is finished without a proof. Figures
are of the final machine code, cycles are modelled. Some kernels of every target are taken, in the order of their
digests, with IR below ``MOST_BYTES`` and at most ``ALIKE`` of one kind, so that all take minutes. An interrupt ends
with the results of those that are done; run again with the same log to go on.
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

from allocators import LIST, figures, llvms, one, ours
from common import Log, Row, command, cpu_seconds, options, write
from msgspec.structs import replace

from verilocc_mlir.allocators.deterministic import DeterministicAllocator
from verilocc_mlir.cost.model import cost_of_assembly
from verilocc_mlir.pipeline.key import source_digest
from verilocc_mlir.pipeline.opened import Work
from verilocc_mlir.pipeline.phase import PhaseRunner
from verilocc_mlir.pipeline.settings import Effort, Settings
from verilocc_mlir.target.targets import target
from verilocc_mlir.toolchain.drivers.job import CompileOptions
from verilocc_mlir.toolchain.find import find_toolchain
from verilocc_mlir.toolchain.inputs import load_input
from verilocc_mlir.toolchain.ir_compat import to_pre_ra
from verilocc_mlir.toolchain.staged import LlvmPhase, StagedCompiler

MOST_BYTES = 110_000
ALIKE = 2
_UNITS = ("waves", "copies", "accumulator_copies", "spill_traffic", "vectors")


def chosen(directory: Path, each: int) -> list[Row]:
    """``each`` kernels of every target."""
    kinds: Counter[str] = Counter()
    targets: Counter[str] = Counter()
    result: list[Row] = []
    for kernel in sorted(json.loads(LIST.read_text())["kernels"], key=lambda k: k["name"].rpartition("-")[2]):
        cpu, kind = kernel["cell"]["target"], kernel["name"].rpartition("-")[0]
        small = (directory / f"{kernel['name']}.ll").stat().st_size < MOST_BYTES
        if small and kinds[kind] < ALIKE and targets[cpu] < each:
            kinds[kind] += 1
            targets[cpu] += 1
            result.append({"name": kernel["name"], "target": cpu})
    return result


def drafted(ir: str, cpu: str, allocator: DeterministicAllocator) -> Row:
    """Our allocation, finished; the audit is left out."""
    start = cpu_seconds()
    options = CompileOptions(cpu)
    given = load_input(ir.encode(), path="kernel", cpu=cpu, toolchain=find_toolchain(None))
    compiler = StagedCompiler(find_toolchain(None), replace(options, mattr=given.mattr))
    work = Work("kernel", Settings(), compiler, target(cpu), (allocator,))
    runner = PhaseRunner(work)
    scalar = runner.draft(to_pre_ra(compiler, given.text).mir, "sgpr")
    text = compiler.resume(scalar.after, done=LlvmPhase.SGPR, until=LlvmPhase.VGPR)
    vector = runner.draft(text, "vgpr")
    if not (scalar.is_ours and vector.is_ours):
        return {"error": "no allocation of ours"}
    assembly = compiler.finish(vector.after, "asm").decode()
    row = figures(one(cost_of_assembly(assembly, target(cpu))), cpu_seconds() - start)
    return {**row, "allocate_seconds": round(work.events.seconds.get("allocate", 0.0), 3)}


def measure(row: Row, directory: str, audited: bool) -> Row:
    """A kernel's results."""
    ir, cpu = (Path(directory) / f"{row['name']}.ll").read_text(), row["target"]
    packed, spread = DeterministicAllocator(packed=True), DeterministicAllocator()
    if audited:
        results = {"packed": ours(ir, cpu, Effort.FAST, (packed,)), "spread": ours(ir, cpu, Effort.FAST, (spread,))}
    else:
        results = {"packed": drafted(ir, cpu, packed), "spread": drafted(ir, cpu, spread)}
    return {**row, "llvm": llvms(ir, cpu), **results}


def ratio(rows: Iterable[Row], of: str, to: str) -> float | None:
    """The geometric mean of one's modelled cycles over another's."""
    logarithms = [math.log(row[of]["cycles"] / row[to]["cycles"]) for row in rows]
    return round(math.exp(statistics.fmean(logarithms)), 4) if logarithms else None


def summary(rows: Sequence[Row]) -> Row:
    """Of all kernels, or of some."""
    bound = [r for r in rows if r["packed"]["bound"] == "latency"]
    worst = max(rows, key=lambda r: r["spread"]["cycles"] / r["packed"]["cycles"])
    return {
        "kernels": len(rows),
        "proved": sum(bool(r["spread"].get("proved")) for r in rows),
        "cycles_spread_over_packed": ratio(rows, "spread", "packed"),
        "cycles_spread_over_llvm": ratio(rows, "spread", "llvm"),
        "cycles_packed_over_llvm": ratio(rows, "packed", "llvm"),
        "bound_by_latency": len(bound),
        "cycles_spread_over_packed_there": ratio(bound, "spread", "packed"),
        "lower_by_more_than_a_thousandth": sum(r["spread"]["cycles"] < 0.999 * r["packed"]["cycles"] for r in rows),
        "higher_by_more_than_a_thousandth": sum(r["spread"]["cycles"] * 0.999 > r["packed"]["cycles"] for r in rows),
        "worst": [worst["name"], round(worst["spread"]["cycles"] / worst["packed"]["cycles"], 4)],
        "fewer_waves": [r["name"] for r in rows if r["spread"]["waves"] < r["packed"]["waves"]],
        **{f"more_{u}": [r["name"] for r in rows if r["spread"][u] > r["packed"][u]] for u in _UNITS[1:4]},
        "dual_packed": sum(r["packed"]["dual"] for r in rows),
        "dual_spread": sum(r["spread"]["dual"] for r in rows),
        "allocate_seconds_packed": round(sum(r["packed"].get("allocate_seconds", 0) for r in rows), 2),
        "allocate_seconds_spread": round(sum(r["spread"].get("allocate_seconds", 0) for r in rows), 2),
        "cpu_seconds_packed": round(sum(r["packed"]["cpu_seconds"] for r in rows), 1),
        "cpu_seconds_spread": round(sum(r["spread"]["cpu_seconds"] for r in rows), 1),
    }


def main() -> int:
    parser = options(__doc__, "reuse.json", jobs=2)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--each", type=int, default=9, help="kernels of every target")
    parser.add_argument("--audited", type=int, default=19, help="kernels whose allocations are proved")
    parser.add_argument("--log", type=Path, default=Path("out/reuse.jsonl"))
    given = parser.parse_args()
    log, digest = Log(given.log), source_digest()
    done = {row["name"]: row for row in log.rows() if row["sources"] == digest}
    kernels = chosen(given.directory, given.each)
    with ProcessPoolExecutor(given.jobs) as pool:
        waiting = [
            pool.submit(measure, k, str(given.directory), number < given.audited)
            for number, k in enumerate(kernels)
            if k["name"] not in done
        ]
        try:
            for future in as_completed(waiting):
                row: Row = {**future.result(), "sources": digest}
                done[row["name"]] = row
                log.add(row)
                print(row["name"], *(row[k].get("cycles") for k in ("llvm", "packed", "spread")), flush=True)
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
    # A kernel that is not proved, or not ours, has no figures: the counts say so.
    rows = [r for k in kernels if (r := done.get(k["name"])) and not any("error" in r[w] for w in ("packed", "spread"))]
    result = {
        "command": command().replace(str(given.directory), "DIR"),
        "sources": digest,
        "note": "cycles are modelled, not measured",
        "asked": len(kernels),
        "summary": summary(rows),
        "targets": {
            cpu: summary([r for r in rows if r["target"] == cpu]) for cpu in sorted({r["target"] for r in rows})
        },
        "kernels": rows,
    }
    write(given.out, result)
    print(json.dumps(result["summary"], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
