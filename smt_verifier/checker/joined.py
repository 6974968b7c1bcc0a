"""What LLVM's passes behind the phase make of moves, whatever threads are active (specification 10.11, 12.3).

They look at blocks that they have joined or duplicated before.
"""

from __future__ import annotations

from smt_verifier.checker.certificate import VIRTUAL
from smt_verifier.checker.lanes import Lanes
from smt_verifier.checker.model import Instruction
from smt_verifier.checker.outcome import Refused
from smt_verifier.checker.threads import writes_exec

_DUPLICATED = 2
"""Instructions of a block that TailDuplicator.cpp duplicates (-tail-dup-size)."""
_NONE = -1
_Writes = dict[int, frozenset[tuple[int, bool]]]
"""By registers that were written: the one that it was moved from or ``_NONE``, and whether EXEC was written since."""
_NOTHING: frozenset[tuple[int, bool]] = frozenset()


def check_moves(after: Lanes) -> tuple[list[frozenset[int]], frozenset[int]]:
    """No moves that LLVM may exchange, or find in another block, over a write of EXEC (10.11).

    Returns:
        For each block the targets of copies that nothing behind them reads, up to its end (12.3); and the blocks that
        are joined with what follows.

    Raises:
        Refused: there are some.
    """
    blocks = after.function.blocks
    code = [after.code(number) for number in range(len(blocks))]
    ahead = [{place for place, _ in block.successors} for block in blocks]
    before: list[list[int]] = [[] for _ in blocks]
    for number, places in enumerate(ahead):
        for place in places:
            before[place].append(number)

    def _is_duplicated(number: int) -> bool:
        """With what LLVM joins to it first: a block that alone follows it and nothing else."""
        size, seen = 0, set[int]()
        while number not in seen and size <= _DUPLICATED:
            seen.add(number)
            size += sum(not _is_left_out(i, after) for i in code[number])
            if len(ahead[number]) != 1 or len(before[next(iter(ahead[number]))]) != 1:
                break
            size -= code[number][-1:] != [] and "barrier" in _traits(code[number][-1], after)
            number = next(iter(ahead[number]))
        return size <= _DUPLICATED

    joined = [
        [
            b
            for b in before[number]
            if len(ahead[b]) == 1 and (len(before[number]) == 1 or (b + 1 != number and _is_duplicated(number)))
        ]
        for number in range(len(blocks))
    ]
    writes: list[_Writes] = [{} for _ in blocks]
    unread: list[frozenset[int]] = [frozenset() for _ in blocks]
    pending = list(range(len(blocks)))
    while pending:
        number = pending.pop()
        reached: _Writes = {}
        for b in joined[number]:
            _add(reached, writes[b])
        left = _walk(after, code[number], reached, frozenset[int]().union(*(unread[b] for b in joined[number])))
        if left != (writes[number], unread[number]):
            writes[number], unread[number] = left
            pending += [n for n in ahead[number] if number in joined[n]]
    return unread, frozenset(b for of in joined for b in of)


def _traits(i: Instruction, after: Lanes) -> frozenset[str]:
    opcode = after.tables.opcode(i.opcode)
    return frozenset(opcode.traits) if opcode is not None else frozenset()


def _is_left_out(i: Instruction, after: Lanes) -> bool:
    """Whether it is gone, or is not counted, where LLVM duplicates blocks."""
    return not _traits(i, after).isdisjoint({"no-code", "frame-adjust"})


def _add(to: _Writes, more: _Writes) -> None:
    for register, rows in more.items():
        to[register] = to.get(register, _NOTHING) | rows


def _walk(
    after: Lanes, code: list[Instruction], earlier: _Writes, unread: frozenset[int]
) -> tuple[_Writes, frozenset[int]]:
    """Through a block; ``earlier``: what the blocks before it leave, ``unread`` too."""
    own: _Writes = {}
    dead = set(unread)
    for i in code:
        opcode = after.tables.opcode(i.opcode)
        registers = [(o, after.keys(o, i)) for o in i.operands if o.is_register]
        read = {k for o, keys in registers if o.reads for k in keys}
        written = after.marked(i).defined
        copies = opcode is not None and "copy" in opcode.traits
        rows: list[tuple[int, int]] = []
        if (copies or (opcode is not None and "vector-move" in opcode.traits)) and i.operands[1].is_register:
            rows = [row for row in zip(registers[0][1], registers[1][1], strict=False)
                    if max(row) < VIRTUAL and all(map(after.is_vector, row))]  # fmt: skip
        for target, source in rows:
            before = earlier.get(source, _NOTHING)
            for origin, old in before | own.get(source, _NOTHING):
                back = earlier.get(origin, _NOTHING) | own.get(origin, _NOTHING)
                if origin != _NONE and ((target, True) in back or (target, not old) in back):
                    raise _refused(i, "registers that LLVM may exchange for other threads")
                if old and copies and (origin, old) in before:
                    raise _refused(i, "a copy of what a block that LLVM joins with this one wrote for other threads")
        for register in (read | written if copies else (written - read) & dead) if earlier else ():
            if any(old and origin != _NONE for origin, old in earlier.get(register, _NOTHING)):
                raise _refused(i, "the target of a move for other threads in a block that LLVM joins with this one")
        dead -= read | written
        if copies:
            dead |= written
        for register in written:
            earlier.pop(register, None)
        own.update((k, frozenset({(_NONE, False)})) for k in after.marked(i).written if k < VIRTUAL)
        own.update((target, frozenset({(_NONE, False), (source, False)})) for target, source in rows)
        if opcode is not None and writes_exec(i, opcode):
            for writes in (earlier, own):
                writes.update((k, frozenset((origin, True) for origin, _ in of)) for k, of in writes.items())
    _add(earlier, own)
    return earlier, frozenset(dead)


def _refused(i: Instruction, what: str) -> Refused:
    return Refused("not-followed", f"{i.opcode} names {what}", f"line {i.line}")
