"""Operands of MIR instructions from their text (llvm/lib/CodeGen/MIRParser/MIParser.cpp, MachineOperand.cpp).

Every form is listed: what is none of them is an error, never kept as an operand that means nothing.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from verilocc_mlir.errors import InputError, UnsupportedError
from verilocc_mlir.mir.model import Operand, OperandKind

NAME = r'(?:[-A-Za-z0-9$._]+|"[^"\n]*")'
"""A name as ``lexName`` takes it: what needs quotes has them."""
_OFFSET = r"(?: [+-] [0-9]{1,19})?"
TYPE = r"(?:[a-z]{1,2}[0-9]{1,8}|<(?:vscale x )?[0-9]{1,5} x [a-z]{1,2}[0-9]{1,8}>)"
"""A low-level type: ``s32``, ``p1``, ``<2 x s16>``."""
_FLAGS = "implicit-def|implicit|def|dead|killed|undef|internal|early-clobber|debug-use|renamable"
_REGISTER = re.compile(
    rf"((?:(?:{_FLAGS}) )*)(?:%([0-9]{{1,9}})(?:\.([A-Za-z0-9_]+))?(?::([A-Za-z0-9_]+))?|\$([A-Za-z0-9_]+))"
    rf"(?:\(tied-def ([0-9]{{1,9}})\))?(?:\(({TYPE})\))?\Z"
)
_LEFT = frozenset({"dead", "undef", "early-clobber", "renamable"})
_RIGHT_DEF = frozenset({"implicit-def", "def", *_LEFT})
_RIGHT_USE = frozenset({"implicit", "killed", "undef", "internal", "renamable"})
_IMMEDIATE = re.compile(r"(-?[0-9]{1,20})(?: /\* [^*]* \*/)?\Z")
_GLOBAL = rf"@{NAME}{_OFFSET}"
_EXTERNAL = rf"&{NAME}{_OFFSET}"
_CONSTANT = rf"%const\.[0-9]{{1,9}}{_OFFSET}"
_ASM_FLAG = (
    r"(?:(?:sideeffect|mayload|maystore|isconvergent|alignstack) )*(?:att|intel)dialect"
    r"|reg(?:def|def-ec|use)(?::\w+)?(?: tiedto:\$[0-9]{1,5})?(?: foldable)?|clobber|imm|func|mem(?::\w+)?"
)
"""LLVM pull requests 185893, 186397 and 186818; before them the words were comments behind numbers."""
_FORMS = (
    (OperandKind.ASM_FLAG, _ASM_FLAG),
    (OperandKind.BLOCK, r"%bb\.[0-9]{1,9}(?:\.[^\"`]+)?"),
    (OperandKind.FRAME_INDEX, r"%(?:stack\.[0-9]{1,9}(?:\.[^\"`]+)?|fixed-stack\.[0-9]{1,9})"),
    (OperandKind.GLOBAL, _GLOBAL),
    (OperandKind.EXTERNAL, _EXTERNAL),
    (OperandKind.REGMASK, r"csr_amdgpu\w*|CustomRegMask\((?:\$\w+(?:,\$\w+)*)?\)"),
    (
        OperandKind.OTHER,
        rf"target-flags\([a-z0-9-]+(?:, [a-z0-9-]+)*\) (?:-?[0-9]{{1,20}}|{_GLOBAL}|{_EXTERNAL}|{_CONSTANT})"
        rf"|{_CONSTANT}|%jump-table\.[0-9]{{1,9}}|%subreg\.\w+|<mcsymbol {NAME}>{_OFFSET}"
        r"|![0-9]{1,9}|!DIExpression\([\w, -]*\)|dbg-instr-ref\([0-9]{1,9}, [0-9]{1,9}\)"
        rf"|(?:int|float)pred\([a-z]+\)|intrinsic\(@{NAME}\)|shufflemask\([-\w, ]+\)"
        rf"|target-index\([\w-]+\){_OFFSET}|blockaddress\(@{NAME}, %ir-block\.{NAME}\){_OFFSET}"
        r"|liveout\(\$\w+(?:, \$\w+)*\)|i[0-9]{1,8} (?:-?[0-9]+|true|false)"
        r"|(?:half|bfloat|float|double) (?:0x[HR]?[0-9A-Fa-f]+|-?[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?)"
        r"|\.[A-Za-z0-9_]+|(?:undefined|same_value|restore|offset|rel_offset|def_cfa|def_cfa_register) \$\w+"
        r"|(?:def|adjust)_cfa_offset -?[0-9]+|(?:remember|restore)_state",
    ),
)
"""What is no register and no plain number. ``OTHER`` means what its text means and is compared as text: constants,
symbols, metadata, predicates, frame directives, and the mnemonics of ``S_DELAY_ALU`` and its like
(AMDGPUMIRFormatter.cpp).
"""
_NAMED_VREG = re.compile(r"(?:[a-z-]+ )*%(?!bb\.|stack\.|fixed-stack\.|const\.|jump-table\.|ir|subreg\.)[A-Za-z_]")


@lru_cache(maxsize=1 << 15)
def parse_operand(text: str, *, is_def: bool) -> Operand:
    """Parse one operand; ``is_def`` says it stood left of ``=``. A compile reads much the same text several times.

    Raises:
        InputError: a definition that is not a register; a register, block, stack object or number that LLVM refuses.
        UnsupportedError: a form this package does not know, or a named virtual register (``%foo``), which LLVM itself
            never prints.
    """
    match = _REGISTER.match(text)
    if match is None:
        if _NAMED_VREG.match(text):
            raise UnsupportedError(
                f"named virtual register {text!r}",
                hint="pass the file through llc -run-pass=none, which numbers them",
            )
        if is_def:
            raise InputError(f"{text!r} stands left of '=' but is not a register")
        return Operand(text, _other_kind(text))
    flag_text, vreg, sub, cls, phys, tied, llt = match.groups()
    flags = _register_flags(flag_text, is_def)
    if flags is None:
        raise InputError(f"{text!r}: register flags that do not go together")
    if tied and flags.is_def:
        raise InputError(f"{text!r}: a definition is not tied to another")
    if llt and phys:
        raise InputError(f"{text!r}: a physical register has no type")
    return Operand(
        text,
        OperandKind.REGISTER,
        int(vreg) if vreg else -1,
        phys or "",
        sub or "",
        cls or "",
        llt or "",
        int(tied) if tied else -1,
        *flags,
    )


class _Flags(NamedTuple):
    """The fields of ``Operand`` that flags decide, in its order."""

    flags: tuple[str, ...]
    is_def: bool
    implicit: bool
    undef: bool
    dead: bool
    killed: bool
    early_clobber: bool
    internal: bool
    renamable: bool


@lru_cache(maxsize=1024)
def _register_flags(text: str, left: bool) -> _Flags | None:
    """``parseRegisterFlag`` and ``parseRegisterOperand``: no flag twice, no killed definition, no dead use. Left of
    ``=`` ``implicit-def`` would move behind the other operands (``MachineInstr::addOperand``), and a debug use reads
    nothing: neither is printed. None where they do not go together.
    """
    flags = tuple(text.split())
    defines = left or "implicit-def" in flags or "def" in flags
    allowed = _LEFT if left else _RIGHT_DEF if defines else _RIGHT_USE
    if len(set(flags)) != len(flags) or not allowed.issuperset(flags) or {"def", "implicit-def"}.issubset(flags):
        return None
    implicit = "implicit" in flags or "implicit-def" in flags
    plain_flags = ("undef", "dead", "killed", "early-clobber", "internal", "renamable")
    return _Flags(flags, defines, implicit, *(flag in flags for flag in plain_flags))


def _other_kind(text: str) -> OperandKind:
    if match := _IMMEDIATE.match(text):
        if not -(1 << 63) <= int(match[1]) < 1 << 64:
            raise InputError(f"{text!r} does not fit 64 bits")
        return OperandKind.IMMEDIATE
    for kind, form in _FORMS:
        # Compiled when first asked for: most compiles meet the first few.
        if re.fullmatch(form, text, re.ASCII):
            return kind
    if text.startswith(("%", "$")):
        raise InputError(f"{text!r} is not an operand")
    raise UnsupportedError(f"{text!r} is not an operand that is known here")


def register_operand(
    *,
    vreg: int = -1,
    phys: str = "",
    sub: str = "",
    cls: str = "",
    llt: str = "",
    tied: int = -1,
    flags: tuple[str, ...] = (),
    is_def: bool = False,
) -> Operand:
    """Make a register operand, spelling its text as LLVM's printer does.

    ``flags`` must be in LLVM's order: ``implicit``/``implicit-def`` (or ``def``), ``internal``, ``dead``, ``killed``,
    ``undef``, ``early-clobber``, ``renamable`` (MachineOperand::print).
    """
    parts = [f"{flag} " for flag in flags]
    parts.append(f"%{vreg}" if vreg >= 0 else f"${phys}")
    if sub:
        parts.append(f".{sub}")
    if cls:
        parts.append(f":{cls}")
    if tied >= 0:
        parts.append(f"(tied-def {tied})")
    if llt:
        parts.append(f"({llt})")
    return parse_operand("".join(parts), is_def=is_def and not {"def", "implicit-def"}.intersection(flags))


def split_top_level(text: str, plain: str) -> list[str]:
    """Split at ``", "`` outside quotes and brackets; ``plain`` is ``text`` with what is quoted blotted out."""
    parts: list[str] = []
    depth = 0
    start = 0
    for mark in _MARKS.finditer(plain):
        char = mark[0]
        if char in "([{<":
            depth += 1
        elif char in ")]}>":
            depth -= 1
        elif depth == 0:
            parts.append(text[start : mark.start()])
            start = mark.end()
    parts.append(text[start:])
    return parts


_MARKS = re.compile(r"[][(){}<>]|, ")


def is_balanced(text: str) -> bool:
    """Whether brackets close within ``text``."""
    return text.count("(") == text.count(")") and text.count("<") == text.count(">")
