"""From a file to costs. This is the only module of the package that runs tools.

Assembly is read as it is. A code object goes through llvm-objdump, machine IR through llc, which first allocates what
is not allocated yet. Constant trip counts come from the IR, by ``opt``'s scalar evolution.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from verilocc_mlir.cost.assembly import Function, named_target, parse_assembly, parse_disassembly
from verilocc_mlir.cost.figures import Figures, figures_of_text, launched, work_group
from verilocc_mlir.cost.model import CostedFile, costs
from verilocc_mlir.cost.trips import IrLoop, parse_loops
from verilocc_mlir.errors import InputError, ToolchainError, UnsupportedError
from verilocc_mlir.target.occupancy import MAX_FLAT_WORK_GROUP
from verilocc_mlir.target.targets import Target, target
from verilocc_mlir.toolchain import ToolchainChoice
from verilocc_mlir.toolchain.bundle import is_bundle, unbundled
from verilocc_mlir.toolchain.choose import choose_tools
from verilocc_mlir.toolchain.descriptor import KernelMetadata, read_code_object
from verilocc_mlir.toolchain.drivers.job import TRIPLE, CompileOptions, split_target_id
from verilocc_mlir.toolchain.elf import ElfImage, read_elf
from verilocc_mlir.toolchain.find import INSTALL_HINT, LlvmTools
from verilocc_mlir.toolchain.inputs import named_processors
from verilocc_mlir.toolchain.loaded_tools import SELDOM
from verilocc_mlir.toolchain.run import DEFAULT_TIMEOUT, run_tool
from verilocc_mlir.toolchain.staged import LlvmPhase, StagedCompiler

_ELF = b"\x7fELF"
_NOT_TAKEN = {
    b"BC\xc0\xde": "LLVM bitcode, which has no registers yet",
    b"!<arch>": "an archive",
    b"__CLANG_OFFLOAD_BUNDLE__": "an offload bundle: extract the code object from it",
    b"\x1f\x8b": "gzip data",
    b"PK\x03\x04": "a zip file",
}
_HINT = "give a code object (.hsaco), llc's assembly (.s) or machine IR (.mir)"
_SCALAR_REGISTER = re.compile(r"%\d+(?:\.\w+)?:s(?:gpr|reg)_")


class ReadOptions(Struct, frozen=True):
    """How a file is read.

    Attributes:
        cpu: target or target id that the user gave; ``""``: the one that the file names.
        features: LLVM feature string, for machine IR.
        ir: LLVM IR of the same kernels, for their constant trip counts; ``""`` for none.
        work_group: work-items of the work-groups that are started, in each dimension; None: as the file says.
        llvm: where LLVM is; None: it is searched for when it is needed.
        toolchain: which LLVM.
        timeout: seconds for each tool.
    """

    cpu: str = ""
    features: str = ""
    ir: str = ""
    llvm: Path | None = None
    toolchain: ToolchainChoice = ToolchainChoice.AUTO
    timeout: float = DEFAULT_TIMEOUT
    work_group: tuple[int, int, int] | None = None


def read_work_group(text: str) -> tuple[int, int, int]:
    """``256`` or ``16x16`` or ``8x8x4``: work-items of a work-group in each dimension.

    Raises:
        InputError: another form, or more work-items than LLVM allows.
    """
    match = re.fullmatch(r"(\d+)(?:x(\d+))?(?:x(\d+))?", text)
    extents = tuple(int(number or 1) for number in match.groups()) if match is not None else ()
    if len(extents) != 3 or not 1 <= math.prod(extents) <= MAX_FLAT_WORK_GROUP:
        hint = f"X, XxY or XxYxZ, at most {MAX_FLAT_WORK_GROUP} work-items"
        raise InputError(f"{text!r} is no size of a work-group", hint=hint)
    return extents


def started(functions: Sequence[Function], extents: tuple[int, int, int] | None) -> list[Function]:
    """The kernels as started with work-groups of this size; as they are where it is None."""
    if extents is None:
        return list(functions)
    return [replace(f, figures=replace(f.figures, extents=extents)) if f.figures.is_kernel else f for f in functions]


def cost_of_file(data: bytes, path: str, options: ReadOptions | None = None) -> CostedFile:
    """Costs of all functions of a file.

    Raises:
        InputError: the file is of none of the three kinds, is for another target, is truncated, or has no function.
        UnsupportedError: the file is for a wave size or GPU that the model does not know.
        ToolchainError: a tool that is needed is missing or fails.
    """
    settings = options or ReadOptions()
    if is_bundle(data):
        data = _out_of_bundle(data, path, settings.cpu)
    if data.startswith(_ELF):
        return _code_object(data, path, settings)
    text = _text(data, path)
    if re.match(r"(?:\s*#.*\n)*\s*---(?: \||\n)", text):
        return _machine_ir(text, path, settings)
    if ".amdgcn_target" in text:
        return _assembly(text, path, settings)
    if re.search(r"^(?:define|declare|target triple)\b", text, re.MULTILINE):
        raise InputError("this is LLVM IR, which has no registers yet", where=path, hint=_HINT)
    message = "this is neither AMDGPU assembly (it names no .amdgcn_target) nor machine IR"
    raise InputError(message, where=path, hint=_HINT)


def read_functions(data: bytes, path: str, options: ReadOptions | None = None) -> tuple[Function, ...]:
    """The functions of a file, not costed.

    Raises:
        InputError, UnsupportedError, ToolchainError: as ``cost_of_file``.
    """
    return cost_of_file(data, path, options).code


def kernel_figures(data: bytes, path: str) -> tuple[Target, dict[str, Figures]]:
    """What the metadata of a code object or of llc's assembly says of its kernels, by name. No tool is run.

    Raises:
        InputError: it is neither, is truncated, or is for a target that is not known.
        UnsupportedError: it is for a wave size that is not known.
    """
    options = ReadOptions()
    if data.startswith(_ELF):
        _, gpu, figures = _opened(data, path, options)
        return gpu, figures
    text = _text(data, path)
    if ".amdgcn_target" not in text:
        raise InputError("this is neither a code object nor AMDGPU assembly", where=path)
    gpu = _target_of_assembly(text, path, options)
    return gpu, {name: figures for name, figures in figures_of_text(text, gpu).items() if figures.is_kernel}


def loops_of_ir(ir: str | bytes, toolchain: LlvmTools, *, where: str, timeout: float) -> dict[str, tuple[IrLoop, ...]]:
    """Loops of an IR module, as text or bitcode, by function, with their constant trip counts.

    Raises:
        ToolchainError: opt is missing, rejects the IR or fails.
    """
    if toolchain.opt is None:
        raise ToolchainError(f"opt was not found {toolchain.place}", where=where, hint=INSTALL_HINT)
    command: list[str | Path] = [toolchain.opt, "-passes=function(print<loops>,print<scalar-evolution>)"]
    command += [f"-mtriple={TRIPLE}", "-scalar-evolution-classify-expressions=0", "-disable-output", "-"]
    data = ir.encode() if isinstance(ir, str) else ir
    run = run_tool(command, stdin=data, timeout=timeout, stage="trip counts", where=where)
    return parse_loops(run.stderr)


def _out_of_bundle(data: bytes, path: str, cpu: str) -> bytes:
    """The only code object of a bundle or fat binary, or the only one for the GPU that is named."""
    objects: dict[str, list[bytes]] = {}
    for code in unbundled(data, path):
        objects.setdefault(read_elf(code).machine, []).append(code)
    there = ", ".join(f"{len(codes)} for {gpu}" if len(codes) > 1 else gpu for gpu, codes in objects.items())
    if cpu and cpu not in objects:
        raise InputError(f"the bundle has no code object for {cpu}", where=path, hint=f"it has those for {there}")
    chosen = objects[cpu] if cpu else [code for codes in objects.values() for code in codes]
    if len(chosen) > 1:
        hint = "name one with --mcpu, or take one out of it: clang-offload-bundler --unbundle"
        raise InputError(f"the bundle has several code objects: {there}", where=path, hint=hint)
    return chosen[0]


def _text(data: bytes, path: str) -> str:
    if not data.strip():
        raise InputError("the input is empty", where=path)
    for magic, name in _NOT_TAKEN.items():
        if data.startswith(magic):
            raise InputError(f"this is {name}", where=path, hint=_HINT)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"this is not text: byte {error.start} is not UTF-8", where=path, hint=_HINT) from error


def _target_of_assembly(text: str, path: str, options: ReadOptions) -> Target:
    gpu = _target(named_target(text), path, options)
    if gpu.major >= 10 and re.search(r"^\s*\.amdhsa_wavefront_size32 0\b", text, re.MULTILINE):
        raise _other_wave(gpu, path)
    return gpu


def _assembly(text: str, path: str, options: ReadOptions) -> CostedFile:
    gpu = _target_of_assembly(text, path, options)
    functions = started(parse_assembly(text, gpu, where=path), options.work_group)
    loops, llvm = _given_loops(options)
    return CostedFile(path, "assembly", gpu.name, llvm, costs(functions, gpu, loops), (), tuple(functions), loops)


def _opened(data: bytes, path: str, options: ReadOptions) -> tuple[ElfImage, Target, dict[str, Figures]]:
    """A code object, what it is for, and what its metadata says of its kernels."""
    try:
        image = read_elf(data)
        metadata = read_code_object(image)
    except ToolchainError as error:
        raise InputError(error.what, where=path, hint=_HINT) from error
    gpu = _target(image.machine, path, options)
    if any(k.wavefront_size not in (0, gpu.wave_size) for k in metadata.kernels.values()):
        raise _other_wave(gpu, path)
    return image, gpu, {name: _figures(kernel) for name, kernel in metadata.kernels.items()}


def _code_object(data: bytes, path: str, options: ReadOptions) -> CostedFile:
    image, gpu, figures = _opened(data, path, options)
    names = [s.name for s in image.symbols.values() if s.kind == "STT_FUNC" and s.defined]
    if not names:
        raise InputError("the code object has no function", where=path)
    toolchain = choose_tools(options.toolchain, options.llvm)
    if toolchain.objdump is None:
        raise ToolchainError(f"llvm-objdump was not found {toolchain.place}", where=path, hint=INSTALL_HINT)
    command = [toolchain.objdump, "-d", f"--mcpu={gpu.name}", "-"]
    disassembly = run_tool(
        command, stdin=data, timeout=options.timeout, stage="disassemble", where=path, loaded_after=SELDOM
    )
    functions = parse_disassembly(disassembly.stdout.decode(), gpu, figures, names, where=path)
    functions = started(functions, options.work_group)
    loops, _ = _given_loops(options)
    return CostedFile(
        path, "code object", gpu.name, toolchain.version_text, costs(functions, gpu, loops), (), tuple(functions), loops
    )


def _machine_ir(text: str, path: str, options: ReadOptions) -> CostedFile:
    documents = re.split(r"^(?=---\nname:)", text, flags=re.MULTILINE)[1:]
    if not documents or not re.search(r"^\.\.\. *$", documents[-1], re.MULTILINE):
        raise InputError("the machine IR is truncated: it has no function that ends", where=path)
    processors = named_processors(text)
    if len(processors) > 1:
        raise InputError(f"it names several processors: {', '.join(processors)}", where=path)
    gpu = _target(processors[0] if processors else "", path, options)
    toolchain = choose_tools(options.toolchain, options.llvm)
    features = ",".join(filter(None, (options.features, split_target_id(options.cpu)[1] if options.cpu else "")))
    compiler = StagedCompiler(
        toolchain, CompileOptions(gpu.name, features, tool_seconds=options.timeout, input_name=path)
    )
    notes: list[str] = []
    allocated = {bool(re.search(r"^noVRegs: +true", d, re.MULTILINE)) or not _virtual(d) for d in documents}
    if allocated == {True}:
        assembly = compiler.finish(text, "asm")
    else:
        if True in allocated:
            raise InputError("some of its functions are allocated, others are not", where=path)
        scalars_placed = not any(map(_SCALAR_REGISTER.search, documents))
        assembly = compiler.finish_from(text, LlvmPhase.VGPR if scalars_placed else LlvmPhase.SGPR, "asm")
        unplaced = "vector registers" if scalars_placed else "registers"
        notes.append(f"it came without {unplaced} assigned: LLVM's greedy allocator assigned them")
    functions = started(parse_assembly(assembly.decode(), gpu, where=path), options.work_group)
    module = re.match(r"--- \|\n(.*?)^\.\.\.$", text, re.MULTILINE | re.DOTALL)
    loops, _ = _given_loops(options)
    if not options.ir and module is not None and "\n  define " in module[1]:
        try:
            loops = loops_of_ir(module[1], toolchain, where=path, timeout=options.timeout)
        except ToolchainError as error:
            notes.append(f"no trip counts from its IR: {error.what}")
    figures = costs(functions, gpu, loops)
    return CostedFile(
        path, "machine IR", gpu.name, toolchain.version_text, figures, tuple(notes), tuple(functions), loops
    )


def _virtual(document: str) -> bool:
    return bool(re.search(r"^registers:\s*\n\s+- ", document, re.MULTILINE)) or "virtual-reg: '%" in document


def _given_loops(options: ReadOptions) -> tuple[dict[str, tuple[IrLoop, ...]], str]:
    """Loops of the IR given with ``--ir``, and the LLVM that read it; empty where none was given."""
    if not options.ir:
        return {}, ""
    toolchain = choose_tools(options.toolchain, options.llvm)
    loops = loops_of_ir(options.ir, toolchain, where="--ir", timeout=options.timeout)
    return loops, toolchain.version_text


def _target(cpu_of_file: str, path: str, options: ReadOptions) -> Target:
    cpu_requested = split_target_id(options.cpu)[0] if options.cpu else ""
    cpu_of_file = cpu_of_file.split(":")[0]
    if cpu_requested and cpu_of_file and cpu_requested != cpu_of_file:
        raise InputError(
            f"it is for {cpu_of_file}, not for {cpu_requested}", where=path, hint="leave -mcpu out, or change it"
        )
    if not (cpu_requested or cpu_of_file):
        raise InputError("it names no processor", where=path, hint="give one with -mcpu, for example -mcpu=gfx942")
    return target(cpu_requested or cpu_of_file)


def _other_wave(gpu: Target, path: str) -> UnsupportedError:
    wave_size = 32 if gpu.wave_size == 64 else 64
    return UnsupportedError(f"{gpu.name} in wave{wave_size} mode is not modelled", where=path)


def _figures(kernel: KernelMetadata) -> Figures:
    return Figures(
        is_kernel=True,
        vectors=kernel.vgpr_count,
        agprs=kernel.agpr_count,
        sgprs=kernel.sgpr_count,
        lds_bytes=kernel.group_segment_fixed_size,
        scratch_bytes=kernel.private_segment_fixed_size,
        vgpr_spills=kernel.vgpr_spill_count,
        sgpr_spills=kernel.sgpr_spill_count,
        work_group=work_group(kernel.max_flat_workgroup_size, kernel.raw.get(".reqd_workgroup_size", ())),
        extents=launched(kernel.max_flat_workgroup_size, kernel.raw.get(".reqd_workgroup_size", ())),
    )
