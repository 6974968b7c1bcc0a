"""How many choices among plans change with the cost model, and whether what was decided by the old one still holds.

    python benchmarks/two_rulers.py --kernels DIR --old CHECKOUT --scratch DIR

``--kernels``: LLVM IR, the target in each file's name. ``--old``: a checkout of the project whose cost model is the
other ruler. The final code of LLVM's default compile, of our allocation under the default plan with registers reused
late (as ever) and at once (``packed``), under the plans of ``balanced``, and under the default plan with LLVM's
scheduler after allocation left out or going both ways, is kept in ``--scratch`` and costed by both. Nothing is proved
here.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from common import Row, command, options, tree, write
from msgspec.structs import replace

from verilocc_mlir.allocators.deterministic import DeterministicAllocator
from verilocc_mlir.cost.together import Reference
from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.pipeline.plans import DEFAULT, Plan, Planned, balanced_plans, planned
from verilocc_mlir.pipeline.runs import OURS
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.target.targets import TARGETS, target

OLD = """
import json, sys
from pathlib import Path
from verilocc_mlir.cost.model import cost_of_assembly, loops_of, same_loops
from verilocc_mlir.target.targets import target
found = {}
for kernel, cpu, names in json.load(sys.stdin):
    texts = {name: Path(path).read_text() for name, path in names.items()}
    first = cost_of_assembly(texts["llvm"], target(cpu))
    found[kernel] = {}
    for name, text in texts.items():
        costs = cost_of_assembly(text, target(cpu), loops_of(first))
        if all(same_loops(cost, first[f]) for f, cost in costs.items()):
            found[kernel][name] = sum(cost.cycles for cost in costs.values())
print(json.dumps(found))
"""
AFTER_ALLOCATION = {
    "not ordered again": "-enable-post-misched=0",
    "both ways": "-misched-postra-direction=bidirectional",
}
"""Options of LLVM's scheduler after allocation, by the name of the candidate."""
Cycles = Mapping[str, Mapping[str, float]]


def cpu_of(path: Path) -> str:
    """The target in a file's name."""
    return max((name for name in TARGETS if name in path.stem), key=len)


def compiled(path: Path, scratch: Path) -> dict[str, Path]:
    """The final code of each candidate, by name; what is there already is not made again."""
    done = scratch / f"{path.stem}.json"
    if not done.exists():
        given = planned(path.read_bytes(), path.name, Settings(cpu_of(path)))
        packed = replace(given, allocators=(DeterministicAllocator(packed=True),), _runs={}, _costs_of_texts={})
        texts = {"llvm": given.work.compiler.direct(given.ir, "asm"), "packed": _finished(packed, DEFAULT)}
        plans = dict.fromkeys((DEFAULT, *balanced_plans(spilled=True), *balanced_plans(spilled=False)))
        texts |= {plan.name: _finished(given, plan) for plan in given.plans(plans)}
        texts |= {name: _finished(given, DEFAULT, option) for name, option in AFTER_ALLOCATION.items()}
        files: dict[str, str] = {}
        for name, text in texts.items():
            if text is not None:
                at = scratch / f"{path.stem}@{name}.s"
                at.write_bytes(text)
                files[name] = str(at)
        done.write_text(json.dumps(files))
    return {name: Path(at) for name, at in json.loads(done.read_text()).items()}


def _finished(given: Planned, plan: Plan, *more: str) -> bytes | None:
    """The final code of our allocation; LLVM goes on from it with ``more`` options."""
    text = given.runs(plan).draft(OURS)
    options = replace(given.work.compiler.options, llc_options=(*given.work.compiler.options.llc_options, *more))
    compiler = dataclasses.replace(given.work.compiler, options=options, _printed={}) if more else given.work.compiler
    return None if text is None else compiler.finish(text, "asm", verify=False)


def new_ruler(path: Path, files: Mapping[str, Path]) -> dict[str, float]:
    """Cycles of each candidate that does the work of LLVM's."""
    reference = Reference.of_assembly(files["llvm"].read_text(), target(cpu_of(path)))
    found: dict[str, float] = {}
    for name, at in files.items():
        costs = reference.costs_of_assembly(at.read_text())
        if costs.keys() == reference.costs.keys():
            found[name] = sum(cost.cycles for cost in costs.values())
    return found


def old_ruler(files: Mapping[Path, Mapping[str, Path]], checkout: Path) -> Cycles:
    """The same by the other checkout."""
    asked = [[p.stem, cpu_of(p), {name: str(at) for name, at in names.items()}] for p, names in files.items()]
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    run = subprocess.run(
        [sys.executable, "-c", OLD],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=True,
        env=environment,
        cwd=checkout,
    )
    return json.loads(run.stdout)


def _mean(ratios: list[float]) -> Row:
    if not ratios:
        return {"kernels": 0}
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    return {
        "kernels": len(ratios),
        "mean": round(mean, 3),
        "worst": round(max(ratios), 3),
        "best": round(min(ratios), 3),
    }


def over(cycles: Cycles, first: str, second: str) -> Row:
    """Geometric mean of one candidate's cycles over another's."""
    return _mean([row[first] / row[second] for row in cycles.values() if row.get(first) and row.get(second)])


def summary(old: Cycles, new: Cycles) -> Row:
    names = {name for row in new.values() for name in row}
    plans = sorted(names - {"llvm", "packed", *AFTER_ALLOCATION})
    changed: list[Row] = []
    for kernel, row in new.items():
        tried = [plan for plan in plans if row.get(plan) and old.get(kernel, {}).get(plan)]
        if tried:
            before, now = (min(tried, key=lambda p: by[kernel][p]) for by in (old, new))
            if before != now:
                changed.append({"kernel": kernel, "old": before, "new": now, "costs": round(row[before] / row[now], 3)})
    others = (*plans, *(name for name in AFTER_ALLOCATION if name in names))
    pairs = (("default", "llvm"), ("packed", "llvm"), ("default", "packed"), *((p, "default") for p in others))
    return {
        "kernels": len(new),
        "choices changed": changed,
        "old": {f"{a} over {b}": over(old, a, b) for a, b in pairs if a != b},
        "new": {f"{a} over {b}": over(new, a, b) for a, b in pairs if a != b},
    }


def main() -> None:
    """Compile, cost by both, and write the summary."""
    parser = options(__doc__, "two_rulers.json", kernels=Path("kernels"))
    parser.add_argument("--old", type=Path, required=True)
    parser.add_argument("--scratch", type=Path, required=True)
    given = parser.parse_args()
    given.scratch.mkdir(parents=True, exist_ok=True)
    files: dict[Path, dict[str, Path]] = {}
    for path in sorted(given.kernels.glob("*.ll"), key=lambda p: p.stat().st_size):
        try:
            files[path] = compiled(path, given.scratch)
        except VeriloccError as error:
            print(f"{path.name}: {error}", file=sys.stderr)
    new = {path.stem: new_ruler(path, names) for path, names in files.items()}
    write(given.out, {"command": command(), "tree": tree(), **summary(old_ruler(files, given.old), new)})


if __name__ == "__main__":
    main()
