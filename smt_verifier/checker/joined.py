"""Instructions that LLVM's control flow optimizer and tail duplication bring together behind the phase, and what other
passes make of moves there (specification 10.11, 12.3).
"""

from __future__ import annotations

from dataclasses import dataclass

from smt_verifier.checker.certificate import VIRTUAL
from smt_verifier.checker.lanes import Lanes, reachable
from smt_verifier.checker.model import Instruction, Operand
from smt_verifier.checker.outcome import Refused
from smt_verifier.checker.threads import writes_exec

_DUPLICATED = 2
"""Instructions of a block that TailDuplicator.cpp makes copies of (-tail-dup-size)."""
_NO_CODE = ("no-code", "frame-adjust")
_NONE = -1
_Rows = frozenset[tuple[int, bool]]
"""Of a register that was written: the one that it was moved from or ``_NONE``, and whether EXEC was written since."""
_NOTHING: _Rows = frozenset()


@dataclass(frozen=True, slots=True)
class Copied:
    """What LLVM may move to the end of each block of Q.

    Attributes:
        read: vector registers that are read in it.
        unread: targets of copies that nothing behind them reads, up to the block's end (12.3).
    """

    read: list[frozenset[int]]
    unread: list[frozenset[int]]


@dataclass(frozen=True, slots=True)
class _Near:
    """Blocks from whose instruction ``start`` on LLVM may bring a block's instructions up to ``stop`` together with."""

    blocks: dict[int, int]
    stop: int


@dataclass(frozen=True, slots=True)
class _Left:
    """What is known behind a block: writes of vector registers, each with the number of the last instruction (-1: of an
    earlier block) and its rows; and targets of copies that nothing has read, likewise.
    """

    writes: dict[int, tuple[int, _Rows]]
    unread: dict[int, int]


def copied_blocks(after: Lanes) -> Copied:
    """Which instructions LLVM may bring together.

    Raises:
        Refused: it may exchange the registers of some moves over a write of EXEC, or find one there (10.11).
    """
    count = len(after.parts)
    flow = _flow(after)
    near = [flow.near(number) for number in range(count)]
    behind: list[list[int]] = [[] for _ in near]
    for number, of in enumerate(near):
        for block in of.blocks:
            behind[block].append(number)
    read: list[frozenset[int]] = [frozenset() for _ in near]
    left = [_Left({}, {}) for _ in near]
    pending = list(range(count))
    while pending:
        number = pending.pop()
        of, code = near[number], after.code(number)
        reads = frozenset[int]().union(*(after.operand_keys(i).read for i in code[: of.stop] if of.blocks))
        reads |= read[number] if of.stop >= len(code) else frozenset()
        for block, start in of.blocks.items():
            written = {k for i in after.code(block)[start:] if start for k in after.operand_keys(i).written}
            if not (more := reads & written if start else reads) <= read[block]:
                read[block] |= more
                pending.append(block)
        now = _walk(after, number, of, left)
        if now != left[number]:
            left[number] = now
            pending += behind[number]
    return Copied(read, [frozenset(of.unread) for of in left])


@dataclass(frozen=True, slots=True)
class _Flow:
    """Q once blocks without code are gone: successors and predecessors of each block, and the numbers of its
    instructions that make code, but for a jump at its end, which may be gone by then.
    """

    after: Lanes
    ahead: list[set[int]]
    before: list[set[int]]
    kept: list[list[int]]
    said: list[list[int]]
    """For each instruction of a block a number: those that say the same have the same one."""
    words: list[list[int]]
    """Those numbers of the instructions that are kept."""

    def near(self, number: int) -> _Near:
        """With whose instructions LLVM may bring a block's own together."""
        code, own = self.after.code(number), self.kept[number]
        copied = {b: 0 for b in self.before[number] if len(self.ahead[b]) == 1}
        if len(own) <= _DUPLICATED:  # TailDuplicator.
            return _Near(copied, len(code))
        behind = {place for b in self.before[number] for place in self.ahead[b]}
        blocks = self._ends(self.before[number])
        if blocks and behind == {number}:  # BranchFolder: merged with the only block before it, or with a common end.
            return _Near(blocks, len(code))
        if blocks and len(behind) == 2:
            (other,) = behind - {number}
            if self.before[other] == self.before[number]:  # BranchFolder::HoistCommonCode.
                if all(_is_gone(i, self.after, branches=True) for i in self.after.code(other)):
                    return _Near(blocks, len(code))  # What it leads to may have been hoisted into it.
                alike = self._alike(number, own, other, self.kept[other])
                if alike:
                    return _Near(blocks, own[alike - 1] + 1)
        beside = {b for place in self.ahead[number] for b in self.before[place]} - {number} if copied else set[int]()
        end = [self.said[number][n] for n in own[_DUPLICATED:]]
        if any(self.words[b][-len(end) :] == end for b in beside):
            return _Near(copied, own[_DUPLICATED - 1] + 1)  # All that is left once its end is merged with another one.
        return _Near({}, 0)

    def _ends(self, blocks: set[int]) -> dict[int, int]:
        """From where on these blocks end alike, so that LLVM may make one of their ends (TailMergeBlocks)."""
        if len(blocks) < 2:
            return dict.fromkeys(blocks, 0)
        backwards = {block: self.kept[block][::-1] for block in blocks}
        first, *others = blocks
        count = min(self._alike(first, backwards[first], b, backwards[b]) for b in others)
        return {b: of[count - 1] if count < len(of) else 0 for b, of in backwards.items()} if count else {}

    def _alike(self, a: int, a_numbers: list[int], b: int, b_numbers: list[int]) -> int:
        """How many of the first of these instructions of two blocks are the same."""
        count, a_said, b_said = 0, self.said[a], self.said[b]
        for n, m in zip(a_numbers, b_numbers, strict=False):
            if a_said[n] != b_said[m]:
                break
            count += 1
        return count


