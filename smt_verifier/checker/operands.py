"""Operands, memory operands and attributes of an instruction: one expression for each, which lists every form.

The forms are those that MachineOperand.cpp prints (``MachineOperand::print``, ``MachineMemOperand::print``) and the
targets' AMDGPUMIRFormatter.cpp. LLVM's parser takes more; what it never prints is refused.
"""

from __future__ import annotations

import re
from functools import lru_cache

from smt_verifier.checker.model import Kind, MemoryOperand, Operand
from smt_verifier.checker.outcome import Refused

NUMBER = r"(?:0|[1-9][0-9]{0,8})"
WORD = r"[-A-Za-z0-9$._]+"
NAME = rf'(?:{WORD}|"[^"\n]*")'
"""A name as ``lexName`` of MILexer.cpp takes it: what needs quotes has them."""
_LONG = r"(?:0|[1-9][0-9]{0,18})"
_OFFSET = rf"(?: [+-] {_LONG})?"
_SCALAR = r"[a-z]{1,2}[1-9][0-9]{0,7}"
_TYPE = rf"(?:{_SCALAR}|p0|<(?:vscale x )?[1-9][0-9]{{0,4}} x (?:{_SCALAR}|p0)>)"
_FLAGS = (
    "(?:implicit-def |implicit |def )?(?:internal )?(?:dead )?(?:killed )?(?:undef )?(?:early-clobber )?(?:renamable )?"
)
_REGISTER = (
    rf"{_FLAGS}(?:%{NUMBER}(?:\.[a-z0-9_]+)?(?::[A-Za-z0-9_]+)?(?:\(tied-def {NUMBER}\))?(?:\({_TYPE}\))?"
    rf"|\$[a-z0-9_]+(?:\(tied-def {NUMBER}\))?)"
)
_PARTS = re.compile(
    rf"({_FLAGS})((?:%({NUMBER})(?:\.([a-z0-9_]+))?(?::([A-Za-z0-9_]+))?|\$([a-z0-9_]+))"
    rf"(?:\(tied-def ({NUMBER})\))?(?:\(({_TYPE})\))?)\Z"
)
_GLOBAL = rf"@{NAME}{_OFFSET}"
_EXTERNAL = rf"&{NAME}{_OFFSET}"
_CONSTANT = rf"%const\.{NUMBER}{_OFFSET}"
_ASM_FLAG = (
    r"(?:(?:sideeffect|mayload|maystore|isconvergent|alignstack) )*(?:att|intel)dialect"
    rf"|reg(?:def-ec|def|use)(?::\w+)?(?: tiedto:\${NUMBER})?(?: foldable)?|clobber|imm|func|mem(?::\w+)?"
)
"""LLVM pull requests 185893, 186397 and 186818; before them the words were comments behind numbers."""
_OTHER = (
    rf"target-flags\([a-z0-9-]+(?:, [a-z0-9-]+)*\) (?:0|-?[1-9][0-9]{{0,19}}|{_GLOBAL}|{_EXTERNAL}|{_CONSTANT})"
    rf"|{_CONSTANT}|%jump-table\.{NUMBER}|%subreg\.[a-z0-9_]+|<mcsymbol {NAME}>{_OFFSET}"
    rf"|!{NUMBER}|!DIExpression\([\w, -]*\)|dbg-instr-ref\({NUMBER}, {NUMBER}\)"
    rf"|(?:int|float)pred\([a-z]+\)|intrinsic\(@{NAME}\)|shufflemask\([-\w, ]+\)"
    rf"|target-index\([\w-]+\){_OFFSET}|blockaddress\(@{NAME}, %ir-block\.{NAME}\){_OFFSET}"
    r"|liveout\(\$\w+(?:, \$\w+)*\)|i[0-9]{1,8} (?:-?[0-9]+|true|false)"
    r"|(?:half|bfloat|float|double) (?:0x[HR]?[0-9A-Fa-f]+|-?[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?)"
    r"|\.[A-Za-z0-9_]+|(?:undefined|same_value|restore|offset|rel_offset|def_cfa|def_cfa_register) \$\w+"
    r"|(?:def|adjust)_cfa_offset -?[0-9]+|(?:remember|restore)_state"
)
OPERAND = re.compile(
    rf"(?:(?P<REGISTER>{_REGISTER})|(?P<IMMEDIATE>0|-?[1-9][0-9]{{0,19}})(?: /\* [^*\n]* \*/)?|(?P<BLOCK>%bb\.{NUMBER})"
    rf"|(?P<FRAME_INDEX>%stack\.{NUMBER}(?:\.{WORD})?)|(?P<FIXED_FRAME>%fixed-stack\.{NUMBER})|(?P<GLOBAL>{_GLOBAL})"
    rf"|(?P<EXTERNAL>{_EXTERNAL})|(?P<REGMASK>csr_amdgpu\w*|CustomRegMask\((?:\$\w+(?:,\$\w+)*)?\))"
    rf"|(?P<ASM_FLAG>{_ASM_FLAG})|(?P<OTHER>{_OTHER}))(?=[, ;]|\Z)",
    re.ASCII,
)
"""An operand right of an opcode. The name of its group is that of its ``Kind``."""
DEFINITION = re.compile(rf"({_REGISTER})(, | = )", re.ASCII)
"""One operand left of ``=``, with what separates it from the next."""
_LOCATION = r"(?:[\w:, ]|!(?!DILocation\())*"
ATTRIBUTE = re.compile(
    rf"(?:(pre-instr-symbol <mcsymbol {NAME}>)|(post-instr-symbol <mcsymbol {NAME}>)|(heap-alloc-marker !{NUMBER})"
    rf"|(pcsections !{NUMBER})|(cfi-type {_LONG})|(deactivation-symbol @{NAME})|(mmra !{NUMBER})"
    rf"|(debug-instr-number {NUMBER})"
    rf"|(debug-location (?:!{NUMBER}|!DILocation\({_LOCATION}(?:!DILocation\({_LOCATION}\){_LOCATION})?\))))"
    r"(?=[, ;]|\Z)",
    re.ASCII,
)
"""An attribute behind the operands. The number of its group is its place among them."""
_PLACE = (
    rf"%ir\.{NAME}|@{NAME}|`[^`\n]*`|%stack\.(?P<stack>{NUMBER})(?:\.{WORD})?|%fixed-stack\.(?P<fixed>{NUMBER})"
    rf"|stack|got|jump-table|constant-pool|unknown-address|call-entry [@&]{NAME}|custom \"[A-Za-z]+\""
)
MEMORY = re.compile(
    r"\((?P<volatile>volatile )?(?P<non_temporal>non-temporal )?(?P<dereferenceable>dereferenceable )?"
    r"(?P<invariant>invariant )?(?P<target>(?:\"amdgpu-[a-z-]+\" )*)(?P<way>load store|load|store)"
    r"(?P<ordering>(?: syncscope\(\"[^\"\n]*\"\))?(?: (?:unordered|monotonic|acquire|release|acq_rel|seq_cst)){0,2})"
    rf" (?P<size>\({_TYPE}\)|unknown-size|{_LONG})"
    rf"(?: (?P<preposition>from|into|on) (?P<pointer>{_PLACE})(?P<offset>{_OFFSET}))?"
    rf"(?P<rest>(?:, align {_LONG})?(?:, basealign {_LONG})?(?:, !tbaa !{NUMBER})?(?:, !alias\.scope !{NUMBER})?"
    rf"(?:, !noalias !{NUMBER})?(?:, !noalias\.addrspace !{NUMBER})?(?:, !range !{NUMBER})?"
    rf"(?:, addrspace {NUMBER})?)\)",
    re.ASCII,
)
"""A memory operand, its parentheses included: each part once and in this order."""
_PREPOSITION = {"load": "from", "store": "into", "load store": "on"}
_LEFT = frozenset({"dead", "undef", "early-clobber", "renamable"})
_DEFINED = _LEFT | {"def", "implicit"}
_USED = frozenset({"implicit", "killed", "undef", "internal", "renamable"})


