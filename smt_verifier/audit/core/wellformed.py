"""Whether a text is machine IR by LLVM's tables, each opcode with the operands that it has; and whether the IR module
before it stays as it was.

A text that breaks this means something else to LLVM than what is read here, or LLVM refuses it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import zip_longest

from smt_verifier.audit.core.opcodes import DEBUG, table_of
from smt_verifier.audit.core.report import Finding
from smt_verifier.audit.core.semantics import ALIASES, changes_addressing, is_followed
from smt_verifier.outcome import Outcome
from verilocc_mlir.errors import InputError, UnsupportedError
from verilocc_mlir.mir.header import header_field
from verilocc_mlir.mir.model import Instruction, MachineFunction, OperandKind
from verilocc_mlir.target.registers import Bank, physical_register

_SAME_REGISTER = {"vcc_lo": "vcc", "exec_lo": "exec"}
"""On wave32 targets the lower halves stand for the whole ones that the table names."""


def malformed(function: MachineFunction) -> Iterator[Finding]:
    """What is wrong with a function as a text.

    Raises:
        UnsupportedError: an opcode is not in LLVM's table, or an instruction is of a kind that is not followed.
    """
    if header_field(function, "tracksRegLiveness") != "true":
        yield _invalid("tracksRegLiveness is not true: LLVM would not know what is live", -1, None)
    names = {op.phys for op in function.distinct_operands if op.phys}
    misaligned = frozenset(filter(_is_misaligned, names))
    all_followed = ALIASES.isdisjoint(names) and "INLINEASM_BR" not in function.opcodes
    for position, block in enumerate(function.blocks):
        for instruction in block.instructions:
            if changes_addressing(instruction):
                raise UnsupportedError(f"{instruction} may have vector instructions indexed or skipped")
            if not all_followed and not is_followed(instruction):
                raise UnsupportedError(f"{instruction} reads another register's state, or is an asm goto")
            if _has_no_mask(instruction):
                raise UnsupportedError(
                    f"{instruction} is a call without a register mask: what it overwrites is not known"
                )
            if fault := _fault(instruction, misaligned):
                yield _invalid(f"{instruction}: {fault}", position, instruction)


def _has_no_mask(instruction: Instruction) -> bool:
    """Whether it is a call of which no mask says what it preserves; LLVM takes it for one that preserves all."""
    properties = frozenset[str]() if instruction.opcode in DEBUG else table_of(instruction.opcode).properties
    if "call" not in properties or "return" in properties:
        return False
    return not any(op.kind is OperandKind.REGMASK for op in instruction.operands)


def _invalid(message: str, block: int, instruction: Instruction | None) -> Finding:
    line, text = (0, "") if instruction is None else (instruction.line, str(instruction))
    return Finding("unsupported", Outcome.INVALID, message, block, post_line=line, instruction=text)


def _fault(instruction: Instruction, misaligned: Collection[str]) -> str:
    if instruction.opcode in DEBUG:
        return ""
    for op in instruction.all_operands if misaligned else ():
        if op.phys in misaligned:
            return _no_register(op.phys)
    implicit: list[str] = []
    explicit = len(instruction.defs)
    for op in instruction.operands:
        if op.implicit:
            implicit.append(f"={op.phys}" if op.is_def else op.phys)
        elif op.kind is not OperandKind.REGMASK:
            explicit += 1
    misfit = _misfit(instruction.opcode, len(instruction.defs), explicit, tuple(implicit))
    return misfit or _wrong_kind(instruction)


_MUST_BE = {
    "register": frozenset({OperandKind.REGISTER, OperandKind.FRAME_INDEX, OperandKind.OTHER}),
    "immediate": frozenset(OperandKind) - {OperandKind.REGISTER, OperandKind.BLOCK},
    "register-or-immediate": frozenset(OperandKind) - {OperandKind.BLOCK},
    "any": frozenset(OperandKind) - {OperandKind.BLOCK},
    "branch-target": frozenset({OperandKind.BLOCK}),
}
"""What an operand may be where LLVM's table has one of a kind; objects on the stack become registers or numbers.
A constant may stand for an undefined register (``undefined_inputs.py``)."""


def _wrong_kind(instruction: Instruction) -> str:
    """What is no operand of the kind that LLVM's table has there (MachineVerifier::visitMachineOperand)."""
    explicit = (op for op in instruction.all_operands if not op.implicit)
    for row, op in zip(table_of(instruction.opcode).operands, explicit, strict=False):
        if op.kind not in _MUST_BE.get(row.kind, (op.kind,)):
            return f"{op} is no {row.kind} operand"
    return ""


def _no_register(name: str) -> str:
    return f"there is no register ${name}: scalar pairs begin at even numbers, wider tuples at multiples of 4"


