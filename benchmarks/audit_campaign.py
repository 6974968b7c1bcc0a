"""The mutation campaign: generated functions, LLVM's allocations of them, and mutants, before audit and oracle.

    .venv/bin/python benchmarks/audit_campaign.py --functions 5000 --mutants 50000 --seed 1 --jobs 2 \
        --scratch out/campaign --out benchmarks/results/audit_campaign.json

Random machine IR and random LLVM IR for six targets, allocated by LLVM's greedy, basic and fast, and the kernels at
hand. Each allocation is audited; of each proved one, mutants of every class are audited too. Every text that the audit
proves is run against the code before allocation on concrete values by an independent oracle (tests/oracle), and so is a
part of those it refutes. Counted as faults: a *false proof* (proved, but the oracle tells it from the original), a
*false refutation* (LLVM's own allocation, or an edit that is equivalent by construction, refuted) and a *wrong rule*
(a mutant refuted with none of the rules its class allows). An allocation of LLVM's that is refuted and that the oracle
tells from the original too is a fault of LLVM's, counted apart.

The run can be interrupted and taken up again with the same scratch directory: finished units are rows of
``campaign.jsonl`` there, texts of faults lie beside it. Exit codes: 0 no fault and the numbers reached, 1 a fault,
130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import platform
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from common import command, cores, cpu_seconds, options, tree, write

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tests")]

from mutants import CLASSES  # noqa: E402
from mutants.campaign import Unit, run_unit  # noqa: E402
from mutants.judge import LLVM_FAULT  # noqa: E402
from support import kernel_paths, llc  # noqa: E402

Row = dict[str, Any]
_SHOWN = 50


class Tally:
    """Sums over the rows of units."""

    def __init__(self) -> None:
        self.units = 0
        self.functions: Counter[str] = Counter()
        self.phases: Counter[str] = Counter()
        self.by_class: defaultdict[str, defaultdict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
        self.rules: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.reasons: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.unknown: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.shown: list[Row] = []
        self.none: Counter[str] = Counter()
        self.mutants = 0
        self.refuted_and_run = 0
        self.refuted_and_told_apart = 0

    def add(self, row: Row) -> None:
        """One unit more."""
        self.units += 1
        if row["none"]:
            self.none[row["none"].split(":")[0]] += 1
        seen = {p["name"]: p for p in row["phases"] if "name" in p}
        for phase in seen.values():
            kind = "kernels" if row["kernel"] else "generated"
            self.functions[kind] += 1
            self.functions[f"{kind}, {phase['target']}, {phase['allocator']}"] += 1
        for phase in row["phases"]:
            self._entry(phase, row)
            self.phases[phase.get("outcome", "failed")] += 1
        for mutant in row["mutants"]:
            self.mutants += 1
            name, outcome = mutant["class"], mutant["outcome"]
            self.by_class[name][mutant["target"]][outcome] += 1
            self.rules[name].update(mutant.get("rules", ()) if outcome == "refuted" else ())
            if outcome == "proved" and "reason" in mutant:
                self.reasons[mutant["reason"]][name] += 1
            if outcome == "refuted" and "ran" in mutant:
                self.refuted_and_run += 1
                self.refuted_and_told_apart += bool(mutant.get("differs"))
            self._entry(mutant, row)

    def _entry(self, entry: Row, row: Row) -> None:
        if entry.get("outcome") in ("unknown", "invalid", "unreadable"):
            self.unknown[entry["message"].split("\n")[0][:120]] += 1
        if entry.get("fault"):
            self.faults[entry["fault"]] += 1
            if self.faults[entry["fault"]] <= _SHOWN:
                self.shown.append({"unit": Path(row["kernel"]).name or row["number"], **entry})

    @property
    def generated(self) -> int:
        """Generated functions so far."""
        return self.functions["generated"]

    def summary(self) -> Row:
        """What the JSON file says of the rows."""
        outcomes = Counter[str]()
        for targets in self.by_class.values():
            for counts in targets.values():
                outcomes.update(counts)
        return {
            "functions": dict(sorted(self.functions.items())),
            "without_function": dict(self.none),
            "unchanged_phases": dict(self.phases),
            "mutants": self.mutants,
            "mutant_outcomes": dict(outcomes),
            "false_proofs": self.faults["false proof"],
            "false_refutations": self.faults["false refutation"],
            "wrong_rules": self.faults["wrong rule"],
            "faults_of_llvm": self.faults[LLVM_FAULT],
            "campaign_failures": self.faults["campaign"],
            "unknown_by_reason": dict(self.unknown.most_common(40)),
            "refuted_and_run_by_the_oracle": self.refuted_and_run,
            "of_these_told_apart_by_the_oracle": self.refuted_and_told_apart,
            "proved_mutants_by_reason": {k: dict(sorted(v.items())) for k, v in sorted(self.reasons.items())},
            "by_class": {
                name: {
                    "equivalent_by_construction": CLASSES[name].equivalent,
                    "targets": {t: dict(c) for t, c in sorted(self.by_class[name].items())},
                    "rules": dict(self.rules[name].most_common()),
                }
                for name in CLASSES
            },
            "faults": self.shown,
        }


def units(arguments: argparse.Namespace) -> Iterator[Unit]:
    """All units in order: kernels first, then generated functions without end."""
    per_phase = -(-arguments.mutants * 6 // (arguments.functions * 10))
    scratch = str(arguments.scratch)
    if arguments.kernels:
        for number, path in enumerate(kernel_paths()):
            yield Unit(arguments.seed, number, str(path), per_phase, scratch)
    number = 0
    while True:
        yield Unit(arguments.seed, number, "", per_phase, scratch)
        number += 1


def key(row: Row | Unit) -> tuple[str, int]:
    """What identifies a unit in the log."""
    return (row.kernel, row.number) if isinstance(row, Unit) else (row["kernel"], row["number"])


def tool_versions() -> Row:
    """Versions of what took part."""
    said = subprocess.run([llc(), "--version"], capture_output=True, text=True, check=False).stdout
    lines = [line.strip() for line in said.splitlines() if "version" in line]
    return {
        "llvm": lines[0] if lines else "unknown",
        "z3": version("z3-solver"),
        "python": platform.python_version(),
        "tree": tree(),
    }


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = options(__doc__, "audit_campaign.json", jobs=cores())
    parser.add_argument("--functions", type=int, default=5000, help="generated functions at least")
    parser.add_argument("--mutants", type=int, default=50000, help="mutants at least")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scratch", type=Path, default=REPOSITORY / "out" / "campaign")
    parser.add_argument(
        "--again",
        action="store_true",
        help="first run units with faults again, after the tree was mended; they are named",
    )
    parser.add_argument("--no-kernels", dest="kernels", action="store_false", help="generated functions only")
    return parser.parse_args()


def settings(arguments: argparse.Namespace) -> Row:
    """What a log must have been made with to be taken up."""
    return {name: getattr(arguments, name) for name in ("seed", "functions", "mutants", "kernels")}


def open_log(arguments: argparse.Namespace) -> tuple[Path, list[Row], float]:
    """The log, its rows, and the CPU time spent on them.

    Raises:
        SystemExit: the log is of another campaign.
    """
    arguments.scratch.mkdir(parents=True, exist_ok=True)
    path = Path(arguments.scratch) / "campaign.jsonl"
    lines: list[str] = path.read_text().splitlines() if path.exists() else []
    rows: list[Row] = []
    for line in lines:
        try:
            rows.append(json.loads(line))
        except ValueError:
            break  # cut off by an interrupt; the unit is run again
    if rows and rows[0].get("settings") != settings(arguments):
        raise SystemExit(
            f"{path} is of another campaign {rows[0].get('settings')}: remove it or name another --scratch"
        )
    if not rows:
        rows = [{"settings": settings(arguments)}]
    if arguments.again:
        faulty = [row for row in rows[1:] if _faults(row)]
        rows[0].setdefault("again", []).extend(
            {"unit": Path(row["kernel"]).name or row["number"], "faults": sorted(_faults(row))} for row in faulty
        )
        rows = [row for row in rows if row not in faulty]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path, rows[1:], sum(row.get("cpu", 0.0) for row in rows[1:])


def _faults(row: Row) -> set[str]:
    found = {entry.get("fault") for entry in (*row["phases"], *row["mutants"])}
    return {fault for fault in found if fault and fault != LLVM_FAULT}


def main() -> int:
    """Run the campaign and write its summary."""
    arguments = parse_arguments()
    path, rows, before = open_log(arguments)
    again = json.loads(path.read_text().partition("\n")[0]).get("again", [])
    tally = Tally()
    done = {key(row) for row in rows}
    for row in rows:
        tally.add(row)
    begin = shown = time.monotonic()
    waiting = (unit for unit in units(arguments) if key(unit) not in done)
    kernels = len(kernel_paths()) if arguments.kernels else 0
    interrupted = False

    def enough() -> bool:
        reached = tally.generated >= arguments.functions and tally.mutants >= arguments.mutants
        return reached and tally.units >= kernels

    with path.open("a") as log, get_context("fork").Pool(arguments.jobs, _deaf) as pool:
        try:
            if enough():
                waiting = iter(())
            # Results come in order, so that where the run ends does not depend on how fast the machine is.
            for row in _in_order(pool, waiting, arguments.jobs * 8):
                tally.add(row)
                log.write(json.dumps(row) + "\n")
                log.flush()
                if time.monotonic() - shown > 15:
                    shown = time.monotonic()
                    print(
                        f"{tally.generated} functions, {tally.mutants} mutants, faults {dict(tally.faults)}, "
                        f"unknown {sum(tally.unknown.values())}, {shown - begin:.0f} s",
                        flush=True,
                    )
                if enough():
                    break
        except KeyboardInterrupt:
            interrupted = True
        pool.terminate()
    if interrupted:
        print(f"interrupted; the same command goes on from {path}", file=sys.stderr)
        return 130
    report = {
        "command": command(),
        "settings": settings(arguments),
        "tools": tool_versions(),
        "units_run_again": again,
        "cpu_seconds": round(before + sum(r for r in _spent(path)[len(rows) :]), 1),
        "wall_seconds_of_the_last_sitting": round(time.monotonic() - begin, 1),
        "jobs": arguments.jobs,
        **tally.summary(),
    }
    write(arguments.out, report)
    keys = (
        "mutants",
        "mutant_outcomes",
        "unchanged_phases",
        "false_proofs",
        "false_refutations",
        "wrong_rules",
        "faults_of_llvm",
    )
    print(json.dumps({k: report[k] for k in (*keys, "cpu_seconds")}))
    return 1 if set(tally.faults) - {LLVM_FAULT} else 0


def _deaf() -> None:
    """A worker leaves Ctrl-C to the process that started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _in_order(pool: Any, waiting: Iterator[Unit], ahead: int) -> Iterator[Row]:
    """Rows in the order of units, with at most ``ahead`` units handed out."""
    pending: list[Any] = []
    for unit in waiting:
        pending.append(pool.apply_async(_timed, (unit,)))
        while len(pending) >= ahead or (pending and pending[0].ready()):
            yield pending.pop(0).get()
    for one in pending:
        yield one.get()


def _timed(unit: Unit) -> Row:
    """The row of a unit with the CPU seconds it took, its tools included."""
    begin = cpu_seconds()
    row = run_unit(unit)
    row["cpu"] = round(cpu_seconds() - begin, 3)
    return row


def _spent(path: Path) -> list[float]:
    return [json.loads(line).get("cpu", 0.0) for line in path.read_text().splitlines()[1:]]


if __name__ == "__main__":
    sys.exit(main())
