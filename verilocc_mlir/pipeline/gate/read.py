"""Kernels and what they take, read from code objects, assembly, reports of ``verilocc compile``, and folders of these.

No tool runs but to compile LLVM IR, which must be named itself, and to demangle names of C++ and Rust.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from smt_verifier.outcome import Outcome, combine
from verilocc_mlir.cost.figures import Figures
from verilocc_mlir.cost.read import ReadOptions, kernel_figures, read_functions
from verilocc_mlir.errors import InputError, VeriloccError
from verilocc_mlir.pipeline.resources import undeclared_in
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.results.compile import LAST_PHASE, REPORT_VERSION
from verilocc_mlir.results.documents.compile import CompileDocument, FunctionForm
from verilocc_mlir.results.gate import Kernel
from verilocc_mlir.target.targets import Target
from verilocc_mlir.toolchain.bundle import is_bundle, unbundled
from verilocc_mlir.toolchain.choose import choose_tools
from verilocc_mlir.toolchain.drivers.job import CompileOptions
from verilocc_mlir.toolchain.elf import EM_AMDGPU
from verilocc_mlir.toolchain.inputs import load_input
from verilocc_mlir.toolchain.ir_compat import to_pre_ra
from verilocc_mlir.toolchain.run import run_tool
from verilocc_mlir.toolchain.staged import StagedCompiler

_CODE = (".hsaco", ".co", ".hipfb", ".o", ".amdgcn", ".rocmasm", ".s")
"""Of files with one stem in a folder, the first of these is read."""

_IR = (".ll", ".llir", ".bc")
_ELF = b"\x7fELF"


@dataclass(frozen=True)
class Read:
    """The kernels of all paths, and what a person should know of how they were read."""

    kernels: tuple[Kernel, ...]
    notes: tuple[str, ...]


def read_kernels(paths: Sequence[Path], settings: Settings, *, disassemble: bool = False) -> Read:
    """Every kernel of files and folders.

    Args:
        disassemble: look at the code of code objects too, for registers that are not declared; of assembly it is looked
            at always.

    Raises:
        InputError: a path does not exist or is none of these kinds; no kernel at all. UnsupportedError: a wave size
            that is not known. ToolchainError: IR is to be compiled and there is no LLVM, or it failed.
    """
    kernels: list[Kernel] = []
    notes: list[str] = []
    for path in dict.fromkeys(paths):
        if path.is_dir():
            files, foreign = _files(path)
            if foreign:
                notes.append(f"{path}: {foreign} file{'s' * (foreign > 1)} not for AMD GPUs left out")
        else:
            files = [path]
        for file in files:
            kernels += _of_file(file, settings, disassemble)
    if not kernels:
        raise InputError(
            "there is no kernel",
            where=", ".join(map(str, paths)),
            hint=f"give files or folders of {', '.join(_CODE)}, or reports of verilocc compile",
        )
    return Read(_demangled(kernels, settings), tuple(notes))


def _files(folder: Path) -> tuple[list[Path], int]:
    """One file for each stem under a folder, and the number of those for other machines."""
    by_stem: dict[Path, Path] = {}
    foreign = 0
    files = {path for path in folder.rglob("*") if path.is_file()}
    for suffix in _CODE:
        for path in sorted(p for p in files if p.suffix == suffix):
            if _is_amdgpu(_bytes(path)):
                by_stem.setdefault(path.with_suffix(""), path)
            else:
                foreign += 1
    for path in sorted(p for p in files if p.suffix == ".json"):
        stem = path.with_name(path.name.removesuffix(".json").removesuffix(".report"))
        if stem not in by_stem and b'"report_version"' in _bytes(path):
            by_stem[stem] = path
    return sorted(by_stem.values()), foreign


def _is_amdgpu(data: bytes) -> bool:
    if is_bundle(data):
        return True
    if data.startswith(_ELF):
        return data[18:20] == EM_AMDGPU.to_bytes(2, "little")
    return b".amdgcn_target" in data


def _of_file(path: Path, settings: Settings, disassemble: bool) -> list[Kernel]:
    data = _bytes(path)
    if path.suffix == ".json":
        return _of_report(data, path)
    if path.suffix in _IR:
        data = _compiled(data, path, settings)
    objects = unbundled(data, str(path))
    return [kernel for part in objects for kernel in _of_code(part, path, settings, disassemble)]


def _of_code(data: bytes, path: Path, settings: Settings, disassemble: bool) -> list[Kernel]:
    gpu, kernels = kernel_figures(data, str(path))
    beside = _beside(path)
    measured = [_kernel(name, _with_shared(figures, beside.shared), gpu, path) for name, figures in kernels.items()]
    beyond = _undeclared(data, path, gpu, settings) if disassemble or not data.startswith(_ELF) else {}
    return [
        replace(
            kernel,
            verdict=beside.verdicts.get((kernel.name, kernel.vgprs, kernel.sgprs)),
            undeclared=beyond.get(kernel.name, ""),
        )
        for kernel in measured
    ]


def _undeclared(data: bytes, path: Path, gpu: Target, settings: Settings) -> dict[str, str]:
    options = ReadOptions(llvm=settings.llvm, toolchain=settings.toolchain, timeout=settings.tool_seconds)
    return undeclared_in(read_functions(data, str(path), options), gpu)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error


def _compiled(data: bytes, path: Path, settings: Settings) -> bytes:
    """An object file by a plain compile of LLVM's."""
    toolchain = choose_tools(settings.toolchain, settings.llvm)
    source = load_input(data, path=str(path), cpu=settings.cpu or None, toolchain=toolchain)
    if source.kind != "ir":
        raise InputError("this is machine IR, not LLVM IR", where=str(path))
    mattr = ",".join(filter(None, (settings.features, source.mattr)))
    options = CompileOptions(source.cpu, mattr, timeout=settings.tool_seconds, input_name=str(path))
    compiler = StagedCompiler(toolchain, options)
    return compiler.direct(to_pre_ra(compiler, source.text).ir)


