"""Instructions that LLVM's control flow optimizer and tail duplication bring together behind the phase, and what other
passes make of moves there (specification 10.11, 12.3).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from smt_verifier.checker.certificate import VIRTUAL
from smt_verifier.checker.lanes import Lanes, declared_units, led_to, nested_loops, predecessors, reachable
from smt_verifier.checker.model import Instruction, Kind
from smt_verifier.checker.outcome import Refused
from smt_verifier.checker.threads import EXEC_NAMES, writes_exec

_DUPLICATED = 2
"""Instructions of a block that TailDuplicator.cpp makes copies of (-tail-dup-size): one that leads to another ends with
a branch, for it must not fall through.
"""
_NO_CODE = ("no-code", "frame-adjust")
_SCALAR_MOVES = ("COPY", "S_MOV_B32", "S_MOV_B64")
_FRAME = ("machineFunctionInfo.stackPtrOffsetReg", "machineFunctionInfo.frameOffsetReg")
_NOT_HOISTED = ("may-store", "call", "side-effects", "terminator")
_NOT_THE_SAME = ("S_GETPC_B64", "S_GETPC_B64_pseudo")
"""What names no register but its result, and gives another one elsewhere."""
_NOTHING: frozenset[tuple[int, bool]] = frozenset()


class Copied(NamedTuple):
    """What LLVM may move to the end of each block of Q.

    Attributes:
        read: vector registers that are read in it.
        unread: targets of copies that nothing behind them reads, up to the block's end (12.3).
    """

    read: list[frozenset[int]]
    unread: list[frozenset[int]]

    def and_of(self, other: Copied) -> Copied:
        """What either says."""
        ways = zip((self.read, self.unread), (other.read, other.unread), strict=True)
        return Copied(*([a | b for a, b in zip(one, two, strict=True)] for one, two in ways))


class _Near(NamedTuple):
    """Blocks from whose instruction ``start`` on LLVM may bring a block's instructions up to ``stop`` together with."""

    blocks: dict[int, int]
    stop: int


@dataclass(repr=False, slots=True)
class _Known:
    """What was written behind some point, and whether EXEC was since (the Boolean).

    Attributes:
        moves: of registers that were moved to, those they were moved from.
        copies: likewise by a COPY, with how often the source had been written: neither was since.
        fresh: registers that were written and not read.
        unread: targets of a COPY that nothing has read.
    """

    moves: dict[int, frozenset[tuple[int, bool]]] = field(default_factory=dict[int, frozenset[tuple[int, bool]]])
    copies: dict[int, frozenset[tuple[int, int, bool]]] = field(
        default_factory=dict[int, frozenset[tuple[int, int, bool]]]
    )
    fresh: dict[int, bool] = field(default_factory=dict[int, bool])
    unread: set[int] = field(default_factory=set[int])

    def add(self, left: _Left, start: int) -> None:
        """What is known behind another block of registers that it wrote last from an instruction on (0: all)."""
        known = left.known
        every = {*known.moves, *known.copies, *known.fresh}
        near = {register for register in every if not start or left.last.get(register, -1) >= start}
        for target in known.moves.keys() & near:
            self.moves[target] = self.moves.get(target, _NOTHING) | known.moves[target]
        for target in known.copies.keys() & near:
            self.copies[target] = self.copies.get(target, frozenset()) | known.copies[target]
        for register in known.fresh.keys() & near:
            self.fresh[register] = known.fresh[register] or self.fresh.get(register, False)

    def age(self) -> None:
        """EXEC is written."""
        self.moves = {k: frozenset((of, True) for of, _ in rows) for k, rows in self.moves.items()}
        self.copies = {k: frozenset((of, n, True) for of, n, _ in rows) for k, rows in self.copies.items()}
        self.fresh = dict.fromkeys(self.fresh, True)


