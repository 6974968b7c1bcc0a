"""CPU seconds of an audit by both checkers, beside the search with Z3 and beside llc, in one run.

    python benchmarks/checker_speed.py [--out benchmarks/results/checker_speed.json]

Kernels at hand (LLVM's allocation, both phases) and made ones: sizes, nested conditions, chains of blocks.
``certificate`` is making it, checking it in Python and asking the second checker, its process counted;
``interpreted`` the same where the checker in Python is not compiled, in a process of its own; ``search`` is the search
with its solver; ``llc`` compiles the whole kernel at -O3. The target's tables are loaded before, and the
collector is set as in a compile. Times are the best of three.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from audit_speed import source_of
from common import Row, command, cpu_seconds, kernel_directory, machine, options, tree, write

from smt_verifier.audit.search import search_proof
from smt_verifier.certificate.verdict import certify_texts
from smt_verifier.checker import COMPILED
from smt_verifier.smt import Z3Solver
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.own_process import look_for_garbage_seldom
from verilocc_mlir.target.targets import target
from verilocc_mlir.toolchain.find import find_toolchain

MADE = ("made:300", "made:1000", "made:5700", "nested:16", "nested:60", "chain:300", "chain:1000")
REPEATS = 3


def best(task: Callable[[], object]) -> float:
    seconds: list[float] = []
    for _ in range(REPEATS):
        start = cpu_seconds()
        task()
        seconds.append(cpu_seconds() - start)
    return min(seconds)


def row(what: str, llc: str, kernels: Path, *, alone: bool) -> Row:
    """``alone``: certificates only."""
    ir, cpu = source_of(what, kernels)
    flags = [llc, "-mtriple=amdgcn-amd-amdhsa", f"-mcpu={cpu}", "-", "-o", "-"]

    def run(*more: str) -> str:
        done = subprocess.run([*flags, *more], input=ir, capture_output=True, text=True, check=True, errors="replace")
        return done.stdout

    result: Row = {"what": what, "processor": cpu, "certificate": 0.0, "search": 0.0, "accepted": []}
    if not alone:
        result["llc"] = best(lambda: run("-O3", "-filetype=obj"))
    for phase in (0, 2):
        before, after = run(f"-stop-before=greedy,{phase}"), run(f"-stop-after=virtregrewriter,{phase}")
        name = re.findall(r"^name: +(\S+)", before, re.MULTILINE)[0]
        answers = certify_texts(before, after, name, cpu, saved_later=not phase).answers
        result["accepted"].append([a.checker for a in answers if a.accepted])
        result["certificate"] += best(
            lambda before=before, after=after, name=name, phase=phase: certify_texts(
                before, after, name, cpu, saved_later=not phase
            )
        )

        if alone:
            continue

        def search(before: str = before, after: str = after, phase: int = phase) -> None:
            texts = parse_mir(before), parse_mir(after)
            own, other = (text.functions[0] for text in texts)
            search_proof(texts[0], own, other, target(cpu), 60.0, Z3Solver(), saved_later=not phase)

        result["search"] += best(search)
    return result


def main() -> None:
    given = options(__doc__, "checker_speed.json")
    given.add_argument("--certificate", metavar="NAME", help="print the seconds of this one alone")
    arguments = given.parse_args()
    look_for_garbage_seldom()
    llc = str(find_toolchain().llc)
    kernels = kernel_directory()
    if arguments.certificate:
        print(row(arguments.certificate, llc, kernels, alone=True)["certificate"])
        return
    names = [f"kernel:{path.name}" for path in sorted(kernels.glob("*.opt.ll"))]
    rows: list[Row] = []
    for what in (*names, *MADE):
        rows.append(row(what, llc, kernels, alone=False))
        if COMPILED is not None:
            run = subprocess.run(
                [sys.executable, __file__, "--certificate", what],
                env={**os.environ, "VERILOCC_COMPILED_CHECKER": ""}, stdout=subprocess.PIPE, text=True, check=True,
            )  # fmt: skip
            rows[-1]["interpreted"] = float(run.stdout)
        print(rows[-1], flush=True)
    shared = rows[: len(names)]
    sides = [side for side in ("certificate", "interpreted", "search") if side in rows[0]]
    over = {side: statistics.median(r[side] / r["llc"] for r in shared) for side in sides}
    write(
        arguments.out,
        {
            "command": command(),
            "tree": tree(),
            "machine": machine(),
            "median over llc, kernels at hand": {side: round(ratio, 2) for side, ratio in over.items()},
            "certificate over search, median": round(
                statistics.median(r["certificate"] / r["search"] for r in shared), 2
            ),
            "rows": rows,
        },
    )


if __name__ == "__main__":
    main()
