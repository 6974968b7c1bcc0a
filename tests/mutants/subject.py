"""What is mutated: one function before and after a phase, and the elementary edits of its text.

Edits are made on the model and printed; what is audited is the text parsed again. An edit changes operand *texts*, so
the fields of a changed operand are stale until then.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from msgspec.structs import replace
from oracle.decode import Decoder, has_scalar_registers, names_halves
from oracle.pairing import pair

from verilocc_mlir.mir.header import header_field
from verilocc_mlir.mir.model import BasicBlock, Instruction, MachineFunction, MirFile, Operand
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.mir.printer import print_function
from verilocc_mlir.target.classes import RegisterClass, register_class
from verilocc_mlir.target.registers import (
    AGPR_BASE,
    SGPR_BASE,
    VGPR_BASE,
    Bank,
    PhysicalRegister,
    lane_list,
    physical_register,
    subregister_lanes,
    tuple_name,
)
from verilocc_mlir.target.reserved import Allocatable, allocatable
from verilocc_mlir.target.targets import Target

Line = tuple[int, int]
"""Layout position of a block, and of an instruction in it."""
BASES = {Bank.VGPR: VGPR_BASE, Bank.AGPR: AGPR_BASE, Bank.SGPR: SGPR_BASE}


@dataclass(frozen=True)
class Edit:
    """One changed function: what was done, where; ``pre`` where the pre-RA side had to change with it."""

    function: MachineFunction
    what: str
    pre: MachineFunction | None = None
    touched: frozenset[int] = frozenset()
    """Layout positions of the blocks that changed."""
    preamble: str | None = None
    """The IR module after the phase, where that changed."""


@dataclass(frozen=True)
class Mutation:
    """A class of mutants.

    Attributes:
        name: stable name.
        rules: rules of which at least one must be named when such a mutant is refuted.
        edits: makes edits of a subject in random order; none where it has no place for them.
        equivalent: every edit keeps the meaning and all rules, by construction: it must be proved.
        why: for such a class, the construction's argument.
        always: every edit breaks a rule of the machine, whatever the values: it must be refuted.
    """

    name: str
    rules: frozenset[str]
    edits: Callable[[Subject, random.Random], Iterator[Edit]]
    equivalent: bool = False
    why: str = ""
    always: bool = False


@dataclass
class Subject:
    """One function before and after a phase."""

    file: MirFile
    pre: MachineFunction
    post: MachineFunction
    target: Target
    module: str | None = None
    """The IR module in front of the second text; None: that of the first."""
    partners: dict[Line, Instruction] = field(init=False)

    def __post_init__(self) -> None:
        grain = 1 if names_halves(self.pre, self.post) else 2
        place = {id(i): (b, n) for b, block in enumerate(self.post.blocks) for n, i in enumerate(block.instructions)}
        self.partners = {}
        left, right = (Decoder(f, grain, self.target.wave_size) for f in (self.pre, self.post))
        for a, b in zip(self.pre.blocks, self.post.blocks, strict=True):
            for slot in pair([left.decode(i) for i in a.instructions], [right.decode(i) for i in b.instructions]):
                if slot.pre is not None and slot.post is not None and not slot.mismatch:
                    self.partners[place[id(slot.post.source)]] = slot.pre.source

    @cached_property
    def available(self) -> Allocatable:
        """What an allocator may use."""
        return allocatable(self.pre, self.file.preamble, self.target)

    @cached_property
    def lines(self) -> list[tuple[Line, Instruction]]:
        """Every instruction of the post-RA side with its place."""
        return [((b, n), i) for b, block in enumerate(self.post.blocks) for n, i in enumerate(block.instructions)]

    @cached_property
    def is_called(self) -> bool:
        """The function is called, it is no kernel."""
        return header_field(self.pre, "isEntryFunction") == "false"

    @cached_property
    def scalar_phase(self) -> bool:
        """Scalar registers are being allocated."""
        return has_scalar_registers(self.pre)

    @cached_property
    def named(self) -> frozenset[int]:
        """Units that the post-RA side names anywhere."""
        return frozenset(
            u for _, i in self.lines for op in i.all_operands if op.phys for u in physical_register(op.phys).units
        ) | frozenset(u for b in self.post.blocks for r in b.liveins for u in physical_register(r.reg).units)

    def numbers(self, bank: Bank) -> tuple[int, ...]:
        """Allocatable 32-bit registers of a file."""
        a = self.available
        return {Bank.VGPR: a.vgprs, Bank.AGPR: a.agprs, Bank.SGPR: a.sgprs}.get(bank, ())

    def class_of(self, pre: Operand) -> RegisterClass:
        """Class of a pre-RA virtual register."""
        return register_class(self.pre.registers[pre.vreg].cls)

    def allocated(self, rng: random.Random) -> Iterator[tuple[Line, int, Operand, Operand]]:
        """Operands the allocator chose, in random order: place, operand number, post-RA operand, pre-RA operand."""
        found = [
            (line, k, op, before)
            for line, instruction in self.lines
            if (partner := self.partners.get(line)) is not None
            for k, (op, before) in enumerate(zip(instruction.all_operands, partner.all_operands, strict=False))
            if op.phys and op.is_reg and before.vreg >= 0
        ]
        rng.shuffle(found)
        return iter(found)

    def moves(self, rng: random.Random, *opcodes: str) -> list[Line]:
        """Places of instructions the allocator may have made, by prefix of the opcode, in random order."""
        found = [line for line, i in self.lines if i.opcode.startswith(opcodes)]
        rng.shuffle(found)
        return found

    def shuffled(self, rng: random.Random) -> list[tuple[Line, Instruction]]:
        """All instructions in random order."""
        found = list(self.lines)
        rng.shuffle(found)
        return found

    def others(self, op: Operand, before: Operand, rng: random.Random) -> Iterator[PhysicalRegister]:
        """Registers of the same file, width and alignment that ``op`` could have been, those in use first."""
        cls = self.class_of(before)
        offset = lane_list(subregister_lanes(before.sub))[0] // 2 if before.sub else 0
        register = physical_register(op.phys)
        if register.bank not in BASES or len(register.units) % 2:
            return
        free = set(self.numbers(register.bank))
        width = len(register.units) // 2
        step = cls.alignment(register.bank)
        limit = cls.limit or 1 << 30
        base = BASES[register.bank]
        numbers = [
            n
            for n in free
            if (n - register.first) % step == 0 and n != register.first and n + width <= limit and n >= offset
        ]
        numbers = [n for n in numbers if all(n + k in free for k in range(width))]
        used = [n for n in numbers if base + 2 * n in self.named]
        rest = [n for n in numbers if base + 2 * n not in self.named]
        rng.shuffle(used)
        rng.shuffle(rest)
        order = used + rest if rng.random() < 0.8 else rest + used
        for n in order:
            yield physical_register(tuple_name(register.bank, n, width))

    def unused(self, bank: Bank, width: int = 1, align: int = 1) -> Iterator[int]:
        """Numbers of allocatable registers whose units the post-RA side names nowhere."""
        free = {n for n in self.numbers(bank) if BASES[bank] + 2 * n not in self.named}
        for n in sorted(free):
            if n % align == 0 and all(n + k in free for k in range(width)):
                yield n

    def edit(self, changes: dict[Line, Sequence[Instruction]], what: str) -> Edit:
        """Instructions replaced by others, none or several."""
        blocks = list(self.post.blocks)
        for b in {line[0] for line in changes}:
            row = [
                one for n, i in enumerate(blocks[b].instructions) for one in changes.get((b, n), (i,))
            ]  # fmt: skip
            blocks[b] = replace(blocks[b], instructions=tuple(row))
        touched = frozenset(line[0] for line in changes)
        return Edit(replace(self.post, blocks=tuple(blocks)), what, touched=touched)

    @cached_property
    def fixed_units(self) -> frozenset[int]:
        """Units that the pre-RA side names."""
        named = {op.phys for b in self.pre.blocks for i in b.instructions for op in i.all_operands if op.phys}
        named |= {r.reg for r in self.pre.liveins}
        return frozenset(u for name in named for u in physical_register(name).units)

    def overlapping(self, name: str) -> frozenset[str]:
        """Other registers that the post-RA side names and that share a unit with this one."""
        units = set(physical_register(name).units)
        named = {op.phys for _, i in self.lines for op in i.all_operands if op.phys}
        named |= {r.reg for b in self.post.blocks for r in b.liveins}
        return frozenset(n for n in named if n != name and units & set(physical_register(n).units))

    def renamed_everywhere(self, name: str, new: str, what: str) -> Edit:
        """Every operand and live-in that names ``name`` names ``new``."""
        blocks = list(self.post.blocks)
        touched: set[int] = set()
        for b, block in enumerate(blocks):
            row = list(block.instructions)
            for n, instruction in enumerate(row):
                for k, op in enumerate(instruction.all_operands):
                    if op.phys == name:
                        row[n] = with_operand(row[n], k, renamed(op, new))
                        touched.add(b)
            liveins = tuple(replace(r, reg=new) if r.reg == name else r for r in block.liveins)
            blocks[b] = replace(block, instructions=tuple(row), liveins=liveins)
        return Edit(replace(self.post, blocks=tuple(blocks)), what, touched=frozenset(touched))

    def with_block(self, number: int, block: BasicBlock, what: str) -> Edit:
        """One block replaced."""
        blocks = list(self.post.blocks)
        blocks[number] = block
        return Edit(replace(self.post, blocks=tuple(blocks)), what, touched=frozenset({number}))

    def instruction(self, line: Line) -> Instruction:
        return self.post.blocks[line[0]].instructions[line[1]]


def with_operand(instruction: Instruction, number: int, text: str) -> Instruction:
    """The instruction with the text of one operand (numbered as in ``all_operands``) changed."""
    count = len(instruction.defs)
    if number < count:
        row = list(instruction.defs)
        row[number] = replace(row[number], text=text)
        return replace(instruction, defs=tuple(row))
    row = list(instruction.operands)
    row[number - count] = replace(row[number - count], text=text)
    return replace(instruction, operands=tuple(row))


def renamed(op: Operand, name: str) -> str:
    """Text of a physical operand with another register."""
    return re.sub(rf"\${op.phys}(?![A-Za-z0-9_])", f"${name}", op.text)


def with_flag(op: Operand, flag: str) -> str:
    """Text of a register operand with a flag added before the register (where LLVM's parser takes it)."""
    text = op.text
    at = text.find("renamable ")
    at = at if at >= 0 else text.index("$")
    return f"{text[:at]}{flag} {text[at:]}"


def without_flag(op: Operand, flag: str) -> str:
    """Text of a register operand without a flag."""
    return re.sub(rf"\b{flag} ", "", op.text, count=1)


def read_again(function: MachineFunction, preamble: str) -> MachineFunction:
    """The function as it is in the text that it prints."""
    return parse_mir(preamble + print_function(function), "post.mir").functions[0]