@dataclass(repr=False, slots=True)
class _Left:
    """What is known behind a block.

    Attributes:
        last: the number of the instruction that wrote a register last in it.
        sunk: targets of copies of the block before that may be moved to its beginning.
    """

    known: _Known = field(default_factory=_Known)
    last: dict[int, int] = field(default_factory=dict[int, int])
    sunk: frozenset[int] = frozenset()


def near_blocks(after: Lanes) -> list[tuple[set[int], int]]:
    """For each block those with whose instructions LLVM may bring its own together, up to which one."""
    flow = _flow(after)
    near = [flow.near(number) for number in range(len(after.parts))]
    return [(set(of.blocks), of.stop) for of in near]


def copied_blocks(after: Lanes) -> Copied:
    """Which instructions LLVM may bring together.

    Raises:
        Refused: it may exchange the registers of some moves over a write of EXEC, or find one there; or it takes two
            instructions for the same that do not read the same (10.11).
    """
    count = len(after.parts)
    flow = _flow(after)
    _check_hoisted(flow)
    _check_merged(flow)
    _check_once(flow)
    near = [flow.near(number) for number in range(count)]
    behind: list[list[int]] = [[] for _ in near]
    for number, of in enumerate(near):
        for block in of.blocks.keys() | {flow.sinks_from(number)} - {-1}:
            behind[block].append(number)
    read: list[frozenset[int]] = [frozenset() for _ in near]
    left = [_Left() for _ in near]
    pending = list(range(count))[::-1]  # Most blocks follow those that they depend on.
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
        above = flow.sinks_from(number)
        now = _Walk(after, number, of, left, above).left()
        if now.sunk:
            reads = frozenset[int]().union(read[number], *(after.operand_keys(i).read for i in code))
            if not (more := now.sunk & reads) <= read[above]:
                read[above] |= more
                pending.append(above)
        if now != left[number]:
            left[number] = now
            pending += behind[number]
    return Copied(read, [frozenset(of.known.unread) for of in left])


