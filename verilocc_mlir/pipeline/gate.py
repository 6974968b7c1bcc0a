"""Kernels read from what compilers write, and compared with a baseline."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from math import inf
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from smt_verifier.outcome import Outcome, combine
from verilocc_mlir.cost.figures import Figures
from verilocc_mlir.cost.read import ReadOptions, kernel_figures, read_functions
from verilocc_mlir.errors import InputError, VeriloccError
from verilocc_mlir.pipeline.opened import open_input
from verilocc_mlir.pipeline.resources import undeclared_in
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.results.compile import LAST_PHASE, REPORT_VERSION
from verilocc_mlir.results.compile_document import CompileDocument, FunctionForm
from verilocc_mlir.results.gate import FIGURES, LEAST, Change, Compared, Kernel, Status
from verilocc_mlir.target.targets import Target
from verilocc_mlir.toolchain.bundle import is_bundle, unbundled
from verilocc_mlir.toolchain.choose import choose_tools
from verilocc_mlir.toolchain.elf import EM_AMDGPU
from verilocc_mlir.toolchain.ir_compat import to_pre_ra
from verilocc_mlir.toolchain.run import run_tool

# Kernels and what they take, read from code objects, assembly, reports of ``verilocc compile``, and folders of these.
#
# No tool runs but to compile LLVM IR, which must be named itself, and to demangle names of C++ and Rust.


_CODE = (".hsaco", ".co", ".hipfb", ".o", ".amdgcn", ".rocmasm", ".s")
"""Of files with one stem in a folder, the first of these is read."""

_IR = (".ll", ".llir", ".bc")
_ELF = b"\x7fELF"


class Read(Struct, frozen=True):
    """The kernels of all paths, and what a person should know of how they were read."""

    kernels: tuple[Kernel, ...]
    notes: tuple[str, ...]


ReadFile = Callable[[Path], bytes]
"""Gives a file's bytes; raises InputError where it cannot be read."""


def read_kernels(paths: Sequence[Path], settings: Settings, read: ReadFile, *, disassemble: bool = False) -> Read:
    """Every kernel of files and folders.

    Args:
        read: opens what is read; folders are listed here.
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
            files, foreign = _files(path, read)
            if foreign:
                notes.append(f"{path}: {foreign} file{'s' * (foreign > 1)} not for AMD GPUs left out")
        else:
            files = [path]
        for file in files:
            kernels += _of_file(file, settings, read, disassemble)
    if not kernels:
        raise InputError(
            "there is no kernel",
            where=", ".join(map(str, paths)),
            hint=f"give files or folders of {', '.join(_CODE)}, or reports of verilocc compile",
        )
    return Read(_demangled(kernels, settings), tuple(notes))


def _files(folder: Path, read: ReadFile) -> tuple[list[Path], int]:
    """One file for each stem under a folder, and the number of those for other machines."""
    by_stem: dict[Path, Path] = {}
    foreign = 0
    files = {path for path in folder.rglob("*") if path.is_file()}
    for suffix in _CODE:
        for path in sorted(p for p in files if p.suffix == suffix):
            if _is_amdgpu(read(path)):
                by_stem.setdefault(path.with_suffix(""), path)
            else:
                foreign += 1
    for path in sorted(p for p in files if p.suffix == ".json"):
        stem = path.with_name(path.name.removesuffix(".json").removesuffix(".report"))
        if stem not in by_stem and b'"report_version"' in read(path):
            by_stem[stem] = path
    return sorted(by_stem.values()), foreign


def _is_amdgpu(data: bytes) -> bool:
    if is_bundle(data):
        return True
    if data.startswith(_ELF):
        return data[18:20] == EM_AMDGPU.to_bytes(2, "little")
    return b".amdgcn_target" in data


def _of_file(path: Path, settings: Settings, read: ReadFile, disassemble: bool) -> list[Kernel]:
    data = read(path)
    if path.suffix == ".json":
        return _of_report(data, path)
    if path.suffix in _IR:
        data = _compiled(data, path, settings)
    objects = unbundled(data, str(path))
    return [kernel for part in objects for kernel in _of_code(part, path, settings, read, disassemble)]


def _of_code(data: bytes, path: Path, settings: Settings, read: ReadFile, disassemble: bool) -> list[Kernel]:
    gpu, kernels = kernel_figures(data, str(path))
    beside = _beside(path, read)
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


def _compiled(data: bytes, path: Path, settings: Settings) -> bytes:
    """An object file by a plain compile of LLVM's."""
    source, compiler = open_input(data, str(path), settings, verify=True)
    if source.kind != "ir":
        raise InputError("this is machine IR, not LLVM IR", where=str(path))
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


