"""Why the functions of a file spill or lose waves: what both texts of each phase show."""

from __future__ import annotations

import re

from msgspec import Struct
from msgspec.structs import replace

from verilocc_mlir.allocators.registry import LLVM_ALLOCATOR
from verilocc_mlir.errors import InputError, ToolchainError, UnsupportedError, VeriloccError
from verilocc_mlir.explain.why import why_function
from verilocc_mlir.mir.model import MachineFunction, MirFile
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.pipeline.audit import StagedKernel, llvm_phases, open_kernel
from verilocc_mlir.pipeline.compile import compile_module
from verilocc_mlir.pipeline.recording import Recording
from verilocc_mlir.pipeline.resources import kernel_resources, resources_by_name
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.problem.build import build_problem
from verilocc_mlir.problem.model import Phase
from verilocc_mlir.results.compile import Resources
from verilocc_mlir.results.page import PhaseRecord
from verilocc_mlir.results.why import Cap, Cure, WhyFunction, WhyRun
from verilocc_mlir.target.attributes import function_attributes
from verilocc_mlir.target.reserved import allocatable, flat_work_group_size
from verilocc_mlir.target.targets import Target, target
from verilocc_mlir.toolchain.descriptor import read_code_object
from verilocc_mlir.toolchain.ir_compat import to_pre_ra, with_attributes
from verilocc_mlir.version import __version__

_KERNEL = "amdgpu_kernel"
_PHASES: tuple[Phase, ...] = ("sgpr", "vgpr")


def why(data: bytes, path: str, settings: Settings, *, function: str = "", launch_lds: int = 0) -> WhyRun:
    """Every function of a file, or the one that is named.

    Args:
        data: LLVM IR, bitcode or pre-RA machine IR.
        launch_lds: bytes of LDS that a launch asks for besides those in the code, as Triton's do.
        settings: target, LLVM, and the allocator whose spills are shown: ``llvm`` or one of ours.

    Raises:
        InputError: unusable input or option, or no such function. ToolchainError: a tool is missing or failed.
        UnsupportedError: outside what this version handles.
    """
    if settings.allocator == LLVM_ALLOCATOR:
        return _of_llvm(data, path, settings, function, launch_lds)
    return _of_ours(data, path, settings, function, launch_lds)


def _of_llvm(data: bytes, path: str, settings: Settings, function: str, launch_lds: int) -> WhyRun:
    staged = open_kernel(data, path, settings)
    gpu = target(staged.kernel.cpu)
    names = _chosen(staged.kernel.functions, function, path)
    notes = list(staged.notes)
    file = parse_mir(staged.pre, path)
    phases = {phase: _records(file, None, phase, names, gpu) for phase in _PHASES}
    resources: dict[str, Resources] = {}
    try:
        for name, before, after in llvm_phases(staged.compiler, staged.pre, "greedy"):
            for phase in _PHASES:
                if phase == name:
                    file, allocated = parse_mir(before, path), parse_mir(after, f"{path} after {phase}")
                    phases[phase] = _records(file, allocated, phase, names, gpu)
            if name == _PHASES[-1]:
                resources = resources_by_name(staged.compiler.finish(after), file, gpu)
                break
    except ToolchainError as error:
        notes.append(f"LLVM did not allocate it: {error.what}")
    functions = tuple(
        _function(file, [phases[phase][name] for phase in _PHASES], gpu, resources.get(name), launch_lds)
        for name in names
    )
    if staged.kernel.kind == "ir":
        functions = tuple(_with_cure(staged, function, file, gpu) for function in functions)
    llvm = staged.compiler.toolchain.version_text
    return WhyRun(__version__, llvm, path, gpu.name, LLVM_ALLOCATOR, functions, tuple(notes))


def _of_ours(data: bytes, path: str, settings: Settings, function: str, launch_lds: int) -> WhyRun:
    recording = Recording()
    compiled = compile_module(data, path, settings, allow_unproved=True, recording=recording)
    report = compiled.report
    gpu = target(report.target)
    file = parse_mir(compiled.before, path)
    reports = {f.name: f for f in report.functions}
    functions: list[WhyFunction] = []
    for name in _chosen(tuple(reports), function, path):
        records = [r for r in recording.phases if r.function == name and r.phase in _PHASES and r.problem is not None]
        if len(records) < len(_PHASES):
            raise UnsupportedError("its allocation problem cannot be stated", where=f"{path}: function {name}")
        functions.append(_function(file, records, gpu, reports[name].resources, launch_lds))
    notes = (f"{settings.allocator}: {report.outcome}", *report.notes)
    return WhyRun(__version__, report.llvm, path, gpu.name, settings.allocator, tuple(functions), notes)


def _chosen(names: tuple[str, ...], function: str, path: str) -> tuple[str, ...]:
    if not function:
        return names
    if function not in names:
        raise InputError(f"there is no function {function}", where=path, hint=f"its functions: {', '.join(names)}")
    return (function,)