class _Flow:
    """Q once blocks without code are gone.

    Attributes:
        ahead, before: successors and predecessors of each block.
        kept: numbers of its instructions that make code, but for a jump at its end, which may be gone by then.
        stays: those of them that no other pass has deleted, moved or made one of by then.
        said: for each instruction of a block a number: those that LLVM makes equal have the same one.
        one: blocks that LLVM makes one of have the same number.
    """

    def __init__(
        self,
        after: Lanes,
        ahead: list[set[int]],
        before: list[set[int]],
        kept: list[list[int]],
        stays: list[list[int]],
        said: list[list[int]],
        one: list[int],
    ) -> None:
        self.after, self.ahead, self.before, self.kept, self.stays = after, ahead, before, kept, stays
        self.said, self.one = said, one

    def near(self, number: int) -> _Near:
        """With whose instructions LLVM may bring a block's own together."""
        code, own, before = self.after.code(number), self.stays[number], self.before[number]
        copied = {b: 0 for b in before if self._ones(self.ahead[b]) == {self.one[number]}}
        small = _DUPLICATED - bool(self.ahead[number])
        if len(own) <= small and copied:  # TailDuplicator.
            return _Near(copied, len(code))
        others = {place for b in before for place in self.ahead[b] if self.one[place] != self.one[number]}
        blocks = self._ends(before)
        if blocks and not others:  # BranchFolder: merged with the only block before it, or with a common end.
            return _Near(blocks, len(code))
        if blocks and len(self._ones(others)) == 1:
            other = min(others)
            if self._led_from(other) == self._led_from(number):  # BranchFolder::HoistCommonCode.
                if all(_is_gone(i, self.after, branches=True) for i in self.after.code(other)):
                    return _Near(blocks, len(code))  # What it leads to may have been hoisted into it.
                alike = self._alike(number, own, other, self.stays[other])
                if alike:
                    return _Near(blocks, own[alike - 1] + 1)
        beside = {b for place in self.ahead[number] for b in self.before[place]}
        beside = beside if self.ahead[number] else {b for b, places in enumerate(self.ahead) if not places}
        if not copied or len(own) <= small:
            return _Near({}, 0)
        end = [self.said[number][n] for n in own[small:]]
        if any([self.said[b][n] for n in self.stays[b][-len(end) :]] == end for b in beside - {number}):
            return _Near(copied, own[small - 1] + 1)  # All that is left once its end is merged with another one.
        return _Near({}, 0)

    def _ones(self, blocks: Iterable[int]) -> set[int]:
        return {self.one[block] for block in blocks}

    def _led_from(self, number: int) -> set[int]:
        """The blocks, ones counted once, that lead to a block or to one of the same."""
        same = (n for n, one in enumerate(self.one) if one == self.one[number])
        return self._ones(b for n in same for b in self.before[n])

    def sinks_from(self, number: int) -> int:
        """The block from which PostRAMachineSinking may move a COPY into this one, or -1."""
        before = self.after.predecessors[number]
        above = next(iter(before)) if len(before) == 1 else -1
        return above if above >= 0 and len(set(self.after.successors(above))) > 1 else -1

    def _ends(self, blocks: set[int]) -> dict[int, int]:
        """From where on these blocks end alike, so that LLVM may make one of their ends (TailMergeBlocks)."""
        if len(self._ones(blocks)) < 2:
            return dict.fromkeys(blocks, 0)
        backwards = {block: self.stays[block][::-1] for block in blocks}
        first, *others = blocks
        count = min(self._alike(first, backwards[first], b, backwards[b]) for b in others)
        return {b: of[count] + 1 if count < len(of) else 0 for b, of in backwards.items()} if count else {}

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
    before = predecessors(ahead)
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
    said, again = _numbered(codes, after)
    stays: list[list[int]] = []
    loops = _smallest_loops(ahead, before)
    known: dict[int, set[int]] = {}
    for number, loop in enumerate(loops):
        gone = _masks_made_one(after, number)
        if loop is not None and id(loop) not in known:
            known[id(loop)] = {k for n in loop for i in codes[n] for k in after.operand_keys(i).defined}
        defined = known[id(loop)] if loop is not None else None
        for n in kept[number]:
            if said[number][n] in again or (defined is not None and _is_invariant(codes[number][n], after, defined)):
                gone.add(n)
        stays.append([n for n in kept[number] if n not in gone])
    forms: dict[tuple[frozenset[int], tuple[int, ...]], int] = {}
    one = [
        forms.setdefault((frozenset(ahead[b]), tuple([said[b][n] for n in of])), len(forms))
        for b, of in enumerate(stays)
    ]
    return _Flow(after, ahead, before, kept, stays, said, one)


def _numbered(codes: Sequence[Sequence[Instruction]], after: Lanes) -> tuple[list[list[int]], set[int]]:
    """A number for what each instruction says, block by block, and the numbers of what may be said once too often: pure
    instructions and COPYs that name no register but their result and the frame's, and that stand more than once
    (MachineLateInstrsCleanup.cpp, isCandidate).
    """
    numbers: dict[tuple[str, tuple[tuple[str, bool], ...]], int] = {}
    again: set[int] = set()
    addressed = {_form(i, after, exact=False) for code in codes for i in code if _names_object(i)}
    frame = frozenset(re.findall(r"\$(\w+)", " ".join(after.function.fields.get(name, "") for name in _FRAME)))
    rows: list[list[int]] = [[] for _ in codes]
    for row, i in [(row, i) for row, code in zip(rows, codes, strict=True) for i in code]:
        words = _form(i, after, exact=False) if addressed else ("", ())
        words = words if words in addressed else _form(i, after, exact=True)
        opcode = after.tables.opcode(i.opcode) if words in numbers else None
        row.append(numbers.setdefault(words, len(numbers)))
        if opcode is not None and not opcode.traits.isdisjoint(("pure", "copy")) and _names_its_result(i, frame):
            again.add(row[-1])
    return rows, again