class _Beside(Struct, frozen=True):
    """What a file beside a code object states.

    Attributes:
        verdicts: by name, VGPRs and SGPRs: of another compilation of the kernel, as a rule, these are others.
        shared: bytes of LDS that Triton asks for at the launch; they are not in the code object.
    """

    verdicts: Mapping[tuple[str, int, int], Outcome | None]
    shared: int = 0


def _beside(path: Path, read: ReadFile) -> _Beside:
    """The report of ``verilocc compile`` beside a code object, or Triton's options of a kernel."""
    for suffix in (".report.json", ".json"):
        file = path.with_suffix(suffix)
        if not file.is_file():
            continue
        data = read(file)
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


# Kernels of now against those of a baseline: who is who, and what is worse by more than is tolerated.


_RANK = {Outcome.PROVED: 0, Outcome.UNKNOWN: 1, None: 1, Outcome.INVALID: 2, Outcome.REFUTED: 2}
"""A verdict is worse than one of a lower rank."""


class Tolerance(Struct, frozen=True):
    """How much worse a figure may be: ``amount`` of its unit, or of a hundredth of the baseline's figure."""

    amount: float = 0.0
    percent: bool = False

    def allows(self, before: int, worse_by: int) -> bool:
        return worse_by <= (before * self.amount / 100 if self.percent else self.amount)


def read_tolerances(text: str) -> dict[str, Tolerance]:
    """``vgprs=2,sgprs=5%,agprs=any`` by figure.

    Raises:
        InputError: another form, or no such figure.
    """
    tolerances: dict[str, Tolerance] = {}
    for word in filter(None, text.split(",")):
        match = re.fullmatch(r"\s*(\w+)=(?:(any)|(\d+(?:\.\d+)?)(%?))\s*", word)
        if match is None or match[1] not in FIGURES:
            raise InputError(
                f"{word!r} is no tolerance",
                hint=f"FIGURE=NUMBER, FIGURE=NUMBER% or FIGURE=any, FIGURE one of {', '.join(FIGURES)}",
            )
        tolerances[match[1]] = Tolerance(inf if match[2] else float(match[3]), match[4] == "%")
    return tolerances


def compare(
    baseline: Iterable[Kernel] | None,
    current: Iterable[Kernel],
    tolerances: Mapping[str, Tolerance],
    budgets: Sequence[Budget] = (),
) -> tuple[Compared, ...]:
    """Every kernel of either side, gravest first.

    Args:
        baseline: None where budgets alone count.
    """
    groups: dict[tuple[str, str], tuple[list[Kernel], list[Kernel]]] = {}
    for side, kernels in enumerate((baseline or (), current)):
        for kernel in kernels:
            groups.setdefault((kernel.name, kernel.target), ([], []))[side].append(kernel)
    rows = [
        Compared(before, now, (*_changes(before, now, tolerances), *_of(now, budgets)), alone=baseline is None)
        for old, new in groups.values()
        for before, now in _pairs(old, new)
    ]
    order = list(Status)
    return tuple(sorted(rows, key=lambda row: (order.index(row.status), row.kernel.name, row.kernel.target)))


def _pairs(old: list[Kernel], new: list[Kernel]) -> list[tuple[Kernel | None, Kernel | None]]:
    """Kernels of one name and target, the most alike with each other; None where one is left over.

    Triton compiles a kernel once for each set of constants, and nothing in the code says which is which.
    """
    by_likeness = sorted((_unlike(a, b), i, j) for i, a in enumerate(old) for j, b in enumerate(new))
    old_free, new_free = dict(enumerate(old)), dict(enumerate(new))
    pairs: list[tuple[Kernel | None, Kernel | None]] = []
    for _, i, j in by_likeness:
        if i in old_free and j in new_free:
            pairs.append((old_free.pop(i), new_free.pop(j)))
    return [*pairs, *((a, None) for a in old_free.values()), *((None, b) for b in new_free.values())]


def _unlike(a: Kernel, b: Kernel) -> tuple[bool, int, int]:
    differing = sum(getattr(a, figure) != getattr(b, figure) for figure in FIGURES)
    return a.work_items != b.work_items, differing, abs(a.vgprs - b.vgprs)


def _of(now: Kernel | None, budgets: Sequence[Budget]) -> list[Change]:
    """What is wrong with a kernel by itself."""
    if now is None:
        return []
    changes = exceeded(budgets, now)
    if now.undeclared:
        changes.append(Change("declared", "declared", now.undeclared, worse=True, beyond=True))
    return changes


