"""Generated inputs for ``verilocc hunt``: random LLVM IR (tests/random_ir.py, tests/nested_ir.py) and machine IR
(tests/random_mir).

    .venv/bin/python benchmarks/hunt_inputs.py --ir 60 --mir 150 --nested 30 --seed 1 --out out/hunt-inputs
    .venv/bin/verilocc hunt out/hunt-inputs --out out/hunt

The same arguments give the same files. The machine IR has functions as they enter register allocation; a header that
llc makes for an empty function with the same signature stands above them.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tests")]

from nested_ir import nested_ir  # noqa: E402
from random_ir import Features, random_ir  # noqa: E402
from random_mir import TARGETS, random_features, random_mir  # noqa: E402


def main() -> int:
    """Write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ir", type=int, default=60, help="functions of LLVM IR")
    parser.add_argument("--mir", type=int, default=150, help="functions of machine IR")
    parser.add_argument("--nested", type=int, default=30, help="kernels with nested branches under pressure")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=REPOSITORY / "out" / "hunt-inputs")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for number in range(given.ir):
        seed, cpu = given.seed + number, TARGETS[number % len(TARGETS)]
        features = Features(device_function=number % 3 == 0, special=cpu if number % 2 else "")
        (given.out / f"ir{seed}.{cpu}.ll").write_text(random_ir(seed, features))
    for number in range(given.mir):
        seed, cpu = given.seed + number, TARGETS[number % len(TARGETS)]
        (given.out / f"mir{seed}.{cpu}.mir").write_text(random_mir(seed, cpu, random_features(seed)))
    for number in range(given.nested):
        seed, cpu = given.seed + number, TARGETS[number % len(TARGETS)]
        (given.out / f"nested{seed}.{cpu}.ll").write_text(nested_ir(seed, 8 + seed % 9, 6 + seed % 7))
    print(f"{given.ir + given.mir + given.nested} files in {given.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