def _form(i: Instruction, after: Lanes, *, exact: bool) -> tuple[str, tuple[tuple[str, bool], ...]]:
    """What an instruction says once LLVM's passes ahead of BranchFolder have run: conditions may be turned round,
    terminators are none (SIOptimizeExecMasking), and, not ``exact``, a stack object's address may be any immediate.
    """
    if _is_gone(i, after, branches=True) and not _is_gone(i, after, branches=False):
        return "", ()
    opcode = i.opcode.removesuffix("_term")
    source = next((o for o in i.operands[1:2] if o.is_register), None)
    if opcode in _SCALAR_MOVES and source is not None and not any(map(after.is_vector, after.keys(source, i))):
        opcode = "COPY"
    literal = () if exact else (Kind.FRAME_INDEX, Kind.IMMEDIATE)
    return opcode, tuple([("" if o.kind in literal else o.text, o.is_def) for o in i.operands])


def _names_object(i: Instruction) -> bool:
    return any(o.kind is Kind.FRAME_INDEX for o in i.operands)


def _names_its_result(i: Instruction, frame: frozenset[str]) -> bool:
    """Whether it names no register but its result, and those of the frame."""
    named = [n for n, o in enumerate(i.operands) if o.is_register and (n == 0 or o.register not in frame)]
    return named == [0] and i.operands[0].is_def


def _smallest_loops(ahead: list[set[int]], before: list[set[int]]) -> list[set[int] | None]:
    """The smallest loop that each block may be in; the block alone, where others lead to several."""
    rows: list[set[int] | None] = [None] * len(ahead)
    for loop, entered in nested_loops(ahead, before):
        for n in loop:
            rows[n] = loop if len(entered) == 1 else {n}
    return rows


def _is_invariant(i: Instruction, after: Lanes, defined: set[int]) -> bool:
    """Whether MachineLICM may move it out of a loop, which defines so much."""
    opcode = after.tables.opcode(i.opcode)
    if opcode is None or opcode.traits.isdisjoint(("pure", "may-load")):
        return False
    read = {k for o in i.operands if o.reads and o.register not in EXEC_NAMES for k in after.keys(o, i)}
    return read.isdisjoint(defined)


def _masks_made_one(after: Lanes, number: int) -> set[int]:
    """The numbers of instructions in a block of which SIOptimizeExecMasking may make one."""
    gone: set[int] = set()
    start = 0
    for part in after.parts[number]:
        code = after.code_of(part)
        moves = [n for n, i in enumerate(code) if len(i.operands) > 1 and _has(i, after, "copy", "mask-move")]
        if any(code[n].operands[0].register in EXEC_NAMES and code[n].operands[1].is_register for n in moves):
            gone.update(start + n for n in moves if code[n].operands[1].register in EXEC_NAMES)
            gone.update(
                start + n for n, i in enumerate(code) if (o := after.tables.opcode(i.opcode)) and o.value("mask")
            )
        start += len(code)
    return gone


def _has(i: Instruction, after: Lanes, *traits: str) -> bool:
    opcode = after.tables.opcode(i.opcode)
    return opcode is not None and not opcode.traits.isdisjoint(traits)


def _check_once(flow: _Flow) -> None:
    """MachineLateInstrsCleanup deletes an instruction that names no register but its result, which holds it already.
    MachineLICM moves one out of a loop.
    """
    named: set[int] = set()
    for number, code in enumerate(flow.said):
        for i, said in zip(flow.after.code(number), code, strict=True):
            if i.opcode not in _NOT_THE_SAME:
                continue
            if said in named or number in led_to(flow.ahead, number):
                where = "in a loop, or again into the same register"
                raise Refused("not-followed", f"{i.opcode} {where}", f"line {i.line}")
            named.add(said)