def _is_misaligned(name: str) -> bool:
    """Whether a tuple of scalar registers begins where none does (SIRegisterInfo.td)."""
    register = physical_register(name)
    width = len(register.units) // 2
    scalar = register.bank in (Bank.SGPR, Bank.TTMP)
    return scalar and width > 1 and register.first % (2 if width == 2 else 4) != 0


def _misfit(opcode: str, definitions: int, explicit: int, implicit: tuple[str, ...]) -> str:
    """What LLVM's table has otherwise: MIParser refuses the text for each of these (verifyImplicitOperands)."""
    table = table_of(opcode)
    if "variadic" in table.properties:
        return ""
    if explicit in table.not_described:
        raise UnsupportedError(f"{opcode} has {explicit} operands in LLVM 24, another form than is followed")
    if definitions != table.definitions or explicit not in table.counts:
        counts = " or ".join(map(str, table.counts))
        return f"{definitions} results of {explicit} operands; LLVM has {table.definitions} of {counts}"
    if "call" in table.properties:
        return ""
    present = {mark[: mark.startswith("=")] + _SAME_REGISTER.get(name := mark.lstrip("="), name) for mark in implicit}
    missing = [n for n in (*table.implicit_uses, *(f"={n}" for n in table.implicit_definitions)) if n not in present]
    return f"the implicit operand ${missing[0].lstrip('=')} is missing" if missing else ""


# The IR module in the files: it must be the same before and after, but for how LLVM writes it.
#
# Later passes read globals, attributes and metadata from there, and the memory operands name values of it. Between two
# runs of llc only these change (seen on all phases of all kernels at hand): comments, the numbers of attribute groups,
# ``"target-cpu"``, which a function without one gets from the command line, and ``"target-features"``, to which every
# run adds those of its ``-mattr`` (CommandFlags.cpp, setFunctionAttributes).


_TOKEN = re.compile(r'"[^"]*"|;[^\n]*|#(\d+)\b')
_COMMENTS_BEFORE = re.compile(r"(?:(?:#[^\n]*)?\n)*")
_GROUP = re.compile(r"^  attributes #(\d+) = \{ ([^\n]*) \}$", re.M)
_FEATURES = re.compile(r'"target-features"="([^"\n]*)"')
_INTRINSIC = re.compile(r"  declare [^\n@]*@llvm\.")


def module_difference(pre: str, post: str, cpu: str) -> str:
    """What differs between two modules as they stand before the machine functions, in words; empty if nothing does.

    Args:
        pre: text of the file before its first machine function.

    Raises:
        InputError: a module that is not as LLVM prints it.
    """
    pre, post = (text[_end_of_comments(text) :] for text in (pre, post))
    if pre == post:
        return ""
    for before, after in zip_longest(_lines(pre, cpu), _lines(post, cpu), fillvalue=""):
        if before != after:
            at = next(
                (k for k, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after))
            )
            excerpt = slice(max(at - 40, 0), at + 40)
            return f"the IR module changed: {before[excerpt].strip()!r} became {after[excerpt].strip()!r}"
    return ""


def _end_of_comments(text: str) -> int:
    """Where the YAML comments and blank lines end that a file may begin with."""
    match = _COMMENTS_BEFORE.match(text)
    return match.end() if match else 0


def _lines(module: str, cpu: str) -> tuple[str, ...]:
    """Lines that mean something, attribute groups written out where they are used."""
    processor = f'"target-cpu"="{cpu}"'
    numbers = [m[1] for m in _GROUP.finditer(module)]
    if len(set(numbers)) < len(numbers):
        raise InputError("the IR module gives a group of attributes twice")
    groups = {
        m[1]: _FEATURES.sub(_once, m[2].replace(f"{processor} ", "").replace(f" {processor}", ""))
        for m in _GROUP.finditer(module)
    }

    def plain(match: re.Match[str]) -> str:
        text = match[0]
        if text[0] == '"' and "\n" in text:
            raise InputError("the IR module has a string over several lines, which LLVM does not print")
        if text[0] == "#":
            return groups.get(match[1], text)
        return "" if text[0] == ";" else text

    lines = [line.rstrip() for line in _TOKEN.sub(plain, _GROUP.sub("", module)).split("\n")]
    # An intrinsic is not called: nobody asks which features it is for.
    return tuple(_FEATURES.sub("", line).rstrip() if _INTRINSIC.match(line) else line for line in lines if line)


def _once(match: re.Match[str]) -> str:
    """A list of features without the repetition at its end; that changes nothing, the last word on a feature counts."""
    features = match[1].split(",")
    for length in range(1, len(features) // 2 + 1):
        while len(features) >= 2 * length and features[-length:] == features[-2 * length : -length]:
            del features[-length:]
    return f'"target-features"="{",".join(features)}"'
