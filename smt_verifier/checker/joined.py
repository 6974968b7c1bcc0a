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
_Write = tuple[int, int, bool]
"""A register that was written, the one that it was moved from or ``_NONE``, and whether EXEC was written since."""


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
    writes: list[frozenset[_Write]] = [frozenset() for _ in blocks]
    unread: list[frozenset[int]] = [frozenset() for _ in blocks]
    pending = list(range(len(blocks)))
    while pending:
        number = pending.pop()
        reached = (frozenset[_Write]().union(*(writes[b] for b in joined[number])),
                   frozenset[int]().union(*(unread[b] for b in joined[number])))  # fmt: skip
        left = _walk(after, code[number], *reached)
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


def _walk(
    after: Lanes, code: list[Instruction], carried: frozenset[_Write], unread: frozenset[int]
) -> tuple[frozenset[_Write], frozenset[int]]:
    """Through a block; ``carried``: what the blocks before it leave, ``unread`` too."""
    earlier, own, dead = set(carried), set[_Write](), set(unread)
    for i in code:
        opcode = after.tables.opcode(i.opcode)
        registers = [(o, after.keys(o, i)) for o in i.operands if o.is_register]
        read = {k for o, keys in registers if o.reads for k in keys}
        written = {k for o, keys in registers if o.is_def for k in keys}
        copies = opcode is not None and "copy" in opcode.traits
        rows: list[tuple[int, int]] = []
        if (copies or (opcode is not None and "vector-move" in opcode.traits)) and i.operands[1].is_register:
            rows = [row for row in zip(registers[0][1], registers[1][1], strict=False)
                    if max(row) < VIRTUAL and all(map(after.is_vector, row))]  # fmt: skip
        for target, source in rows:
            for moved, origin, old in (w for w in earlier | own if w[0] == source):
                if origin != _NONE and any((origin, target, o) in earlier | own for o in (True, not old)):
                    raise _refused(i, "registers that LLVM may exchange for other threads")
                if old and copies and (moved, origin, old) in earlier:
                    raise _refused(i, "a copy of what a block that LLVM joins with this one wrote for other threads")
        of_moves = read | written if copies else (written - read) & dead
        if any(old and origin != _NONE and moved in of_moves for moved, origin, old in earlier):
            raise _refused(i, "the target of a move for other threads in a block that LLVM joins with this one")
        dead = (dead - read - written) | (written if copies else set())
        earlier, own = ({w for w in of if w[0] not in written} for of in (earlier, own))
        own.update((k, _NONE, False) for k in written if k < VIRTUAL and after.is_vector(k))
        own.update((*row, False) for row in rows)
        if opcode is not None and writes_exec(i, opcode):
            earlier, own = ({(moved, origin, True) for moved, origin, _ in of} for of in (earlier, own))
    return frozenset(earlier | own), frozenset(dead)


def _refused(i: Instruction, what: str) -> Refused:
    return Refused("not-followed", f"{i.opcode} names {what}", f"line {i.line}")
