"""Whether an input can be compiled at all: the checks that need no llc, each with one clear message.

The checks read the text. llc itself reports errors of grammar (``StagedCompiler.to_pre_ra`` and ``accept_mir``).
"""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

from verilocc_mlir.errors import InputError
from verilocc_mlir.mir.model import STOP_BEFORE_ALL_PHASES
from verilocc_mlir.toolchain.drivers.job import TRIPLE, split_target_id
from verilocc_mlir.toolchain.find import INSTALL_HINT, LlvmTools, Toolchain
from verilocc_mlir.toolchain.run import DEFAULT_TIMEOUT, ToolFailure, run_tool

InputKind = Literal["ir", "mir"]

_BITCODE = (b"BC\xc0\xde", b"\xde\xc0\x17\x0b")
_BINARY = {
    b"\x7fELF": "an ELF file, compiled already",
    b"!<arch>": "an archive",
    b"ML\xefR": "MLIR bytecode",
    b"__CLANG_OFFLOAD_BUNDLE__": "an offload bundle",
    b"\x1f\x8b": "gzip data",
    b"PK\x03\x04": "a zip file",
}
_TRIPLE = re.compile(r'^[^\S\n]*target triple = "([^"]*)"', re.MULTILINE)
_LAYOUT = re.compile(r'^[^\S\n]*target datalayout = "([^"]*)"', re.MULTILINE)
_CPU = re.compile(r'"target-cpu"="([^"]+)"')
_DEFINE = re.compile(r"^[^\S\n]*define\b[^@\n]*@(\"[^\"]+\"|[\w.$-]+)", re.MULTILINE)
_UNNAMED = re.compile(r'"[^"]*"|;[^\n]*|@(?P<number>\d+)\b')
"""Strings and comments first, in which no number is a name."""
_DECLARE = re.compile(r"^[^\S\n]*declare\b", re.MULTILINE)
_MLIR = re.compile(r"^[^\S\n]*(?:module\b.*\{|#\w+ = |func\.func|gpu\.module)", re.MULTILINE)


class Input(Struct, frozen=True):
    """A usable input.

    Attributes:
        kind: LLVM IR (bitcode has become text) or machine IR.
        cpu: the processor, without features: ``"gfx942"``.
        mattr: features of the target id given, as ``-mattr`` takes them.
        path: the input's name in messages.
        functions: names of the functions with a body, in order.
    """

    kind: InputKind
    text: str
    cpu: str
    mattr: str
    path: str
    functions: tuple[str, ...]


def load_input(
    data: bytes, *, path: str = "<stdin>", cpu: str | None = None, toolchain: LlvmTools | None = None
) -> Input:
    """Decide what ``data`` is and whether it can be compiled.

    Args:
        data: LLVM IR text, bitcode, or pre-RA machine IR.
        cpu: processor or target id that the user gave; None: the functions' ``"target-cpu"``.
        toolchain: needed for bitcode, which goes through its llvm-dis.

    Raises:
        InputError: it cannot be compiled.
    """
    if data.startswith(_BITCODE):
        data = _disassemble(data, path, toolchain)
    text = decode(data, path)
    # IREE writes comments of LLVM IR's form before its machine IR.
    if text.startswith("---") or re.match(r"(?:\s*[#;].*\n)*\s*---(?: \||\r?\n)", text):
        return _machine_ir(text, path, cpu)
    if _MLIR.search(text) and not _DEFINE.search(text):
        raise InputError(
            "this is MLIR, not LLVM IR", where=path, hint="lower it and run mlir-translate --mlir-to-llvmir"
        )
    _check_target(text, path)
    functions = tuple(name.strip('"') for name in _DEFINE.findall(text))
    if not functions:
        if _DECLARE.search(text) or _TRIPLE.search(text):
            raise InputError("no function has a body: there is nothing to compile", where=path)
        raise InputError("this is neither LLVM IR nor machine IR: no function is defined", where=path)
    _check_closed(text, path)
    if any(name.isdecimal() for name in functions):
        text = _named(text)
        functions = tuple(name.strip('"') for name in _DEFINE.findall(text))
    return _with_processor("ir", text, text, path, cpu, functions)


def _named(text: str) -> str:
    """IR whose functions and globals without a name, ``@0``, have the one that LLVM gives them in an object."""
    return _UNNAMED.sub(lambda match: match[0] if match["number"] is None else f"@__unnamed_{match['number']}", text)


def _disassemble(data: bytes, path: str, toolchain: LlvmTools | None) -> bytes:
    if toolchain is None or toolchain.dis is None:
        place = toolchain.place if toolchain else Toolchain.place
        raise InputError(f"bitcode needs llvm-dis, which was not found {place}", where=path, hint=INSTALL_HINT)
    try:
        command = [toolchain.dis, "-o", "-", "-"]
        return run_tool(command, stdin=data, timeout=DEFAULT_TIMEOUT, stage="llvm-dis", where=path).stdout
    except ToolFailure as failure:
        raise InputError(
            f"the bitcode cannot be read: {failure.line}",
            where=path,
            hint="bitcode of a newer LLVM needs that LLVM's tools (VERILOCC_LLVM=DIR)",
        ) from failure


def decode(data: bytes, path: str) -> str:
    """The text of a file.

    Raises:
        InputError: it is empty, or no text; the message names the binary formats that are known.
    """
    if not data.strip():
        raise InputError("the input is empty", where=path)
    for magic, name in _BINARY.items():
        if data.startswith(magic):
            raise InputError(f"this is {name}, not LLVM IR or machine IR", where=path)
    zero = data.find(b"\0")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"this is not text: byte {error.start} is not UTF-8", where=path) from error
    if zero >= 0:
        raise InputError(f"this is not text: byte {zero} is zero", where=path)
    return text


