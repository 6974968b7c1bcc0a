"""What orders of our own bring, before allocation and behind it: each kernel compiled with them, and without.

    .venv/bin/verilocc corpus export --list benchmarks/kernel_corpus.json --out DIR
    .venv/bin/python benchmarks/order.py DIR [--most-bytes 80000] [--names FILE] [--efforts fast,balanced]

The modelled cycles of the final code, over those without it: by the model's latencies, and by latencies 1.5 times
shorter and longer (the order is the same, made for the model's). A kernel is *latency-bound* where no unit needs more
than 85 % of its modelled cycles. CPU seconds are those of the whole compilation in a process that stays, children
included. An interrupted run goes on with the same log.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from common import Log, Row, command, cpu_seconds, machine, options, tree, write
from msgspec.structs import replace

from verilocc_mlir.cost import rates as of_rates
from verilocc_mlir.cost import simulate
from verilocc_mlir.cost.rates import Figure
from verilocc_mlir.cost.together import Reference
from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.pipeline.compile import compile_module
from verilocc_mlir.pipeline.guard import spill_traffic
from verilocc_mlir.pipeline.plans import planned
from verilocc_mlir.pipeline.settings import Effort, Emit, Settings
from verilocc_mlir.target.targets import Target, target

BOUND = 0.85
SCALES = (1 / 1.5, 1.0, 1.5)
_LATE = re.compile(r"([0-9,]+) instructions stand elsewhere than")
_EARLY = re.compile(r"([0-9,]+) instructions stand elsewhere before")
_LATENCIES = ("lds_latency", "smem_latency", "load_latency", "vmem_latency", "l2_latency", "far_latency")
_figures: Callable[[Target], Mapping[str, Figure]] = of_rates.figures


def scaled(times: float) -> None:
    """Have the model's latencies of memory so many times as long."""

    def figures(of: Target) -> Mapping[str, Figure]:
        given = dict(_figures(of))
        return given | {name: replace(given[name], value=given[name].value * times) for name in _LATENCIES}

    of_rates.figures = figures
    of_rates.rates.cache_clear()
    simulate.timed.cache_clear()


def ratios(without: bytes, with_order: bytes, of: Target) -> list[float]:
    """Cycles of all functions with the order over those without, by each scale of latencies."""
    found: list[float] = []
    for times in SCALES:
        scaled(times)
        reference = Reference.of_assembly(without.decode(), of)
        costs = reference.costs_of_assembly(with_order.decode())
        found.append(sum(c.cycles for c in costs.values()) / sum(c.cycles for c in reference.costs.values()))
    scaled(1.0)
    return found


def measured(path: Path, effort: Effort) -> Row:
    cpu = re.findall(r"gfx[0-9a-f]+", path.name)[0]
    row: Row = {"name": path.stem, "target": cpu, "effort": effort.value}
    codes: dict[bool, bytes] = {}
    try:
        for order in (False, True):
            start = cpu_seconds()
            settings = Settings(cpu, emit=Emit.ASM, effort=effort, order=order)
            done = compile_module(path.read_bytes(), path.name, settings)
            row["cpu_s" if order else "cpu_s_without"] = round(cpu_seconds() - start, 3)
            if done.data is None:
                return row | {"error": f"{done.report.outcome}: nothing is written"}
            codes[order] = done.data
            row |= {"outcome": str(done.report.outcome)}
            row |= {"moved": _moved(_LATE, done.report.notes), "moved_early": _moved(_EARLY, done.report.notes)}
            row["refused"] = [note for note in done.report.notes if "LLVM's order stays" in note]
    except VeriloccError as error:
        return row | {"error": str(error)}
    given = planned(path.read_bytes(), path.name, Settings(cpu))
    llvm = Reference.of_assembly(given.work.compiler.direct(given.ir, "asm").decode(), target(cpu))
    row["llvm_spills"] = sum(map(spill_traffic, llvm.costs.values()))
    for name, code in (("over_llvm_without", codes[False]), ("over_llvm", codes[True])):
        costs = llvm.costs_of_assembly(code.decode())
        row[name] = round(sum(c.cycles for c in costs.values()) / sum(c.cycles for c in llvm.costs.values()), 4)
    costs = Reference.of_assembly(codes[False].decode(), target(cpu)).costs.values()
    row["bound"] = round(sum(c.work for c in costs) / sum(c.cycles for c in costs), 3)
    row["ratios"] = [round(ratio, 4) for ratio in ratios(codes[False], codes[True], target(cpu))]
    return row


