"""CPU seconds of the audit that a compile makes, both checkers, over ``llc -O3``, in one run.

    python benchmarks/compile_audit.py [--out benchmarks/results/compile_audit.json]

``-O=fast`` in this process, kernels at hand. A compile audits all phases at once: making the certificate and asking
both checkers, with their processes, is what counts. Times are the best of three.
"""

from __future__ import annotations

import statistics
import subprocess
from pathlib import Path
from typing import Any

from common import Row, command, cpu_seconds, kernel_directory, machine, options, tree, write

from smt_verifier.audit import driver
from smt_verifier.certificate.verdict import certify_texts
from verilocc_mlir.own_process import look_for_garbage_seldom
from verilocc_mlir.pipeline.compile import compile_module
from verilocc_mlir.pipeline.settings import Effort, Settings
from verilocc_mlir.toolchain.find import find_toolchain

REPEATS = 3


def row(path: Path, llc: str) -> Row:
    cpu = path.name.split(".")[1]
    spent: list[float] = []

    def timed(*texts: Any, **options: Any) -> Any:
        start = cpu_seconds()
        answer = certify_texts(*texts, **options)
        spent.append(cpu_seconds() - start)
        return answer

    driver.certify_texts = timed  # pyright: ignore[reportPrivateImportUsage]
    plain: list[float] = []
    audit: list[float] = []
    for _ in range(REPEATS):
        start = cpu_seconds()
        flags = ["-mtriple=amdgcn-amd-amdhsa", f"-mcpu={cpu}", "-O3", "-filetype=obj", "-o", "-"]
        subprocess.run([llc, *flags, path], capture_output=True, check=True)
        plain.append(cpu_seconds() - start)
        spent.clear()
        compile_module(path.read_bytes(), path.name, Settings(cpu=cpu, effort=Effort.FAST))
        audit.append(sum(spent))
    return {"kernel": path.name, "audits": len(spent), "audit": min(audit), "llc": min(plain)}


def main() -> None:
    arguments = options(__doc__, "compile_audit.json").parse_args()
    look_for_garbage_seldom()
    llc = str(find_toolchain().llc)
    rows: list[Row] = []
    for path in sorted(kernel_directory().glob("*.opt.ll")):
        rows.append(row(path, llc))
        print(rows[-1], flush=True)
    over = statistics.median(r["audit"] / r["llc"] for r in rows)
    head = {"command": command(), "tree": tree(), "machine": machine()}
    write(arguments.out, {**head, "median over llc": round(over, 2), "rows": rows})


if __name__ == "__main__":
    main()
