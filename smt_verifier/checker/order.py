"""The instructions of blocks in another order (specification 16): what is exchanged does not meet.

Each register, and memory, is accessed in the same order, but for what may be exchanged. Nothing passes an instruction
that stays.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from smt_verifier.checker.assembly import counts_accesses, is_obscure
from smt_verifier.checker.model import (
    Block,
    Function,
    Instruction,
    Kind,
    MemoryOperand,
    bytes_of,
    is_relative,
)
from smt_verifier.checker.outcome import Refused
from smt_verifier.checker.tables import Opcode, tables
from smt_verifier.checker.text import read

HEAD = "verilocc-order 1"
_RUN = re.compile(r"(0|[1-9][0-9]{0,8})(?:-([1-9][0-9]{0,8}))?\Z", re.ASCII)
_STAYS = frozenset({
    "terminator", "branch", "indirect-branch", "return", "returns", "call", "barrier", "trap", "asm", "asm-goto",
    "side-effects", "frame-adjust", "generic", "setreg", "sets-mode", "indexed-on", "indexed-off", "indexed-mode",
    "vskip", "vgpr-msb", "enter-wwm",
})  # fmt: skip
_STAYING_FLAGS = frozenset({"frame-setup", "frame-destroy", "bb-prolog"})
_MAY_MOVE = ("debug-location ", "debug-instr-number ", "mmra ")
_APART = frozenset({1, 3, 4, 5, 7, 8})
"""Address spaces of which LDS (3) and private memory (5) share nothing with another one."""
_SPACE = re.compile(r", addrspace ([0-9]+)\Z")
_FRAME = ("stackPtrOffsetReg", "frameOffsetReg", "scratchRSrcReg")
_OBJECTS = (Kind.FRAME_INDEX, Kind.FIXED_FRAME)
_COUNTED = ("DS_", "EXP", "IMAGE_", "LDS_")
"""Instructions that are counted like accesses to memory, whether or not they are."""
_MATRICES = ("V_WMMA_", "V_SWMMAC_")
_VIRTUAL = 1 << 32


def check_order(before: str, after: str, certificate: str, processor: str, name: str = "") -> int:
    """Check that a function of ``after`` is that of ``before`` in the order of the certificate; how many instructions
    stand elsewhere.

    Raises:
        Refused: something is not shown, or a text or the certificate is not as it must be.
    """
    if tables().processor(processor) is None:
        raise Refused("processor", f"{processor} is not known")
    p, q = read(before), read(after)
    old, new = ([f for f in file.functions if not name or f.name == name] for file in (p, q))
    if len(old) != 1 or len(new) != 1:
        raise Refused("order", f"{len(old)} and {len(new)} functions in the texts")
    if p.module != q.module or _head(old[0]) != _head(new[0]) or len(old[0].blocks) != len(new[0].blocks):
        raise Refused("order", "more than the order of instructions differs")
    orders = _orders(certificate, old[0])
    moved, frame = 0, _frame(old[0])
    counted = counts_accesses(old[0], obscure=is_obscure(p))
    for number, (a, b) in enumerate(zip(old[0].blocks, new[0].blocks, strict=True)):
        if _of_block(a) != _of_block(b):
            raise Refused("order", "more than the order of instructions differs", f"bb.{a.number}")
        moved += _check_block(_groups(a), _groups(b), orders.get(number), frame, counted=counted)
    return moved


def _frame(function: Function) -> frozenset[int]:
    """Registers that a stack object may be addressed by (16.4)."""
    named = " ".join(function.fields.get(f"machineFunctionInfo.{name}", "") for name in _FRAME)
    names = {"sgpr32", "sgpr33", "sgpr34", "flat_scr", *re.findall(r"\$(\w+)", named)}
    return frozenset(at for name in names if tables().register(name) is not None for at in _registers(-1, name))


def _head(function: Function) -> object:
    f = function
    return f.name, dict(f.fields), dict(f.registers), f.liveins, list(f.fixed_stack.items()), list(f.stack.items())


def _of_block(block: Block) -> object:
    return block.number, block.name, block.attributes, block.successors, block.has_successors, block.liveins


def _orders(certificate: str, function: Function) -> dict[int, list[int]]:
    """For each block that the certificate names: where the items of Q stand in P (16.1)."""
    lines = certificate.split("\n")
    if lines[:2] != [HEAD, f"function {function.name}"] or lines[-2:] != ["end", ""]:
        raise Refused("order", "not a certificate of an order of this function")
    orders: dict[int, list[int]] = {}
    for line in lines[2:-2]:
        match line.split(" "):
            case ["block", word, *runs] if _RUN.match(word) and "-" not in word and int(word) not in orders and runs:
                orders[int(word)] = _positions(runs, function, int(word))
            case _:
                raise Refused("order", f"not a line of such a certificate: {line!r}")
    return orders


def _positions(runs: list[str], function: Function, block: int) -> list[int]:
    if block >= len(function.blocks):
        raise Refused("order", "the certificate names a block that is not there")
    most = len(function.blocks[block].instructions)
    positions: list[int] = []
    for run in runs:
        found = _RUN.match(run)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, -1)
        if found is None or (found[2] and last <= first) or last >= most or len(positions) > most:
            raise Refused("order", f"not a run of instructions of the block: {run!r}")
        positions += range(first, last + 1)
    return positions


class _Item(NamedTuple):
    """What moves as one: an instruction, or a bundle.

    Attributes:
        stays: nothing passes it.
        accesses: of each register: ``"r"`` it is read, ``"w"`` written, ``"x"`` both, or it dies there.
        memory: memory operands.
        everywhere: it may access any memory.
    """

    instructions: list[Instruction]
    stays: bool
    accesses: dict[int, str]
    memory: tuple[MemoryOperand, ...]
    everywhere: bool


def _groups(block: Block) -> list[list[Instruction]]:
    """What moves as one in a block, debug instructions left out."""
    groups: list[list[Instruction]] = []
    for i in block.instructions:
        if "debug" in _described(i).traits:
            continue
        if i.in_bundle:
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups


def _described(i: Instruction) -> Opcode:
    description = tables().opcode(i.opcode)
    if description is None:
        raise Refused("order", f"{i.opcode} is not known", f"line {i.line}")
    return description


def _item(instructions: list[Instruction], frame: Collection[int]) -> _Item:
    accesses: dict[int, str] = {}
    for i in instructions:
        for kind, registers in _accesses(i, frame):
            for at in registers:
                accesses[at] = kind if accesses.get(at, kind) == kind else "x"
    return _Item(
        instructions,
        any(map(_stays, instructions)),
        accesses,
        tuple(m for i in instructions for m in _memory(i)),
        any(map(_is_everywhere, instructions)),
    )


def _accesses(i: Instruction, frame: Collection[int]) -> Iterator[tuple[str, Collection[int]]]:
    """What its operands say of registers, and what LLVM's table says of every such instruction. Each reads EXEC: a copy
    does and does not say so. One with a stack object reads what that is addressed by.
    """
    if any(o.kind in _OBJECTS for o in i.operands):
        yield "r", frame
    for operand in i.operands:
        if operand.is_register:
            both = (operand.is_def and operand.sub) or "killed" in operand.flags
            yield "x" if both else "w" if operand.is_def else "r", _registers(operand.vreg, operand.register)
    description = _described(i)
    yield from (("r", _registers(-1, name)) for name in ("exec", *description.implicit_uses))
    yield from (("w", _registers(-1, name)) for name in description.implicit_definitions)


def _registers(vreg: int, name: str) -> Sequence[int]:
    """A virtual register as a whole; of the numbered files, registers of 32 bits (16.4)."""
    if vreg >= 0:
        return (_VIRTUAL + vreg,)
    register = tables().register(name)
    if register is None:
        raise Refused("order", f"${name} is no register that is known")
    return register.units if register.file == "x" else list(dict.fromkeys(unit & ~1 for unit in register.units))


def _stays(i: Instruction) -> bool:
    """Whether nothing passes it (16.3): it does or reads more than its operands say, or means a place in the code."""
    description = _described(i)
    traits = description.traits
    odd = (tables().register(o.register) for o in i.operands if o.is_register and o.register)
    return (
        not traits.isdisjoint(_STAYS)
        # Matrix operations read registers of threads that wait, and no more than that.
        or ("indirect" in traits and not ("reach=writes" in traits and description.definitions))
        or ("meta" in traits and "no-code" not in traits)
        or ("relative" in traits and any(not o.is_register and o.kind is not Kind.IMMEDIATE for o in i.operands))
        or any(map(is_relative, i.operands))
        or _has_no_effect(i, description)
        or not i.flags.isdisjoint(_STAYING_FLAGS)
        or any(not attribute.startswith(_MAY_MOVE) for attribute in i.tail)
        or any(m.volatile or m.is_atomic for m in i.memory)
        or any(o.kind is Kind.REGMASK for o in i.operands)
        or any(r is None or ("changes" in r.marks and r.name != "scc") or "alias" in r.marks for r in odd)
    )


def _has_no_effect(i: Instruction, description: Opcode) -> bool:
    """It writes no register and no memory, so that it is there for something else."""
    defines = description.implicit_definitions or any(o.is_def for o in i.operands)
    return not defines and description.traits.isdisjoint(("may-load", "may-store", "no-code"))


def _memory(i: Instruction) -> tuple[MemoryOperand, ...]:
    """Its memory operands. What it both loads and stores goes to LDS, from the named place on for each thread of the
    wave: how far, no operand says (16.5).
    """
    copies = any(m.loads for m in i.memory) and any(m.stores for m in i.memory)
    return tuple(m._replace(size="unknown-size") for m in i.memory) if copies else i.memory


def _is_everywhere(i: Instruction) -> bool:
    """Whether it accesses memory of which its memory operands do not say all."""
    description = _described(i)
    return any(
        trait in description.traits and not any(m.loads if trait == "may-load" else m.stores for m in i.memory)
        for trait in ("may-load", "may-store")
    )


def _check_block(
    p: list[list[Instruction]],
    q: list[list[Instruction]],
    order: list[int] | None,
    frame: Collection[int],
    *,
    counted: bool,
) -> int:
    """``order``: for each group of Q the number of P's, or None where they stand alike; ``frame``: see ``_frame``;
    ``counted``: accesses to memory are (16.5).
    """
    alike = list(range(len(p)))
    order = alike if order is None else order
    if len(q) != len(p) or sorted(order) != alike:
        raise Refused("order", "not each instruction once")
    for at, of in enumerate(order):
        pairs = zip(p[of], q[at], strict=False)
        if len(p[of]) != len(q[at]) or any(x != y and _said(x, y) != _said(y, y) for x, y in pairs):
            raise Refused("order", f"{q[at][0].opcode} is another instruction", f"line {q[at][0].line}")
    if order == alike:
        return 0
    for i in (i for group in p for i in group if i.opcode.startswith(_MATRICES)):
        last = max((n for n, row in enumerate(_described(i).operands) if row.kind.startswith("register")), default=-1)
        said = [o for o in i.operands if not o.is_implicit][last + 1 :]
        if any(o.kind is not Kind.IMMEDIATE or o.number for o in said):
            raise Refused("order-stays", f"{i.opcode} may take a matrix of the one before it", f"line {i.line}")
    # The flags that Q has count: those of P that it lacks said what need not be so any more.
    given = [_item(q[at], frame) for at in sorted(alike, key=order.__getitem__)]
    _check_staying(given, order)
    _check_registers(given, order)
    _check_memory(given, order, counted=counted)
    return sum(at != of for at, of in enumerate(order))


def _said(i: Instruction, q: Instruction) -> Instruction:
    """All that an instruction says, but for debug locations, where it stands, and deaths of registers of which its
    counterpart in Q says nothing (16.2).
    """
    lacks = [n for n, o in enumerate(q.operands) if "killed" not in o.flags]
    operands = list(i.operands)
    for n in (n for n in lacks if n < len(operands) and "killed" in operands[n].flags):
        operands[n] = replace(operands[n], flags=operands[n].flags - {"killed"})
    tail = tuple(t for t in i.tail if not t.startswith(_MAY_MOVE[:2]))
    return replace(i, operands=tuple(operands), tail=tail)


def _check_staying(items: list[_Item], order: list[int]) -> None:
    highest = -1
    for at, of in enumerate(order):
        if items[of].stays and (of != at or highest > of):
            raise Refused("order-stays", f"something passes {items[of].instructions[0].opcode}", _where(items[of]))
        highest = max(highest, of)


def _check_registers(items: list[_Item], order: list[int]) -> None:
    scc = tables().register("scc")
    unread = scc.units[0] if scc is not None else -1
    given, now = (_sequences(items, way, unread) for way in (range(len(items)), order))
    for register, groups in given.items():
        if groups != now[register]:
            first = next(n for n, group in enumerate(groups) if now[register][n : n + 1] != [group])
            item = items[min(groups[first][1])]
            raise Refused("order-registers", f"accesses to a register of {_named(item, register)} in another order",
                          _where(item))  # fmt: skip


def _sequences(items: list[_Item], order: Sequence[int], unread: int) -> dict[int, list[tuple[str, frozenset[int]]]]:
    """The accesses of each register, in order: neighbouring reads as one, and of SCC neighbouring writes of what nobody
    reads.
    """
    accesses: defaultdict[int, list[tuple[str, int]]] = defaultdict(list)
    for of in order:
        for register, kind in items[of].accesses.items():
            accesses[register].append((kind, of))
    result: dict[int, list[tuple[str, frozenset[int]]]] = {}
    for register, row in accesses.items():
        groups: list[tuple[str, set[int]]] = []
        for at, (kind, of) in enumerate(row):
            if register == unread and kind == "w" and at + 1 < len(row) and row[at + 1][0] == "w":
                kind = "u"
            if kind in "ru" and groups and groups[-1][0] == kind:
                groups[-1][1].add(of)
            else:
                groups.append((kind, {of}))
        result[register] = [(kind, frozenset(group)) for kind, group in groups]
    return result


def _check_memory(items: list[_Item], order: list[int], *, counted: bool) -> None:
    counts = [counted and any(i.opcode.startswith(_COUNTED) for i in item.instructions) for item in items]
    pending = dict.fromkeys(n for n, item in enumerate(items) if item.memory or item.everywhere or counts[n])
    for of in order:
        if of not in pending:
            continue
        for earlier in pending:
            if earlier == of:
                break
            if counted or _meet(items[earlier], items[of]):
                what = f"{items[of].instructions[0].opcode} passes {items[earlier].instructions[0].opcode}"
                raise Refused("order-memory", f"{what}, and both may access the same memory", _where(items[of]))
        del pending[of]


def _meet(a: _Item, b: _Item) -> bool:
    return a.everywhere or b.everywhere or any(_share(m, n) for m in a.memory for n in b.memory)


def _share(a: MemoryOperand, b: MemoryOperand) -> bool:
    """Whether one access may change what the other one accesses, as far as memory operands say (16.5, 16.7). What other
    threads see is no matter: accesses that tell them something stay (16.6).
    """
    if not (a.stores or b.stores) or any(m.invariant and not m.stores for m in (a, b)):
        return False
    spaces = [int(found[1]) if (found := _SPACE.search(m.rest)) else 0 for m in (a, b)]
    if spaces[0] != spaces[1]:
        return not (_APART.issuperset(spaces) and not {3, 5}.isdisjoint(spaces))
    if a.stack_object >= 0 and b.stack_object >= 0 and a.stack_object != b.stack_object:
        return False
    known = a.pointer == b.pointer and (a.pointer.startswith("%ir.") or a.stack_object >= 0 or a.fixed_object >= 0)
    sizes = [bytes_of(m.size) for m in (a, b)]
    if not known or 0 in sizes:
        return True
    return a.offset < b.offset + sizes[1] and b.offset < a.offset + sizes[0]


def _named(item: _Item, register: int) -> str:
    operands = (o for i in item.instructions for o in i.operands if o.is_register)
    names = (o.text for o in operands if register in _registers(o.vreg, o.register))
    return next(names, "the block")


def _where(item: _Item) -> str:
    return f"line {item.instructions[0].line}"
