"""IREE: compile an MLIR module to a .vmfb whose GPU kernels carry proved register assignments.

iree-compile runs three times, each part of the work once: up to the kernels with how each is to be tiled; from there to
the module, leaving the LLVM IR of each dispatch (``iree_compiler``), which is compiled and proved (``kernels``); and
from the kernels again, with a code object for each of them: ours, or IREE's own. A kernel that is not proved stays as
IREE made it, with the reason, and so does one that is worse than IREE's by the model (``baseline``). What stays is
proved as it is: IREE's own allocation is audited (``iree_compiler``). In the end every code object in the file is
accounted for, byte for byte (``iree_cache``).

    from verilocc_mlir.hooks.iree import compile_mlir
    result = compile_mlir(Path("model.mlir"), target="gfx942")
    Path("model.vmfb").write_bytes(result.vmfb)
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import structs

from verilocc_mlir.errors import InputError, ToolchainError, UnsupportedError, VeriloccError
from verilocc_mlir.hooks.baseline import DEFAULT_REPLACE, Code, Comparison, Replace, compare_code
from verilocc_mlir.hooks.iree_compiler import (
    CONFIGURED,
    FROM_CONFIGURED,
    LINK,
    Dispatch,
    IreeCompiler,
    check_target,
    dump_flags,
    find_iree_compile,
    read_dispatches,
    stopped_kernels,
)
from verilocc_mlir.hooks.iree_measured import MeasuredKernels
from verilocc_mlir.hooks.iree_result import IreeKernel, IreeResult, KeptModules, Spent, accounted
from verilocc_mlir.hooks.kernels import (
    KernelResult,
    Kernels,
    KernelSource,
    NativeVerdict,
    native_verdict,
    not_audited,
)
from verilocc_mlir.pipeline.checked_settings import check_settings
from verilocc_mlir.pipeline.native import NativeKernel
from verilocc_mlir.pipeline.options import member, with_options
from verilocc_mlir.pipeline.settings import REQUIRED, REQUIRED_HINT, Settings
from verilocc_mlir.store import Store, default_directory
from verilocc_mlir.toolchain import ToolchainChoice
from verilocc_mlir.toolchain.choose import with_own_llvm
from verilocc_mlir.toolchain.descriptor import Cause, compare_metadata, read_code_object
from verilocc_mlir.toolchain.find import Toolchain

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


@dataclass
class _Run:
    """One compilation: its tools, its source and its directory."""

    iree: IreeCompiler
    kernels: Kernels
    replace: Replace
    source: Path
    shown_as: str
    flags: tuple[str, ...]
    directory: Path
    measured: MeasuredKernels | None = None
    iree_seconds: float = 0.0

    def iree_compile(self, source: Path, output: Path, flags: Sequence[str], stage: str) -> None:
        run = self.iree.run(source, output, [*self.flags, *flags], stage=stage, shown_as=self.shown_as)
        self.iree_seconds += run.cpu_seconds


def compile_mlir(
    source: Path | str | bytes,
    *,
    target: str,
    flags: Sequence[str] = (),
    settings: Settings | None = None,
    jobs: int = 0,
    replace: Replace | str = DEFAULT_REPLACE,
    cache: Path | bool = True,
    iree: IreeCompiler | None = None,
    name: str = "",
    progress: Callable[[str], None] = lambda _: None,
    **options: Any,
) -> IreeResult:
    """Compile an MLIR module for one AMD GPU through IREE, with proved register assignments.

    Args:
        source: a file, or the module itself: its text, or its bytes (text or MLIR bytecode).
        target: as ``--iree-rocm-target`` takes it: ``"gfx942"``, or a name IREE knows, ``"mi300x"``.
        flags: further flags of iree-compile, for example ``--iree-input-type=torch``.
        settings: how each kernel is allocated and proved; processor, features, level and form come from IREE.
        jobs: kernels at once; 0 for one a core.
        replace: which of IREE's kernels ours replace: ``"always"``, ``"better"`` (where ours is no worse),
            ``"measured"`` (where it was not measured slower) or ``"never"``.
        cache: where results are kept by content; True for the user's cache directory, False for nowhere.
        name: what messages call the source.
        options: of ``pipeline.options``, by name: they go before ``settings``.

    Raises:
        InputError: IREE rejects the module, a flag or an option. ToolchainError: a tool is missing, failed, or did not
            put into the file what it was given.
    """
    for flag in flags:
        if flag.startswith(OURS) and not flag.startswith(_TARGET_FLAGS):
            raise InputError(f"{flag.partition('=')[0]} is set by verilocc itself", hint="leave it out")
    spent = Spent.begin()
    chosen = with_options(settings, options)
    check_settings(chosen)
    policy = member(Replace, replace, "replace")
    iree = iree or find_iree_compile()
    kernels = Kernels(chosen, store_of(cache), jobs=jobs)
    with tempfile.TemporaryDirectory(prefix="verilocc-") as temporary:
        directory = Path(temporary)
        path = source if isinstance(source, Path) else directory / "module.mlir"
        if isinstance(source, str):
            path.write_text(source)
        elif isinstance(source, bytes):
            path.write_bytes(source)
        elif not source.is_file():
            raise InputError("is a directory" if source.is_dir() else "no such file", where=str(source))
        shown_as = name or (str(source) if isinstance(source, Path) else "module")
        base = ("--iree-hal-target-device=hip", f"--iree-rocm-target={target}", *flags)
        run = _Run(iree, kernels, policy, path, shown_as, base, directory)
        if policy is Replace.MEASURED:
            run.measured = MeasuredKernels(iree, base, directory, progress)
        modules = KeptModules(kernels, iree, policy)
        # What is measured changes, so that no module of it is kept.
        key = "" if run.measured else modules.key(path.read_bytes(), base)
        compiled = modules.get(key)
        if compiled is not None:
            progress(f"{shown_as}: known, with its {len(compiled[1])} kernels")
        else:
            check_target(iree, target, flags)
            compiled = _compile(run, progress)
            modules.put(key, *compiled)
    return IreeResult(
        target=target,
        input=shown_as,
        vmfb=compiled[0],
        kernels=compiled[1],
        iree=iree.version(),
        llvm=kernels.toolchain.version_text,
        flags=tuple(flags),
        spent=spent.end(run.iree_seconds),
    )


def store_of(cache: Path | bool) -> Store | None:
    """The store of what is kept by content; None where nothing is.

    Raises:
        InputError: the directory that was asked for is not to be trusted.
    """
    if cache is False:
        return None
    try:
        store = Store(default_directory() if cache is True else cache)
        store.check()
    except (RuntimeError, InputError):  # there is no home directory, or it is not safe
        if cache is not True:
            raise
        return None
    return store


def _compile(run: _Run, progress: Callable[[str], None]) -> tuple[bytes, tuple[IreeKernel, ...]]:
    dump, first = run.directory / "dump", run.directory / "first.vmfb"
    configured = run.directory / "configured.mlir"
    progress(f"iree-compile {run.shown_as}")
    benchmarks = run.measured.dump_flags if run.measured else ()
    run.iree_compile(run.source, configured, [*CONFIGURED, *benchmarks], "configured")
    run.iree_compile(configured, first, [*FROM_CONFIGURED, *dump_flags(dump)], "dump")
    dispatches = read_dispatches(dump, run.kernels.toolchain.version[0])
    _refuse_repeated(dispatches, run.shown_as)
    sources_of_kernels = [d.source for d in dispatches if d.source is not None]
    results = {result.name: result for result in _compiled(run.kernels, sources_of_kernels, run.shown_as, progress)}
    dispatches = _by_tritons(run, dump, dispatches, results, progress)
    kernels = tuple(_kernel(d, results.get(d.executable), run) for d in dispatches)
    kernels = _with_native(run, configured, kernels, {d.executable: d.assembly for d in dispatches}, progress)
    ours = [k for k in kernels if k.ours]
    if ours:
        progress(f"iree-compile {run.shown_as} with {len(ours)} proved code objects")
        vmfb = _substitute(run, configured, kernels)
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


def _by_tritons(
    run: _Run,
    dump: Path,
    dispatches: Sequence[Dispatch],
    results: dict[str, KernelResult],
    progress: Callable[[str], None],
) -> Sequence[Dispatch]:
    """The dispatches, those that the llc at hand does not read as the LLVM 24 in Triton's package reads them; what that
    makes of them is in ``results`` then. Nothing of it where the user names an LLVM, or there is no Triton.
    """
    settings = run.kernels.settings
    refused = {name for name, result in results.items() if result.code_object is None and not result.report}
    unnamed = isinstance(run.kernels.toolchain, Toolchain) and settings.toolchain is ToolchainChoice.AUTO
    if not (refused and unnamed and with_own_llvm(settings.toolchain, settings.llvm) is ToolchainChoice.TRITON):
        return dispatches
    kernels = Kernels(structs.replace(settings, toolchain=ToolchainChoice.TRITON), run.kernels.store, run.kernels.jobs)
    newer = {d.executable: d for d in read_dispatches(dump, kernels.toolchain.version[0])}
    sources = [source for name in sorted(refused) if (source := newer[name].source) is not None]
    progress(f"{len(sources)} again by {kernels.toolchain.version_text}, as the llc at hand does not read them")
    for result in _compiled(kernels, sources, run.shown_as, progress):
        if result.code_object is not None:
            results[result.name] = result
    return [newer[d.executable] if d.executable in refused else d for d in dispatches]


def _compiled(
    kernels: Kernels, sources: Sequence[KernelSource], where: str, progress: Callable[[str], None]
) -> Sequence[KernelResult]:
    report = _Progress(len(sources), progress)

    def done(result: KernelResult) -> None:
        _require_server(kernels.settings, result, where)
        report.add(result)

    return kernels.compile(sources, done)


def _require_server(settings: Settings, result: KernelResult, where: str) -> None:
    """End at the first kernel that a required server had not its part in: it would be missed by the others too.

    Raises:
        ToolchainError: there it is.
    """
    missed = result.reason if settings.server_required and result.code_object is None else ""
    if REQUIRED in missed:
        raise ToolchainError(missed.partition(" (hint: ")[0], where=where, hint=REQUIRED_HINT)


def _with_native(
    run: _Run,
    configured: Path,
    kernels: tuple[IreeKernel, ...],
    assemblies: Mapping[str, str],
    progress: Callable[[str], None],
) -> tuple[IreeKernel, ...]:
    """The kernels, with a verdict on IREE's own allocation of each that stays."""
    if all(kernel.ours for kernel in kernels):
        return kernels

    def of_iree(source: Path, output: Path, flags: Sequence[str]) -> None:
        run.iree_compile(source, output, flags, "native")

    try:
        stopped = stopped_kernels(
            of_iree, configured, run.directory / "native", run.iree.version(), assemblies, progress
        )
    except VeriloccError as error:
        verdict = not_audited(error)
        return tuple(k if k.ours else _audited(k, verdict, progress) for k in kernels)
    audited: list[IreeKernel] = []
    for kernel in kernels:
        if not kernel.ours:
            progress(f"audit of IREE's own: {kernel.executable}")
            made = partial(_stopped, stopped, kernel.executable)
            kernel = _audited(kernel, native_verdict(made, run.kernels.settings), progress)
        audited.append(kernel)
    return tuple(audited)


