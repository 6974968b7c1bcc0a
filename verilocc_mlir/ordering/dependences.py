"""What must stay in order in one block of machine IR (docs/trust/spec.md, section 16).

The scheduler's own reading of the rules; the checkers have theirs, and decide.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct, field

from verilocc_mlir.mir.model import Instruction, OperandKind
from verilocc_mlir.target.instructions import instruction as described
from verilocc_mlir.target.registers import Bank, physical_register, unit_bank

_STAYS = frozenset(
    {"terminator", "branch", "indirect-branch", "return", "call", "barrier", "trap", "side-effects", "generic"}
)
_STAYING_OPCODES = re.compile(
    r"INLINEASM|[SV]_MOVREL|.*indirect|S_CMOV|S_GETPC|S_GETREG|S_SETREG|V_INTERP|V_\w*_LD_SCALE|.*BALLOT|(?:ENTER|EXIT)_"
    r"|V_PERMLANE|S_SET_GPR|S_SETVSKIP|S_SET_VGPR|S_ROUND_MODE|S_DENORM_MODE|SI_PC_ADD|ADJCALLSTACK|BUNDLE"
)
_STAYING_FLAGS = frozenset({"frame-setup", "frame-destroy", "bb-prolog"})
_MOVES_WITH_IT = re.compile(
    r"(?:, | )(?:debug-location (?:![0-9]+|!DILocation\([^()]*\))|debug-instr-number [0-9]+|mmra ![0-9]+)"
)
_PLACELESS = (OperandKind.REGISTER, OperandKind.IMMEDIATE)
_WITHOUT_CODE = ("IMPLICIT_DEF", "KILL")
_OTHER_NAMES = ("src_vccz", "src_execz", "src_scc", "src_pops")
_MEMORY = re.compile(
    r"(?P<flags>(?:(?:non-temporal|dereferenceable|invariant|\"[\w-]+\") )*)(?P<way>load store|load|store) "
    r"\((?:s(?P<bits>[0-9]+)|<(?P<lanes>[0-9]+) x s(?P<lane>[0-9]+)>)\)"
    r"(?: (?:from|into|on) (?P<pointer>%ir\.(?:[-\w$.]+|\"[^\"]*\")|%(?:fixed-)?stack\.[0-9]+(?:\.[-\w$.]+)?)"
    r"(?: (?P<sign>[+-]) (?P<offset>[0-9]+))?(?=,|\Z))?"
)
_SPACE = re.compile(r", addrspace ([0-9]+)\Z")
_MOST_COMPARED = 256
VIRTUAL = 1 << 32
"""Number of the first virtual register; physical ones have the numbers of their units."""
_APART = frozenset({1, 3, 4, 5, 7, 8})


class Access(Struct, frozen=True):
    """One memory operand: ``start`` and ``end`` in bytes from ``pointer``, which is ``""`` where it is not known."""

    stores: bool
    invariant: bool
    space: int
    pointer: str
    start: int
    end: int


class Item(Struct):
    """What moves as one: an instruction, or a bundle; ``number`` is its place in the block.

    Attributes:
        stays: nothing passes it.
        reads, writes: registers: units of physical ones, virtual ones as a whole. A definition of a part reads too.
        accesses: to memory; None: any.
        before: numbers of the items of its region that must precede it.
    """

    number: int
    instructions: tuple[Instruction, ...]
    stays: bool
    reads: frozenset[int]
    writes: frozenset[int]
    accesses: tuple[Access, ...] | None
    before: set[int] = field(default_factory=set[int])


def items_of(instructions: Sequence[Instruction], *, pinned: bool = False) -> list[Item]:
    """The items of a block, each with what must precede it.

    Args:
        pinned: instructions that name a physical register of a numbered file stay too. Before allocation such registers
            hold arguments, and the shorter the better.
    """
    groups: list[list[Instruction]] = []
    for i in instructions:
        if i.bundled and groups:
            groups[-1].append(i)
        else:
            groups.append([i])
    items = [_item(number, tuple(group), pinned=pinned) for number, group in enumerate(groups)]
    _order_registers(items)
    _order_memory(items)
    return items


def _item(number: int, instructions: tuple[Instruction, ...], *, pinned: bool) -> Item:
    reads = set(_registers("exec"))  # A copy does not say so.
    writes: set[int] = set()
    for operand in (o for i in instructions for o in i.all_operands if o.is_reg):
        registers = (VIRTUAL + operand.vreg,) if operand.vreg >= 0 else _registers(operand.phys)
        if operand.is_def:
            writes.update(registers)
        if not operand.is_def or operand.sub:
            reads.update(registers)
    accesses = [_accesses(i) for i in instructions]
    known = None if None in accesses else tuple(a for of in accesses if of is not None for a in of)
    stays = any(map(_stays, instructions)) or (pinned and any(map(_is_numbered, (reads | writes))))
    return Item(number, instructions, stays, frozenset(reads), frozenset(writes), known)


def _registers(name: str) -> tuple[int, ...]:
    register = physical_register(name)
    if register.bank is Bank.SPECIAL:
        return tuple(register.units)
    return tuple(dict.fromkeys(unit & ~1 for unit in register.units))


def _is_numbered(register: int) -> bool:
    return register < VIRTUAL and unit_bank(register) is not Bank.SPECIAL


def _stays(i: Instruction) -> bool:
    description = described(i.opcode)
    if description is None or description.properties & _STAYS or _STAYING_OPCODES.match(i.opcode):
        return True
    if "meta" in description.properties and i.opcode not in _WITHOUT_CODE:
        return True
    if i.opcode.endswith("_PSEUDO") and any(o.kind not in _PLACELESS for o in i.all_operands):
        return True  # A move of what may be an address relative to itself.
    defines = description.implicit_definitions or any(o.is_def for o in i.all_operands)
    if not defines and not _touches_memory(i) and i.opcode not in _WITHOUT_CODE:
        return True  # It is there for something else.
    return (
        bool(_STAYING_FLAGS.intersection(i.flags))
        or bool(_MOVES_WITH_IT.sub("", i.tail))
        or bool(i.leading)
        or any(o.kind is OperandKind.REGMASK or o.phys.startswith(_OTHER_NAMES) for o in i.all_operands)
        or (_touches_memory(i) and any(_access(text) is None for text in i.memory))
    )


def _touches_memory(i: Instruction) -> bool:
    description = described(i.opcode)
    return bool(i.memory) or description is None or not description.properties.isdisjoint({"may-load", "may-store"})


def _accesses(i: Instruction) -> tuple[Access, ...] | None:
    """Its accesses; None where its memory operands do not say all."""
    description = described(i.opcode)
    found = [_access(text) for text in i.memory]
    known = tuple(access for access in found if access is not None)
    if description is None or len(known) < len(found):
        return None
    loads = any(" load " in f" {text}" for text in i.memory)
    if "may-load" in description.properties and not loads:
        return None
    if "may-store" in description.properties and not any(access.stores for access in known):
        return None
    return known


def _access(text: str) -> Access | None:
    """A memory operand; None if it is atomic or volatile."""
    match = _MEMORY.match(text)
    space = _SPACE.search(text)
    number = int(space[1]) if space else 0
    if match is None:
        plain = re.match(
            r'(?:(?:non-temporal|dereferenceable|invariant|"[\w-]+") )*(load store|load|store) [(u0-9]', text
        )
        return None if plain is None else Access("store" in plain[1], False, number, "", 0, 0)
    stores = "store" in match["way"]
    size = (int(match["lanes"] or 1) * int(match["lane"] or match["bits"]) + 7) // 8
    start = int(match["offset"] or 0) * (-1 if match["sign"] == "-" else 1)
    return Access(stores, "invariant" in match["flags"], number, match["pointer"] or "", start, start + size)


def _share(a: Access, b: Access) -> bool:
    if not (a.stores or b.stores) or (a.invariant and not a.stores) or (b.invariant and not b.stores):
        return False
    if a.space != b.space:
        return not ({a.space, b.space} <= _APART and {3, 5} & {a.space, b.space})
    if a.pointer != b.pointer:
        return not (a.pointer.startswith("%stack.") and b.pointer.startswith("%stack."))
    return not a.pointer or (a.start < b.end and b.start < a.end)


def meet(a: Item, b: Item) -> bool:
    """Whether both may access the same memory, and one of them may change it."""
    if a.accesses is None or b.accesses is None:
        return True
    return any(_share(m, n) for m in a.accesses for n in b.accesses)


def _order_registers(items: Iterable[Item]) -> None:
    """Reads of a value may be exchanged; all else keeps its order. What stays begins anew."""
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    for item in items:
        if item.stays:
            writer.clear()
            readers.clear()
            continue
        for register in item.reads:
            if register in writer:
                item.before.add(writer[register])
        for register in item.writes:
            if register in writer:
                item.before.add(writer[register])
            item.before.update(readers.pop(register, ()))
            writer[register] = item.number
        for register in item.reads - item.writes:
            readers.setdefault(register, []).append(item.number)
        item.before.discard(item.number)


def _order_memory(items: Iterable[Item]) -> None:
    """Accesses that may meet keep their order. So that time stays linear, none passes every 256th one."""
    earlier: list[Item] = []
    for item in items:
        if item.stays:
            earlier.clear()
        elif item.accesses is None or item.accesses:
            is_full = len(earlier) >= _MOST_COMPARED
            item.before.update(other.number for other in earlier if is_full or meet(other, item))
            if is_full:
                earlier.clear()
                item.accesses = None
            earlier.append(item)
