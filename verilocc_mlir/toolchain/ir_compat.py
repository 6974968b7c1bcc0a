"""LLVM IR of newer front ends (LLVM 23 and 24: IREE 3.13, torch-mlir, Triton 3.9) rewritten for LLVM 22.

Only text that the llc at hand rejects or misreads is rewritten; a newer llc reads it as it is. Each rewrite keeps the
meaning or is conservative. llc reports what this module does not know.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from fractions import Fraction

from msgspec import Struct

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


class Downgraded(Struct, frozen=True):
    """IR for LLVM 22, and a phrase for each change."""

    text: str
    changes: tuple[str, ...]


class PreRa(Struct, frozen=True):
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

    lines = ir.split("\n")
    for index, line in enumerate(lines):
        if _FLOAT_LITERAL.search(line):
            try:
                lines[index] = convert_line(line)
            except ValueError as error:
                raise UnsupportedError(f"cannot write {error} for LLVM 22", where=f"{where}:{index + 1}") from error
    return "\n".join(lines)


# String attributes of functions, set in the text of IR.


def with_attributes(text: str, attributes: Sequence[tuple[str, str]]) -> str:
    """IR, or machine IR with its IR, whose functions have these string attributes in place of those of that name."""
    if not attributes:
        return text
    for name, _ in attributes:
        text = re.sub(rf'"{name}"="[^"]*" ?', "", text)
    added = " ".join(f'"{name}"="{value}"' for name, value in attributes)
    return re.sub(r"^( *define .*\))((?: (?:local_unnamed_addr|unnamed_addr))?)", rf"\1\2 {added}", text, flags=re.M)


def without_features(text: str, features: Collection[str]) -> str:
    """IR, or machine IR with its IR, whose functions do not name these features (``+name``, ``-name``)."""

    def rest(match: re.Match[str]) -> str:
        return f'"target-features"="{",".join(f for f in match[1].split(",") if f not in features)}"'

    return re.sub(r'"target-features"="([^"]*)"', rest, text)


_HARDWARE = (
    *("dispatch-ptr", "queue-ptr", "dispatch-id", "implicitarg-ptr"),
    *(f"{of}-id-{axis}" for of in ("workgroup", "cluster", "workitem") for axis in "xyz"),
)
"""What every function is handed by its callers, unless an attribute ``amdgpu-no-…`` says that it does not read it, as
the number of a work-group one of its cluster too (SITargetLowering::passSpecialInputs). Not the number of a kernel for
LDS: LLVM lowers LDS later."""
_DEFINITION = re.compile(r'^(?P<head> *define [^@\n]*)@(?P<name>"[^"]+"|[\w.$-]+)(?P<rest>\(.*)$', re.MULTILINE)
_GROUP = re.compile(r"^attributes (#\d+) = \{(.*)\}", re.MULTILINE)
_NESTING = re.compile(r'"[^"]*"|[()]')
_BEHIND_PARAMETERS = re.compile(r"(?: local_unnamed_addr| unnamed_addr)?(?: addrspace\(\d+\))?")


def without_unread_arguments(ir: str, inferred: str) -> str:
    """IR whose local functions say which arguments of the hardware they do not read, as ``inferred`` says of them."""
    groups = dict(_GROUP.findall(inferred))
    unread = {match["name"]: _unread(match["rest"], groups) for match in _DEFINITION.finditer(inferred)}
    known = dict(_GROUP.findall(ir))

    def stated(match: re.Match[str]) -> str:
        words = match["head"].split()
        names = [n for n in unread.get(match["name"], ()) if n not in _unread(match["rest"], known)]
        at = _end_of_parameters(match["rest"])
        if not {"internal", "private"} & {*words} or any(w.startswith(("amdgpu_", "spir_")) for w in words) or not at:
            return match[0]
        rest = match["rest"]
        return f"{match['head']}@{match['name']}{rest[:at]}{''.join(f' {name}' for name in names)}{rest[at:]}"

    return _DEFINITION.sub(stated, ir)


def _unread(rest: str, groups: Mapping[str, str]) -> list[str]:
    """What the attributes of a definition say, ``rest`` of which stands behind its name."""
    attributes = rest + "".join(groups.get(group, "") for group in re.findall(r"#\d+", rest))
    return [name for name in (f'"amdgpu-no-{of}"' for of in _HARDWARE) if name in attributes]


def _end_of_parameters(rest: str) -> int:
    """Where attributes may be put behind parameters, which ``rest`` begins with; 0: they do not end in it."""
    depth = 0
    for match in _NESTING.finditer(rest):
        depth += {"(": 1, ")": -1}.get(match[0], 0)
        if not depth:
            behind = _BEHIND_PARAMETERS.match(rest, match.end())
            return match.end() if behind is None else behind.end()
    return 0


# Floating-point literals of newer LLVM in the forms that LLVM 22 reads.
#
# LLVM 23 and later print the shortest decimal that rounds to the value, ``f0x`` with the bits of the type itself, and
# ``+inf``, ``-qnan``, ``+nan(0x…)``, ``+snan(0x…)``. LLVM 22 wants a decimal to be exact in its type and a ``float`` as
# the bits of the double of equal value, and has no names (LangRef, "Simple Constants"; llvm/lib/AsmParser/LLLexer.cpp).


class _Format(Struct, frozen=True):
    """An IEEE binary format: stored significand bits, exponent bits, and LLVM 22's prefix for its literals."""

    fraction: int
    exponent: int
    prefix: str

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.fraction

    @property
    def bias(self) -> int:
        return (1 << self.exponent - 1) - 1