def _audited(kernel: IreeKernel, verdict: NativeVerdict, progress: Callable[[str], None]) -> IreeKernel:
    """The kernel with a verdict on IREE's own; ours in its place where that is not proved and the two are tied."""
    if verdict.proved or not kernel.spare:
        return replace(kernel, native=verdict)
    progress(f"{kernel.executable}: ours, as IREE's own is not proved and nothing tells the two apart")
    return replace(kernel, ours=True, reason="", code_object=kernel.spare, declined=False)


def _stopped(stopped: Mapping[str, NativeKernel], executable: str) -> NativeKernel:
    if executable not in stopped:
        raise UnsupportedError("iree-compile prints no machine IR of it")
    return stopped[executable]


class _Progress:
    """A line for each kernel, with an estimate of what is left."""

    def __init__(self, total: int, say: Callable[[str], None]) -> None:
        self._total = total
        self._say = say
        self._done = 0
        self._start = time.monotonic()

    def add(self, result: KernelResult) -> None:
        self._done += 1
        seconds_left = (time.monotonic() - self._start) / self._done * (self._total - self._done)
        verdict = "known" if result.kept else result.reason or "proved"
        estimate = f" (about {seconds_left:.0f} s left)" if seconds_left >= 1 else ""
        self._say(f"[{self._done}/{self._total}] {result.name}: {verdict}{estimate}")


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


