"""Machine IR as the checker sees it: nobody changes it, and it is all that a text says.

The forms are those of LLVM's MIRPrinter.cpp, MachineOperand.cpp (``MachineMemOperand::print`` too), MIRYamlMapping.h
and SIMachineFunctionInfo.h. What a text has many of is built by an ``__init__`` of its own: the one that ``dataclass``
makes is not compiled, and takes ten times as long.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple


class Kind(Enum):
    """What an operand is."""

    REGISTER = "register"
    IMMEDIATE = "immediate"
    BLOCK = "block"
    FRAME_INDEX = "frame-index"
    FIXED_FRAME = "fixed-frame"
    GLOBAL = "global"
    EXTERNAL = "external"
    REGMASK = "regmask"
    ASM_STRING = "asm-string"
    ASM_FLAG = "asm-flag"
    OTHER = "other"
    """It means what its text means: constants, symbols, metadata, predicates, frame directives, and the words of
    ``S_DELAY_ALU`` and its like (AMDGPUMIRFormatter.cpp)."""


@dataclass(init=False, repr=False, slots=True)
class Operand:
    """One operand.

    Attributes:
        kind: what it is.
        text: as printed, without the register flags.
        register: physical register without ``$`` (``"noreg"`` for ``$noreg``), or ``""``.
        vreg: number of the virtual register, or -1.
        sub: subregister index (``"sub0_sub1"``, ``"lo16"``), or ``""`` for the whole register.
        cls: register class written behind the register, or ``""``.
        llt: low-level type (``"s32"``), or ``""``.
        tied: N of ``(tied-def N)``, or -1.
        flags: register flags; ``implicit-def`` is ``implicit`` and ``def``, and what stands left of ``=`` is ``def``.
        number: value of an immediate, position of a block in layout order, number of a stack object; else 0.
    """

    kind: Kind
    text: str
    register: str
    vreg: int
    sub: str
    cls: str
    llt: str
    tied: int
    flags: frozenset[str]
    number: int
    is_register: bool = field(init=False, repr=False, compare=False)
    """A register other than ``$noreg``."""
    is_def: bool = field(init=False, repr=False, compare=False)
    is_use: bool = field(init=False, repr=False, compare=False)
    """A register that is no definition, read or not."""
    is_implicit: bool = field(init=False, repr=False, compare=False)

    reads: bool = field(init=False, repr=False, compare=False)
    """What the register holds is read: an ``undef`` use reads nothing, and a definition of a part of a virtual register
    reads the rest unless it is ``undef`` (``MachineOperand::readsReg``).
    """

    def __init__(
        self,
        kind: Kind,
        text: str,
        register: str = "",
        vreg: int = -1,
        sub: str = "",
        cls: str = "",
        llt: str = "",
        tied: int = -1,
        flags: frozenset[str] = frozenset(),
        number: int = 0,
    ) -> None:
        self.kind, self.text, self.register, self.vreg, self.sub = kind, text, register, vreg, sub
        self.cls, self.llt, self.tied, self.flags, self.number = cls, llt, tied, flags, number
        self.is_register, self.is_def = kind is Kind.REGISTER and register != "noreg", "def" in flags
        self.is_use, self.is_implicit = self.is_register and not self.is_def, "implicit" in flags
        self.reads = self.is_register and "undef" not in flags and (not self.is_def or bool(sub))


_SIZE = re.compile(r"(?:<([0-9]+) x s([0-9]+)>|s([0-9]+))\Z")


def is_relative(operand: Operand) -> bool:
    """Whether it is an address relative to its instruction (SIInstrInfo.h, MO_REL32 and the like)."""
    flags = operand.text.startswith("target-flags(") and not operand.text.startswith("target-flags(amdgpu-abs")
    return operand.kind is not Kind.REGISTER and flags


def bytes_of(size: str) -> int:
    """Of a type or a number of bytes; 0: not known."""
    if size.isdigit():
        return int(size)
    match = _SIZE.match(size)
    return (int(match[1] or 1) * int(match[2] or match[3]) + 7) // 8 if match else 0


class MemoryOperand(NamedTuple):
    """One memory operand. All of it is in ``text``; two that have the same text say the same.

    Attributes:
        text: what stands between the parentheses.
        ordering: scope and orderings of an atomic access, as printed.
        size: low-level type of what is accessed (``"s32"``), a number of bytes, or ``"unknown-size"``.
        pointer: the value or the place accessed, without its offset (``"%stack.0"``, ``"%ir.p"``), or ``""``.
        offset: bytes from there.
        rest: alignments, alias metadata and address space as printed, from their comma on.
        stack_object: number of the ``%stack`` object that is accessed, or -1.
        fixed_object: likewise of ``%fixed-stack``.
    """

    text: str
    loads: bool
    stores: bool
    volatile: bool
    non_temporal: bool
    dereferenceable: bool
    invariant: bool
    target_flags: tuple[str, ...]
    ordering: str
    size: str
    pointer: str
    offset: int
    rest: str
    stack_object: int = -1
    fixed_object: int = -1

    @property
    def is_atomic(self) -> bool:
        return bool(self.ordering)


@dataclass(init=False, repr=False, slots=True)
class Instruction:
    """One machine instruction.

    Attributes:
        opcode: LLVM's name.
        operands: in LLVM's order, definitions first.
        definitions: how many stand left of ``=``.
        flags: flags before the opcode (``nofpexcept``, ``frame-setup`` …).
        memory: memory operands in order.
        tail: attributes behind the operands, each as printed (``"debug-location !7"``, ``"mmra !3"`` …).
        in_bundle: it stands between the braces of a bundle.
        opens_bundle: ``{`` follows; the next instructions are in its bundle.
        closes_bundle: ``}`` follows.
        line: 1-based.
    """

    opcode: str
    operands: tuple[Operand, ...]
    definitions: int
    flags: frozenset[str]
    memory: tuple[MemoryOperand, ...]
    tail: tuple[str, ...]
    in_bundle: bool
    opens_bundle: bool
    closes_bundle: bool
    line: int = field(compare=False)

    def __init__(
        self,
        opcode: str,
        operands: tuple[Operand, ...],
        definitions: int,
        flags: frozenset[str],
        memory: tuple[MemoryOperand, ...],
        tail: tuple[str, ...],
        in_bundle: bool,
        opens_bundle: bool,
        closes_bundle: bool,
        line: int,
    ) -> None:
        self.opcode, self.operands, self.definitions, self.flags = opcode, operands, definitions, flags
        self.memory, self.tail, self.in_bundle, self.opens_bundle = memory, tail, in_bundle, opens_bundle
        self.closes_bundle, self.line = closes_bundle, line


class Block(NamedTuple):
    """A basic block.

    Attributes:
        number: N of ``bb.N``. LLVM numbers blocks anew, so blocks are told apart by position.
        name: what stands behind the number, or ``""``.
        attributes: text in parentheses behind the name, or ``""``.
        successors: position in layout order and probability as printed (``""`` where none is), in order.
        has_successors: the line is printed; otherwise they are those that LLVM infers (``guessSuccessors``).
        liveins: physical register without ``$``, and LLVM's lane mask (-1 where none is printed).
        line: 1-based, of its header.
    """

    number: int
    name: str
    attributes: str
    successors: tuple[tuple[int, str], ...]
    has_successors: bool
    liveins: tuple[tuple[str, int], ...]
    instructions: tuple[Instruction, ...]
    line: int


@dataclass(init=False, repr=False, slots=True)
class VirtualRegister:
    """A virtual register. ``preferred`` is a wish (``"%3"``, ``"$vcc"`` or ``""``); ``flags`` such as ``WWM_REG``."""

    number: int
    cls: str
    preferred: str
    flags: tuple[str, ...]

    def __init__(self, number: int, cls: str, preferred: str = "", flags: tuple[str, ...] = ()) -> None:
        self.number, self.cls, self.preferred, self.flags = number, cls, preferred, flags


Row = Mapping[str, str]
"""What a row of a list says, by key, quotes kept; the number (``id``) is left out."""


class Function(NamedTuple):
    """A machine function.

    Attributes:
        name: quotes and escapes resolved.
        fields: the header's fields by path (``"frameInfo.maxAlignment"``), each value as printed. A list that has no
            field of its own below is one value, its items joined by ``", "``, and so is ``argumentInfo``.
        registers: virtual registers by number: those that a row names and those that operands name with their class.
        liveins: physical register without ``$``, and the virtual register that it is copied to, or -1.
        fixed_stack: fixed stack objects by number, in order.
        stack: other stack objects by number, in order.
        blocks: in layout order.
        line: 1-based, of the document's ``---``.
    """

    name: str
    fields: Mapping[str, str]
    registers: Mapping[int, VirtualRegister]
    liveins: tuple[tuple[str, int], ...]
    fixed_stack: Mapping[int, Row]
    stack: Mapping[int, Row]
    blocks: tuple[Block, ...]
    line: int


class File(NamedTuple):
    """A text.

    Attributes:
        module: the IR module's text without its indentation; ``""`` where there is none.
        functions: in order.
    """

    module: str
    functions: tuple[Function, ...]