def _flow(after: Lanes) -> _Flow:
    """Blocks without code go as BranchFolder::OptimizeBlock lets them."""
    ahead = [set(after.successors(number)) for number in range(len(after.parts))]
    entered = reachable(ahead)
    ahead = [places if number in entered else set[int]() for number, places in enumerate(ahead)]
    before: list[set[int]] = [set() for _ in ahead]
    for number, places in enumerate(ahead):
        for place in places:
            before[place].add(number)
    pending = [n for n in sorted(entered) if n and all(_is_gone(i, after, branches=True) for i in after.code(n))]
    waiting = set(pending)
    while pending:
        number = pending.pop()
        if number not in waiting or len(ahead[number]) != 1 or number in ahead[number]:
            continue
        waiting.discard(number)
        target = ahead[number].pop()
        before[target].discard(number)
        for block in before[number]:
            ahead[block] = (ahead[block] - {number}) | {target}
            before[target].add(block)
            if block in waiting:
                pending.append(block)
        before[number].clear()
    codes = [after.code(number) for number in range(len(ahead))]
    kept = [[n for n, i in enumerate(code) if not _is_gone(i, after, branches=False)] for code in codes]
    numbers: dict[tuple[str, tuple[tuple[str, bool], ...]], int] = {}
    said = [
        [numbers.setdefault((i.opcode, tuple(map(_said, i.operands))), len(numbers)) for i in code] for code in codes
    ]
    words = [[row[n] for n in own] for row, own in zip(said, kept, strict=True)]
    return _Flow(after, ahead, before, kept, said, words)


def _said(operand: Operand) -> tuple[str, bool]:
    return operand.text, operand.is_def


def _is_gone(i: Instruction, after: Lanes, *, branches: bool) -> bool:
    """Whether it makes no code, or is a jump; or, ``branches``, any direct branch."""
    opcode = after.tables.opcode(i.opcode)
    if opcode is None:
        return False
    jumps = "branch" in opcode.traits and "indirect-branch" not in opcode.traits
    return (jumps and (branches or "barrier" in opcode.traits)) or not opcode.traits.isdisjoint(_NO_CODE)


def _walk(after: Lanes, number: int, of: _Near, left: list[_Left]) -> _Left:
    """Through a block, with what the blocks leave that it may be brought together with."""
    earlier: dict[int, _Rows] = {}
    dead: dict[int, int] = {}
    for block, start in of.blocks.items():
        for register, (at, rows) in left[block].writes.items():
            if not start or at >= start:
                earlier[register] = earlier.get(register, _NOTHING) | rows
        dead.update((register, -1) for register, at in left[block].unread.items() if not start or at >= start)
    own: dict[int, tuple[int, _Rows]] = {}
    for at, i in enumerate(after.code(number)):
        if at == of.stop:
            earlier, dead = {}, {register: n for register, n in dead.items() if n >= 0}
        opcode = after.tables.opcode(i.opcode)
        read = {k for o in i.operands if o.reads for k in after.keys(o, i)}
        written = after.operand_keys(i).defined
        copies = opcode is not None and "copy" in opcode.traits
        moved: list[tuple[int, int]] = []
        if copies or (opcode is not None and "vector-move" in opcode.traits):
            ends = [after.keys(o, i) for o in i.operands[:2] if o.is_register]
            moved = [row for row in zip(*ends, strict=False) if max(row) < VIRTUAL and all(map(after.is_vector, row))]
            moved = moved if len(ends) == 2 else []
        for target, source in moved:
            before = earlier.get(source, _NOTHING)
            for origin, old in before | own.get(source, (at, _NOTHING))[1]:
                back = earlier.get(origin, _NOTHING) | own.get(origin, (at, _NOTHING))[1]
                if origin != _NONE and ((target, True) in back or (target, not old) in back):
                    raise _refused(i, "registers that LLVM may exchange for other threads")
                if old and copies and (origin, old) in before:
                    raise _refused(i, "a copy of what was written for other threads ahead of its block")
        for register in (read | written if copies else {k for k in written - read if k in dead}) if earlier else ():
            if any(old and origin != _NONE for origin, old in earlier.get(register, _NOTHING)):
                raise _refused(i, "the target of a move for other threads ahead of its block")
        for register in read | written:
            dead.pop(register, None)
        if copies:
            dead.update(dict.fromkeys(written, at))
        for register in written:
            earlier.pop(register, None)
        own.update((k, (at, frozenset({(_NONE, False)}))) for k in after.operand_keys(i).written if k < VIRTUAL)
        own.update((target, (at, frozenset({(_NONE, False), (source, False)}))) for target, source in moved)
        if opcode is not None and writes_exec(i, opcode):
            earlier = {k: _aged(rows) for k, rows in earlier.items()}
            own = {k: (n, _aged(rows)) for k, (n, rows) in own.items()}
    if of.stop < len(after.code(number)):
        earlier, dead = {}, {register: n for register, n in dead.items() if n >= 0}
    return _Left({**{k: (-1, rows) for k, rows in earlier.items()}, **own}, dead)


def _aged(rows: _Rows) -> _Rows:
    return frozenset((origin, True) for origin, _ in rows)


def _refused(i: Instruction, what: str) -> Refused:
    return Refused("not-followed", f"{i.opcode} names {what}", f"line {i.line}")
