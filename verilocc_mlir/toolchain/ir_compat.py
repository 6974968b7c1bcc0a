"""LLVM IR of newer front ends (LLVM 23 and 24: IREE 3.13, torch-mlir, Triton 3.9) rewritten for LLVM 22.

Only text that the llc at hand rejects or misreads is rewritten; a newer llc reads it as it is. Each rewrite keeps the
meaning or is conservative. llc reports what this module does not know.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass

from verilocc_mlir.errors import InputError, UnsupportedError
from verilocc_mlir.toolchain.drivers.job import TRIPLE
from verilocc_mlir.toolchain.staged import StagedCompiler

_DENORMAL_NAMES = {
    "ieee": "ieee",
    "preservesign": "preserve-sign",
    "positivezero": "positive-zero",
    "dynamic": "dynamic",
}
_FPENV = re.compile(
    r"\bdenormal_fpenv\((?:(?P<all>[a-z]+(?:\|[a-z]+)?))?(?:, *)?(?:float: *(?P<float>[a-z]+(?:\|[a-z]+)?))?\)"
)
_FLOAT_LITERAL = re.compile(r"\bf0x|[+-](?:inf|qnan|s?nan\()|\d\.\d")
_UNIFORM = "uniform-work-group-size"
_RSRC = "llvm.amdgcn.make.buffer.rsrc"
_RSRC_CALL = re.compile(
    r"(?P<head>^(?P<indent> *)(?:%\S+ = )?(?:tail |musttail |notail )?call\b.*?"
    r"@llvm\.amdgcn\.make\.buffer\.rsrc\.p\d+\.p\d+)"
    r"\.i32\((?P<args>.*)\)(?P<tail>[^()]*)$"
)
_TARGET_MEMORY = re.compile(r"(?P<head>\bmemory\((?:[^()\"]*, )?)target_mem: (?P<access>none|read|write|readwrite)\b")
_NEWER = re.compile(r"@llvm\.amdgcn\.make\.buffer\.rsrc\.p\d+\.p\d+\.i32\(|\bdenormal_fpenv\(|\btarget_mem: ")
"""What no LLVM 22 reads."""
_RSRC_DECLARE = re.compile(r"^(declare .*@llvm\.amdgcn\.make\.buffer\.rsrc\.p\d+\.p\d+)\.i32\((.*), i32, i32\)(.*)$")


@dataclass(frozen=True)
class Downgraded:
    """IR for LLVM 22, and a phrase for each change."""

    text: str
    changes: tuple[str, ...]


@dataclass(frozen=True)
class PreRa:
    """Pre-RA machine IR, the IR text that llc accepted (also for the direct compile), and a phrase for each change."""

    mir: str
    ir: str
    changes: tuple[str, ...]


def to_pre_ra(compiler: StagedCompiler, ir: str) -> PreRa:
    """``StagedCompiler.to_pre_ra``; if LLVM rejects the IR, once more with the IR rewritten.

    LLVM 22 does not reject but misreads a bare ``"uniform-work-group-size"``, so that is rewritten before the first
    try. What it is known to reject is rewritten before the first try too: a rejection costs more than a small kernel.

    Raises:
        InputError: llc rejects the IR, and nothing in it belongs to a newer LLVM.
        UnsupportedError: the IR is of a newer LLVM, and llc rejects it even after the rewrite.
    """
    lowered_ir, changes = ir, ()
    if compiler.toolchain.version < (23,):
        if _NEWER.search(ir):
            lowered = downgrade(ir, where=compiler.options.input_name)
            with contextlib.suppress(InputError):  # which is told in the words of both tries below
                return PreRa(compiler.to_pre_ra(lowered.text), lowered.text, lowered.changes)
        lowered_ir = _uniform_work_group_size(ir)
        changes = (_UNIFORM,) if lowered_ir != ir else ()
    try:
        return PreRa(compiler.to_pre_ra(lowered_ir), lowered_ir, changes)
    except InputError as rejection:
        lowered = downgrade(ir, where=compiler.options.input_name)
        if not lowered.changes:
            raise
        try:
            return PreRa(compiler.to_pre_ra(lowered.text), lowered.text, lowered.changes)
        except InputError as second:
            rewritten = ", ".join(lowered.changes)
            raise UnsupportedError(
                f"the IR is of a newer LLVM ({rejection.what}); with {rewritten} rewritten, {second.what}",
                where=compiler.options.input_name,
                hint="use the LLVM that wrote it (VERILOCC_LLVM=DIR, for example ROCm's llvm/bin)",
            ) from second


def downgrade(ir: str, *, where: str = "") -> Downgraded:
    """Rewrite what LLVM 22 does not read.

    Raises:
        UnsupportedError: something has no equivalent: address spaces 10 to 15, literals of unusual types.
    """
    reserved = re.search(r"\baddrspace\(1[0-5]\)", ir)
    if reserved:
        line = ir.count("\n", 0, reserved.start()) + 1
        raise UnsupportedError(f"{reserved[0]} does not exist in LLVM 22", where=f"{where}:{line}" if where else "")
    changes: list[str] = []
    text = ir
    steps: tuple[tuple[str, Callable[[str], str]], ...] = (
        ("target triple", _triple),
        ("data layout", _layout),
        ("denormal_fpenv", _denormal_fpenv),
        ("target_mem", _target_memory),
        (_UNIFORM, _uniform_work_group_size),
        (f"{_RSRC} with an i32 length", _buffer_resources),
        ("floating-point literals", lambda source: _literals(source, where)),
    )
    for name, step in steps:
        changed = step(text)
        if changed != text:
            changes.append(name)
            text = changed
    return Downgraded(text, tuple(changes))


def _triple(ir: str) -> str:
    return re.sub(r'^(target triple = )"amdgpu[\w.]*-[^"]*"', rf'\1"{TRIPLE}"', ir, flags=re.MULTILINE)


def _layout(ir: str) -> str:
    """Drop a newer layout: llc computes it from the triple, and the newer one only adds refused address spaces."""
    return re.sub(r'^target datalayout = ".*-p1[0-5]:.*"\n', "", ir, flags=re.MULTILINE)


def _denormal_fpenv(ir: str) -> str:
    def mode(text: str) -> str:
        output, _, input_mode = text.partition("|")
        return f"{_DENORMAL_NAMES[output]},{_DENORMAL_NAMES[input_mode or output]}"

    def attributes(match: re.Match[str]) -> str:
        strings: list[str] = []
        if match["all"]:
            strings.append(f'"denormal-fp-math"="{mode(match["all"])}"')
        if match["float"]:
            strings.append(f'"denormal-fp-math-f32"="{mode(match["float"])}"')
        return " ".join(strings)

    # The attribute also stands in comments ("; Function Attrs: …"), where it does no harm either way.
    return _FPENV.sub(attributes, ir) if "denormal_fpenv" in ir else ir


def _target_memory(ir: str) -> str:
    """Write ``target_mem`` as ``target_mem0`` and ``target_mem1``.

    In ``memory(write, target_mem: none)`` LLVM 24 has one word for both of the target's locations
    (AttributeImpl::getAsString). LLVM 22 only knows each of them (IRMemLocation::TargetMem0 and TargetMem1). Without
    the word they would have the default access, which may be less.
    """
    return _TARGET_MEMORY.sub(r"\g<head>target_mem0: \g<access>, target_mem1: \g<access>", ir)


def _uniform_work_group_size(ir: str) -> str:
    """Give the attribute a value: LLVM 22 reads the bare form as false, so code is slower and the metadata lacks it."""
    return re.sub(rf'"{_UNIFORM}"(?!=)', f'"{_UNIFORM}"="true"', ir)


def _buffer_resources(ir: str) -> str:
    """Widen the length: LLVM 22's intrinsic has 64 bits and does not name the type. The length is unsigned in both."""
    if _RSRC not in ir:
        return ir
    lines = ir.split("\n")
    count = 0
    for index, line in enumerate(lines):
        if _RSRC not in line:
            continue
        call = _RSRC_CALL.match(line)
        if call:
            pointer, stride, length, flags = _arguments(call["args"])
            value = length.split()[-1]
            before = ""
            if not re.fullmatch(r"\d+", value):
                name = f"%verilocc.length.{count}"
                before, value = f"{call['indent']}{name} = zext i32 {value} to i64\n", name
                count += 1
            lines[index] = f"{before}{call['head']}({pointer}, {stride}, i64 {value}, {flags}){call['tail']}"
            continue
        lines[index] = _RSRC_DECLARE.sub(r"\1(\2, i64, i32)\3", line)
    return "\n".join(lines).replace(".make.buffer.rsrc.p7.p1.i64(", ".make.buffer.rsrc.p7.p1(")


def _arguments(text: str) -> list[str]:
    """The arguments of a call, split at the commas outside brackets."""
    parts: list[str] = []
    depth = start = 0
    for index, char in enumerate(text):
        if char in "([{<":
            depth += 1
        elif char in ")]}>":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:index].strip())
            start = index + 1
    return [*parts, text[start:].strip()]


def _literals(ir: str, where: str) -> str:
    from verilocc_mlir.toolchain.float_literals import convert_line

    lines = ir.split("\n")
    for index, line in enumerate(lines):
        if _FLOAT_LITERAL.search(line):
            try:
                lines[index] = convert_line(line)
            except ValueError as error:
                raise UnsupportedError(f"cannot write {error} for LLVM 22", where=f"{where}:{index + 1}") from error
    return "\n".join(lines)
