"""Which plans bring most together, beside the default one, and what LLVM's scheduler after allocation adds to them.

    python benchmarks/two_rulers.py --kernels DIR --old CHECKOUT --scratch DIR
    python benchmarks/plan_sets.py --kernels DIR --scratch DIR

Costs the codes that ``two_rulers.py`` keeps, of the kernels that promise something (``pipeline/plans.py``). A code
that falls short of LLVM's compile is not taken. Nothing is compiled here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path

from common import Row, command, options, tree, write
from two_rulers import AFTER_ALLOCATION, cpu_of

from verilocc_mlir.cost.compare import spill_traffic
from verilocc_mlir.cost.together import Reference
from verilocc_mlir.pipeline.guard import shortfalls
from verilocc_mlir.pipeline.plans import balanced_plans, has_promise
from verilocc_mlir.target.targets import target


def costed(path: Path, scratch: Path) -> Row | None:
    """Cycles over the better one of LLVM's code and ours under the default plan, by candidate; None without promise."""
    files = {file.stem.partition("@")[2]: file.read_text() for file in scratch.glob(f"{path.stem}@*.s")}
    if "llvm" not in files or "default" not in files:
        return None
    reference = Reference.of_assembly(files.pop("llvm"), target(cpu_of(path)))
    ours = reference.costs_of_assembly(files["default"])
    if not ours or not has_promise(ours):
        return None
    cycles: dict[str, float] = {}
    for name, text in files.items():
        costs = reference.costs_of_assembly(text)
        if costs.keys() == reference.costs.keys() and not any(shortfalls(costs[f], reference.costs[f]) for f in costs):
            cycles[name] = sum(cost.cycles for cost in costs.values())
    llvm = sum(cost.cycles for cost in reference.costs.values())
    first = min(llvm, cycles.get("default", llvm))
    over = {name: round(value / first, 4) for name, value in cycles.items()}
    return {"kernel": path.stem, "spilled": any(map(spill_traffic, ours.values())), "over": over}


def best_of(names: Iterable[str], rows: list[Row]) -> float:
    """The geometric mean of the cheapest of some candidates and the first one, over the first one."""
    least = [min([1.0, *(row["over"][n] for n in names if n in row["over"])]) for row in rows]
    return round(math.exp(sum(map(math.log, least)) / len(least)), 4)


def summary(rows: list[Row], *, spilled: bool) -> Row:
    """Of the kernels whose first code spills, or of the others."""
    of = [row for row in rows if row["spilled"] == spilled]
    today = [plan.name for plan in balanced_plans(spilled=spilled)]
    plans = sorted({name for row in of for name in row["over"]} - {"default", "packed", *AFTER_ALLOCATION})
    if not of:
        return {"kernels": 0}
    best = {
        str(size): sorted((best_of(names, of), names) for names in combinations(plans, size))[0]
        for size in (1, 2, 4, len(plans))
    }
    return {
        "kernels": len(of),
        "balanced's": [best_of(today, of), today],
        "best": best,
        "after allocation": {name: best_of((name,), of) for name in AFTER_ALLOCATION},
        "all": best_of((*plans, *AFTER_ALLOCATION), of),
    }


def main() -> None:
    """Cost what is there, and write the summary."""
    parser = options(__doc__, "plan_sets.json", kernels=Path("kernels"))
    parser.add_argument("--scratch", type=Path, required=True)
    given = parser.parse_args()
    found = [costed(path, given.scratch) for path in sorted(given.kernels.glob("*.ll"))]
    rows = [row for row in found if row is not None]
    parts = {name: summary(rows, spilled=spilled) for name, spilled in (("spilled", True), ("not spilled", False))}
    write(given.out, {"command": command(), "tree": tree(), **parts, "kernels": rows})


if __name__ == "__main__":
    main()