def _records(
    file: MirFile, allocated: MirFile | None, phase: Phase, names: tuple[str, ...], gpu: Target
) -> dict[str, PhaseRecord]:
    """A phase of each function that is wanted."""
    after = {f.name: f for f in allocated.functions} if allocated is not None else {}
    return {
        f.name: PhaseRecord(f.name, phase, f, after.get(f.name), None, build_problem(file, f, gpu, phase), None)
        for f in file.functions
        if f.name in names
    }


def _function(
    file: MirFile, records: list[PhaseRecord], gpu: Target, resources: Resources | None, launch_lds: int
) -> WhyFunction:
    convention = function_attributes(file.preamble, records[0].function).calling_convention
    function = why_function(file.preamble, records, gpu, convention == _KERNEL, resources, launch_lds)
    return replace(function, cap=cap_of(records[0].before, file.preamble, gpu))


def _with_cure(staged: StagedKernel, function: WhyFunction, file: MirFile, gpu: Target) -> WhyFunction:
    """The function with what raises its cap, tried by compiling its IR so; where nothing is spilled, nothing is."""
    cap, taken = function.cap, function.resources
    if cap is None or taken is None or not taken.vgpr_spills:
        return function
    before = next(f for f in file.functions if f.name == function.name)
    ir = to_pre_ra(staged.compiler, staged.kernel.text).ir
    best: Cure | None = None
    for change in changes(cap, before, file.preamble, gpu):
        try:
            kernels = read_code_object(staged.compiler.direct(change.of(ir))).kernels
        except VeriloccError:
            continue
        found = kernel_resources(kernels[function.name], before, change.of(file.preamble), gpu)
        attribute = f'"{change.attribute}"="{change.value}"' if change.value else f'no "{change.attribute}"'
        cure = Cure(change.words, attribute, found.vgpr_spills or 0, min(found.waves, function.other_limit))
        if cure.vgpr_spills < min(taken.vgpr_spills, best.vgpr_spills if best else taken.vgpr_spills):
            best = cure
        if not cure.vgpr_spills:
            break
    return replace(function, cap=replace(cap, cure=best))


# What caps the vector registers that LLVM lets a function have, and what would raise the cap.
#
# LLVM gives a function as many as leave room for the waves that it may not be without: those that
# ``amdgpu-waves-per-eu`` asks for, or those of one work-group of the greatest size (AMDGPUSubtarget::getWavesPerEU). An
# attribute caps them if the function may have more without it.


_NUM, _WAVES, _SIZE = "amdgpu-num-vgpr", "amdgpu-waves-per-eu", "amdgpu-flat-work-group-size"
_SIZES = (512, 256, 128, 64)


class Change(Struct, frozen=True):
    """An attribute that might raise the cap.

    Attributes:
        value: of the attribute; None: it is left out.
        words: "with work-groups of at most 256 threads".
    """

    attribute: str
    value: str | None
    words: str

    def of(self, ir: str) -> str:
        """IR, or the IR in machine IR, with it."""
        if self.value is None:
            return re.sub(rf'"{self.attribute}"="[^"]*" ?', "", ir)
        return with_attributes(ir, ((self.attribute, self.value),))


def cap_of(function: MachineFunction, preamble: str, target: Target) -> Cap | None:
    """The cap, without a cure; None where nothing but the hardware caps the function."""
    now = _vectors(function, preamble, target)
    attributes = function_attributes(preamble, function.name)
    most = flat_work_group_size(attributes, target)[1]
    # Which attributes let the function have more, each by itself; the one that lets it have most comes first.
    freer = {
        name: _vectors(function, change.of(preamble), target)
        for name, change in (
            (_NUM, Change(_NUM, None, "")),
            (_WAVES, Change(_WAVES, None, "")),
            (_SIZE, Change(_SIZE, f"1,{min(_SIZES)}", "")),
        )
    }
    name = max(freer, key=lambda each: sum(freer[each]))
    if sum(freer[name]) <= sum(now):
        return None
    if name == _SIZE:
        said = "" if _SIZE in attributes.strings else ", as no attribute bounds them"
        because = f"work-groups may have {most:,} threads{said}"
    elif name == _WAVES:
        because = f'"{_WAVES}"="{attributes.strings[_WAVES]}" asks for so many waves'
    else:
        because = f'"{_NUM}"="{attributes.strings[_NUM]}" says so'
    return Cap(*now, name, because)


def changes(cap: Cap, function: MachineFunction, preamble: str, target: Target) -> list[Change]:
    """What might raise it, the mildest first."""
    attributes = function_attributes(preamble, function.name)
    if cap.attribute == _SIZE:
        least, most = flat_work_group_size(attributes, target)
        sizes = [size for size in _SIZES if least <= size < most]
        return [Change(_SIZE, f"{least},{size}", f"with work-groups of at most {size} threads") for size in sizes]
    if cap.attribute == _WAVES:
        asked = attributes.integer_pair(_WAVES, only_first_required=True) or (1, None)
        return [Change(_WAVES, f"{n}", f"with {n} waves asked for") for n in range(asked[0] - 1, 0, -1)]
    return [Change(_NUM, None, f'without "{_NUM}"')]


def _vectors(function: MachineFunction, preamble: str, target: Target) -> tuple[int, int]:
    budgets = allocatable(function, preamble, target).budgets
    return budgets["vgpr"].count, budgets["agpr"].count
