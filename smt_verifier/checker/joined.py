"""Small blocks that LLVM makes copies of behind the phase, and moves that it exchanges or finds there (specification
10.11, 12.3).
"""

from __future__ import annotations

from dataclasses import dataclass

from smt_verifier.checker.certificate import VIRTUAL
from smt_verifier.checker.lanes import Lanes
from smt_verifier.checker.model import Instruction
from smt_verifier.checker.outcome import Refused
from smt_verifier.checker.tables import Opcode
from smt_verifier.checker.threads import writes_exec

_DUPLICATED = 2
"""Instructions of a block that TailDuplicator.cpp makes copies of (-tail-dup-size)."""
_NO_CODE = ("no-code", "frame-adjust")
_NONE = -1
_Writes = dict[int, frozenset[tuple[int, bool]]]
"""By registers that were written: the one that it was moved from or ``_NONE``, and whether EXEC was written since."""
_NOTHING: frozenset[tuple[int, bool]] = frozenset()


@dataclass(frozen=True, slots=True)
class Copied:
    """What LLVM may move to the end of each block of Q.

    Attributes:
        read: vector registers that are read in it.
        unread: targets of copies that nothing behind them reads, up to the block's end (12.3).
    """

    read: list[frozenset[int]]
    unread: list[frozenset[int]]


def copied_blocks(after: Lanes) -> Copied:
    """Which blocks LLVM makes copies of.

    Raises:
        Refused: it may exchange the registers of some moves over a write of EXEC, or find one in a copy (10.11).
    """
    count = len(after.parts)
    ahead = [set(after.successors(number)) for number in range(count)]
    before: list[list[int]] = [[] for _ in ahead]
    for number, places in enumerate(ahead):
        for place in places:
            before[place].append(number)
    joined = [[b for b in before[n] if len(ahead[b]) == 1] if _is_small(after, n) else [] for n in range(count)]
    read: list[frozenset[int]] = [frozenset() for _ in ahead]
    writes: list[_Writes] = [{} for _ in ahead]
    unread: list[frozenset[int]] = [frozenset() for _ in ahead]
    pending = list(range(count))
    while pending:
        number = pending.pop()
        reads = read[number].union(*(after.operand_keys(i).read for i in after.code(number) if joined[number]))
        for b in joined[number]:
            if not reads <= read[b]:
                read[b] |= reads
                pending.append(b)
        earlier: _Writes = {}
        for b in joined[number]:
            _add(earlier, writes[b])
        dead = frozenset[int]().union(*(unread[b] for b in joined[number]))
        left = _walk(after, after.code(number), earlier, dead)
        if left != (writes[number], unread[number]):
            writes[number], unread[number] = left
            pending += [n for n in ahead[number] if number in joined[n]]
    return Copied(read, unread)


def _is_small(after: Lanes, number: int) -> bool:
    """Whether LLVM makes copies of a block; a branch at its end may be gone by then, and what makes no code is not
    counted.
    """
    opcodes = [after.tables.opcode(i.opcode) for i in after.code(number)]
    return sum(opcode is None or not _is_gone(opcode) for opcode in opcodes) <= _DUPLICATED


def _is_gone(opcode: Opcode) -> bool:
    jumps = opcode.traits.issuperset(("branch", "barrier")) and "indirect-branch" not in opcode.traits
    return jumps or not opcode.traits.isdisjoint(_NO_CODE)


def _add(to: _Writes, more: _Writes) -> None:
    for register, rows in more.items():
        to[register] = to.get(register, _NOTHING) | rows


def _walk(
    after: Lanes, code: list[Instruction], earlier: _Writes, unread: frozenset[int]
) -> tuple[_Writes, frozenset[int]]:
    """Through a block; ``earlier``: what the blocks that get a copy of it leave, ``unread`` too."""
    own: _Writes = {}
    dead = set(unread)
    for i in code:
        opcode = after.tables.opcode(i.opcode)
        read = {k for o in i.operands if o.reads for k in after.keys(o, i)}
        written = after.operand_keys(i).defined
        copies = opcode is not None and "copy" in opcode.traits
        rows: list[tuple[int, int]] = []
        if copies or (opcode is not None and "vector-move" in opcode.traits):
            ends = [after.keys(o, i) for o in i.operands[:2] if o.is_register]
            rows = [row for row in zip(*ends, strict=False) if max(row) < VIRTUAL and all(map(after.is_vector, row))]
            rows = rows if len(ends) == 2 else []
        for target, source in rows:
            before = earlier.get(source, _NOTHING)
            for origin, old in before | own.get(source, _NOTHING):
                back = earlier.get(origin, _NOTHING) | own.get(origin, _NOTHING)
                if origin != _NONE and ((target, True) in back or (target, not old) in back):
                    raise _refused(i, "registers that LLVM may exchange for other threads")
                if old and copies and (origin, old) in before:
                    raise _refused(i, "a copy of what a block that gets a copy of this one wrote for other threads")
        for register in (read | written if copies else (written - read) & dead) if earlier else ():
            if any(old and origin != _NONE for origin, old in earlier.get(register, _NOTHING)):
                raise _refused(i, "the target of a move for other threads in a block that gets a copy of this one")
        dead -= read | written
        if copies:
            dead |= written
        for register in written:
            earlier.pop(register, None)
        own.update((k, frozenset({(_NONE, False)})) for k in after.operand_keys(i).written if k < VIRTUAL)
        own.update((target, frozenset({(_NONE, False), (source, False)})) for target, source in rows)
        if opcode is not None and writes_exec(i, opcode):
            for writes in (earlier, own):
                writes.update((k, frozenset((origin, True) for origin, _ in of)) for k, of in writes.items())
    _add(earlier, own)
    return earlier, frozenset(dead)


def _refused(i: Instruction, what: str) -> Refused:
    return Refused("not-followed", f"{i.opcode} names {what}", f"line {i.line}")
