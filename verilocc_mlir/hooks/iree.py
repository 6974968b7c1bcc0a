"""IREE: compile an MLIR module to a .vmfb whose GPU kernels carry proved register assignments.

iree-compile runs twice. The first run leaves the LLVM IR of each dispatch (``iree_dump``); each is compiled and proved
(``kernels``); the second run takes the proved code objects in place of its own. A kernel that is not proved stays as
IREE made it, with the reason. In the end every code object in the file is accounted for, byte for byte (``vmfb``).

    from verilocc_mlir.hooks.iree import compile_mlir
    result = compile_mlir(Path("model.mlir"), target="gfx942")
    Path("model.vmfb").write_bytes(result.vmfb)
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from verilocc_mlir.errors import InputError, ToolchainError
from verilocc_mlir.hooks.iree_compiler import IreeCompiler, find_iree_compile
from verilocc_mlir.hooks.iree_dump import Dispatch, dump_flags, read_dispatches
from verilocc_mlir.hooks.iree_result import IreeKernel, IreeResult
from verilocc_mlir.hooks.kernels import KernelResult, compile_kernels
from verilocc_mlir.hooks.vmfb import accounted
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.toolchain.descriptor import Cause
from verilocc_mlir.toolchain.find import Toolchain, find_toolchain
from verilocc_mlir.toolchain.metadata import compare_metadata, read_code_object

OURS = (
    "-o",
    "--o",
    "--output-format",
    "--compile-to",
    "--compile-from",
    "--iree-hal-link-executables",
    "--iree-hal-dump-executable",
    "--iree-hal-substitute-executable",
    "--iree-rocm-use-spirv",
    "--iree-rocm-target",
)
"""iree-compile's flags that this module sets itself, or that leave nothing to allocate."""

_TARGET_FLAGS = ("--iree-rocm-target-features",)
"""Flags that only begin like one of those."""

_RUN_BY_RUN = frozenset({"amdhsa.target"})
"""Spelt differently by different LLVMs: ``amdgcn-amd-amdhsa--gfx942``, ``amdgpu9.42-amd-amdhsa-unknown-gfx942``."""


@dataclass(frozen=True)
class _Run:
    """One compilation: its tools, its source and its directory."""

    iree: IreeCompiler
    llvm: Toolchain
    source: Path
    shown_as: str
    flags: tuple[str, ...]
    directory: Path


def compile_mlir(
    source: Path | str | bytes,
    *,
    target: str,
    flags: Sequence[str] = (),
    settings: Settings | None = None,
    jobs: int = 0,
    iree: IreeCompiler | None = None,
    name: str = "",
    progress: Callable[[str], None] = lambda _: None,
) -> IreeResult:
    """Compile an MLIR module for one AMD GPU through IREE, with proved register assignments.

    Args:
        source: a file, or the module itself: its text, or its bytes (text or MLIR bytecode).
        target: as ``--iree-rocm-target`` takes it: ``"gfx942"``, or a name IREE knows, ``"mi300x"``.
        flags: further flags of iree-compile, for example ``--iree-input-type=torch``.
        settings: how each kernel is allocated and proved; processor, features, level and form come from IREE.
        jobs: kernels at once; 0 for one a core.
        name: what messages call the source.
        progress: gets a line for each step.

    Raises:
        InputError: IREE rejects the module or a flag. ToolchainError: a tool is missing, failed, or did not put into
            the file what it was given.
    """
    for flag in flags:
        if flag.startswith(OURS) and not flag.startswith(_TARGET_FLAGS):
            raise InputError(f"{flag.partition('=')[0]} is set by verilocc itself", hint="leave it out")
    started = time.monotonic()
    settings = settings or Settings()
    llvm = find_toolchain(settings.llvm)
    iree = iree or find_iree_compile()
    with tempfile.TemporaryDirectory(prefix="verilocc-") as temporary:
        directory = Path(temporary)
        path = source if isinstance(source, Path) else directory / "module.mlir"
        if isinstance(source, str):
            path.write_text(source)
        elif isinstance(source, bytes):
            path.write_bytes(source)
        elif not source.is_file():
            raise InputError("no such file", where=str(source))
        shown_as = name or (str(source) if isinstance(source, Path) else "module")
        base = ("--iree-hal-target-device=hip", f"--iree-rocm-target={target}", *flags)
        run = _Run(iree, llvm, path, shown_as, base, directory)
        vmfb, kernels = _compile(run, settings, jobs, progress)
    return IreeResult(
        target=target,
        input=shown_as,
        vmfb=vmfb,
        kernels=kernels,
        iree=iree.version(),
        llvm=llvm.version_text,
        flags=tuple(flags),
        wall_seconds=time.monotonic() - started,
    )


