"""The inputs of a hunt: files, folders, caches of Triton's, and what IREE makes of a module."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verilocc_mlir.pipeline.hunt.run import HuntInput


def hunted(paths: Sequence[Path], cpu: str, out: Path) -> tuple[HuntInput, ...]:
    """Every input in ``paths``.

    Raises:
        InputError: there is none. ToolchainError: there is no compiler for a module.
    """
    from verilocc_mlir.pipeline.hunt.run import HuntInput, inputs_in

    inputs = inputs_in(paths, cpu, out)
    if not any(given.path.suffix == ".llir" for given in inputs):
        return inputs
    from verilocc_mlir.hooks.triton.native import cached_kernels

    cached = {
        Path(f"{kernel.stem}.llir"): kernel.cpu
        for path in paths
        for kernel in cached_kernels(path if path.is_dir() else path.parent)
    }
    known = (HuntInput(i.path, cached.get(i.path, cpu)) for i in inputs if i.path.suffix != ".llir" or i.path in cached)
    return tuple(given for given in known if not cpu or given.cpu == cpu)
