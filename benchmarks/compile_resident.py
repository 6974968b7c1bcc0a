"""Kernels compiled one after the other in a process that stays, as the workers of the hooks do: the CPU of each.

    python benchmarks/compile_resident.py [KERNEL:CPU …]

Part of ``compile_time.py``, which runs it with the package under measure on ``PYTHONPATH``. Prints a line of JSON a
kernel: CPU seconds of this process, of the tools it waited for, and of the solver's processes. The first kernel is
compiled once before, so that everything is loaded.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

from smt_verifier.smt.processes import default_solver
from verilocc_mlir.pipeline.compile import compile_module
from verilocc_mlir.pipeline.settings import Settings


def spent() -> tuple[float, float, float]:
    """CPU seconds of this process, of the processes it waited for, and of the solver's."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    solvers = sum(_cpu_of(pid) for pid in default_solver().pool.pids())
    return time.process_time(), children.ru_utime + children.ru_stime, solvers


def _cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    """Compile each kernel and say what it took."""
    kernels = [given.rpartition(":")[::2] for given in sys.argv[1:]]
    gc.freeze()
    with contextlib.suppress(ImportError):  # a package from before it
        importlib.import_module("verilocc_mlir.own_process").look_for_garbage_seldom()
    for number, (path, cpu) in enumerate([kernels[0], *kernels]):
        before = spent()
        compiled = compile_module(Path(path).read_bytes(), path, Settings(cpu=cpu))
        parts = [round(b - a, 4) for a, b in zip(before, spent(), strict=True)]
        if number:
            steps = {step.name: round(step.seconds, 4) for step in compiled.report.steps}
            row: dict[str, Any] = {
                "exit_code": int(compiled.report.exit_code),
                "python_tools_solver": parts,
                "steps": steps,
            }
            print(json.dumps({"kernel": path, **row}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
