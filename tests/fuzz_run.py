"""The long run of the fuzz targets; ``tests/mir/test_fuzz.py`` is the short one.

    .venv/bin/python tests/fuzz_run.py --seconds 60 [--targets mir,audit] [--seed 0] [--out FILE.json]

Real inputs are damaged (``fuzz_mutate.py``), each from a seed of its own, for some seconds a target. Counts are written
as JSON. What fails is kept in ``--keep``, and exit code 1 says so.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fuzz_targets import TARGETS, damaged, in_time


def long_run(name: str, seconds: float, seed: int, keep: Path) -> dict[str, Any]:
    """Inputs ``seed``, ``seed + 1`` … of one target until the time is up; faults by where they were raised."""
    target, seeds = TARGETS[name]
    real, faults, number, slowest = seeds(), Counter[str](), seed, 0.0
    start = begun = time.monotonic()
    while begun < start + seconds:
        data = damaged(real, number)
        try:
            with in_time():
                target(data)
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            fault = f"{type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}"
            if not faults[fault]:
                keep.mkdir(parents=True, exist_ok=True)
                (keep / f"{name}-{number}").write_bytes(data)
            faults[fault] += 1
        number, before, begun = number + 1, begun, time.monotonic()
        slowest = max(slowest, begun - before)
    figures = {"inputs": number - seed, "seconds": round(begun - start, 1), "slowest_seconds": round(slowest, 2)}
    return {"target": name, "first_seed": seed, **figures, "faults": dict(faults)}


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each target")
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--keep", type=Path, default=Path("fuzz-faults"))
    given = parser.parse_args()
    rows = [long_run(name, given.seconds, given.seed, given.keep) for name in given.targets.split(",")]
    text = json.dumps({"python": platform.python_version(), "runs": rows}, indent=1) + "\n"
    print(text, end="")
    if given.out:
        given.out.write_text(text)
    return 1 if any(row["faults"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
