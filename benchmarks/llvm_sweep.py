"""Does the audit prove what LLVM allocates? Kernels and random machine IR, by every allocator, under forced spilling.

    .venv/bin/python benchmarks/llvm_sweep.py [--kernels DIR] [--corpus DIR] [--random N] [--seed S] [--jobs N]
        [--log out/llvm_sweep.jsonl] [--out benchmarks/results/llvm_sweep.json] [--again]
        [--allocators greedy,basic,fast] [--so-far]

Each kernel is allocated by greedy, basic and fast, as it is and with function attributes that make LLVM spill, and the
SGPR and the VGPR phase are audited; so are ``N`` random functions (tests/random_mir) with features chosen at random.
The kernels of ``--corpus`` (``verilocc corpus export --list benchmarks/kernel_corpus.json --out DIR``) are taken as
they are, by every allocator.
Every result is a line of the log at once, and a run that was interrupted goes on where the log ends, if the code is
the same. With ``--again`` what other code has proved counts, and the rest is judged anew; ``codes`` counts the rows.
The JSON file counts outcomes, names what was not proved, and what llc itself refused to allocate ("llc").
One fault of LLVM 22 is told apart: its fast allocator deletes copies between lanes of one vector register, which is
refuted; where the same function without such copies is proved, the outcome says so.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from common import Log, options, write

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tests")]

import support  # noqa: E402
from allocation import FORCED, PASSES, Pair, allocated, with_attributes, without_lane_copies  # noqa: E402
from random_mir import TARGETS, random_features, random_mir  # noqa: E402

from smt_verifier.outcome import Outcome  # noqa: E402
from verilocc_mlir.toolchain.mir_repairs import strip_mmra  # noqa: E402

PHASES = {"sgpr": 0, "vgpr": 2}


@dataclass(frozen=True)
class Task:
    """One function to allocate: ``source`` is a kernel's file, or the seed of a random function."""

    source: str
    cpu: str
    allocator: str
    forced: str

    @property
    def name(self) -> str:
        return f"{self.source} {self.cpu} {self.allocator} {self.forced}"

    def before(self) -> str:
        """Its text before the first phase."""
        if self.source.isdigit():
            seed = int(self.source)
            return random_mir(seed, self.cpu, random_features(seed))
        ir = with_attributes(Path(self.source).read_text(), FORCED[self.forced])
        return strip_mmra(support.run_llc(ir, self.cpu, "-stop-before=greedy,0", "-enable-ipra=0", mir=False))


def judge(task: Task) -> dict[str, Any]:
    """What the audit says of each phase; an llc that fails is no verdict."""
    # Texts are not worth keeping: the cache of the tests is left alone.
    with tempfile.TemporaryDirectory() as scratch:
        support.CACHE = Path(scratch)
        phases: dict[str, dict[str, Any]] = {}
        row: dict[str, Any] = {"task": task.name, **asdict(task), "phases": phases}
        try:
            before = task.before()
        except AssertionError as error:
            return {**row, "llc": _first_line(str(error))}
        for phase, index in PHASES.items():
            try:
                phases[phase] = verdict(allocated(before, task.cpu, index, task.allocator))
                mended = without_lane_copies(before)
                if phases[phase]["outcome"] == Outcome.REFUTED.value and task.allocator == "fast" and mended != before:
                    again = verdict(allocated(mended, task.cpu, index, task.allocator))
                    if again["outcome"] == Outcome.PROVED.value:
                        # The same function, spared LLVM's fault: what was refuted is the fault.
                        phases[phase]["outcome"] = "LLVM deletes a copy between lanes"
            except (AssertionError, subprocess.TimeoutExpired) as error:
                phases[phase] = {"outcome": "llc", "findings": [_first_line(str(error))]}
        return row


def verdict(pair: Pair) -> dict[str, Any]:
    """Outcome, counts, and the first findings."""
    report = pair.audit()
    moves = [f.moves for f in report.functions]
    return {
        "outcome": report.outcome.value,
        "obligations": report.obligations,
        "saves": sum(m.saves for m in moves),
        "reloads": sum(m.reloads for m in moves),
        "rematerialised": sum(m.rematerialised for m in moves),
        "findings": [f"{f.rule}: {f.message}" for d in report.functions for f in d.findings[:3]],
    }


def _first_line(text: str) -> str:
    lines = [line for line in text.splitlines() if "error" in line.lower()] or text.splitlines()
    return re.sub(r"^.*(?=error)", "", lines[0])[:200]