def _check_merged(flow: _Flow) -> None:
    """BranchFolder::TryTailMergeBlocks makes one of what blocks end alike in that lead to the same block, or nowhere,
    and keeps one of two instructions that may differ in ``dead``, or in a COPY in ``killed``.
    """
    exits = {number for number, places in enumerate(flow.ahead) if not places}
    for rows, blocks in ((rows, blocks) for rows in (flow.kept, flow.stays) for blocks in (*flow.before, exits)):
        # What is said so far, backwards from the end, has a number; and where it was said first.
        known: dict[tuple[int, int], tuple[int, int, int]] = {}
        for number in sorted(blocks) if len(blocks) > 1 else ():
            at = 0
            for n in reversed(rows[number]):
                at, other, m = known.setdefault((at, flow.said[number][n]), (len(known) + 1, number, n))
                differ = _marked(flow, (number, n), (other, m)) if other != number else []
                if any(_ends_there(flow, number, n, k) is not _ends_there(flow, other, m, k) for k in differ):
                    i = flow.after.code(number)[n]
                    raise _refused(i, "registers dead or killed that are not so where a block ends like its own")


def _marked(flow: _Flow, *places: tuple[int, int]) -> list[int]:
    """Operands of instructions that say the same which differ in ``dead`` or, of a COPY, in ``killed``."""
    one, other = (flow.after.code(number)[n] for number, n in places)
    if _is_gone(one, flow.after, branches=True):
        return []
    copies = _has(one, flow.after, "copy") or _has(other, flow.after, "copy")
    marks = ("dead", "killed") if copies else ("dead",)
    rows = enumerate(zip(one.operands, other.operands, strict=False))
    return [k for k, (x, y) in rows if any((mark in x.flags) is not (mark in y.flags) for mark in marks)]


def _ends_there(flow: _Flow, number: int, at: int, operand: int) -> bool:
    """Whether an operand is marked, or nothing behind it reads what it defines."""
    after, code = flow.after, flow.after.code(number)
    o = code[at].operands[operand]
    if not o.is_def or "dead" in o.flags:
        return not o.flags.isdisjoint(("dead", "killed"))
    keys = set(after.keys(o, code[at]))
    for i in code[at + 1 :]:
        if any(not keys.isdisjoint(after.keys(u, i)) for u in i.operands if u.reads):
            return False
        keys -= after.operand_keys(i).defined
    return all(keys.isdisjoint(declared_units(after, place)) for place in after.successors(number))


def _check_hoisted(flow: _Flow) -> None:
    """BranchFolder::HoistCommonCodeInSuccs hoists what both successors of a block begin with, as far as
    ``MachineInstr::isSafeToMove`` lets it, and keeps one of two instructions that may differ in ``undef``, memory
    operands and marks. Where all of a block is hoisted, what follows it comes next.
    """
    for every in (True, False):  # Something may be gone by then.
        _check_beginnings(flow, [_first(flow, number, every=every) for number in range(len(flow.ahead))])


def _check_beginnings(flow: _Flow, firsts: list[_First]) -> None:
    pending = [(min(places), 0, max(places), 0) for places in flow.ahead if len(places) == 2]
    seen = set(pending)
    while pending:
        a, i, b, j = pending.pop()
        of_a, of_b = firsts[a].numbers, firsts[b].numbers
        while a != b and i < len(of_a) and j < len(of_b) and flow.said[a][of_a[i]] == flow.said[b][of_b[j]]:
            one, other = flow.after.code(a)[of_a[i]], flow.after.code(b)[of_b[j]]
            if _undefined(one) != _undefined(other) or _unlike(one) != _unlike(other):
                raise _refused(other, f"undefined registers, memory or marks otherwise than one like it in bb.{a}")
            i, j = i + 1, j + 1
        further = [(n, 0, b, j) for n in flow.ahead[a] if i == len(of_a) and firsts[a].leads_on]
        further += [(a, i, n, 0) for n in flow.ahead[b] if j == len(of_b) and firsts[b].leads_on]
        pending += [pair for pair in further if pair not in seen and a != b]
        seen.update(further)


class _First(NamedTuple):
    """The instructions at a block's beginning that LLVM may hoist; ``leads_on``: only branches follow them."""

    numbers: list[int]
    leads_on: bool


