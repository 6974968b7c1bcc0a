"""Write generated kernels to files: ``python -m examples.mlir_kernels --target gfx942 --count 10 --out DIR``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from verilocc_mlir.errors import VeriloccError

from . import KINDS, TARGETS, sample, space, to_llvm_ir


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m examples.mlir_kernels", description=__doc__)
    parser.add_argument("--target", action="append", choices=TARGETS, help="may be given again; all five by default")
    parser.add_argument("--kind", action="append", choices=KINDS, help="may be given again; both by default")
    parser.add_argument("--count", type=int, default=10, help="how many kernels (10)")
    parser.add_argument("--seed", type=int, default=0, help="which of them (0)")
    parser.add_argument("--form", choices=("ll", "mlir"), default="ll", help="LLVM IR or the MLIR it comes from (ll)")
    parser.add_argument("--out", type=Path, help="directory for the files")
    parser.add_argument("--list", action="store_true", help="only count the configurations there are")
    given = parser.parse_args(arguments)
    targets, kinds = tuple(given.target or TARGETS), tuple(given.kind or KINDS)
    if given.list:
        for target in targets:
            print(target, *(f"{kind}: {sum(1 for _ in space(target, kind))}" for kind in kinds))
        return 0
    if given.out is None:
        parser.error("--out is needed")
    try:
        given.out.mkdir(parents=True, exist_ok=True)
        for config in sample(given.count, given.seed, targets, kinds):
            text = config.mlir() if given.form == "mlir" else to_llvm_ir(config.mlir(), config.target)
            path = given.out / f"{config.name}.{config.target}.{given.form}"
            path.write_text(text)
            print(path)
    except (VeriloccError, ValueError, OSError) as error:
        print(f"examples.mlir_kernels: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
