"""Machine IR as immutable data: what the MIR text says, nothing inferred.

Every object prints back to the bytes it was parsed from (``str(operand)``, ``Instruction.render``,
``MachineFunction.render``, ``MirFile.render``). The syntax is LLVM's, ``llvm/lib/CodeGen/MIRPrinter.cpp`` and
``MIRParser/MIParser.cpp``; what this package does not interpret is kept verbatim.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct, field
from msgspec.structs import force_setattr


class OperandKind(Enum):
    """What an operand is. ``OTHER`` is kept verbatim and compared as text, as is ``ASM_FLAG``: what inline assembly
    says of its operands, which LLVM 22 prints as a number and LLVM 24 in words.
    """

    REGISTER = "register"
    IMMEDIATE = "immediate"
    BLOCK = "block"
    FRAME_INDEX = "frame-index"
    GLOBAL = "global"
    EXTERNAL = "external"
    REGMASK = "regmask"
    ASM_FLAG = "asm-flag"
    OTHER = "other"


class Operand(Struct, frozen=True):
    """One operand of an instruction, as written.

    Attributes:
        text: the exact text, flags, class, type and tie included.
        kind: what it is; the register fields below hold only for ``REGISTER``.
        vreg: virtual register number, or -1.
        phys: physical register name without ``$`` (``"noreg"`` for ``$noreg``), or ``""``.
        sub: subregister index name (``"sub0_sub1"``, ``"lo16"``), or ``""`` for the whole register.
        cls: register class or bank written after ``:``, or ``""``.
        llt: low-level type in parentheses (``"s32"``, ``"p1"``, ``"<2 x s16>"``), or ``""``.
        tied: N of ``(tied-def N)``, or -1.
        flags: register flags in the order written (``"implicit"``, ``"undef"``, ``"killed"``, …).
        is_def: it defines: left of ``=``, or ``implicit-def``/``def``.
    """

    text: str
    kind: OperandKind
    vreg: int = -1
    phys: str = ""
    sub: str = ""
    cls: str = ""
    llt: str = ""
    tied: int = -1
    flags: tuple[str, ...] = ()
    is_def: bool = False
    implicit: bool = False
    undef: bool = False
    dead: bool = False
    killed: bool = False
    early_clobber: bool = False
    internal: bool = False
    renamable: bool = False
    is_reg: bool = False
    """A register other than ``$noreg``; follows from the rest, whatever is given."""
    is_use: bool = False
    """A register that is read (an ``undef`` use reads nothing); follows from the rest."""

    def __post_init__(self) -> None:
        is_reg = self.vreg >= 0 or (self.phys != "" and self.phys != "noreg")
        force_setattr(self, "is_reg", is_reg)
        force_setattr(self, "is_use", is_reg and not self.is_def)

    def __str__(self) -> str:
        return self.text


class Instruction(Struct, frozen=True):
    """One machine instruction.

    Attributes:
        opcode: LLVM's name, e.g. ``V_FMA_F32_e64`` or ``COPY``.
        defs: explicit definitions, left of ``=``.
        operands: everything right of the opcode, in order, implicit ones included.
        flags: instruction flags before the opcode (``nofpexcept``, ``frame-setup``, ``nsw`` …).
        tail: attributes after the operands, each with its leading ``, `` or space, verbatim
            (``debug-location !7``, ``pre-instr-symbol <mcsymbol x>``, ``mmra !4`` …); ``""`` where none.
        memory: text between the parentheses of each memory operand after ``::``.
        line: 1-based line in the file it was parsed from; 0 if made.
        indent: leading blanks (4, or 6 and more inside a bundle).
        opens_bundle: a ``{`` follows; the members are the next instructions with ``bundled`` set.
        bundled: inside ``{ … }``.
        closes_bundle: the ``}`` line follows this instruction.
        comment: verbatim end-of-line comment with its leading blanks, or ``""``.
        leading: verbatim lines (comments, blanks) between the previous instruction and this one.
    """

    opcode: str
    defs: tuple[Operand, ...]
    operands: tuple[Operand, ...]
    flags: tuple[str, ...] = ()
    tail: str = ""
    memory: tuple[str, ...] = ()
    line: int = 0
    indent: int = 4
    opens_bundle: bool = False
    bundled: bool = False
    closes_bundle: bool = False
    comment: str = ""
    leading: tuple[str, ...] = ()
    all_operands: tuple[Operand, ...] = ()
    """Definitions first, then the rest: LLVM's operand numbering; follows from both, whatever is given."""

    def __post_init__(self) -> None:
        force_setattr(self, "all_operands", self.defs + self.operands)

    def render(self) -> str:
        """The instruction as LLVM prints it, without the line break; a closing bundle brace is the block's."""
        parts: list[str] = [" " * self.indent]
        if self.defs:
            parts.append(", ".join([op.text for op in self.defs]))
            parts.append(" = ")
        if self.flags:
            parts.append(" ".join(self.flags))
            parts.append(" ")
        parts.append(self.opcode)
        if self.operands:
            parts.append(" ")
            parts.append(", ".join([op.text for op in self.operands]))
        parts.append(self.tail)
        if self.memory:
            parts.append(" :: ")
            parts.append(", ".join([f"({m})" for m in self.memory]))
        if self.opens_bundle:
            parts.append(" {")
        parts.append(self.comment)
        return "".join(parts)

    def __str__(self) -> str:
        return self.render().strip()