def _kernel(dispatch: Dispatch, result: KernelResult | None, run: _Run) -> IreeKernel:
    """The dispatch with our code object if it is proved, looks to IREE's runtime as its own does, and is no worse."""
    source = dispatch.source
    if result is None or source is None:
        return IreeKernel(dispatch.executable, False, dispatch.reason, dispatch.own, dispatch.own, {}, "", "")
    reason = result.reason
    ours = result.code_object
    if ours is not None:
        differences = interface_differences(ours, dispatch.own)
        if differences:
            reason, ours = f"IREE's runtime would see another kernel: {'; '.join(differences)}", None
    theirs = Code(dispatch.own, dispatch.assembly)
    code = None if ours is None else Code(ours, result.assembly)
    comparison = compare_code(code, theirs, source.cpu, run.kernels.settings, source.ir)
    declined = _declined(comparison, run.replace) if ours is not None else ""
    measured = ""
    if ours is not None and run.measured is not None:
        found = run.measured.decide(dispatch.executable, ours, dispatch.own, source.ir)
        if found is not None:
            measured, declined = found.said, f"ours is proved, and {found.declined}" if found.declined else ""
    is_tied = bool(declined) and not measured and run.replace is not Replace.NEVER and comparison.tied
    return IreeKernel(
        executable=dispatch.executable,
        ours=ours is not None and not declined,
        reason=reason or declined,
        code_object=dispatch.own if ours is None or declined else ours,
        own=dispatch.own,
        report=result.report,
        before=result.before,
        after=result.after,
        comparison=comparison,
        declined=bool(declined),
        spare=ours if ours is not None and is_tied else b"",
        measured=measured,
        keyed=result.keyed,
        source=source,
    )


