"""The library with which Triton 3.9 compiles for AMD GPUs, stopped between its passes, in a process of its own.

``libtriton_amd_codegen`` exports four functions, none of which takes LLVM's options. Its table of local symbols has
``LLVMParseCommandLineOptions``, which is called by its address here: what then comes out of Triton's own call is the
text where the option says. An error of LLVM ends the process.
"""

from __future__ import annotations

import ctypes
import importlib
import resource
import struct
from collections.abc import Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile

from verilocc_mlir.crew.descendants import JobWorker, serve_jobs
from verilocc_mlir.crew.jobs import JobCrew
from verilocc_mlir.crew.serve import Answer
from verilocc_mlir.crew.worker import Late, WorkerFailure
from verilocc_mlir.errors import ToolchainError

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
    with _workers().worker() as worker:
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


@cache
def _workers() -> JobCrew:
    return JobCrew(_work)


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
