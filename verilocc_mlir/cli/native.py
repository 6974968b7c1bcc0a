"""``verilocc audit --native``: which compiler a path belongs to, and what that compiler prints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from verilocc_mlir.errors import InputError

if TYPE_CHECKING:
    from verilocc_mlir.pipeline.native import NativeKernel
    from verilocc_mlir.pipeline.settings import Settings


def native_kernels(
    path: str, settings: Settings, flags: Sequence[str], *, progress: Callable[[str], None]
) -> Sequence[NativeKernel]:
    """Every kernel of ``path``, with what its compiler prints before and after each phase.

    Raises:
        InputError: it is none of what a compiler here takes. ToolchainError: the compiler is missing or failed.
    """
    source = Path(path)
    if source.suffix in (".mlir", ".mlirbc"):
        from verilocc_mlir.hooks.iree_compiler import find_iree_compile
        from verilocc_mlir.hooks.iree_native import iree_kernels

        if not source.is_file():
            raise InputError("no such file", where=path)
        if not settings.cpu:
            raise click.UsageError("a module needs its target: -mcpu=gfx942")
        return iree_kernels(source, settings.cpu, find_iree_compile(), flags=flags, progress=progress)
    if flags:
        raise click.UsageError("flags after -- are for iree-compile: they go with a .mlir file")
    if source.is_dir():
        return _of_triton(source, settings, progress)
    from verilocc_mlir.pipeline.native import llc_kernel

    try:
        return [llc_kernel(source.read_bytes(), path, settings)]
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=path) from error


def _of_triton(folder: Path, settings: Settings, progress: Callable[[str], None]) -> Sequence[NativeKernel]:
    from verilocc_mlir.hooks.triton.native import cached_kernels, triton_kernels

    kernels = cached_kernels(folder)
    processors = sorted({kernel.cpu for kernel in kernels})
    if not settings.cpu and len(processors) > 1:
        raise click.UsageError(f"{folder} has kernels for {', '.join(processors)}: choose with -mcpu")
    chosen = tuple(kernel for kernel in kernels if kernel.cpu == (settings.cpu or processors[0]))
    if not chosen:
        raise InputError(f"its kernels are for {', '.join(processors)}, not for {settings.cpu}", where=str(folder))
    return tuple(triton_kernels(chosen, settings, progress=progress))
