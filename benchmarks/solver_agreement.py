"""Do z3, cvc5 and bitwuzla agree on every obligation of the shared kernels?

    .venv/bin/python benchmarks/solver_agreement.py [--kernels DIR] [--out benchmarks/results/solver_agreement.json]

For each kernel, the SGPR and the VGPR phase: LLVM's allocation is audited, and the deterministic allocator's proposal,
where it has one, is proved. What Z3 was asked and answered is then written as SMT-LIB2 and given to all three solvers,
in worker processes with limits; bitwuzla gets uninterpreted sorts as 32-bit vectors (``without_sorts`` in
``smt_verifier/smt/solver.py`` says why that asks the same). Counts are of obligations: ``agree`` (the recorded
verdict again), ``unknown`` (a limit or a crash), ``differ``. Rows are appended to the JSON-lines file beside ``--out``
as they come; a run that was stopped goes on where it was.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

from audit_speed import texts_of
from common import Log, command, kernel_directory, machine, options, write

from smt_verifier.artefacts import RecordingSolver
from smt_verifier.audit import audit
from smt_verifier.outcome import Outcome
from smt_verifier.prove import prove
from smt_verifier.smt import Obligation, Verdict, to_smtlib, without_sorts
from smt_verifier.smt.processes import Replayer
from verilocc_mlir.allocators import AllocationFailure, allocator
from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.problem.build import Phase as PhaseName
from verilocc_mlir.problem.build import build_problem
from verilocc_mlir.target.targets import target
from verilocc_mlir.toolchain.find import find_toolchain

SOLVERS = {"z3": "z3-solver", "cvc5": "cvc5", "bitwuzla": "bitwuzla"}
"""Solver to the package it comes in."""
PHASES: tuple[PhaseName, ...] = ("sgpr", "vgpr")
_STATUS = {Outcome.PROVED: "unsat", Outcome.REFUTED: "sat"}


def asked_about(name: str, phase: PhaseName, kernels: Path) -> dict[str, list[tuple[Obligation, Verdict]]]:
    """Obligations and verdicts of both theorems."""
    before, after, cpu = texts_of(f"kernel:{name}", phase, kernels)
    gpu = target(cpu)
    of_audit, of_prove = RecordingSolver(), RecordingSolver()
    pre = parse_mir(before)
    audit(pre, parse_mir(after), gpu, solver=of_audit)
    for function in pre.functions:
        try:
            problem = build_problem(pre, function, gpu, phase)
            prove(problem, allocator("deterministic").allocate(problem), solver=of_prove)
        except (AllocationFailure, UnsupportedError):
            continue
    return {"audit": of_audit.answers, "prove": of_prove.answers}


def compare(
    asked: list[tuple[Obligation, Verdict]], solver: str, timeout_s: float, memory_mib: int
) -> tuple[Counter[str], list[str]]:
    """How often a solver agrees, and the names of the obligations on which it does not."""
    counts: Counter[str] = Counter()
    others: list[str] = []
    replayer = Replayer(solver, memory_mib)
    for obligation, verdict in asked:
        form = without_sorts(obligation) if solver == "bitwuzla" else obligation
        text = to_smtlib(form, _STATUS.get(verdict.outcome, "unknown"))
        found = replayer.ask(text, timeout_s)
        if found.outcome is Outcome.UNKNOWN:
            kind = "unknown"
        else:
            kind = "agree" if found.outcome is verdict.outcome else "differ"
        counts[kind] += 1
        if kind != "agree":
            others.append(f"{solver}: {kind}: {obligation.name}: {found.reason}")
    return counts, others


def row_of(name: str, phase: PhaseName, kernels: Path, timeout_s: float, memory_mib: int) -> dict[str, Any]:
    """Everything about one kernel and phase."""
    row: dict[str, Any] = {"kernel": name, "phase": phase}
    notes: list[str] = []
    for theorem, asked in asked_about(name, phase, kernels).items():
        part: dict[str, Any] = {
            "obligations": len(asked),
            "goals": sum(len(obligation.goals) for obligation, _ in asked),
            "verdicts": dict(Counter(verdict.outcome.value for _, verdict in asked)),
        }
        for solver in SOLVERS:
            start = time.monotonic()
            counts, others = compare(asked, solver, timeout_s, memory_mib)
            part[solver] = {**counts, "seconds": round(time.monotonic() - start, 2)}
            notes += others
        row[theorem] = part
    return row | {"notes": notes}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Totals by theorem and solver."""
    found: dict[str, Any] = {}
    for theorem in ("audit", "prove"):
        parts = [row[theorem] for row in rows]
        found[theorem] = {
            "obligations": sum(part["obligations"] for part in parts),
            "goals": sum(part["goals"] for part in parts),
            **{
                solver: {key: sum(part[solver].get(key, 0) for part in parts) for key in ("agree", "unknown", "differ")}
                for solver in SOLVERS
            },
        }
    return found


def main() -> int:
    """Ask about every kernel, print as it goes, write the JSON file; 1 if any two solvers differ."""
    parser = options(__doc__, "solver_agreement.json", kernels=kernel_directory())
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for one obligation and solver")
    parser.add_argument("--memory", type=int, default=8192, help="MiB for one worker")
    arguments = parser.parse_args()
    names = sorted(path.name for path in arguments.kernels.glob("*.ll"))
    if not names:
        print(f"no .ll in {arguments.kernels}; give --kernels DIR", file=sys.stderr)
        return 2
    log = Log(arguments.out.with_suffix(".jsonl"))
    rows = list(log.rows())
    done = {(row["kernel"], row["phase"]) for row in rows}
    wanted: list[tuple[str, PhaseName]] = [(name, phase) for name in names for phase in PHASES]
    for number, (name, phase) in enumerate(wanted):
        if (name, phase) in done:
            continue
        row = row_of(name, phase, arguments.kernels, arguments.timeout, arguments.memory)
        rows.append(row)
        log.add(row)
        total = row["audit"]["obligations"] + row["prove"]["obligations"]
        print(f"{number + 1}/{len(wanted)} {name} {phase}: {total} obligations", *row["notes"], flush=True)
    totals = summary(rows)
    record = {
        "command": command(),
        "machine": machine(),
        "llvm": find_toolchain().version_text,
        "solvers": {solver: version(package) for solver, package in SOLVERS.items()},
        "timeout_seconds": arguments.timeout,
        "memory_mib": arguments.memory,
        "totals": totals,
        "rows": sorted(rows, key=lambda row: (row["kernel"], row["phase"])),
    }
    write(arguments.out, record)
    log.path.unlink()
    for theorem, part in totals.items():
        print(theorem, json.dumps(part))
    return 1 if any(part[solver]["differ"] for part in totals.values() for solver in SOLVERS) else 0


if __name__ == "__main__":
    sys.exit(main())