class LiveIn(Struct, frozen=True):
    """A block live-in: physical register name without ``$`` and LLVM's lane mask (-1: all lanes, none written).

    The lane mask is in LLVM's own numbering: two bits a 32-bit register, the lower one for its upper half.
    """

    reg: str
    mask: int = -1

    def __str__(self) -> str:
        return f"${self.reg}" if self.mask < 0 else f"${self.reg}:0x{self.mask:016X}"


class BasicBlock(Struct, frozen=True):
    """A machine basic block.

    Attributes:
        number: N of ``bb.N`` as written; renumbered by LLVM on re-parsing, so match by position, not by number.
        header: the exact header line, ``  bb.0 (%ir-block.4):`` and the like.
        successors: ``(block number, probability text)`` in order; the probability text is ``"0x80000000"`` or ``""``.
        has_successors: the ``successors:`` line is present (LLVM prints it even when empty).
        liveins: declared physical live-ins, in order.
        instructions: in layout order, bundle members flattened.
        trailer: verbatim lines (blank lines, comments) after the last instruction.
        notes: verbatim lines between the header and the first instruction that are neither successors nor liveins.
    """

    number: int
    header: str
    successors: tuple[tuple[int, str], ...]
    liveins: tuple[LiveIn, ...]
    instructions: tuple[Instruction, ...]
    has_successors: bool = True
    trailer: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class VirtualRegister(Struct, frozen=True):
    """One row of ``registers:``. ``preferred`` is a hint (``"%3"``, ``"$vcc"`` or ``""``); flags like ``WWM_REG``."""

    id: int
    cls: str
    preferred: str = ""
    flags: tuple[str, ...] = ()


class FunctionLiveIn(Struct, frozen=True):
    """One row of the function's ``liveins:``: physical name without ``$`` and the virtual register, or -1."""

    reg: str
    vreg: int = -1


class StackObject(Struct, frozen=True):
    """One row of ``stack:`` or ``fixedStack:``; ``text`` is the row verbatim (may span lines)."""

    id: int
    size: int
    alignment: int
    type: str
    text: str


class MachineFunction(Struct, frozen=True):
    """One MIR document: a YAML header and a body.

    Attributes:
        header_lines: the YAML part verbatim, from ``---`` up to and including the ``body:`` line.
        blocks: basic blocks in layout order.
        registers: virtual registers by number; those that no row of the header names have the class an operand gives.
        liveins: function live-ins.
        stack: stack objects by number (``%stack.N``).
        fixed_stack: fixed stack objects by number.
        first_line: 1-based line of the document's ``---``.
        footer: verbatim text after the last block, ``...`` included.
    """

    name: str
    header_lines: tuple[str, ...]
    blocks: tuple[BasicBlock, ...]
    registers: dict[int, VirtualRegister]
    liveins: tuple[FunctionLiveIn, ...] = ()
    stack: dict[int, StackObject] = field(default_factory=dict[int, StackObject])
    fixed_stack: dict[int, StackObject] = field(default_factory=dict[int, StackObject])
    first_line: int = 1
    footer: str = "...\n"

    def header_value(self, key: str) -> str | None:
        """What stands behind a word and a colon in the header, in whatever section; the first time counts."""
        start = f"{key}:"
        found = (line.partition(":")[2].strip() for line in self.header_lines if line.lstrip().startswith(start))
        return next(found, None)

    @property
    def opcodes(self) -> frozenset[str]:
        """All opcodes, debug ones included."""
        return frozenset([i.opcode for b in self.blocks for i in b.instructions])

    @property
    def distinct_operands(self) -> tuple[Operand, ...]:
        """All operands; of those with the same text, one."""
        every = {op.text: op for b in self.blocks for i in b.instructions for op in i.all_operands}
        return tuple(every.values())

    @property
    def has_virtual_registers(self) -> bool:
        """Whether any operand is one."""
        return any(op.vreg >= 0 for op in self.distinct_operands)

    @property
    def instruction_count(self) -> int:
        return sum(len(b.instructions) for b in self.blocks)


class MirFile(Struct, frozen=True):
    """A ``.mir`` file: text before the functions (the embedded IR module), then one document a function."""

    preamble: str
    functions: tuple[MachineFunction, ...]
    path: str = "<string>"


# Where llc stops in register allocation, which has three phases: scalars (0), whole-wave (1), vector registers (2).


STOP_BEFORE_ALLOCATION = "-stop-before=greedy"
"""The flag without a phase."""


def stop_before(phase: int) -> str:
    """llc's flag to stop at the text that a phase is given."""
    return f"{STOP_BEFORE_ALLOCATION},{phase}"


STOP_BEFORE_ALL_PHASES = stop_before(0)