def _first(flow: _Flow, number: int, *, every: bool) -> _First:
    """``every``: with what may be gone."""
    numbers: list[int] = []
    code, stays = flow.after.code(number), set(flow.stays[number])
    for at in flow.kept[number]:
        opcode = flow.after.tables.opcode(code[at].opcode)
        if opcode is None or ("asm" not in opcode.traits and not opcode.traits.isdisjoint(_NOT_HOISTED)):
            return _First(numbers, _is_gone(code[at], flow.after, branches=True))
        if every or at in stays:
            numbers.append(at)
    return _First(numbers, True)


def _hidden(i: Instruction, after: Lanes) -> frozenset[int]:
    """Registers that it writes, but not by explicit definitions: SIShrinkInstructions does not see those."""
    if not any(o.is_def for o in i.operands[i.definitions :]):
        return frozenset()
    own = {k for o in i.operands[: i.definitions] for k in after.keys(o, i)}
    return frozenset(after.operand_keys(i).defined - own)


def _adds_frame(i: Instruction) -> bool:
    """Whether it adds a stack object's address, which may be 0, to a register: LLVM makes a move of it then."""
    return i.definitions == 1 and any(o.kind is Kind.FRAME_INDEX for o in i.operands)


def _undefined(i: Instruction) -> list[bool]:
    return ["undef" in o.flags for o in i.operands if o.is_use and o.register]


def _unlike(i: Instruction) -> tuple[list[str], list[str]]:
    """What else MachineInstr::isIdenticalTo does not compare."""
    return [m.text for m in i.memory], [t for t in i.tail if not t.startswith("debug-")]


def _is_gone(i: Instruction, after: Lanes, *, branches: bool) -> bool:
    """Whether it makes no code, or is a jump; or, ``branches``, any direct branch."""
    opcode = after.tables.opcode(i.opcode)
    if opcode is None:
        return False
    jumps = "branch" in opcode.traits and "indirect-branch" not in opcode.traits
    return (jumps and (branches or "barrier" in opcode.traits)) or not opcode.traits.isdisjoint(_NO_CODE)


