"""Operands of MIR instructions from their text (llvm/lib/CodeGen/MIRParser/MIParser.cpp, MachineOperand.cpp)."""

from __future__ import annotations

import re

from verilocc_mlir.errors import InputError, UnsupportedError
from verilocc_mlir.mir.model import Operand, OperandKind

_REGISTER = re.compile(
    r"(?P<flags>(?:(?:implicit-def|implicit|def|dead|killed|undef|internal|early-clobber|debug-use|renamable) )*)"
    r"(?:%(?P<vreg>[0-9]{1,9})|\$(?P<phys>[A-Za-z0-9_]+))"
    r"(?:\.(?P<sub>[A-Za-z0-9_]+))?"
    r"(?::(?P<cls>[A-Za-z0-9_]+))?"
    r"(?P<parens>(?:\([^()]*\))*)\Z"
)
_PAREN = re.compile(r"\(([^()]*)\)")
_IMMEDIATE = re.compile(r"-?[0-9]{1,40}(?: /\* .* \*/)?\Z")
_TIED = re.compile(r"tied-def ([0-9]{1,9})\Z")
_NUMBERED = re.compile(r"%(?:bb|stack|fixed-stack)\.[0-9]{1,9}(?:\..+)?\Z")
_PREFIXES = (
    ("%bb.", OperandKind.BLOCK),
    ("%stack.", OperandKind.FRAME_INDEX),
    ("%fixed-stack.", OperandKind.FRAME_INDEX),
    ("@", OperandKind.GLOBAL),
    ("&", OperandKind.EXTERNAL),
    ("csr_amdgpu", OperandKind.REGMASK),
    ("CustomRegMask(", OperandKind.REGMASK),
    ("<regmask", OperandKind.REGMASK),
)
_NAMED_VREG = re.compile(r"(?:[a-z-]+ )*%(?!bb\.|stack\.|fixed-stack\.|const\.|jump-table\.|ir|subreg\.)[A-Za-z_]")


def parse_operand(text: str, *, is_def: bool) -> Operand:
    """Parse one operand; ``is_def`` says it stood left of ``=``.

    Raises:
        InputError: a definition that is not a register; a block, stack object or tie without its number.
        UnsupportedError: a named virtual register (``%foo``), which LLVM itself never prints.
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
    flags = tuple(match["flags"].split())
    tied = -1
    llt = ""
    for paren in _PAREN.findall(match["parens"]):
        if match_tied := _TIED.match(paren):
            tied = int(match_tied[1])
        elif paren.startswith("tied-def"):
            raise InputError(f"({paren}) names no operand")
        else:
            llt = paren
    return Operand(
        text,
        OperandKind.REGISTER,
        vreg=int(match["vreg"]) if match["vreg"] else -1,
        phys=match["phys"] or "",
        sub=match["sub"] or "",
        cls=match["cls"] or "",
        llt=llt,
        tied=tied,
        flags=flags,
        is_def=is_def or "implicit-def" in flags or "def" in flags,
        implicit="implicit" in flags or "implicit-def" in flags,
        undef="undef" in flags,
        dead="dead" in flags,
        killed="killed" in flags,
        early_clobber="early-clobber" in flags,
        internal="internal" in flags,
        renamable="renamable" in flags,
    )


def _other_kind(text: str) -> OperandKind:
    if _IMMEDIATE.match(text):
        return OperandKind.IMMEDIATE
    for prefix, kind in _PREFIXES:
        if text.startswith(prefix):
            if kind in (OperandKind.BLOCK, OperandKind.FRAME_INDEX) and not _NUMBERED.match(text):
                raise InputError(f"{text!r} is not a {kind.value}")
            return kind
    return OperandKind.OTHER


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
    return parse_operand("".join(parts), is_def=is_def)


def split_top_level(text: str) -> list[str]:
    """Split at ``", "`` outside quotes and brackets."""
    parts: list[str] = []
    depth = 0
    quoted = False
    start = 0
    for k, char in enumerate(text):
        if char == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif char in "([{<":
            depth += 1
        elif char in ")]}>":
            depth -= 1
        elif char == "," and depth == 0 and text[k + 1 : k + 2] == " ":
            parts.append(text[start:k])
            start = k + 2
    parts.append(text[start:])
    return parts


def is_balanced(text: str) -> bool:
    """Whether quotes and round brackets close within ``text``."""
    return text.count("(") == text.count(")") and text.count('"') % 2 == 0 and text.count("<") == text.count(">")