def _kernel(name: str, figures: Figures, gpu: Target, path: Path) -> Kernel:
    # What LLVM adds for amdgpu-waves-per-eu stands in assembly alone: one kernel has one answer in every form.
    figures = replace(figures, waves_vectors=0, waves_sgprs=0)
    return Kernel(
        name=name,
        demangled=name,
        target=gpu.name,
        work_items=figures.work_group[1],
        vgprs=figures.vectors or 0,
        agprs=figures.agprs or 0,
        sgprs=figures.sgprs or 0,
        vgpr_spills=figures.vgpr_spills,
        sgpr_spills=figures.sgpr_spills,
        waves=figures.occupancy(gpu),
        scratch_bytes=figures.scratch_bytes,
        lds_bytes=figures.lds_bytes,
        verdict=None,
        path=str(path),
    )


def _of_report(data: bytes, path: Path) -> list[Kernel]:
    document = _document(data, path)
    return [
        Kernel(
            **(msgspec.structs.asdict(function.resources)),
            name=function.name,
            demangled=function.name,
            target=document.target,
            work_items=None,
            lds_bytes=None,
            verdict=_verdict(function),
            path=str(path),
        )
        for function in document.functions
        if function.kind == "kernel" and function.resources is not None
    ]


def _document(data: bytes, path: Path) -> CompileDocument:
    try:
        document = msgspec.json.decode(data, type=CompileDocument)
    except msgspec.DecodeError as error:
        raise InputError(f"this is no report of verilocc compile: {error}", where=str(path)) from error
    if document.report_version != REPORT_VERSION:
        message = f"this report has report_version {document.report_version}, not {REPORT_VERSION}"
        raise InputError(message, where=str(path), hint="compile again")
    return document


def _verdict(function: FunctionForm) -> Outcome:
    """That of ``results.compile.Report``, of one function."""
    phases = function.phases
    return combine(p.outcome for p in phases) if phases and phases[-1].phase == LAST_PHASE else Outcome.UNKNOWN


@dataclass(frozen=True)
class _Beside:
    """What a file beside a code object states.

    Attributes:
        verdicts: by name, VGPRs and SGPRs: of another compilation of the kernel, as a rule, these are others.
        shared: bytes of LDS that Triton asks for at the launch; they are not in the code object.
    """

    verdicts: Mapping[tuple[str, int, int], Outcome | None]
    shared: int = 0


def _beside(path: Path) -> _Beside:
    """The report of ``verilocc compile`` beside a code object, or Triton's options of a kernel."""
    for suffix in (".report.json", ".json"):
        file = path.with_suffix(suffix)
        if not file.is_file():
            continue
        data = _bytes(file)
        if b'"report_version"' in data:
            return _Beside({(k.name, k.vgprs, k.sgprs): k.verdict for k in _of_report(data, file)})
        with contextlib.suppress(ValueError):
            return _of_triton(json.loads(data))
    return _Beside({})


def _of_triton(options: Any) -> _Beside:
    """What the JSON file beside a kernel in Triton's cache has, the record of this project's hook among it."""
    try:
        shared = int(options["shared"])
    except (KeyError, TypeError, ValueError):
        return _Beside({})
    try:
        record = options["verilocc"]
        key = (str(record["name"]), int(record["registers"]["vgprs"]), int(record["registers"]["sgprs"]))
        outcome = Outcome.PROVED if record["kind"] == "proved" else Outcome.UNKNOWN
    except (KeyError, TypeError, ValueError):
        return _Beside({}, shared)
    return _Beside({key: outcome}, shared)


def _with_shared(figures: Figures, shared: int) -> Figures:
    return replace(figures, lds_bytes=max(figures.lds_bytes or 0, shared))


def _demangled(kernels: Iterable[Kernel], settings: Settings) -> tuple[Kernel, ...]:
    """The kernels with names of the source language where LLVM's llvm-cxxfilt is at hand."""
    kernels = tuple(kernels)
    mangled = sorted({kernel.name for kernel in kernels if kernel.name.startswith(("_Z", "_R"))})
    names: dict[str, str] = {}
    if mangled:
        with contextlib.suppress(VeriloccError):
            tool = choose_tools(settings.toolchain, settings.llvm).cxxfilt
            if tool is not None:
                given = "\n".join(mangled).encode()
                lines = run_tool([tool], stdin=given, timeout=settings.tool_seconds, stage="demangle").stdout.decode()
                names = dict(zip(mangled, lines.splitlines(), strict=True))
    return tuple(replace(kernel, demangled=names.get(kernel.name, kernel.name)) for kernel in kernels)
