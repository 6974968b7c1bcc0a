"""What iree-compile itself allocates for the models of examples/models.py, audited phase by phase.

    .venv/bin/python benchmarks/iree_native.py [--only llama,t5] [--targets gfx90a,gfx942,gfx950,gfx1100,gfx1201]
        [--dtypes f16] [--out benchmarks/results/iree_native.json]

One row a model, precision and target, as ``verilocc audit --native MODULE.mlir`` does it. The file is written after
each row, and what it has is not measured again. ``theirs``: IREE rejects the module, with its message.
"""

from __future__ import annotations

import importlib
import itertools
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common import cpu_seconds, earlier, options, write
from models import DTYPES, TARGETS, factories

from smt_verifier.audit.wording import render
from smt_verifier.outcome import Outcome
from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.hooks.iree_compiler import find_iree_compile, iree_kernels
from verilocc_mlir.hooks.torch_import import IREE_FLAGS, import_module
from verilocc_mlir.pipeline.native import audit_native


def row(factory: Any, dtype: str, target: str, directory: Path) -> dict[str, Any]:
    """Counts of kernels and of phases by outcome, and each finding that is not PROVED."""
    torch = importlib.import_module("torch")
    module, arguments = factory(getattr(torch, DTYPES[dtype]), False, 1)[:2]
    start = cpu_seconds()
    source = directory / "model.mlirbc"
    source.write_bytes(import_module(module, arguments).mlir)
    try:
        kernels = iree_kernels(source, target, find_iree_compile(), flags=IREE_FLAGS)
    except VeriloccError as error:
        return {"theirs": error.what}
    outcomes: Counter[str] = Counter()
    findings: list[str] = []
    for kernel in kernels:
        try:
            pairs = audit_native([kernel]).pairs
        except VeriloccError as error:
            outcomes["failed"] += 1
            findings.append(f"{kernel.name}: {error}")
            continue
        for pair in pairs:
            outcomes[pair.report.outcome.value] += 1
            findings += [
                f"{pair.label}: {render(finding)}"
                for function in pair.report.functions
                for finding in function.findings
                if function.outcome is not Outcome.PROVED
            ]
    return {
        "kernels": len(kernels),
        "phases": dict(outcomes),
        "findings": findings,
        "cpu_s": round(cpu_seconds() - start, 1),
    }


def table(rows: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Phases proved, of how many, by model and target, as Markdown."""
    yield f"| model | {' | '.join(TARGETS)} |"
    yield f"|---|{'---|' * len(TARGETS)}"
    for name in dict.fromkeys(key.rpartition(" ")[0] for key in rows):
        yield f"| {name} | {' | '.join(_cell(rows.get(f'{name} {target}')) for target in TARGETS)} |"


def _cell(entry: dict[str, Any] | None) -> str:
    if entry is None or "theirs" in entry:
        return "" if entry is None else "IREE rejects it"
    return f"{entry['phases'].get('proved', 0)} of {sum(entry['phases'].values())}"


def main() -> int:
    """Exit code 0 if every phase of every row is proved."""
    parser = options(__doc__, "iree_native.json")
    parser.add_argument("--only", default="", help="models, separated by commas")
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--dtypes", default="f16")
    parser.add_argument("--table", action="store_true", help="print what the file has, measure nothing")
    given = parser.parse_args()
    rows: dict[str, dict[str, Any]] = earlier(given.out).get("rows", {})
    if given.table:
        print("\n".join(table(rows)))
        return 0
    models = factories()
    names = given.only.split(",") if given.only else list(models)
    for name, dtype, target in itertools.product(names, given.dtypes.split(","), given.targets.split(",")):
        key = f"{name} {dtype} {target}"
        if key not in rows:
            with tempfile.TemporaryDirectory(prefix="verilocc-") as directory:
                rows[key] = row(models[name], dtype, target, Path(directory))
            write(given.out, {"command": "python benchmarks/iree_native.py", "rows": rows})
        print(f"{key}: {rows[key].get('theirs') or rows[key]['phases']}", file=sys.stderr)
    return 0 if all(set(entry.get("phases", ())) <= {"proved"} for entry in rows.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