def _check_target(text: str, path: str) -> None:
    """Refuse IR for another architecture: llc would compile it for whatever ``-mtriple`` says."""
    triple = _TRIPLE.search(text)
    if triple:
        parts = [*triple[1].split("-"), "", "", ""]
        where = f"{path}:{_line(text, triple.start())}"
        # LLVM 23 and later write the processor into the architecture: amdgpu9.42-amd-amdhsa.
        if not re.fullmatch(r"amdgcn|amdgpu[\w.]*", parts[0]):
            raise InputError(f"the IR is for {triple[1]!r}, not for {TRIPLE}", where=where)
        if parts[2] not in ("", "unknown") and not parts[2].startswith("amdhsa"):
            raise InputError(f"the IR is for {triple[1]!r}: only the amdhsa environment is supported", where=where)
    layout = _LAYOUT.search(text)
    if triple is None and layout and not re.search(r"-p5:32:32\b|(?:^|-)A5\b", layout[1]):
        raise InputError(
            "the IR has no target triple and a data layout that is not AMDGPU's",
            where=f"{path}:{_line(text, layout.start())}",
        )


def _check_closed(text: str, path: str) -> None:
    """Refuse text whose last definition does not end; llc reports whatever else is missing."""
    last = list(_DEFINE.finditer(text))[-1]
    if not re.search(r"\}[ \t]*(?:;.*)?$", text[last.start() :], re.MULTILINE):
        name = last[1].strip('"')
        where = f"{path}:{_line(text, last.start())}"
        raise InputError(f"the text ends inside function {name!r}: it is truncated", where=where)


def _machine_ir(text: str, path: str, cpu: str | None) -> Input:
    text = text.replace("\r\n", "\n")  # as LLVM reads it
    documents = [match.start() for match in re.finditer(r"^---\nname:", text, re.MULTILINE)]
    if not documents:
        raise InputError("this machine IR has no function: it is truncated, or only its IR module", where=path)
    module = text[: documents[0]]
    _check_target(module, path)
    names: list[str] = []
    for start, end in zip(documents, [*documents[1:], len(text)], strict=True):
        names.append(_check_machine_function(text[start:end], f"{path}:{_line(text, start)}"))
    _check_complete(module, names, path)
    return _with_processor("mir", text, module, path, cpu, tuple(names))


def _check_complete(module: str, names: list[str], path: str) -> None:
    """Refuse a function that has a body in the IR module and none in machine IR: it would be emitted empty."""
    for match in _DEFINE.finditer(module):
        name = match[1].strip('"')
        if name not in names and "available_externally" not in match[0] and "\\" not in name:
            where = f"{path}:{_line(module, match.start(1))}"
            raise InputError(f"the IR module defines {name!r}, which has no machine function", where=where)


def _check_machine_function(document: str, where: str) -> str:
    head = document.split("\n")[1]
    name = head.removeprefix("name:").strip().strip("'\"")
    body = re.search(r"^body: *(\|?)", document, re.MULTILINE)
    if body is None or not re.search(r"^\.\.\. *$", document, re.MULTILINE):
        raise InputError(f"function {name!r} is truncated: its document does not end", where=where)
    if not re.search(r"^ *bb\.\d+", document[body.end() :], re.MULTILINE):
        raise InputError(f"function {name!r} has no body", where=where)
    if not re.search(r"^tracksRegLiveness: +true$", document, re.MULTILINE):
        raise InputError(
            f"function {name!r} does not track liveness (tracksRegLiveness), which later passes need", where=where
        )
    if re.search(r"^isSSA: +true", document, re.MULTILINE):
        raise InputError(
            f"function {name!r} is still in SSA form: this is machine IR from before register allocation is set up",
            where=where,
            hint=f"stop llc with {STOP_BEFORE_ALL_PHASES}",
        )
    if re.search(r"^noVRegs: +true", document, re.MULTILINE):
        raise InputError(
            f"function {name!r} is allocated already: it has no virtual registers",
            where=where,
            hint=f"give machine IR from llc {STOP_BEFORE_ALL_PHASES}, or LLVM IR",
        )
    return name


def _with_processor(
    kind: InputKind, text: str, module: str, path: str, cpu: str | None, functions: tuple[str, ...]
) -> Input:
    processors = sorted({*_CPU.findall(module), *_triple_processor(module)})
    if cpu is not None:
        processor, mattr = split_target_id(cpu)
        other_processors = [name for name in processors if name != processor]
        if other_processors:
            raise InputError(
                f"it is compiled for {', '.join(other_processors)}, not for {processor}",
                where=path,
                hint="a function's target-cpu wins over -mcpu in LLVM: leave -mcpu out, or lower it for that target",
            )
        return Input(kind, text, processor, mattr, path, functions)
    if len(processors) != 1:
        message = f"it names several processors: {', '.join(processors)}" if processors else "it names no processor"
        raise InputError(message, where=path, hint="give one with -mcpu, for example -mcpu=gfx942")
    return Input(kind, text, processors[0], "", path, functions)


def named_processors(mir: str) -> tuple[str, ...]:
    """Processors that the IR module in machine IR names, in its functions' ``"target-cpu"`` or its triple."""
    module = mir.partition("\n---\nname:")[0]
    return tuple(sorted({*_CPU.findall(module), *_triple_processor(module)}))


def _triple_processor(module: str) -> list[str]:
    """The processor in a triple of LLVM 23 and later: ``amdgpu9.42-amd-amdhsa`` is gfx942."""
    triple = _TRIPLE.search(module)
    match = re.match(r"amdgpu(\d+)\.(\w+)-", triple[1]) if triple else None
    return [f"gfx{match[1]}{match[2]}"] if match else []


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1
