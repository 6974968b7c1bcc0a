"""Triton's matmul and flash attention, every configuration for every target, through the hook and without it.

    .venv/bin/python benchmarks/triton_hook.py [--targets gfx942,gfx1100] [--only SUBSTRING] [--jobs 2]
        [--out benchmarks/results/triton_hook.json]

The kernels are those of examples/triton_kernels.py. For each it is written down whether the code object is ours and
proved (and who allocated each phase) or why Triton compiled it, its registers beside those of LLVM's greedy (the LLVM
that we use) and of Triton's own LLVM, whether the metadata equals Triton's but for register counts, and the time beside
Triton's. Finished kernels are kept in a file beside the result: an interrupted run goes on where it stopped. No GPU is
needed.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from common import Log, options, write
from msgspec.structs import asdict

import verilocc_mlir.hooks.triton as hook
from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.hooks.baseline import Replace
from verilocc_mlir.hooks.triton.hook import cache_key
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.toolchain.descriptor import Cause, compare_metadata, read_code_object
from verilocc_mlir.toolchain.find import find_toolchain

REPOSITORY = Path(__file__).resolve().parent.parent
TARGETS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
_COUNTS = ("vgpr_count", "agpr_count", "sgpr_count", "vgpr_spill_count", "sgpr_spill_count")
# Triton's own fields that differ between any two compilations with different hooks.
_OWN_FIELDS = ("hash", "verilocc")


@cache
def _modules() -> tuple[Any, Any, Any]:
    """Triton, its GPUTarget and the kernels."""
    sys.path.insert(0, str(REPOSITORY / "examples"))
    triton = importlib.import_module("triton")
    backend = importlib.import_module("triton.backends.compiler")
    return triton, backend.GPUTarget, importlib.import_module("triton_kernels")


def measure(index: int, target: str) -> dict[str, Any]:
    """The row of variant ``index`` for ``target``."""
    triton, gpu_target, kernels = _modules()
    variant = list(kernels.variants())[index]
    row: dict[str, Any] = {"kernel": variant.kernel.fn.__name__, "variant": variant.name, "target": target}
    gpu = gpu_target("hip", target, 64 if target.startswith("gfx9") else 32)
    with tempfile.TemporaryDirectory() as cache_directory:
        os.environ["TRITON_CACHE_DIR"] = cache_directory
        try:
            hook.uninstall()
            # The first compilation of a process pays for loading Triton.
            triton.compile(variant.source(), target=gpu, options=variant.options)
            started = time.perf_counter()
            theirs = triton.compile(variant.source(), target=gpu, options=variant.options)
            alone = time.perf_counter() - started
            hook.install(replace=Replace.ALWAYS)
            hook.clear_reports()
            started = time.perf_counter()
            ours = triton.compile(variant.source(), target=gpu, options=variant.options)
            row["time_ratio"] = round((time.perf_counter() - started) / alone, 1)
        except Exception:
            return {**row, "kind": "crash", "reason": traceback.format_exc(limit=-3)}
    (record,) = hook.reports()
    triton_kernel = read_code_object(theirs.kernel).kernels[theirs.name]
    return {
        **row,
        "kind": record.kind,
        "reason": record.reason,
        "phases": record.phases,
        "fallbacks": record.fallbacks,
        "ours": record.registers and asdict(record.registers),
        "greedy": record.greedy and asdict(record.greedy),
        "triton": {key: getattr(triton_kernel, key) for key in _COUNTS},
        "instructions": sum(f.instructions for f in record.report.functions) if record.report else None,
        "differences": differences(ours, theirs) if record.ours else [],
    }


def differences(ours: Any, theirs: Any) -> list[str]:
    """Every field in which two compiled kernels differ, in Triton's metadata and in the code object's, but for what an
    allocation decides: register counts, spills, and the scratch memory that the spills take.

    The code object names its target by a triple whose spelling changed with LLVM 23; processor and features count.
    """
    fields = {*ours.metadata._fields, *theirs.metadata._fields} - {*_OWN_FIELDS}
    found = [
        f"{field}: {a} instead of {b}"
        for field in sorted(fields)
        if (a := getattr(ours.metadata, field, None)) != (b := getattr(theirs.metadata, field, None))
    ]
    a, b = read_code_object(ours.kernel), read_code_object(theirs.kernel)
    for item in compare_metadata(a, b):
        if item.cause in (Cause.REGISTERS, Cause.STACK):
            continue
        if str(item).lstrip(": ").startswith("amdhsa.target") and _processor(a.target) == _processor(b.target):
            continue
        found.append(str(item))
    return found


def _processor(target: str) -> str:
    match = re.search(r"gfx[0-9a-f].*$", target)
    return match[0] if match else target


def summary(rows: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Counts for each target and kernel."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(f"{row['target']} {row['kernel']}", []).append(row)
    return {name: _counts(group) for name, group in sorted(groups.items())}


def _counts(rows: list[dict[str, Any]]) -> dict[str, Any]:
    proved = [row for row in rows if row["kind"] == "proved"]
    phases = Counter(f"{phase} {who}" for row in proved for phase, who in row["phases"].items())
    fallbacks = Counter(_general(reason) for row in proved for reason in row["fallbacks"].values())
    through = Counter(f"{row['kind']}: {_general(row['reason'])}" for row in rows if row["kind"] != "proved")
    ratios = sorted(row["time_ratio"] for row in rows if "time_ratio" in row)
    return {
        "configurations": len(rows),
        "proved": len(proved),
        "proved_all_ours": sum(not row["fallbacks"] for row in proved),
        "phases": dict(sorted(phases.items())),
        "fallbacks": dict(fallbacks.most_common()),
        "passed_through": dict(through.most_common()),
        "metadata_equal": sum(not row["differences"] for row in proved),
        "vgprs": {
            "ours": sum(row["ours"]["vgprs"] for row in proved),
            "greedy": sum(row["greedy"]["vgprs"] for row in proved),
            "triton": sum(row["triton"]["vgpr_count"] for row in proved),
        },
        "vgpr_spills": {
            "ours": sum(row["ours"]["vgpr_spills"] for row in proved),
            "greedy": sum(row["greedy"]["vgpr_spills"] for row in proved),
            "triton": sum(row["triton"]["vgpr_spill_count"] for row in proved),
        },
        "time_ratio_median": ratios[len(ratios) // 2] if ratios else None,
    }


def _general(reason: str) -> str:
    """A reason without the numbers and registers of one kernel."""
    first = reason.split("\n", 1)[0]
    first = re.sub(r"^[\w.]+, (SGPR|WWM|VGPR): ", r"\1: ", first)
    first = re.sub(r"%\d+(?:\.[\w]+)*|bb\.\d+[\w.-]*", "…", first)
    return re.sub(r"\d+", "N", first)[:200]


def main() -> int:
    parser = options(__doc__, "triton_hook.json", jobs=1)
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--only", default="", help="kernels whose variant name contains this")
    given = parser.parse_args()
    # With asynchronous copies gfx950's IR has intrinsics that LLVM 22 does not know; docs/guide/triton.md.
    os.environ.setdefault("TRITON_HIP_USE_ASYNC_COPY", "0")
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    os.environ["TRITON_ALWAYS_COMPILE"] = "1"
    try:
        toolchain = find_toolchain()
    except VeriloccError as error:
        print(f"error: {error}", file=sys.stderr)
        return int(error.exit_code)
    triton, _, kernels = _modules()
    versions = cache_key(Settings(), toolchain, (), Replace.ALWAYS)
    names = [variant.name for variant in kernels.variants()]
    jobs = [(i, t) for t in given.targets.split(",") for i, name in enumerate(names) if given.only in name]
    log = Log(given.out.with_suffix(".jsonl"))
    rows = _kept(log, versions)
    todo = [(i, t) for i, t in jobs if (names[i], t) not in rows]
    print(f"{len(jobs)} kernels, {len(jobs) - len(todo)} of them done before")
    # Every worker is a fresh interpreter: Triton's state and the hook are per process.
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as pool:
        running = {pool.submit(measure, *job): job for job in todo}
        for count, future in enumerate(as_completed(running), 1):
            row = future.result()
            rows[row["variant"], row["target"]] = row
            log.add({"versions": versions, **row})
            print(
                f"[{count}/{len(todo)}] {row['target']} {row['variant']}: {row['kind']} {row['reason'][:100]}",
                flush=True,
            )
    wanted = [rows[names[i], t] for i, t in jobs]
    counts = summary(wanted)
    write(given.out, {"triton": triton.__version__, "versions": versions, "summary": counts, "rows": wanted})
    log.path.unlink(missing_ok=True)
    for name, group in counts.items():
        print(
            f"{name}: {group['proved']}/{group['configurations']} proved, {group['proved_all_ours']} all ours, "
            f"metadata equal {group['metadata_equal']}/{group['proved']}, VGPRs {group['vgprs']}, "
            f"through: {group['passed_through']}"
        )
    return 0


def _kept(log: Log, versions: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Rows of an interrupted run with the same code."""
    return {(row["variant"], row["target"]): row for row in log.rows() if row.pop("versions") == versions}


if __name__ == "__main__":
    raise SystemExit(main())