class _Walk:
    """Through a block, with what is known behind the blocks that it may be brought together with: ``near``."""

    def __init__(self, after: Lanes, number: int, of: _Near, left: list[_Left], above: int) -> None:
        self._after = after
        self._near = _Known()
        self._sunk = _Known()
        """COPYs of block ``above`` that may be moved to its beginning: behind the last write of EXEC, and not read; no
        other block declares their targets.
        """
        known = left[above].known if above >= 0 else _Known()
        beside = set(after.successors(above) if above >= 0 else ()) - {number}
        targets = known.unread & declared_units(after, number)
        for target in targets.difference(*(declared_units(after, n) for n in beside)):
            rows = frozenset(row for row in known.copies.get(target, frozenset()) if not row[2])
            if rows:
                self._sunk.copies[target] = rows
                self._sunk.moves[target] = frozenset((of, False) for of, _, _ in rows)
                self._sunk.unread.add(target)
        self._targets = frozenset(self._sunk.copies)
        for block, start in of.blocks.items():
            self._near.add(left[block], start)
        self._own = _Known()
        self._writes: dict[int, int] = {}
        """How often a register was written so far."""
        self._moved: dict[int, int] = {}
        """The number of the instruction that moved to a register last."""
        self._last: dict[int, int] = {}
        code = after.code(number)
        for at, i in enumerate(code):
            if at == of.stop:
                self._near = _Known()
            self._step(at, i)
        if of.stop < len(code):
            self._near = _Known()

    def left(self) -> _Left:
        """What is known behind it."""
        known = _Known()
        for of in (self._near, self._sunk, self._own):
            known.moves.update(of.moves)
            known.fresh.update(of.fresh)
            known.unread |= of.unread
            for target, rows in of.copies.items():
                rows = frozenset((k, 0, old) for k, times, old in rows if times == self._writes.get(k, 0))
                known.copies[target] = known.copies.get(target, frozenset()) | rows
        return _Left(known, self._last, self._targets)

    def _step(self, at: int, i: Instruction) -> None:
        after, near, sunk, own = self._after, self._near, self._sunk, self._own
        opcode = after.tables.opcode(i.opcode)
        copies = opcode is not None and "copy" in opcode.traits
        keys = after.operand_keys(i)
        read, written = keys.used, keys.defined
        moved: list[tuple[int, int]] = []
        if copies or (opcode is not None and ("vector-move" in opcode.traits or _adds_frame(i))):
            ends = [after.keys(o, i) for o in i.operands[:3] if o.is_register and not o.is_implicit][:2]
            moved = [row for row in zip(*ends, strict=False) if max(row) < VIRTUAL and all(map(after.is_vector, row))]
            moved = moved if len(ends) == 2 else []
        for target, source in moved:
            self._check_exchange(i, target, source)
            if copies:
                self._check_copy(i, target, source)
        is_moved = bool(near.moves or sunk.moves or own.moves)
        hidden = _hidden(i, after) if opcode is not None and written and is_moved else frozenset[int]()
        named = read | written
        for known in (near, sunk, own):
            if known.unread:
                known.unread -= named
            if known.fresh:
                for k in known.fresh.keys() & named:
                    del known.fresh[k]
            if not (known.moves or known.copies):
                continue
            for k in known.copies.keys() & written:
                del known.copies[k]
            for k in known.moves.keys() & written - hidden:
                del known.moves[k]
            if hidden:
                known.moves = {
                    t: frozenset((of, old or t in hidden or of in hidden) for of, old in rows)
                    for t, rows in known.moves.items()
                }
        for k in written:
            self._last[k] = at
            self._writes[k] = self._writes.get(k, 0) + 1
        if opcode is not None and "call" in opcode.traits:
            own.moves = {t: frozenset(r for r in rows if r[0] not in read) for t, rows in own.moves.items()}
        own.fresh.update((k, False) for k in keys.written if k < VIRTUAL)
        own.moves.update((target, frozenset({(source, False)})) for target, source in moved)
        self._moved.update((target, at) for target, _ in moved)
        if copies:
            own.unread |= written
            own.copies.update((t, frozenset({(s, self._writes.get(s, 0), False)})) for t, s in moved)
        if opcode is not None and writes_exec(i, opcode):
            for known in (near, sunk, own):
                known.age()

    def _check_exchange(self, i: Instruction, target: int, source: int) -> None:
        """SIShrinkInstructions, which looks for the move from X first, and for no move from a register over what reads
        it, as a call may, which stays to the end (``_step``).
        """
        near, sunk, own, moved = self._near.moves, self._sunk.moves, self._own.moves, self._moved
        for of_t, of_x in ((near, near), (near, own), (sunk, sunk), (sunk, own), (own, own)):
            for origin, old in of_t.get(source, _NOTHING):
                back = of_x.get(origin, _NOTHING)
                first = of_t is not own or moved[source] <= moved[origin] if back else False
                if first and ((target, True) in back or (target, not old) in back):
                    raise _refused(i, "registers that LLVM may exchange for other threads")

    def _check_copy(self, i: Instruction, target: int, source: int) -> None:
        """MachineCopyPropagation."""
        writes = self._writes
        for to, of in ((target, source), (source, target)):
            row = of, writes.get(of, 0), True
            if any(row in known.copies.get(to, frozenset()) for known in (self._near, self._sunk)):
                raise _refused(i, "a copy for other threads ahead of its block, which makes it look needless")
        ends = i.operands[0].flags, i.operands[1].flags
        may = "killed" in ends[1] and all("renamable" in flags for flags in ends)
        if may and self._near.fresh.get(source, False):
            raise _refused(i, "what was written for other threads ahead of its block, and may be written to its target")


def _refused(i: Instruction, what: str) -> Refused:
    return Refused("not-followed", f"{i.opcode} names {what}", f"line {i.line}")