def tasks(kernels: Path | None, corpus: Path | None, count: int, seed: int) -> Iterator[Task]:
    """All of them: random functions first, because they are quick."""
    for number in range(seed, seed + count):
        cpu = TARGETS[number % len(TARGETS)]
        yield Task(str(number), cpu, list(PASSES)[number // len(TARGETS) % len(PASSES)], "as is")
    for path in sorted(kernels.glob("*.ll")) if kernels else []:
        for forced in FORCED:
            for allocator in PASSES:
                yield Task(str(path), support.cpu_of(path), allocator, forced)
    for path in sorted(corpus.glob("*.ll")) if corpus else []:
        for allocator in PASSES:
            yield Task(str(path), support.cpu_of(path), allocator, "as is")


def all_proved(row: dict[str, Any]) -> bool:
    """Whether llc allocated both phases, and the audit proved them."""
    return len(row["phases"]) == len(PHASES) and all(
        f["outcome"] == Outcome.PROVED.value for f in row["phases"].values()
    )


def fingerprint() -> str:
    """Of all code that decides a verdict."""
    digest = hashlib.sha256()
    for directory in ("smt_verifier", "verilocc_mlir/mir", "verilocc_mlir/target", "tests/random_mir"):
        for path in sorted((REPOSITORY / directory).rglob("*.py")):
            digest.update(path.read_bytes())
    digest.update((REPOSITORY / "tests" / "allocation.py").read_bytes())
    return digest.hexdigest()


def llvm_version() -> str:
    done = subprocess.run([support.llc(), "--version"], capture_output=True, text=True, check=True)
    match = re.search(r"LLVM version (\S+)", done.stdout)
    assert match
    return match[1]


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts by kind of source, allocator, spilling and phase; everything that was not proved."""
    counts: Counter[str] = Counter()
    groups: dict[str, Counter[str]] = {}
    moves: Counter[str] = Counter()
    others: list[dict[str, Any]] = []
    for row in rows:
        kind = "random" if row["source"].isdigit() else "kernel"
        source = row["source"] if kind == "random" else Path(row["source"]).name
        if "llc" in row:
            others.append({"source": source, "outcome": "llc", "findings": [row["llc"]]})
        for phase, found in row["phases"].items():
            counts[found["outcome"]] += 1
            group = f"{kind}, {row['allocator']}, {row['forced']}, {phase}"
            groups.setdefault(group, Counter())[found["outcome"]] += 1
            for key in ("saves", "reloads", "rematerialised", "obligations"):
                moves[key] += found.get(key, 0)
            if found["outcome"] != Outcome.PROVED.value:
                others.append(
                    {
                        **{"source": source, "cpu": row["cpu"], "allocator": row["allocator"], "forced": row["forced"]},
                        **{"phase": phase, "outcome": found["outcome"], "findings": found["findings"]},
                    }
                )
    return {
        "outcomes": dict(sorted(counts.items())),
        "by_group": {group: dict(sorted(found.items())) for group, found in sorted(groups.items())},
        "seen": dict(moves),
        "not_proved": sorted(others, key=str),
    }


def main() -> int:
    """Run what the log does not hold yet; exit code 1 if anything was refuted."""
    parser = options(__doc__, "llvm_sweep.json", kernels=support.kernel_directory(), jobs=1)
    parser.add_argument("--no-kernels", action="store_true", help="random functions only")
    parser.add_argument("--corpus", type=Path, help="exported kernels, allocated as they are")
    parser.add_argument("--random", type=int, default=5000, metavar="N", help="random functions, 0 for none")
    parser.add_argument("--seed", type=int, default=0, help="first seed of the random functions")
    parser.add_argument("--log", type=Path, default=REPOSITORY / "out" / "llvm_sweep.jsonl")
    parser.add_argument("--allocators", default=",".join(PASSES), help="run those; what is not run is counted as left")
    parser.add_argument("--so-far", action="store_true", help="run nothing: write what the log has")
    parser.add_argument("--again", action="store_true", help="keep what other code has proved")
    given = parser.parse_args()
    code = fingerprint()
    log = Log(given.log)
    known = list(log.rows())
    done = {row["task"]: row for row in known if row["code"] == code or (given.again and all_proved(row))}
    wanted = list(tasks(None if given.no_kernels else given.kernels, given.corpus, given.random, given.seed))
    chosen = () if given.so_far else given.allocators.split(",")
    left = [task for task in wanted if task.name not in done and task.allocator in chosen]
    print(f"{len(wanted)} functions, {len(wanted) - len(left)} of them in {given.log}", file=sys.stderr)
    try:
        with ProcessPoolExecutor(given.jobs) as pool:
            futures = [pool.submit(judge, task) for task in left]
            for number, future in enumerate(as_completed(futures), 1):
                row: dict[str, Any] = {**future.result(), "code": code}
                done[row["task"]] = row
                log.add(row)
                phases: dict[str, dict[str, Any]] = row["phases"]
                bad = {p: f["outcome"] for p, f in phases.items() if f["outcome"] != Outcome.PROVED.value}
                if bad or number % 50 == 0:
                    print(f"[{number}/{len(left)}] {row['task']}: {bad or 'proved'}", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from the log", file=sys.stderr)
        return 130
    # What was to be judged again, and was not, counts as it was judged.
    latest = {row["task"]: row for row in known} | done if given.again else done
    rows = [latest[task.name] for task in wanted if task.name in latest]
    result: dict[str, Any] = {
        "command": "benchmarks/llvm_sweep.py",
        "llvm": llvm_version(),
        "codes": dict(Counter(row["code"] for row in rows)),
        "left": dict(Counter(task.allocator for task in wanted if task.name not in latest)),
        "random_functions": given.random,
        "first_seed": given.seed,
        "kernels": len({r["source"] for r in rows if not r["source"].isdigit()}),
        **summary(rows),
    }
    write(given.out, result)
    print(json.dumps(result["outcomes"]))
    return 1 if Outcome.REFUTED.value in result["outcomes"] else 0


if __name__ == "__main__":
    sys.exit(main())
