"""What ``-O=learned`` brings over ``-O=fast``: whole compilations of kernels, each audited, with CPU of all processes.

    .venv/bin/python benchmarks/learned.py DIR... [--jobs 1] [--plans 1 4] [--plan-model DIR] [--log FILE.jsonl]

DIR has ``*.ll`` files whose names have the target (``gemm.gfx942.opt.ll``, ``iree-mha-gfx950-03c8d9a2f1.ll``). To
measure on what no policy learned from, export kernels of the test part (``--export DIR``, below) or bring files of
other projects. Each kernel is compiled with ``-O=fast``, then with ``-O=learned`` for each number of plans, and with
``-O=balanced``, in one process; ``fast`` twice, of which the second one counts. Cycles are
modelled, of final machine code.

    .venv/bin/python benchmarks/learned.py --export DIR [--each 4]

writes the kernels of ``kernel_corpus.json`` that are in no train part: the test part, IREE's, and those for gfx1201.
An interrupt ends with the results of the kernels that are done; run again with the same log to go on.
"""

from __future__ import annotations

import json
import math
import re
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from allocators import LIST, figures, one
from common import Log, Row, command, cpu_seconds, options, write

from smt_verifier.outcome import Outcome
from verilocc_mlir.cost.together import Reference
from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.pipeline.compile import compile_module
from verilocc_mlir.pipeline.key import source_digest
from verilocc_mlir.pipeline.learned import model_version
from verilocc_mlir.pipeline.plans import planned
from verilocc_mlir.pipeline.settings import Effort, Emit, Settings
from verilocc_model.corpus.ir import ir
from verilocc_model.corpus.shards import held_out, split_of
from verilocc_model.corpus.sources import Cell
from verilocc_model.plans.evaluate import interval

_TARGET = re.compile(r"gfx[0-9a-f]+")


def export(directory: Path, each: int) -> None:
    """Kernels that no policy is fitted to, ``each`` of every target, source and family."""
    directory.mkdir(parents=True, exist_ok=True)
    kinds: Counter[str] = Counter()
    for row in sorted(json.loads(LIST.read_text())["kernels"], key=lambda row: row["name"].rpartition("-")[2]):
        cell, kind = Cell.from_data(row["cell"]), row["name"].rpartition("-")[0]
        if (split_of(cell) == "test" or held_out(cell)) and kinds[kind] < each:
            kinds[kind] += 1
            (directory / f"{cell.name}.ll").write_text(ir(cell))
            print(cell.name, flush=True)


def part(name: str) -> str:
    """Which part of the results a kernel is of, by its file's name."""
    return "IREE" if name.startswith("iree") else "gfx1201" if "gfx1201" in name else "other"


def compiled(text: str, cpu: str, llvm: Reference, settings: Settings) -> Row:
    """A compilation, proved; its loops run as often as in LLVM's default compile."""
    start = cpu_seconds()
    done = compile_module(text.encode(), "kernel.ll", settings)
    seconds = cpu_seconds() - start
    if done.data is None or done.report.outcome is not Outcome.PROVED:
        return {"proved": False, "cpu_seconds": round(seconds, 3)}
    comparable = llvm.costs_of_assembly(done.data.decode())
    if not comparable:
        return {"proved": True, "other_loops": True, "cpu_seconds": round(seconds, 3)}
    cost = one(comparable)
    notes = [note for note in done.report.notes if "stated" in note or "plan" in note]
    return {"proved": True, **figures(cost, seconds), "notes": notes}


def measure(path: str, plans: Sequence[int], plan_model: str) -> Row:
    """One kernel with every effort."""
    text, name = Path(path).read_text(), Path(path).stem
    cpu = _TARGET.findall(name)[0]
    model = Path(plan_model) if plan_model else None
    row: Row = {"name": name, "target": cpu, "part": part(name), "sources": source_digest()}
    try:
        given = planned(text.encode(), "kernel.ll", Settings(cpu))
        llvm = Reference.of_assembly(given.work.compiler.direct(given.ir, "asm").decode(), given.work.target)
        if len(llvm.costs) != 1:
            return {**row, "error": f"{len(llvm.costs)} functions"}
        row["llvm"] = figures(
            one(llvm.costs), sum(run.cpu_seconds for run in given.work.compiler.runs if run.stage == "direct")
        )
        for _ in range(2):  # The first one loads what the later ones have.
            row["fast"] = compiled(text, cpu, llvm, Settings(cpu, emit=Emit.ASM))
        for count in plans:
            settings = Settings(cpu, emit=Emit.ASM, effort=Effort.LEARNED, plans=count, plan_model=model)
            row[f"learned {count}"] = compiled(text, cpu, llvm, settings)
        row["balanced"] = compiled(text, cpu, llvm, Settings(cpu, emit=Emit.ASM, effort=Effort.BALANCED))
    except (VeriloccError, StopIteration) as error:
        row["error"] = str(error)[:300]
    return row


