"""What is stored and reloaded on kernels that must spill, or that LLVM or ours spill although the registers suffice.

    .venv/bin/verilocc corpus export --list benchmarks/kernel_corpus.json --out DIR
    .venv/bin/python benchmarks/spills.py DIR [--first 16] [--audited 4] [--log FILE.jsonl] [--earlier FILE.json]

Each kernel of ``KERNELS`` is compiled by LLVM, and our allocation as it comes is finished, without an audit and without
the guard that keeps LLVM's ("draft"). The first ``--audited`` kernels are also compiled with ``-O=fast``. Registers
stored and reloaded are counted by estimated executions in the final machine code; cycles are modelled. ``--earlier``
puts the results of an earlier state of the code beside them, as ``before``.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from allocators import llvms, ours
from common import Log, Row, command, options, tree, write
from reuse import drafted

from verilocc_mlir.allocators.deterministic import DeterministicAllocator
from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.pipeline.key import source_digest
from verilocc_mlir.pipeline.settings import Effort

KERNELS = (
    "iree-mha-gfx1201-fa5895fd23",
    "triton-gemm-gfx942-14378fa668",
    "iree-mha-gfx1100-cad9437f15",
    "iree-gemm-gfx1100-8daab123b8",
    "mlir-gemm-gfx1100-60444bab7a",
    "iree-gemm-gfx90a-b16540a14c",
    "iree-gemm-gfx942-446ca4c0a0",
    "triton-gemm-gfx1100-d6b4e9f3fb",
    "triton-gemm-gfx1201-a242719d19",
    "iree-gemm-gfx1100-f3ecb862c2",
    "mlir-mha-gfx1100-47b252ec97",
    "mlir-mha-gfx1201-b69b64106d",
    "mlir-gemm-gfx1100-5d03336feb",
    "mlir-mha-gfx90a-7266db14b7",
    "mlir-mha-gfx90a-3998d26f4a",
    "triton-gemm-gfx1201-032123008d",
)
"""Of the first five, all but the second spilled although the registers suffice."""


def draft(ir: str, cpu: str) -> Row:
    """Our allocation as it comes, without an audit."""
    try:
        return drafted(ir, cpu, DeterministicAllocator())
    except VeriloccError as error:
        return {"error": error.what}


def measure(name: str, directory: Path, *, audited: bool) -> Row:
    """A kernel's results."""
    ir, cpu = (directory / f"{name}.ll").read_text(), name.split("-")[2]
    row = {"name": name, "llvm": llvms(ir, cpu), "draft": draft(ir, cpu)}
    return {**row, "fast": ours(ir, cpu, Effort.FAST)} if audited else row


def ratio(rows: Sequence[Row]) -> float:
    """The geometric mean of our modelled cycles over LLVM's."""
    return round(math.exp(statistics.fmean(math.log(r["draft"]["cycles"] / r["llvm"]["cycles"]) for r in rows)), 4)


def summary(rows: Sequence[Row]) -> Row:
    """Of all kernels."""
    drafts = [r for r in rows if "cycles" in r["draft"]]
    fewer = [r for r in drafts if r["draft"]["spill_traffic"] < r["llvm"]["spill_traffic"]]
    return {
        "kernels": len(rows),
        "drafts": len(drafts),
        "cycles_over_llvm": ratio(drafts),
        "stored_and_reloaded": sum(r["draft"]["spill_traffic"] for r in drafts),
        "stored_and_reloaded_by_llvm": sum(r["llvm"]["spill_traffic"] for r in drafts),
        "less_than_llvm": len(fewer),
        "more_than_llvm": [r["name"] for r in drafts if r["draft"]["spill_traffic"] > r["llvm"]["spill_traffic"]],
        "cpu_seconds": round(sum(r["draft"]["cpu_seconds"] for r in drafts), 1),
        "audited": sum("fast" in r for r in rows),
        "proved": sum(bool(r.get("fast", {}).get("proved")) for r in rows),
    }


def main() -> int:
    parser = options(__doc__, "spills.json")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--audited", type=int, default=4, help="kernels compiled with every allocation proved")
    parser.add_argument("--first", type=int, default=len(KERNELS), help="how many of the list")
    parser.add_argument("--log", type=Path, default=Path("out/spills.jsonl"))
    parser.add_argument("--earlier", type=Path)
    given = parser.parse_args()
    log, digest = Log(given.log), source_digest()
    done = {row["name"]: row for row in log.rows() if row["sources"] == digest}
    for number, name in enumerate(KERNELS[: given.first]):
        if name not in done:
            row = measure(name, given.directory, audited=number < given.audited)
            done[name] = {**row, "sources": digest}
            log.add(done[name])
            results = [row[k] for k in ("llvm", "draft", "fast") if k in row]
            print(name, *((r.get("cycles"), r.get("spill_traffic")) for r in results), flush=True)
    rows = [done[name] for name in KERNELS if name in done]
    data: Row = {"command": command(), "tree": tree(), "summary": summary(rows), "kernels": rows}
    if given.earlier is not None:
        earlier = json.loads(given.earlier.read_text())
        data["before"] = {key: earlier[key] for key in ("tree", "summary", "kernels")}
    write(given.out, data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
