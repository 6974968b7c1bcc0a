"""The measured kernels of ``hardware.py``: where their sources and times are, how they are compiled and launched.

They are two kernels of Kernel Tuner's benchmark hub (AutoTuningAssociation/benchmark_hub, MIT licence), a convolution
and a dedispersion, whose whole search spaces were measured on MI250X (gfx90a) and W7800 (gfx1100), each configuration
32 times. The convolution that was measured on MI250X is that of MiloLurati/AutoTuning_AMD_vs_Nvidia_GPUs. Nothing of
either repository is part of this project.
"""

from __future__ import annotations

import gzip
import json
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from common import Row

from verilocc_mlir.cost.model import KernelCost
from verilocc_mlir.cost.trips import IrLoop

Parameters = Mapping[str, int]

SHIM = Path(__file__).resolve().parent / "hardware_shim"
"""A stand-in for HIP's header: what the two kernels use."""
UNROLL = "-pragma-unroll-threshold=12000"
"""For the convolution on MI250X with LDS: by the measured times ROCm's compiler unrolled its 3 by 3 tiles wholly and
its 3 by 4 ones in part. Without LDS it unrolled both wholly, as LLVM 14 does by itself.
"""


@dataclass(frozen=True)
class Gpu:
    """A GPU that was measured."""

    arch: str
    target_id: str
    attributes: str
    wave: int


GPUS = {
    "MI250X": Gpu("gfx90a", "gfx90a:sramecc+:xnack-", "+sramecc,-xnack", 64),
    "W7800": Gpu("gfx1100", "gfx1100", "", 32),
}
ENTRIES = {"convolution": "_Z18convolution_kernelPfS_S_", "dedispersion": "dedispersion_kernel"}


@dataclass(frozen=True)
class Places:
    """Checkouts of the two repositories; the second is only needed for the convolution on MI250X."""

    hub: Path
    tuning: Path | None

    def source(self, kernel: str, gpu: str) -> Path | None:
        if kernel == "dedispersion":
            return self.hub / "kernels" / "dedisp_milo" / "dedispersion.cu.hip"
        if gpu == "MI250X":
            return self.tuning and self.tuning / "cache_scripts" / "convolution" / "convolution.cu.hip"
        return self.hub / "kernels" / "convolution_milo.cu.hip"

    @lru_cache  # noqa: B019 - there is one for the whole run
    def measured(self, kernel: str, gpu: str) -> dict[str, Row]:
        """Parameters and median time in ms of each configuration that ran, by its key."""
        path = self.hub / "cachefiles" / f"{kernel}_milo" / f"{gpu}.json.gz"
        data: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
        names: list[str] = data["tune_params_keys"]
        return {
            key: {"params": {name: row[name] for name in names}, "ms": statistics.median(row["times"])}
            for key, row in data["cache"].items()
            if not isinstance(row["time"], str)
        }


def compiled(kernel: str, gpu: str, params: Parameters, source: Path, llvm: Path) -> tuple[str, str]:
    """LLVM IR and assembly.

    Raises:
        subprocess.CalledProcessError: clang or llc fails.
    """
    device, text = GPUS[gpu], source.read_text()
    # Kernel Tuner leaves out the pragmas of loops that are not unrolled.
    text = "".join(line for line in text.splitlines(keepends=True) if "pragma unroll loop_unroll" not in line)
    defines = [
        f"-D{name}={value}" for name, value in {"block_size_z": 1, **params}.items() if "loop_unroll" not in name
    ]
    unroll = ["-mllvm", UNROLL] if kernel == "convolution" and gpu == "MI250X" and params["use_shmem"] else []
    clang = [
        llvm / "clang", "-x", "hip", "--cuda-device-only", f"--offload-arch={device.target_id}", *unroll, "-nogpulib",
        "-nogpuinc", "-O3", "-std=c++17", f"-I{SHIM}", f"-I{source.parent}", "-w", *defines, "-S", "-emit-llvm", "-",
        "-o", "-",
    ]  # fmt: skip
    ir = _run(clang, text)
    attributes = [f"-mattr={device.attributes}"] if device.attributes else []
    return ir, _run([llvm / "llc", "-O3", f"-mcpu={device.arch}", *attributes, "-o", "-"], ir)


def _run(command: Sequence[str | Path], text: str) -> str:
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=600, check=True).stdout


def launch(kernel: str, gpu: str, params: Parameters) -> Row:
    """Work-groups of the launch that do something, and waves of each."""
    x, y = params["block_size_x"], params["block_size_y"]
    width, height = (4096, 4096) if kernel == "convolution" else (25000, 2048)
    groups = -(-width // (x * params["tile_size_x"])) * -(-height // (y * params["tile_size_y"]))
    each = -(-x * y // GPUS[gpu].wave)
    return {"groups": groups, "waves": groups * each}


def active_share(kernel: str, gpu: str, params: Parameters) -> float:
    """Share of the pairs of a wave and a tile with a lane inside the problem; dedispersion skips the others."""
    if kernel != "dedispersion":
        return 1.0
    x, y, wave = params["block_size_x"], params["block_size_y"], GPUS[gpu].wave
    starts = [range(first, min(first + wave, x * y)) for first in range(0, x * y, wave)]
    across = [min(k % x for k in lanes) for lanes in starts]
    down = [min(k // x for k in lanes) for lanes in starts]
    share = 1.0
    for size, block, axis, low in ((25000, x, "x", across), (2048, y, "y", down)):
        tile, stride = params[f"tile_size_{axis}"], params[f"tile_stride_{axis}"]
        step, thread = (block, 1) if stride else (1, tile)
        groups = -(-size // (block * tile))
        hits = total = 0
        for group in {0, groups - 2, groups - 1} & set(range(groups)):
            weight = groups - 2 if group == 0 and groups > 2 else 1
            for first in low:
                for t in range(tile):
                    total += weight
                    hits += weight * (group * block * tile + first * thread + t * step < size)
        share *= hits / total
    return share


def loops(kernel: str, params: Parameters, cost: KernelCost) -> tuple[IrLoop, ...]:
    """The loops with their mean trips: those that load the convolution's tile run by the work-item, which no compiler
    can know.
    """
    unknown = sorted({loop.depth for loop in cost.loops if loop.source == "default"})
    x, y = params["block_size_x"], params["block_size_y"]
    rows = max(1, round((y * params["tile_size_y"] + 14) / y))
    columns = max(1, -(-(x * params["tile_size_x"] + 14) // x))
    return tuple(
        IrLoop(
            "",
            loop.depth,
            loop.trips
            if loop.source != "default" or kernel != "convolution"
            else columns
            if len(unknown) > 1 and loop.depth != unknown[0]
            else rows,
        )
        for loop in cost.loops
    )
