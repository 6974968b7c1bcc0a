"""The long run of the fuzz targets; ``tests/mir/test_fuzz.py`` is the short one.

    .venv/bin/python tests/fuzz_run.py --seconds 60 [--targets mir,audit] [--seed 0] [--out FILE.json]
    .venv/bin/python tests/fuzz_run.py --atheris mir -max_total_time=600 -max_len=65536     (pip install atheris)

The first form damages real inputs (``fuzz_mutate.py``), each from a seed of its own, for some seconds a target, and
writes counts as JSON; what fails is kept in ``--keep`` and exit code 1 says so. The second hands a target to atheris,
guided by coverage, with the same damage as one of its mutators.
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import random
import sys
import time
import traceback
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

MAX_BYTES = 1 << 16


def damaged(seeds: tuple[bytes, ...], seed: int) -> bytes:
    """Input number ``seed``."""
    from fuzz_mutate import mutate

    chance = random.Random(seed)
    data = mutate(chance.choice(seeds), chance.choice(seeds), chance, chance.choice((1, 1, 2, 4, 16)))
    return data[:MAX_BYTES]


def long_run(name: str, seconds: float, seed: int, keep: Path) -> dict[str, Any]:
    """Inputs ``seed``, ``seed + 1`` … of one target until the time is up; distinct faults by where they were raised."""
    from fuzz_targets import TARGETS, in_time

    target, seeds = TARGETS[name]
    real = seeds()
    faults: dict[str, int] = {}
    start = time.monotonic()
    number, slowest = seed, 0.0
    while (begun := time.monotonic()) < start + seconds:
        data = damaged(real, number)
        try:
            with in_time():
                target(data)
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            fault = f"{type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}"
            if fault not in faults:
                keep.mkdir(parents=True, exist_ok=True)
                (keep / f"{name}-{number}").write_bytes(data)
                print(f"{name}, seed {number}: {fault}: {str(error)[:200]}", file=sys.stderr)
            faults[fault] = faults.get(fault, 0) + 1
        slowest = max(slowest, time.monotonic() - begun)
        number += 1
    return {
        "target": name,
        "first_seed": seed,
        "inputs": number - seed,
        "seconds": round(time.monotonic() - start, 1),
        "slowest_seconds": round(slowest, 2),
        "faults": faults,
    }


def guided(name: str, arguments: list[str]) -> None:
    """Run one target under atheris; it does not return."""
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["verilocc_mlir", "smt_verifier"]):
        from fuzz_targets import TARGETS

    target, seeds = TARGETS[name]
    real = seeds()

    def custom(data: bytes, max_size: int, seed: int) -> bytes:
        chance = random.Random(seed)
        if chance.randrange(4) == 0:
            return bytes(atheris.Mutate(data, max_size))
        from fuzz_mutate import mutate

        return mutate(data or real[0], chance.choice(real), chance, chance.choice((1, 2, 4)))[:max_size]

    corpus = REPOSITORY / ".pytest_cache" / "fuzz" / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(real):
        (corpus / f"seed{number}").write_bytes(data)
    atheris.Setup([sys.argv[0], *arguments, "-timeout=20", str(corpus)], target, custom_mutator=custom)
    atheris.Fuzz()


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each target")
    parser.add_argument("--targets", default="")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--keep", type=Path, default=Path("fuzz-faults"))
    parser.add_argument("--atheris", default="", metavar="TARGET")
    arguments, rest = parser.parse_known_args()
    if arguments.atheris:
        guided(arguments.atheris, rest)
        return 0
    from fuzz_targets import TARGETS

    chosen = arguments.targets.split(",") if arguments.targets else list(TARGETS)
    rows = [long_run(name, arguments.seconds, arguments.seed, arguments.keep) for name in chosen]
    for row in rows:
        print(f"{row['target']:10} {row['inputs']:8} inputs {row['seconds']:7} s  slowest {row['slowest_seconds']} s  "
              f"{sum(row['faults'].values())} faults")  # fmt: skip
    if arguments.out:
        record = {"python": platform.python_version(), "runs": rows}
        arguments.out.write_text(json.dumps(record, indent=1) + "\n")
    return 1 if any(row["faults"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