def _moved(pattern: re.Pattern[str], notes: Iterable[str]) -> int:
    return sum(int(m[1].replace(",", "")) for note in notes if (m := pattern.search(note)))


def mean(values: Iterable[float]) -> float:
    logs = [math.log(value) for value in values]
    return round(math.exp(sum(logs) / len(logs)), 4) if logs else 1.0


def summary(rows: list[Row]) -> Row:
    bound = [row for row in rows if row["bound"] < BOUND]
    return {
        "kernels": len(rows),
        "taken behind allocation": sum(bool(row["moved"]) for row in rows),
        "taken before allocation": sum(bool(row["moved_early"]) for row in rows),
        "over LLVM's default compile; without": [
            mean(row[n] for row in rows) for n in ("over_llvm", "over_llvm_without")
        ],
        "where LLVM spills": {
            cpu: {
                "kernels": len(spilled),
                "over LLVM's default compile; without": [
                    mean(row[n] for row in spilled) for n in ("over_llvm", "over_llvm_without")
                ],
                "worst over those without": max(row["ratios"][1] for row in spilled),
            }
            for cpu in sorted({row["target"] for row in rows})
            if (spilled := [row for row in rows if row["target"] == cpu and row["llvm_spills"]])
        },
        "refused by a checker, or failed": sum(bool(row["refused"]) for row in rows),
        "mean": mean(row["ratios"][1] for row in rows),
        "worst": max((row["ratios"][1] for row in rows), default=1.0),
        "latency-bound": len(bound),
        "latency-bound, mean": mean(row["ratios"][1] for row in bound),
        "latency-bound, mean by latencies 1.5 times shorter": mean(row["ratios"][0] for row in bound),
        "latency-bound, mean by latencies 1.5 times longer": mean(row["ratios"][2] for row in bound),
        "latency-bound, mean by target": {
            cpu: mean(row["ratios"][1] for row in bound if row["target"] == cpu)
            for cpu in sorted({row["target"] for row in bound})
        },
        "CPU with it over without, all": round(
            sum(row["cpu_s"] for row in rows) / sum(row["cpu_s_without"] for row in rows), 3
        )
        if rows
        else 1.0,
    }


def main() -> None:
    parser = options(__doc__, "order.json")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--most-bytes", type=int, default=80_000, help="of a kernel's IR")
    parser.add_argument("--names", type=Path, help="a file with the kernels' names, one a line; default: all")
    parser.add_argument("--efforts", default="fast")
    parser.add_argument("--log", type=Path, default=Path("out/order.jsonl"))
    given = parser.parse_args()
    log = Log(given.log)
    done = {(row["name"], row["effort"]): row for row in log.rows()}
    paths = [path for path in sorted(given.directory.glob("*.ll")) if path.stat().st_size < given.most_bytes]
    if given.names:
        names = given.names.read_text().split()
        paths = [path for path in paths if path.stem in names]
    for effort in map(Effort, given.efforts.split(",")):
        for path in paths:
            if (path.stem, effort.value) not in done:
                row = measured(path, effort)
                done[path.stem, effort.value] = row
                log.add(row)
                print(row, flush=True)
    rows = [row for row in done.values() if "error" not in row]
    result = {
        "command": command().replace(str(given.directory), "DIR"),
        "tree": tree(),
        "machine": machine(),
        "note": "cycles are modelled, not measured",
        "failed": {row["name"]: row["error"] for row in done.values() if "error" in row},
        "summary": {
            effort: summary([row for row in rows if row["effort"] == effort]) for effort in given.efforts.split(",")
        },
        "kernels": rows,
    }
    write(given.out, result)
    print(json.dumps(result["summary"], indent=1))


if __name__ == "__main__":
    main()