def _changes(before: Kernel | None, now: Kernel | None, tolerances: Mapping[str, Tolerance]) -> tuple[Change, ...]:
    if before is None or now is None:
        return ()
    changes: list[Change] = []
    for figure in FIGURES:
        was, is_now = getattr(before, figure), getattr(now, figure)
        if was is None or is_now is None or was == is_now:
            continue
        worse_by = was - is_now if figure in LEAST else is_now - was
        beyond = worse_by > 0 and not tolerances.get(figure, Tolerance()).allows(was, worse_by)
        changes.append(Change(figure, str(was), str(is_now), worse_by > 0, beyond))
    if _RANK[before.verdict] != _RANK[now.verdict]:
        worse = _RANK[now.verdict] > _RANK[before.verdict]
        was, is_now = ("not stated" if kernel.verdict is None else str(kernel.verdict) for kernel in (before, now))
        changes.append(Change("verdict", was, is_now, worse, worse))
    return tuple(changes)


# Budgets of kernels: what each may take, whatever it took before. A file of lines, each with a glob and its limits.
#
#     # kernels of attention, on two targets
#     attn_*            vgprs<=128 vgpr_spills<=0 waves>=4
#     gemm_*@gfx942     agprs<=128 proved
#
# Every line whose glob is that of a kernel counts. The glob is of the symbol or of the name in the source language.


_LIMIT = re.compile(r"(?P<figure>\w+)(?P<sign><=|>=)(?P<number>\d+)")
_PROVED = "proved"


class Budget(Struct, frozen=True):
    """One line of the file.

    Attributes:
        glob: of names of kernels; ``target``: the one that it is for, ``""`` for all.
        limits: by figure, the most of it, or of ``waves`` the least.
        proved: the allocation must be proved.
        where: file and line.
    """

    glob: str
    target: str
    limits: tuple[tuple[str, int], ...]
    proved: bool
    where: str

    def is_of(self, kernel: Kernel) -> bool:
        names = {kernel.name, kernel.demangled}
        return self.target in ("", kernel.target) and any(fnmatchcase(name, self.glob) for name in names)

    def exceeded(self, kernel: Kernel) -> list[Change]:
        """In what the kernel takes more; a figure that is not known is none that is kept."""
        changes: list[Change] = []
        for figure, limit in self.limits:
            now: int | None = getattr(kernel, figure)
            allowed = f"{'at least' if figure in LEAST else 'at most'} {limit}"
            if now is None:
                changes.append(Change(figure, allowed, "not known", worse=True, beyond=True, budget=True))
            elif now < limit if figure in LEAST else now > limit:
                changes.append(Change(figure, allowed, str(now), worse=True, beyond=True, budget=True))
        if self.proved and kernel.verdict is not Outcome.PROVED:
            now_said = "not stated" if kernel.verdict is None else str(kernel.verdict)
            changes.append(Change("verdict", _PROVED, now_said, worse=True, beyond=True, budget=True))
        return changes


def read_budgets(text: str, path: str) -> tuple[Budget, ...]:
    """The lines of a file.

    Raises:
        InputError: a line of another form, no such figure, or no line.
    """
    budgets = [
        _read(line, f"{path}:{number}")
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if not budgets:
        raise InputError("there is no budget in it", where=path, hint="GLOB FIGURE<=NUMBER …, a line each")
    return tuple(budgets)


def _read(line: str, where: str) -> Budget:
    name, *words = line.split()
    glob, _, target = name.partition("@")
    limits: list[tuple[str, int]] = []
    for word in words:
        match = _LIMIT.fullmatch(word)
        fits = (
            match is not None and match["figure"] in FIGURES and (match["figure"] in LEAST) == (match["sign"] == ">=")
        )
        if match is not None and fits:
            limits.append((match["figure"], int(match["number"])))
        elif word != _PROVED:
            most = ", ".join(figure for figure in FIGURES if figure not in LEAST)
            hint = f"FIGURE<=NUMBER for {most}; {', '.join(f'{f}>=NUMBER' for f in LEAST)}; {_PROVED}"
            raise InputError(f"{word!r} is no limit", where=where, hint=hint)
    if not words:
        raise InputError(f"{name} has no limit", where=where, hint="for example vgprs<=128 waves>=4")
    return Budget(glob, target, tuple(limits), _PROVED in words, where)


def exceeded(budgets: Sequence[Budget], kernel: Kernel) -> list[Change]:
    """In what a kernel takes more than any line allows, each figure once."""
    changes = [change for budget in budgets if budget.is_of(kernel) for change in budget.exceeded(kernel)]
    return list({(change.figure, change.before): change for change in changes}.values())


def of_no_kernel(budgets: Sequence[Budget], kernels: Iterable[Kernel]) -> list[str]:
    """A line for each budget that no kernel has."""
    known = list(kernels)
    return [
        f"{budget.where}: no kernel is called {budget.glob}{f' for {budget.target}' * bool(budget.target)}"
        for budget in budgets
        if not any(map(budget.is_of, known))
    ]
