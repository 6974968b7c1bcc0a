"""The inputs of a hunt: files, folders, caches of Triton's, and what IREE makes of a module."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from verilocc_mlir.errors import InputError

if TYPE_CHECKING:
    from verilocc_mlir.pipeline.hunt.run import HuntInput


def hunted(paths: Sequence[Path], cpu: str, out: Path) -> tuple[HuntInput, ...]:
    """Every input in ``paths``.

    Raises:
        InputError: there is none. ToolchainError: there is no compiler for a module.
    """
    from verilocc_mlir.pipeline.hunt.run import HuntInput, inputs_in

    modules = [path for path in paths if path.suffix in (".mlir", ".mlirbc")]
    of_modules = tuple(HuntInput(path, cpu) for module in modules for path in _dispatches(module, cpu, out))
    others = [path for path in paths if path not in modules]
    inputs = of_modules + (inputs_in(others, cpu, out) if others else ())
    if not any(given.path.suffix == ".llir" for given in inputs):
        return inputs
    from verilocc_mlir.hooks.triton.native import cached_kernels

    cached = {
        Path(f"{kernel.stem}.llir"): kernel.cpu
        for path in others
        for kernel in cached_kernels(path if path.is_dir() else path.parent)
    }
    known = (HuntInput(i.path, cached.get(i.path, cpu)) for i in inputs if i.path.suffix != ".llir" or i.path in cached)
    return tuple(given for given in known if not cpu or given.cpu == cpu)


def _dispatches(module: Path, cpu: str, out: Path) -> Sequence[Path]:
    from verilocc_mlir.hooks.iree_compiler import find_iree_compile
    from verilocc_mlir.hooks.iree_native import iree_sources

    if not module.is_file():
        raise InputError("no such file", where=str(module))
    if not cpu:
        raise click.UsageError("a module needs its target: -mcpu=gfx942")
    return iree_sources(module, cpu, find_iree_compile(), out / "inputs" / module.stem)
