"""What autotuning costs: 50 configurations of Triton's matmul tutorial, by Triton alone and through the hook.

    .venv/bin/python benchmarks/triton_autotune.py [--targets gfx942,gfx1100] [--configurations 50]
        [--ways alone,theirs,ours] [--out benchmarks/results/triton_autotune.json]

Triton's own autotuner is run, on a driver without a device: it compiles every configuration, "times" it, and launches
the one that was chosen. The CPU of all processes is counted, ours, Triton's and every tool's, each way in a process of
its own, after Triton is loaded. ``theirs``: configurations are timed as Triton compiles them, and the one that was
chosen is proved (the hook's default); ``ours``: each is proved.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from common import cpu_seconds, options, write

REPOSITORY = Path(__file__).resolve().parent.parent
WAYS = ("alone", "theirs", "ours")


def configurations(count: int) -> list[Any]:
    """Tiles and warps as people list them."""
    config = importlib.import_module("triton").Config
    tiles = [
        *itertools.product((32, 64, 128, 256), (32, 64, 128), (32, 64), (4, 8)),
        (128, 256, 32, 8),
        (128, 256, 64, 8),
    ]
    return [
        config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 8}, num_warps=warps, num_stages=2)
        for m, n, k, warps in tiles[:count]
    ]


def measure(target: str, way: str, count: int) -> dict[str, Any]:
    """One autotuning; to be called in a fresh process."""
    triton = importlib.import_module("triton")
    torch = importlib.import_module("torch")
    sys.path.append(str(REPOSITORY / "examples"))
    tutorials = importlib.import_module("triton_tutorials")
    hook = importlib.import_module("verilocc_mlir.hooks.triton")
    triton.runtime.driver.set_active(importlib.import_module("triton_no_device").NoDevice(target))
    timed = itertools.count(1)

    def seconds(launch: Any, quantiles: Any) -> list[float]:
        launch()
        return [1.0 + abs(next(timed) - count // 2)] * len(quantiles)

    a, b, c = (torch.empty((1024, 1024), dtype=torch.float16) for _ in range(3))
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TRITON_CACHE_DIR"] = cache
        x = torch.empty(1024)
        tutorials.add[(1,)](x, x, x, 1024, BLOCK=1024)  # loads Triton
        if way != "alone":
            hook.install(autotune=way)
        tuned = triton.autotune(configurations(count), key=["m", "n", "k"], do_bench=seconds)(tutorials.matmul)
        before, started = cpu_seconds(), time.perf_counter()
        tuned[(64,)](a, b, c, 1024, 1024, 1024, 1024, 1, 1024, 1, 1024, 1, ACTIVATION="")
        wall = time.perf_counter() - started
    kinds = [record.kind for record in hook.reports()]
    return {
        "target": target, "way": way, "configurations": next(timed) - 1,
        "cpu_seconds": round(cpu_seconds() - before, 2), "wall_seconds": round(wall, 2),
        "through": {kind: kinds.count(kind) for kind in sorted(set(kinds))},
    }  # fmt: skip


def main() -> int:
    parser = options(__doc__, "triton_autotune.json")
    parser.add_argument("--targets", default="gfx942,gfx1100")
    parser.add_argument("--configurations", type=int, default=50)
    parser.add_argument("--ways", default=",".join(WAYS))
    given = parser.parse_args()
    os.environ.setdefault("TRITON_HIP_USE_ASYNC_COPY", "0")
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    rows: list[dict[str, Any]] = []
    for target in given.targets.split(","):
        alone = 0.0
        for way in given.ways.split(","):
            # A fresh process each: what one way loads is no gain of the next.
            with get_context("spawn").Pool(1) as pool:
                row = pool.apply(measure, (target, way, given.configurations))
            alone = row["cpu_seconds"] if way == "alone" else alone
            row["ratio"] = round(row["cpu_seconds"] / alone, 2) if alone else None
            rows.append(row)
            print(json.dumps(row), flush=True)
    write(given.out, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
