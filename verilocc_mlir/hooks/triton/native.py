"""The register allocation in Triton's own code objects, from the folder where Triton keeps them.

Triton keeps each kernel's LLVM IR (``.llir``), its options (``.json``) and its assembly (``.amdgcn``). The library
that made the assembly compiles the IR again here and prints the text before and after each phase. What is
audited counts for the kernel in the folder only if the library makes the same instructions again. Code that our hook
made is made again by our pipeline instead.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import re
import resource
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from elftools.elf.elffile import ELFFile
from msgspec.structs import replace

from verilocc_mlir.crew.descendants import JobWorker, serve_jobs
from verilocc_mlir.crew.jobs import JobCrew
from verilocc_mlir.crew.serve import Answer
from verilocc_mlir.crew.worker import Late, WorkerFailure
from verilocc_mlir.errors import InputError, ToolchainError, UnsupportedError
from verilocc_mlir.mir.model import stop_before
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
    printed = text()
    again, kept = instructions(printed), instructions(assembly)
    unlike = "" if again == kept else _difference(again, kept)
    return NativeKernel(name, cpu, compiler, "greedy", phases, printed, unlike=unlike)


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
    printed = done.data.decode()
    again, kept = instructions(printed), instructions(assembly)
    unlike = "" if again == kept else f"our hook made this code with other options: {_difference(again, kept)}"
    compiler = f"verilocc {done.report.version}, {done.report.llvm}"
    return NativeKernel(name, cpu, compiler, "greedy", (sides,), printed, unlike=unlike)


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


# The library with which Triton 3.9 compiles for AMD GPUs, stopped between its passes, in a process of its own.
#
# ``libtriton_amd_codegen`` exports four functions, none of which takes LLVM's options. Its table of local symbols has
# ``LLVMParseCommandLineOptions``, which is called by its address here: what then comes out of Triton's own call is the
# text where the option says. An error of LLVM ends the process.


_PARSE, _RESET = "LLVMParseCommandLineOptions", "_ZN4llvm2cl25ResetAllOptionOccurrencesEv"
_EXPORTED = "triton_amdgpu_compile"
_SYMBOL = struct.Struct("<IBBHQQ")
_HINT = "audit the kernel's IR with an llc: verilocc audit --native KERNEL.ll"


def compiled(ir: str, cpu: str, options: tuple[str, ...], *, fp_fusion: bool, seconds: float, where: str) -> str:
    """What Triton's compiler makes of a kernel with options of LLVM's, such as those of ``mir.stages``.

    Args:
        ir: the kernel's LLVM IR as Triton keeps it.
        cpu: ``"gfx942"``.
        options: of LLVM; none: assembly text comes out.
        fp_fusion: as Triton's option says.
        seconds: elapsed time; then it is given up.
        where: names the kernel in messages.

    Raises:
        ToolchainError: this Triton has no such library, or it failed.
    """
    question = {"cpu": cpu, "options": options, "fp_fusion": fp_fusion}
    with _WORKERS.worker() as worker:
        assert isinstance(worker, JobWorker)
        try:
            answer, text = worker.ask(question, seconds, ir.encode())
        except Late as error:
            raise ToolchainError(f"Triton's compiler did not finish within {seconds:g} s", where=where) from error
        except WorkerFailure as error:
            words = worker.words().strip().splitlines()
            worker.kill()
            reason = next((line for line in words if "error" in line.lower()), str(error))
            raise ToolchainError(f"Triton's compiler ended: {reason}", where=where, hint=_HINT) from error
    if answer["failure"]:
        raise ToolchainError(f"Triton's compiler failed: {answer['failure']}", where=where, hint=_HINT)
    return text.decode()


def version() -> str:
    """Which LLVM it is.

    Raises:
        ToolchainError: this Triton has no such library.
    """
    try:
        module = _compiler_module()
        revision = module.get_amd_codegen_revision()
        return f"LLVM {revision} of Triton {importlib.import_module('triton').__version__}"
    except (ImportError, AttributeError, OSError) as error:
        raise ToolchainError(
            f"this Triton has no libtriton_amd_codegen: {error}", hint="pip install triton==3.9.0"
        ) from error


def _compiler_module() -> Any:
    return importlib.import_module("triton.backends.amd.compiler")


class _Library:
    """The library in this process."""

    def __init__(self) -> None:
        self._module = _compiler_module()
        importlib.import_module("triton._C.libtriton").llvm.init_targets()
        path = self._module.get_amd_codegen_path()
        exported = getattr(ctypes.CDLL(path), _EXPORTED)
        addresses = local_symbols(Path(path), (_PARSE, _RESET, _EXPORTED))
        address = ctypes.cast(exported, ctypes.c_void_p).value
        assert address is not None
        base = address - addresses[_EXPORTED]
        words = ctypes.POINTER(ctypes.c_char_p)
        self._parse = ctypes.CFUNCTYPE(None, ctypes.c_int, words, ctypes.c_char_p)(base + addresses[_PARSE])
        self._reset = ctypes.CFUNCTYPE(None)(base + addresses[_RESET])

    def compile(self, question: Mapping[str, Any], ir: str) -> str:
        # An empty value takes an option back.
        options = {"-stop-before": "", "-stop-after": "", **dict(o.split("=", 1) for o in question["options"])}
        words = [b"llvm", *(f"{name}={value}".encode() for name, value in options.items())]
        self._reset()
        self._parse(len(words), (ctypes.c_char_p * len(words))(*words), b"")
        cpu = question["cpu"]
        text: str = self._module.compile_amdgpu(
            ir,
            self._module.get_amd_codegen_target_triple(cpu),
            cpu,
            "",
            flags=self._module.get_llvm_flags(cpu),
            enable_fp_fusion=question["fp_fusion"],
            disable_optimization=False,
            canonicalize_gep=False,
            disabled_passes="",
            dump_ir=False,
            enable_timing=False,
        )
        return text


def local_symbols(path: Path, names: tuple[str, ...]) -> dict[str, int]:
    """Addresses of functions in a 64-bit ELF file's table of local symbols.

    Raises:
        ImportError: one is not in it.
    """
    with ExitStack() as stack:
        elf = ELFFile(stack.enter_context(path.open("rb")))
        tables = [table for name in (".symtab", ".strtab") if (table := elf.get_section_by_name(name)) is not None]
        if len(tables) != 2:
            raise ImportError(f"{path} has no symbols")
        symbols, strings = (table.data() for table in tables)
    offsets = {strings.find(f"\0{name}\0".encode()) + 1: name for name in names}
    addresses = {offsets[entry[0]]: entry[4] for entry in _SYMBOL.iter_unpack(symbols) if entry[0] in offsets}
    if missing := set(names) - addresses.keys():
        raise ImportError(f"{path} has no {min(missing)}")
    return addresses


def _work() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def load() -> Answer:
        library = _Library()

        def answer(question: dict[str, Any], data: bytes) -> tuple[Mapping[str, object], bytes]:
            try:
                return {"failure": "", "last": False}, library.compile(question, data.decode()).encode()
            except Exception as error:
                return {"failure": f"{type(error).__name__}: {error}", "last": False}, b""

        return answer

    serve_jobs(load)


_WORKERS = JobCrew(_work)


# Triton's LLVM IR as its own code generator sees it: that one adds two things which the text does not have yet.
#
# Source: ``triton_amdgpu_compile`` (third_party/amd of Triton 3.9): with ``enable_fp_fusion`` every ``fadd``, ``fsub``
# and ``fmul`` gets the flag ``contract``, and every function that is not ``noinline`` gets ``alwaysinline``.


_KERNEL = re.compile(r"^define amdgpu_kernel void @([a-zA-Z_][a-zA-Z0-9_]*)", re.MULTILINE)
_ARITHMETIC = re.compile(r"^(\s+%\S+ = f(?:add|sub|mul) )((?:[a-z]+ )*)", re.MULTILINE)
_DEFINE = re.compile(
    r"^(define (?!.*\bamdgpu_kernel\b).*\)(?: (?:local_)?unnamed_addr)?(?: addrspace\(\d+\))?)([^()]*\{)$", re.MULTILINE
)
_GROUP = re.compile(r"^attributes #(\d+) = \{(.*)\}$", re.MULTILINE)
_FLAGS = frozenset(["nnan", "ninf", "nsz", "arcp", "contract", "afn", "reassoc", "fast"])


def kernel_names(ir: str) -> list[str]:
    return _KERNEL.findall(ir)


def as_code_generated(ir: str, *, fp_fusion: bool) -> str:
    """``ir`` with what Triton's code generator adds to it."""
    text = _always_inline(ir)
    return _ARITHMETIC.sub(_contract, text) if fp_fusion else text


def _contract(match: re.Match[str]) -> str:
    words = match[2].split()
    flags = [word for word in words if word in _FLAGS]
    if "contract" in flags or "fast" in flags:
        return match[0]
    return f"{match[1]}{' '.join([*flags, 'contract', *words[len(flags) :]])} "


def _always_inline(ir: str) -> str:
    groups = dict(_GROUP.findall(ir))

    def inline(match: re.Match[str]) -> str:
        attributes = match[2] + " ".join(groups.get(number, "") for number in re.findall(r"#(\d+)", match[2]))
        if re.search(r"\b(?:noinline|optnone|alwaysinline)\b", attributes):
            return match[0]
        return f"{match[1]} alwaysinline{match[2]}"

    return _DEFINE.sub(inline, ir)