@lru_cache(maxsize=1 << 14)
def register(text: str, left: bool) -> Operand:
    """A register operand, which ``OPERAND`` or ``DEFINITION`` has found; ``left``: left of ``=``.

    Raises:
        Refused: flags that do not go together (``parseRegisterOperand``: no killed definition, no dead use).
    """
    match = _PARTS.match(text)
    if match is None:
        raise Refused("operand", f"{text!r} is no register")
    words, rest, vreg, sub, cls, name, tied, llt = match.groups()
    flags = set(words.replace("implicit-def", "implicit def").split())
    allowed = _LEFT if left else _DEFINED if "def" in flags else _USED
    if not flags <= allowed or (vreg and "renamable" in flags) or (tied and (left or "def" in flags)):
        raise Refused("operand", f"{text!r} has flags that do not go together")
    return Operand(
        Kind.REGISTER,
        rest,
        name or "",
        int(vreg) if vreg else -1,
        sub or "",
        cls or "",
        llt or "",
        int(tied) if tied else -1,
        frozenset(flags | {"def"} if left else flags),
    )


@lru_cache(maxsize=1 << 14)
def immediate(text: str) -> Operand:
    """A plain number.

    Raises:
        Refused: it does not fit 64 bits.
    """
    number = int(text)
    if not -(1 << 63) <= number < 1 << 64:
        raise Refused("operand", f"{text} does not fit 64 bits")
    return Operand(Kind.IMMEDIATE, text, number=number)


@lru_cache(maxsize=1 << 12)
def memory_operand(text: str) -> MemoryOperand:
    """A memory operand, which ``MEMORY`` has found.

    Raises:
        Refused: its preposition is not that of a load, or store.
    """
    match = MEMORY.fullmatch(text)
    if match is None or (match["preposition"] or _PREPOSITION[match["way"]]) != _PREPOSITION[match["way"]]:
        raise Refused("memory", f"the memory operand {text!r} is not as LLVM prints it")
    return MemoryOperand(
        text=text[1:-1],
        loads="load" in match["way"],
        stores="store" in match["way"],
        volatile=match["volatile"] is not None,
        non_temporal=match["non_temporal"] is not None,
        dereferenceable=match["dereferenceable"] is not None,
        invariant=match["invariant"] is not None,
        target_flags=tuple(match["target"].split()),
        ordering=match["ordering"].strip(),
        size=match["size"].strip("()"),
        pointer=match["pointer"] or "",
        offset=int((match["offset"] or "0").replace(" ", "")),
        rest=match["rest"],
        stack_object=int(match["stack"] or -1),
        fixed_object=int(match["fixed"] or -1),
    )
