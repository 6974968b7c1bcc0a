"""What comparing n answers of the model by price gives: price, preferences of the machine that are met, seconds.

    .venv/bin/python benchmarks/best_of_n.py KERNEL.ll... [--model DIR] [--samples 1 4] [--out FILE.json]

For the SGPR and VGPR problems of each kernel: the cheapest of the first answer and n - 1 samples, proved, and the
deterministic allocator's answer. Seconds are wall time of tables and decoding, not of proofs. Needs the model extra.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "model"), str(REPOSITORY / "tests")]

from allocators_support import compile_phases  # noqa: E402
from support import cpu_of, pre_ra  # noqa: E402

from smt_verifier.prove import prove  # noqa: E402
from verilocc_mlir.allocators.protocol import AllocationFailure  # noqa: E402
from verilocc_mlir.problem.model import AllocationProblem, Proposal  # noqa: E402
from verilocc_model.allocator import ModelAllocator  # noqa: E402
from verilocc_model.encoding.canonical import canonical  # noqa: E402
from verilocc_model.encoding.examples import cells_of  # noqa: E402
from verilocc_model.encoding.table import Table, price_of  # noqa: E402

WEIGHTS = REPOSITORY / "model" / "verilocc_model" / "weights" / "base"


def measured(problem: AllocationProblem, proposal: Proposal) -> dict[str, Any]:
    """Price of an answer, and the weight of the preferences it meets and of all."""
    form = canonical(problem)
    table = Table(form.problem)
    starts = cells_of(table, form.permuted(proposal.registers))
    wanted = table.cost.preferences
    met = sum(w for relations, w in wanted if all(r.holds(starts[r.a], starts[r.b]) for r in relations))
    price = price_of(table, starts)
    return {
        "lost_waves": price.lost_waves, "copies": round(price.copies, 3), "granules": price.granules,
        "preferred": round(met, 3), "preferences": round(sum(w for _, w in wanted), 3),
    }  # fmt: skip


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="+", type=Path)
    parser.add_argument("--model", type=Path, default=WEIGHTS)
    parser.add_argument("--samples", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    asked = [ModelAllocator(arguments.model, samples=n) for n in arguments.samples]
    asked[0].load()
    rows: list[dict[str, Any]] = []
    for path in arguments.kernels:
        compiled = compile_phases(pre_ra(path), cpu_of(path), ("sgpr", "vgpr"))
        for run in (r for runs in compiled.runs.values() for r in runs if r.proposal is not None):
            row: dict[str, Any] = {"kernel": path.name, "phase": run.problem.phase, "ranges": len(run.problem.ranges)}
            if run.proposal is not None:
                row["deterministic"] = measured(run.problem, run.proposal)
            for n, one in zip(arguments.samples, asked, strict=True):
                start = time.perf_counter()
                try:
                    found = one.allocate(run.problem)
                except AllocationFailure as failure:
                    row[f"best of {n}"] = {"failed": failure.reason}
                    continue
                seconds = round(time.perf_counter() - start, 2)
                outcome = str(prove(run.problem, found).outcome)
                row[f"best of {n}"] = {**measured(run.problem, found), "outcome": outcome, "seconds": seconds}
            rows.append(row)
            print(json.dumps(row), flush=True)
    if arguments.out:
        lines = ",\n".join(json.dumps(row) for row in rows)
        arguments.out.write_text(f'{{"model": "{asked[0].version}", "rows": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
