"""The register allocation in Triton's own code objects, from the folder where Triton keeps them.

Triton keeps each kernel's LLVM IR (``.llir``), its options (``.json``) and its assembly (``.amdgcn``). The library
that made the assembly compiles the IR again here and prints the text before and after each phase (``codegen``). What is
audited counts for the kernel in the folder only if the library makes the same instructions again. Code that our hook
made is made again by our pipeline instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from verilocc_mlir.errors import InputError, UnsupportedError
from verilocc_mlir.hooks.triton.codegen import compiled, version
from verilocc_mlir.hooks.triton.ir import as_code_generated
from verilocc_mlir.mir.stages import stop_before
from verilocc_mlir.pipeline.compile import compile_module
from verilocc_mlir.pipeline.native import PHASES, NativeKernel, named, native_phases
from verilocc_mlir.pipeline.settings import Emit, Settings
from verilocc_mlir.results.audit import Listing
from verilocc_mlir.toolchain.choose import with_own_llvm

_COMMENT = re.compile(r";.*")


@dataclass(frozen=True)
class CachedKernel:
    """One kernel of Triton's cache.

    Attributes:
        stem: its files' path without their suffixes.
        cpu: the processor it was compiled for.
        fp_fusion: whether multiplications and additions may be contracted.
        ours: our hook put its own code in the place of Triton's, by the record that Triton keeps of it.
    """

    stem: Path
    cpu: str
    fp_fusion: bool
    ours: bool = False

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
    record: Any = data.get("verilocc")
    ours = isinstance(record, dict) and cast("dict[str, Any]", record).get("kind") == "proved"
    return CachedKernel(path.with_suffix(""), str(cpu), cast("bool", fp_fusion), ours)


def triton_kernels(
    kernels: tuple[CachedKernel, ...], settings: Settings, *, progress: Callable[[str], None] = lambda _: None
) -> Iterator[NativeKernel]:
    """Each kernel as Triton's compiler allocates it.

    Raises:
        InputError: a kernel cannot be read. ToolchainError: there is no Triton, or its compiler failed.
    """
    for cached in kernels:
        progress(f"{cached.stem} ({cached.cpu})")
        ir, code = cached.text(".llir"), cached.text(".amdgcn")
        make = our_kernel if cached.ours else triton_kernel
        made = make(cached.stem.name, ir, code, cached.cpu, settings, fp_fusion=cached.fp_fusion)
        yield replace(made, source=Listing(f"{cached.stem}.llir", ir))


def triton_kernel(name: str, ir: str, assembly: str, cpu: str, settings: Settings, *, fp_fusion: bool) -> NativeKernel:
    """A kernel as Triton's compiler allocates it.

    Args:
        ir: its LLVM IR as Triton has it before its ``amdgcn`` stage.
        assembly: what Triton made of it.
        fp_fusion: whether multiplications and additions may be contracted.

    Raises:
        ToolchainError: there is no such compiler, or it failed.
    """
    compiler = version()

    def text(*options: str) -> str:
        return compiled(ir, cpu, options, fp_fusion=fp_fusion, seconds=settings.tool_seconds, where=f"{name}.llir")

    phases = native_phases(
        name,
        lambda phase: text(stop_before(PHASES[phase])),
        lambda phase: text(f"-stop-after=virtregrewriter,{PHASES[phase].value}"),
    )
    again, kept = instructions(text()), instructions(assembly)
    unlike = "" if again == kept else _difference(again, kept)
    return NativeKernel(name, cpu, compiler, "greedy", phases, unlike=unlike)


def our_kernel(name: str, ir: str, assembly: str, cpu: str, settings: Settings, *, fp_fusion: bool) -> NativeKernel:
    """A kernel whose code our hook made: it is made again, and audited in one from before allocation to behind it.

    What is made again is what ``settings`` come to. Where the hook had other options, the code may be another.

    Raises:
        UnsupportedError, ToolchainError: it cannot be made again.
    """
    chosen = replace(
        settings,
        cpu=cpu,
        emit=Emit.ASM,
        also=(Emit.MIR,),
        toolchain=with_own_llvm(settings.toolchain, settings.llvm),
    )
    done = compile_module(as_code_generated(ir, fp_fusion=fp_fusion).encode(), name, chosen)
    if done.data is None or Emit.MIR not in done.also:
        raise UnsupportedError("our hook made this code, and here nothing is proved of its IR", where=name)
    sides = named(name, "all", done.before, done.also[Emit.MIR].decode())
    again, kept = instructions(done.data.decode()), instructions(assembly)
    unlike = "" if again == kept else f"our hook made this code with other options: {_difference(again, kept)}"
    compiler = f"verilocc {done.report.version}, {done.report.llvm}"
    return NativeKernel(name, cpu, compiler, "greedy", (sides,), unlike=unlike)


def instructions(assembly: str) -> list[str]:
    """Labels and instructions of assembly text, comments, directives and blanks left out."""
    lines = (" ".join(_COMMENT.sub("", line).split()) for line in assembly.splitlines())
    return [line for line in lines if line and (not line.startswith(".") or line.endswith(":"))]


def _difference(again: list[str], kept: list[str]) -> str:
    unequal = sum(a != b for a, b in zip(again, kept, strict=False)) + abs(len(again) - len(kept))
    return (
        f"what was audited is not the code that Triton has: of its IR Triton's compiler makes {len(again)} lines of "
        f"assembly, the code has {len(kept)}, and {unequal} differ (made by another Triton, a hook or an override)"
    )