_FORMATS = {
    "half": _Format(10, 5, "0xH"),
    "bfloat": _Format(7, 8, "0xR"),
    "float": _Format(23, 8, "0x"),
    "double": _Format(52, 11, "0x"),
}

# Strings, comments and names first, so that nothing inside them is taken for a type or a number.
_TOKEN = re.compile(
    r'"[^"]*"|;[^\n]*|[%@$!][\w.$-]+|'
    r"(?P<type>\b(?:half|bfloat|float|double|fp128|x86_fp80|ppc_fp128)\b)|"
    r"(?P<bits>\bf0x[0-9A-Fa-f]+)|"
    r"(?P<special>[+-](?:inf|qnan|s?nan\(0x[0-9A-Fa-f]+\)))|"
    r"(?P<decimal>(?<![\w.])[+-]?\d+\.\d*(?:[eE][+-]?\d+)?)"
)


def convert_line(line: str) -> str:
    """One line of IR with its literals in LLVM 22's forms.

    A literal's type is the last floating-point type before it on the line. It stands before the literal, or, in
    arithmetic, comparisons and phis, before the first operand. Literals that LLVM 22 reads are not changed.

    Raises:
        ValueError: a literal has a type that is not handled here (fp128, x86_fp80), or no type.
    """
    kind = ""

    def convert(match: re.Match[str]) -> str:
        nonlocal kind
        if match["type"]:
            kind = match["type"]
        elif match["bits"] or match["special"]:
            return _literal(match[0], kind)
        elif match["decimal"] and kind in ("half", "bfloat", "float"):
            return _decimal(match[0], kind)
        return match[0]

    return _TOKEN.sub(convert, line)


def encode_decimal(text: str, kind: str) -> int:
    """The bits of ``kind`` nearest to a decimal, ties to even."""
    form = _FORMATS[kind]
    sign = 1 << form.bits - 1 if text.startswith("-") else 0
    value = abs(Fraction(text))
    if value == 0:
        return sign
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    if Fraction(2) ** exponent > value:
        exponent -= 1
    exponent = max(exponent, 1 - form.bias)
    units = round(value / Fraction(2) ** (exponent - form.fraction))
    # A subnormal has no hidden bit; a carry into the next binade comes out right by itself.
    encoded = units + (exponent + form.bias - 1 << form.fraction)
    infinity = (1 << form.exponent) - 1 << form.fraction
    return sign | min(encoded, infinity)


def _decimal(text: str, kind: str) -> str:
    bits = encode_decimal(text, kind)
    if _exact(text, bits, kind):
        return text
    return _spell(bits, kind)


def _literal(text: str, kind: str) -> str:
    form = _FORMATS.get(kind)
    if form is None:
        raise ValueError(f"literal {text} of type {kind or 'unknown'}")
    if text.startswith("f0x"):
        bits = int(text[3:], 16)
        if bits >> form.bits:
            raise ValueError(f"literal {text} is too wide for {kind}")
        return _spell(bits, kind)
    sign = 1 << form.bits - 1 if text[0] == "-" else 0
    infinity = (1 << form.exponent) - 1 << form.fraction
    quiet = 1 << form.fraction - 1
    name, _, payload = text[1:].rstrip(")").partition("(")
    if name == "inf":
        return _spell(sign | infinity, kind)
    bits = sign | infinity | (int(payload, 16) if payload else 0)
    return _spell(bits if name == "snan" else bits | quiet, kind)


def _spell(bits: int, kind: str) -> str:
    form = _FORMATS[kind]
    if kind == "float":
        return f"0x{_widen(bits):016X}"
    return f"{form.prefix}{bits:0{form.bits // 4}X}"


def _value(bits: int, kind: str) -> Fraction:
    """The value of a finite encoding, its sign left off."""
    form = _FORMATS[kind]
    exponent = bits >> form.fraction & (1 << form.exponent) - 1
    fraction = bits & (1 << form.fraction) - 1
    if exponent:
        fraction |= 1 << form.fraction
    return Fraction(fraction) * Fraction(2) ** (max(exponent, 1) - form.bias - form.fraction)


def _exact(text: str, bits: int, kind: str) -> bool:
    form = _FORMATS[kind]
    infinity = (1 << form.exponent) - 1
    return bits >> form.fraction & infinity != infinity and _value(bits, kind) == abs(Fraction(text))


def _widen(bits: int) -> int:
    """The double of equal value to a float, NaN payloads shifted along and signalling ones kept."""
    single, double = _FORMATS["float"], _FORMATS["double"]
    sign = bits >> 31 << 63
    exponent = bits >> single.fraction & 0xFF
    fraction = bits & (1 << single.fraction) - 1
    shift = double.fraction - single.fraction
    if exponent == 0xFF:
        return sign | 0x7FF << double.fraction | fraction << shift
    if exponent == 0 and fraction:
        # A float's subnormal is normal as a double.
        lead = fraction.bit_length() - 1
        exponent = lead - single.fraction + 1
        fraction = (fraction << single.fraction - lead) & (1 << single.fraction) - 1
    elif exponent == 0:
        return sign
    return sign | (exponent - single.bias + double.bias) << double.fraction | fraction << shift
