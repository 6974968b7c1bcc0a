"""Choose the kernels that the benchmarks compare allocators on, and write benchmarks/kernel_corpus.json.

    .venv/bin/python benchmarks/kernel_corpus.py [--seed 7] [--jobs 1] [--store DIR] [--out FILE.json]

For each target and each (source, family) the first cells of the stream are taken that fit a quota: at most 4,000
instructions before allocation, and of matmul and attention a share that LLVM spills. The files come from
``verilocc corpus export --list benchmarks/kernel_corpus.json --out DIR``.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import re
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "model")]

from verilocc_mlir.errors import InputError  # noqa: E402
from verilocc_mlir.mir.parser import parse_mir  # noqa: E402
from verilocc_mlir.store import Store  # noqa: E402
from verilocc_mlir.toolchain.descriptor import read_code_object  # noqa: E402
from verilocc_mlir.toolchain.drivers.job import CompileOptions  # noqa: E402
from verilocc_mlir.toolchain.find import find_toolchain  # noqa: E402
from verilocc_mlir.toolchain.staged import StagedCompiler  # noqa: E402
from verilocc_model.corpus.ir import ir  # noqa: E402
from verilocc_model.corpus.sources import Cell, source  # noqa: E402
from verilocc_model.corpus.stream import (  # noqa: E402
    Counts,
    ListedKernel,
    cells,
    write_list,
)
from verilocc_model.corpus.workers import Done, run  # noqa: E402

TARGETS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
QUOTAS = {
    ("mlir", "gemm"): 10, ("mlir", "mha"): 9, ("mlir", "conv"): 1,
    ("triton", "gemm"): 8, ("triton", "mha"): 8, ("triton", "softmax"): 1, ("triton", "layernorm"): 1,
    ("iree", "gemm"): 6, ("iree", "mha"): 5, ("iree", "conv"): 1,
}  # fmt: skip
MOST_INSTRUCTIONS = 4_000
FEWEST_INSTRUCTIONS = 60
SPILLING = {"gfx9": 0.25, "gfx1": 0.4}
"""Share of the kernels of a quota that LLVM is to spill, by the start of the target's name."""
TRIES = 8
"""Cells looked at for each place of a quota, before one is taken that does not spill."""


def judge(cell: Cell, store: Store | None) -> ListedKernel:
    """The kernel with its counts.

    Raises:
        InputError: it has more than one function, or is too large or too small.
    """
    text = ir(cell, store)
    compiler = StagedCompiler(find_toolchain(), CompileOptions(cell.target, verify=False, tool_seconds=60.0))
    if text.count("\n") > 4 * MOST_INSTRUCTIONS:
        raise InputError("too large")
    file = parse_mir(compiler.to_pre_ra(text), cell.name)
    if len(file.functions) != 1:
        raise InputError(f"{len(file.functions)} functions")
    (function,) = file.functions
    if not FEWEST_INSTRUCTIONS <= function.instruction_count <= MOST_INSTRUCTIONS:
        raise InputError(f"{function.instruction_count} instructions")
    kernel = read_code_object(compiler.direct(text)).kernels[function.name]
    counts = Counts(
        kernel.vgpr_count, kernel.agpr_count, kernel.sgpr_count, kernel.vgpr_spill_count, kernel.sgpr_spill_count
    )
    digest = hashlib.sha256(text.encode()).hexdigest()
    return ListedKernel(cell, function.name, digest, function.instruction_count, counts)


def choose(done: Iterator[Done[Cell]], quota: int, spilling: int) -> list[ListedKernel]:
    """``quota`` different kernels, ``spilling`` of them with VGPR spills as far as there are such."""
    over: list[ListedKernel] = []
    within: list[ListedKernel] = []
    shapes: set[str] = set()
    for one in done:
        kernel: ListedKernel | None = one.result
        if kernel is None:
            print(f"  {one.task}: {one.failure}", file=sys.stderr)
            continue
        shape = re.sub(r"\s", "", repr((kernel.instructions, kernel.llvm)))
        if shape in shapes:
            continue
        shapes.add(shape)
        (over if kernel.llvm.vgpr_spills else within).append(kernel)
        if len(over) >= spilling and len(over) + len(within) >= quota and len(within) >= quota - spilling:
            break
    taken = over[:spilling]
    taken += within[: quota - len(taken)]
    return taken + over[spilling:][: quota - len(taken)]


def main() -> int:
    parser = argparse.ArgumentParser(description="Choose the kernels of the benchmarks.")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--store", type=Path, help="directory that keeps IR")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "benchmarks" / "kernel_corpus.json")
    given = parser.parse_args()
    store = Store(given.store) if given.store else None
    kernels: list[ListedKernel] = []
    for target in TARGETS:
        share = SPILLING[target[:4]]
        for (name, family), quota in QUOTAS.items():
            spilling = math.ceil(quota * share) if family in ("gemm", "mha") else 0
            stream = cells(given.seed, targets=[target], sources=[name], families=[family])
            some = [cell for cell, _ in zip(stream, range(TRIES * quota), strict=False)]
            done = run(partial(judge, store=store), some, jobs=given.jobs, seconds=120.0)
            found = choose(done, quota, spilling)
            done.close()
            kernels += found
            spilled = sum(bool(k.llvm.vgpr_spills) for k in found)
            print(f"{target} {name} {family}: {len(found)} of {quota}, {spilled} spill", flush=True)
    write_list(given.out, kernels, {name: source(name).version() for name in sorted({k.cell.source for k in kernels})})
    print(f"{len(kernels)} kernels, {sum(bool(k.llvm.vgpr_spills) for k in kernels)} of them with VGPR spills")
    return 0


if __name__ == "__main__":
    import kernel_corpus  # workers find ``judge`` in it

    sys.exit(kernel_corpus.main())
