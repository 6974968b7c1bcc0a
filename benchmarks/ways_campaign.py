"""What LLVM's passes behind allocation make of proved texts, run: branches on EXEC, SCC and VCC, and what they skip.

    .venv/bin/python benchmarks/ways_campaign.py [--count 4000] [--seed 1] [--llvm llc|triton] [--log FILE.jsonl]

P is a random function (``tests/wave``): blocks in any order, of scalars, masks, vectors, whole-wave code and stores; a
kernel, or called by one of two conventions. Q is P with random registers and moves of its own. Some interferences are
left out, so that many a Q is wrong. Where both checkers accept, LLVM makes assembly of Q, and it is run, for several
masks of threads and contents of registers. It must store what P stores, and leave alone what its caller keeps.

A pair that differs is among the ``faults``. ``assumed``: LLVM goes through what a branch on EXEC skips, and P stores
the same if it goes there (the specification's section 14, as to scalars). The same command goes on from the log.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from common import REPOSITORY, Log, Row, command, machine, options, tree, write

sys.path[:0] = [str(REPOSITORY / "tests")]

from wave.registers import random_pair  # noqa: E402
from wave.run import THREADS, Key, Line, Run, Stores, Unknown, lines_of  # noqa: E402

from smt_verifier.certificate.verdict import certify_texts  # noqa: E402
from verilocc_mlir.errors import VeriloccError  # noqa: E402
from verilocc_mlir.toolchain import ToolchainChoice  # noqa: E402
from verilocc_mlir.toolchain.choose import choose_tools  # noqa: E402
from verilocc_mlir.toolchain.drivers.job import CompileOptions, Driver, LlvmJob, Point  # noqa: E402
from verilocc_mlir.toolchain.drivers.triton import TritonDriver  # noqa: E402
from verilocc_mlir.toolchain.run import RunningTools  # noqa: E402
from verilocc_mlir.toolchain.staged import driver_of  # noqa: E402

WAVES = {"gfx942": 64, "gfx1100": 32}
CONVENTIONS = {"amdgpu_kernel": 4, "ccc": 1, "amdgpu_gfx": 1}
"""How often each comes."""
STATES = 12
BEHIND = Point("after", "virtregrewriter,2")
BEHIND_SCALARS = Point("before", "virtregrewriter,0")
TOOL_SECONDS = 10


def states(chance: random.Random, wave: int) -> list[dict[Key, int]]:
    """What scalars, masks and EXEC hold at first."""
    found: list[dict[Key, int]] = []
    for _ in range(STATES):
        active = chance.randrange(1, 1 << THREADS // 2)
        masks = [0, 0, active, chance.randrange(1 << THREADS), active & chance.randrange(1 << THREADS)]
        given: dict[Key, int] = {("s", 20 + n): chance.choice([0, 1, 3, 7, 9]) for n in range(3)}
        # Variables and registers that are not given follow from the seed.
        rows = [("s", 24 + n * wave // 32, chance.choice(masks)) for n in range(3)] + [("exec", 0, active)]
        for file, low, mask in rows:
            given |= {(file, low + k): mask if k == 0 else 0 for k in range(wave // 32)}
        found.append({**given, ("s", 32): 16})
    return found


def spoiled(run: Run, start: Run, convention: str) -> list[str]:
    """What a called function has not left as it was."""
    gfx, c = (range(4, 32), range(64, 106)), (range(30, 40), range(48, 56), range(64, 72))
    scalars = [("s", n) for kept in (gfx if convention == "amdgpu_gfx" else c) for n in kept]
    scalars += [("s", 32), ("s", 33), *run.exec]
    bad = [f"{key}" for key in scalars if key in run.scalars and run.scalars[key] != start.scalar(key)]
    active = start.mask(start.exec)
    for (file, n), row in run.vectors.items():
        is_kept = n >= 32 if file == "a" else n >= 40 and n % 16 >= 8
        threads = [thread for thread in range(run.wave) if is_kept or not active >> thread & 1]
        if file in "va" and any(row[thread] != start.vector((file, n))[thread] for thread in threads):
            bad.append(f"{file}{n}")
    return bad


def agree(wanted: Stores, found: Stores) -> bool:
    return wanted.keys() == found.keys() and all(v is None or found[key] == v for key, v in wanted.items())


def compared(p: Sequence[Line], q: Sequence[Line], wave: int, convention: str, chance: random.Random) -> str:
    """``same``, ``assumed``, ``fault: …``, or why that is not known."""
    said = "not run: undefined"
    branches = [at for at, line in enumerate(p) if line.name.startswith("s_cbranch_exec")]
    for seed, given in enumerate(states(chance, wave)):
        try:
            wanted = Run(p, wave, given, seed).run()
        except Unknown:
            continue
        run = Run(q, wave, given, seed)
        try:
            found = run.run()
        except Unknown as error:
            return f"not run: {error}"
        if convention != "amdgpu_kernel" and (bad := spoiled(run, Run((), wave, given, seed), convention)):
            return f"fault: {bad} {given}"
        if agree(wanted, found):
            said = said if said == "assumed" else "same"
        elif goes_there(p, branches, wave, given, seed, found):
            said = "assumed"
        else:
            return f"fault: {wanted} {found} {given}"
    return said


def goes_there(
    p: Sequence[Line], branches: Sequence[int], wave: int, given: dict[Key, int], seed: int, found: Stores
) -> bool:
    """Whether P stores the same if some of its branches on EXEC are gone, or reads something undefined then."""
    for size in range(1, len(branches) + 1):
        for gone in combinations(branches, size):
            try:
                if agree(Run(p, wave, given, seed).run(frozenset(gone)), found):
                    return True
            except Unknown:
                return True
    return False


@dataclass(frozen=True)
class Question:
    """A pair: P, Q, P as it is run, and for what."""

    before: str
    after: str
    lines: Sequence[Line]
    cpu: str
    convention: str
    scalar: bool


def question(chance: random.Random, scalars: float) -> Question:
    cpu = chance.choice([*WAVES])
    (convention,) = chance.choices([*CONVENTIONS], [*CONVENTIONS.values()])
    scalar = chance.random() < scalars
    return Question(*random_pair(chance, WAVES[cpu], convention, scalar=scalar), cpu, convention, scalar)


def run_by(driver: Driver, pair: Question, chance: random.Random) -> str:
    """What becomes of Q (``compared``)."""
    point = BEHIND_SCALARS if pair.scalar else BEHIND
    settings = CompileOptions(pair.cpu, tool_seconds=TOOL_SECONDS)
    job = LlvmJob("finish", pair.after.encode(), True, settings, point, kind="asm")
    try:
        # Triton's LLVM saves a function's registers again; where it had saved some, the text is another one then.
        go_on = driver.resume if isinstance(driver, TritonDriver) else driver.run
        assembly = go_on(job, RunningTools()).stdout.decode()
        wave = WAVES[pair.cpu]
        return compared(pair.lines, lines_of(assembly, wave), wave, pair.convention, chance)
    except (VeriloccError, Unknown) as error:
        return f"not run: {error}"[:200]


def judged(number: int, seed: int, driver: Driver, scalars: float) -> Row:
    """One pair, asked about and run."""
    chance = random.Random(seed * 1_000_000 + number)
    pair = question(chance, scalars)
    said = certify_texts(pair.before, pair.after, "f", pair.cpu, saved_later=pair.scalar)
    row: Row = {"number": number, "cpu": pair.cpu, "convention": pair.convention, "scalar": pair.scalar}
    if said.disagree or not said.accepted:
        refused = next(answer.rule for answer in said.answers if not answer.accepted)
        return {**row, "answer": "disagree" if said.disagree else refused}
    return {**row, "answer": "accepted", "run": run_by(driver, pair, chance)}


def main() -> int:
    parser = options(__doc__, "ways_campaign.json")
    parser.add_argument("--count", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--llvm", choices=["llc", "triton"], default="llc")
    parser.add_argument("--scalars", type=float, default=0.3, help="the share of pairs of the scalar phase")
    parser.add_argument("--log", type=Path, help="default: beside --out")
    given = parser.parse_args()
    driver = driver_of(choose_tools(ToolchainChoice(given.llvm)))
    log = Log(given.log or given.out.with_suffix(".jsonl"))
    rows = {row["number"]: row for row in log.rows()}
    for number in range(given.count):
        if number not in rows:
            rows[number] = judged(number, given.seed, driver, given.scalars)
            log.add(rows[number])
            if number % 200 == 199:
                print(number + 1, Counter(summary(row) for row in rows.values()), flush=True)
    faults = [row for row in rows.values() if summary(row) in ("fault", "disagree")]
    result = {
        "command": command(),
        "tree": tree(),
        "machine": machine(),
        "pairs": len(rows),
        "by answer": Counter(row["answer"] for row in rows.values()),
        "accepted, and run": Counter(summary(row) for row in rows.values() if "run" in row),
        "faults": faults,
    }
    write(given.out, result)
    return 1 if faults else 0


def summary(row: Row) -> str:
    return str(row.get("run", "disagree" if row["answer"] == "disagree" else "refused")).partition(":")[0]


if __name__ == "__main__":
    sys.exit(main())