def summary(rows: Sequence[Row], effort: str) -> Row:
    """One effort over ``fast``."""
    proved = [r for r in rows if r[effort]["proved"]]
    pairs = [(r["fast"], r[effort]) for r in proved if "cycles" in r["fast"] and "cycles" in r[effort]]
    if not pairs:
        return {"kernels": 0}
    gains = [math.log(b["cycles"] / a["cycles"]) for a, b in pairs]
    cycles, low, high = interval(gains)
    timed = [(r["fast"]["cpu_seconds"], r[effort]["cpu_seconds"]) for r in proved]
    worst = max(proved, key=lambda r: r[effort].get("cycles", 0) / r["fast"].get("cycles", math.inf))
    return {
        "kernels": len(pairs),
        "unproved": [r["name"] for r in rows if not r[effort]["proved"]],
        "cycles": cycles, "low": low, "high": high,
        "better": sum(gain < -0.001 for gain in gains),
        "worse": sum(gain > 0.001 for gain in gains),
        "worst": [worst["name"], round(worst[effort]["cycles"] / worst["fast"]["cycles"], 4)],
        "cpu_all": round(sum(b for _, b in timed) / sum(a for a, _ in timed), 2),
        "cpu_median": round(statistics.median(b / a for a, b in timed), 2),
    }  # fmt: skip


def groups(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """All, each part, and where LLVM spills."""
    result = {"all": list(rows), "where LLVM spills": [r for r in rows if r["llvm"]["spill_traffic"]]}
    for name in dict.fromkeys(r["part"] for r in rows):
        result[name] = [r for r in rows if r["part"] == name]
    return {name: of for name, of in result.items() if of}


def results(rows: Sequence[Row], efforts: Iterable[str]) -> Mapping[str, Row]:
    """Of every group and effort."""
    efforts = list(efforts)
    return {name: {effort: summary(of, effort) for effort in efforts} for name, of in groups(rows).items()}


def main() -> int:
    parser = options(__doc__, "learned.json", jobs=1)
    parser.add_argument("directories", type=Path, nargs="*")
    parser.add_argument("--plans", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--plan-model", default="")
    parser.add_argument("--export", type=Path, help="write kernels that nothing learned from, and end")
    parser.add_argument("--each", type=int, default=4, help="with --export: of every target, source and family")
    parser.add_argument("--log", type=Path, default=Path("out/learned.jsonl"))
    given = parser.parse_args()
    if given.export:
        export(given.export, given.each)
        return 0
    log = Log(given.log)
    done = {row["name"]: row for row in log.rows()}
    paths = [path for directory in given.directories for path in sorted(directory.glob("*.ll"))]
    _each(given.jobs, [p for p in paths if p.stem not in done], given.plans, given.plan_model, lambda row: (
        log.add(row), done.update({row["name"]: row}), print(row["name"], *_shown(row), flush=True)))  # fmt: skip
    rows = [done[path.stem] for path in paths if path.stem in done]
    whole = [row for row in rows if "error" not in row]
    efforts = [*(f"learned {count}" for count in given.plans), "balanced"]
    shown = command()
    for directory in given.directories:
        shown = shown.replace(str(directory), "DIR")
    result: Row = {
        "command": shown,
        "model": model_version(Path(given.plan_model) if given.plan_model else None),
        "sources": dict(Counter(row["sources"] for row in rows)),
        "note": "cycles are modelled, not measured",
        "failed": {row["name"]: row["error"] for row in rows if "error" in row},
        "over_fast": results(whole, efforts),
        "kernels": whole,
    }
    write(given.out, result)
    print(json.dumps(result["over_fast"], indent=1))
    return 0


def _each(
    jobs: int, paths: Sequence[Path], plans: Sequence[int], plan_model: str, add: Callable[[Row], object]
) -> None:
    with ProcessPoolExecutor(jobs) as pool:
        waiting = [pool.submit(measure, str(path), plans, plan_model) for path in paths]
        try:
            for future in as_completed(waiting):
                add(future.result())
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)


def _shown(row: Row) -> list[str]:
    if "error" in row:
        return [row["error"]]
    return [f"{name} {one['cycles']}" for name, one in row.items() if isinstance(one, dict) and "cycles" in one]


if __name__ == "__main__":
    sys.exit(main())
