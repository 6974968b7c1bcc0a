"""The register allocation in Triton's own code objects, from the folder where Triton keeps them.

Triton keeps each kernel's LLVM IR (``.llir``), its options (``.json``) and its assembly (``.amdgcn``). The LLVM inside
``libtriton`` compiles the IR again here and prints the text before and after each phase. Triton 3.9 compiles with
another library, ``libtriton_amd_codegen``, which cannot be stopped between passes. So the assembly of both is compared:
what is audited counts for the kernel in the folder only if every instruction is the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from verilocc_mlir.errors import InputError
from verilocc_mlir.pipeline.native import NativeKernel, direct_kernel
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.results.audit import Listing
from verilocc_mlir.toolchain.choice import ToolchainChoice
from verilocc_mlir.toolchain.choose import choose_tools
from verilocc_mlir.toolchain.drivers.job import CompileOptions
from verilocc_mlir.toolchain.staged import StagedCompiler

_COMMENT = re.compile(r";.*")


@dataclass(frozen=True)
class CachedKernel:
    """One kernel of Triton's cache.

    Attributes:
        stem: its files' path without their suffixes.
        cpu: the processor it was compiled for.
        fp_fusion: whether multiplications and additions may be contracted.
    """

    stem: Path
    cpu: str
    fp_fusion: bool

    def text(self, suffix: str) -> str:
        """One of its files.

        Raises:
            InputError: it cannot be read.
        """
        path = Path(f"{self.stem}{suffix}")
        try:
            return path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"cannot be read: {error}", where=str(path)) from error


def cached_kernels(folder: Path) -> tuple[CachedKernel, ...]:
    """The kernels for AMD GPUs in a cache folder of Triton, or in one kernel's folder, by path.

    Raises:
        InputError: there is none, or a kernel's files do not belong together.
    """
    kernels = [kernel for path in sorted(folder.rglob("*.llir")) if (kernel := _cached(path)) is not None]
    if not kernels:
        raise InputError(
            "no kernel of Triton's for an AMD GPU in it", where=str(folder), hint="Triton keeps them in ~/.triton/cache"
        )
    return tuple(kernels)


def _cached(path: Path) -> CachedKernel | None:
    """The kernel that an ``.llir`` belongs to; None where it is for another maker's GPU."""
    options = path.with_suffix(".json")
    try:
        data: Any = json.loads(options.read_text("utf-8"))
        backend, cpu, fp_fusion = data["target"]["backend"], data["target"]["arch"], data["enable_fp_fusion"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"not a kernel's options as Triton writes them: {error}", where=str(options)) from error
    if backend != "hip":
        return None
    return CachedKernel(path.with_suffix(""), str(cpu), cast("bool", fp_fusion))


def triton_kernels(
    kernels: tuple[CachedKernel, ...], settings: Settings, *, progress: Callable[[str], None] = lambda _: None
) -> Iterator[NativeKernel]:
    """Each kernel as the LLVM inside libtriton allocates it.

    Raises:
        InputError: a kernel cannot be read, or is rejected. ToolchainError: there is no Triton, or its LLVM failed.
    """
    tools = choose_tools(ToolchainChoice.TRITON)
    for cached in kernels:
        progress(f"{cached.stem} ({cached.cpu})")
        ir = cached.text(".llir")
        extra = ("-fp-contract=fast",) if cached.fp_fusion else ()
        options = CompileOptions(cached.cpu, timeout=settings.tool_seconds, extra=extra, input_name=str(cached.stem))
        compiler = StagedCompiler(tools, options)
        kernel = direct_kernel(compiler, Listing(f"{cached.stem}.llir", ir), ir, cached.stem.name)
        ours, theirs = instructions(compiler.direct(ir, "asm").decode()), instructions(cached.text(".amdgcn"))
        yield kernel if ours == theirs else replace(kernel, unlike=_difference(ours, theirs))


def instructions(assembly: str) -> list[str]:
    """Labels and instructions of assembly text, comments, directives and blanks left out."""
    lines = (" ".join(_COMMENT.sub("", line).split()) for line in assembly.splitlines())
    return [line for line in lines if line and (not line.startswith(".") or line.endswith(":"))]


def _difference(ours: list[str], theirs: list[str]) -> str:
    unequal = sum(a != b for a, b in zip(ours, theirs, strict=False)) + abs(len(ours) - len(theirs))
    return (
        f"what was audited is not the code in the folder: libtriton's LLVM makes {len(ours)} lines of assembly, the "
        f"folder has {len(theirs)}, and {unequal} differ (Triton compiles with another LLVM, or a hook replaced it)"
    )