def _compile(
    run: _Run, settings: Settings, jobs: int, progress: Callable[[str], None]
) -> tuple[bytes, tuple[IreeKernel, ...]]:
    dump, first = run.directory / "dump", run.directory / "first.vmfb"
    progress(f"iree-compile {run.shown_as}")
    run.iree.run(run.source, first, [*run.flags, *dump_flags(dump)], stage="dump", shown_as=run.shown_as)
    dispatches = read_dispatches(dump, run.llvm.version[0])
    _refuse_repeated(dispatches, run.shown_as)
    work = run.directory / "kernels"
    work.mkdir()
    sources = [d.source for d in dispatches if d.source is not None]
    done = 0

    def report(result: KernelResult) -> None:
        nonlocal done
        done += 1
        progress(f"[{done}/{len(sources)}] {result.name}: {result.reason or 'proved'}")

    found = compile_kernels(sources, settings, work, jobs=jobs, progress=report)
    results = {result.name: result for result in found}
    kernels = tuple(_kernel(d, results.get(d.executable)) for d in dispatches)
    proved = [k for k in kernels if k.proved]
    if proved:
        progress(f"iree-compile {run.shown_as} with {len(proved)} proved code objects")
        vmfb = _substitute(run, proved)
    else:
        vmfb = first.read_bytes()
    faults = accounted(vmfb, {k.executable: k.code_object for k in kernels})
    if faults:
        raise ToolchainError(
            f"iree-compile did not put the code objects into the file as they are: {'; '.join(faults)}",
            where=run.shown_as,
            hint="report this, with the module and IREE's version",
        )
    return vmfb, kernels


def _refuse_repeated(dispatches: Sequence[Dispatch], where: str) -> None:
    """Objects are substituted by executable, so that there must be one variant of each."""
    names = [d.executable for d in dispatches]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InputError(
            f"{repeated[0]} is compiled for several targets",
            where=where,
            hint="give one target, and no hal.device.targets in the module",
        )


def _kernel(dispatch: Dispatch, result: KernelResult | None) -> IreeKernel:
    """The dispatch with our code object if it is proved and looks to IREE's runtime as its own does."""
    if result is None:
        return IreeKernel(dispatch.executable, False, dispatch.reason, dispatch.own, dispatch.own, {}, "", "")
    reason = result.reason
    ours = result.code_object
    if ours is not None:
        differences = interface_differences(ours, dispatch.own)
        if differences:
            reason, ours = f"IREE's runtime would see another kernel: {'; '.join(differences)}", None
    return IreeKernel(
        executable=dispatch.executable,
        proved=ours is not None,
        reason=reason,
        code_object=dispatch.own if ours is None else ours,
        own=dispatch.own,
        report=result.report,
        before=result.before,
        after=result.after,
    )


def interface_differences(ours: bytes, own: bytes) -> list[str]:
    """In what our code object differs from IREE's own where the runtime looks: kernels, arguments, LDS, work-groups.

    Register counts, spills and scratch sizes may differ: the runtime reads them from the object it loads.
    """
    return [
        str(difference)
        for difference in compare_metadata(read_code_object(ours), read_code_object(own))
        if difference.cause is Cause.UNEXPLAINED and difference.field not in _RUN_BY_RUN
    ]


def _substitute(run: _Run, kernels: Sequence[IreeKernel]) -> bytes:
    objects, second = run.directory / "objects", run.directory / "second.vmfb"
    objects.mkdir()
    flags = [*run.flags, "--iree-hal-link-executables=false", f"--iree-hal-executable-object-search-path={objects}"]
    for number, kernel in enumerate(kernels):
        # Names of executables may hold any character; those of the files hold none that a flag could trip over.
        (objects / f"{number}.hsaco").write_bytes(kernel.code_object)
        flags.append(f"--iree-hal-substitute-executable-object={kernel.executable}={number}.hsaco")
    run.iree.run(run.source, second, flags, stage="substitute", shown_as=run.shown_as)
    return second.read_bytes()