def _declined(comparison: Comparison, policy: Replace) -> str:
    """Why ours is not taken although it is proved; ``""`` where it is."""
    if policy is Replace.NEVER:
        return "ours is proved, and replace=never"
    if policy in (Replace.BETTER, Replace.MEASURED) and comparison.worse:
        return f"ours is proved, and worse by the model: {comparison.worse}"
    return ""


def interface_differences(ours: bytes, own: bytes) -> list[str]:
    """In what our code object differs from IREE's own where the runtime looks: kernels, arguments, LDS, work-groups.

    Register counts, spills and scratch sizes may differ: the runtime reads them from the object it loads.
    """
    return [
        str(difference)
        for difference in compare_metadata(read_code_object(ours), read_code_object(own))
        if difference.cause is Cause.UNEXPLAINED and difference.field not in _RUN_BY_RUN
    ]


def _substitute(run: _Run, configured: Path, kernels: Sequence[IreeKernel]) -> bytes:
    objects, second = run.directory / "objects", run.directory / "second.vmfb"
    objects.mkdir()
    flags = [*FROM_CONFIGURED, LINK, f"--iree-hal-executable-object-search-path={objects}"]
    for number, kernel in enumerate(kernels):
        # Names of executables may hold any character; those of the files hold none that a flag could trip over.
        (objects / f"{number}.hsaco").write_bytes(kernel.code_object)
        flags.append(f"--iree-hal-substitute-executable-object={kernel.executable}={number}.hsaco")
    run.iree_compile(configured, second, flags, "substitute")
    return second.read_bytes()
