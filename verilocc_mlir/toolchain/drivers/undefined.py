"""Trap of Triton's interface: registers that are undefined on some path to where they are read.

LLVM works out live intervals of every text that it is given, allocated or not. It gives up at a register that is read
but not defined on a path from the entry, or that a block on the way does not name as live-in ("needs to be live in to
%bb.7, but is missing from the live-in list"). Such a read is right if its value does not matter: the value was
undefined there before allocation too.

So the entry block gets an ``IMPLICIT_DEF``, for which no code is emitted, and the blocks on the way get the live-ins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec.structs import replace

from verilocc_mlir.mir.header import header_field
from verilocc_mlir.mir.model import BasicBlock, Instruction, LiveIn, MachineFunction, Operand, OperandKind
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.mir.printer import print_mir

_COMPLAINT = re.compile(r"needs to be live in to|does not have a corresponding definition on every path")
_PART = re.compile(r"(?:[sva]gpr\d+|vcc_lo|vcc_hi|scc)(?:_lo16|_hi16)?(?=_|$)")
_HALVES = ("_lo16", "_hi16")
_RESERVED = ("stackPtrOffsetReg", "frameOffsetReg", "scratchRSrcReg")
"""Header fields that name registers of the frame, which LLVM reserves: it asks for no definition of them."""


def is_about_undefined(stderr: str) -> bool:
    """Whether LLVM gave up for lack of a definition or a live-in."""
    return bool(_COMPLAINT.search(stderr))


def define_everywhere(mir: str, *, wave32: bool, where: str = "") -> str:
    """The text with a definition, and live-ins on the way, for every register that is read and may be undefined."""
    file = parse_mir(mir, where)
    functions = tuple(_defined(function, wave32) for function in file.functions)
    return print_mir(replace(file, functions=functions))


def _defined(function: MachineFunction, wave32: bool) -> MachineFunction:
    entering = _live_in(function, wave32)
    reserved = {
        unit for field in _RESERVED for unit in _units((header_field(function, field) or "").lstrip("$"), False)
    }
    blocks: list[BasicBlock] = []
    for block in function.blocks:
        named = reserved.union(unit for live in block.liveins for unit in _units(live.reg, False))
        missing = sorted({unit[:-5] for unit in entering[block.number] - named})
        if block is function.blocks[0]:
            definitions = [_implicit_def(register) for register in missing]
            blocks.append(replace(block, instructions=(*definitions, *block.instructions)))
        else:
            blocks.append(replace(block, liveins=(*block.liveins, *[LiveIn(register) for register in missing])))
    return replace(function, blocks=tuple(blocks))


def _live_in(function: MachineFunction, wave32: bool) -> dict[int, frozenset[str]]:
    """For each block, the halves of registers that are read before they are written, in it or after it."""
    effects = {block.number: _effect(block, wave32) for block in function.blocks}
    entering = {number: reads for number, (reads, _) in effects.items()}
    changed = True
    while changed:
        changed = False
        for block in reversed(function.blocks):
            reads, writes = effects[block.number]
            leaving = frozenset[str]().union(*(entering[number] for number, _ in block.successors))
            new = reads | (leaving - writes)
            changed |= new != entering[block.number]
            entering[block.number] = new
    return entering


def _effect(block: BasicBlock, wave32: bool) -> tuple[frozenset[str], frozenset[str]]:
    """What a block reads before it writes it, and what it writes."""
    reads: set[str] = set()
    writes: set[str] = set()
    for instruction in block.instructions:
        if instruction.opcode.startswith("DBG_"):
            continue
        used, defined = _operands(instruction)
        reads |= {u for operand in used for u in _units(operand.phys, wave32)} - writes
        writes |= {u for operand in defined for u in _units(operand.phys, wave32)}
    return frozenset(reads), frozenset(writes)


def _operands(instruction: Instruction) -> tuple[list[Operand], list[Operand]]:
    physical = [operand for operand in instruction.all_operands if operand.phys]
    used = [operand for operand in physical if not (operand.is_def or operand.undef or operand.internal)]
    return used, [operand for operand in physical if operand.is_def]


def _units(register: str, wave32: bool) -> Iterable[str]:
    """The 16-bit halves of a register or tuple; none of one that LLVM reserves."""
    if register == "vcc":
        register = "vcc_lo" if wave32 else "vcc_lo_vcc_hi"
    for part in _PART.findall(register):
        if part.endswith(_HALVES):
            yield part
        else:
            yield from (part + half for half in _HALVES)


def _implicit_def(register: str) -> Instruction:
    operand = Operand(f"${register}", OperandKind.REGISTER, phys=register, is_def=True)
    return Instruction("IMPLICIT_DEF", (operand,), ())
