"""Where a block goes on: what its branch says, and what LLVM may go through instead of a branch on EXEC (12.2).

SIPreEmitPeephole deletes a branch to where no thread is active, and goes through what the branch skips.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from smt_verifier.checker.certificate import Claims, Key, write_key
from smt_verifier.checker.effects import Both
from smt_verifier.checker.lanes import cell, declared_units
from smt_verifier.checker.liveins import may_hold
from smt_verifier.checker.model import Instruction
from smt_verifier.checker.moves import Move
from smt_verifier.checker.state import NONE, Names, Part
from smt_verifier.checker.tables import Opcode
from smt_verifier.checker.threads import EXEC_NAMES, Nobody


class Test(NamedTuple):
    """The conditional branch of a block (12.2): to ``target`` where EXEC (or SCC) is 0, or where it is not."""

    of_exec: bool
    on_zero: bool
    target: int

    def is_zero(self, successor: int) -> bool:
        """Whether what is tested is 0 on the way to a successor."""
        return (successor == self.target) == self.on_zero


_ACTS = ("may-store", "call", "asm", "side-effects")
"""Traits of what nobody may do whom P has wait."""
_TESTS = {"exec0": (True, True), "exec1": (True, False), "scc0": (False, True), "scc1": (False, False)}


def test_of(both: Both, number: int) -> Test | None:
    """What tells the two successors of a block apart, where that is followed (12.2)."""
    successors = both.before.successors(number)
    if len(successors) != 2 or successors[0] == successors[1]:
        return None
    last = both.before.parts[number][-1]
    code = both.before.code_of(last)
    branches = [i for i in code if "branch" in both.forms.opcode(i).traits]
    if not branches or code[-len(branches) :] != branches:
        return None
    test = _TESTS.get(both.forms.opcode(branches[0]).value("test"))
    plain = len(branches) <= 2 and all("barrier" in both.forms.opcode(i).traits for i in branches[1:])
    target = branches[0].operands[0].number
    other = branches[1].operands[0].number if len(branches) == 2 else last + 1
    return Test(*test, target) if test is not None and plain and {*successors} == {target, other} else None


class Way(NamedTuple):
    """What LLVM goes through if it deletes a branch to where no thread is active.

    Attributes:
        blocks: those that it goes through then.
        beside: the branch leads elsewhere by P: the ends of these blocks may become the code that it leads to.
        lost, written: scalar names that P leaves undefined there, and places that Q writes, as bits (``Ways``).
        wide: vector names that P defines for threads that wait, too.
        wide_places: vector places that Q may write for them, where it goes ``beside``.
        wakes: threads may be active behind it, or where something acts.
    """

    blocks: Iterable[int]
    beside: bool
    lost: int
    written: int
    wide: Names
    wide_places: Names
    wakes: bool

    def breaks_threads(self, part: Part, claims: Claims) -> str:
        """Why what is claimed of a class does not hold where LLVM goes this way; ``""``: it does."""
        if not (self.wide or self.wide_places):
            return ""
        for name, place in (pair for row in claims.rows for pair in row):
            broken = name in self.wide or (self.beside and place in self.wide_places)
            if broken and name not in part.undefined:
                return _goes_to(name)
        return ""


def _goes_to(key: Key) -> str:
    return f"LLVM may go to {write_key(key)} by way of the other successor"


class _Step(NamedTuple):
    """Instructions of a block of P up to one that defines a scalar, or to the block's end.

    Attributes:
        awake: vector names that they define for active threads. ``wide``: for threads that wait, too.
        last: the one that defines a scalar, and what is known of its opcode; None at the end.
        acts: one of them stores, calls, or has other effects.
    """

    awake: Names
    wide: Names
    last: tuple[Instruction, Opcode] | None
    acts: bool


class _Code(NamedTuple):
    """What is known of a block by itself.

    Attributes:
        is_code: either text has instructions in it that make code, direct branches aside.
        lost: scalar names that P leaves undefined in it, as bits. ``defined``: those that it defines.
        written: places that Q writes in it, as bits.
        calls: P calls in it. ``reads_exec``: P names EXEC in it.
        everywhere: vector places that Q's moves write for every thread. ``places``: all that Q writes.
    """

    is_code: bool
    lost: int
    defined: int
    written: int
    calls: bool
    reads_exec: bool
    steps: list[_Step]
    everywhere: Names
    places: Names


class Ways:
    """What LLVM may go through in one pair of texts; names and places are numbered as they come, for sets as bits."""

    def __init__(self, both: Both) -> None:
        self.both = both
        self._threads = frozenset(unit for name in EXEC_NAMES for unit in both.after.register(name).units)
        self._numbers: dict[Key, int] = {}
        self._codes: dict[int, _Code] = {}
        self._tests: dict[int, Test | None] = {}
        self._one: list[int] = []
        self._aims: list[frozenset[int]] = []

    def of_edge(self, number: int, successor: int) -> list[Way]:
        """What LLVM may go through to come from a block to its successor."""
        ways = [self._way(origin, led, successor) for origin, led in self._origins(number, successor)]
        return [way for way in ways if way is not None]

    def breaks_scalars(self, way: Way, part: Part, claims: Claims) -> str:
        """Why what is claimed of scalars may not hold where LLVM goes a way; ``""``: it does."""
        if way.wakes:
            return "threads wake on the way that the branch skips"
        if not (way.lost or way.beside):
            return ""
        both = self.both
        ends = [both.after.successors_of(part) for block in way.blocks for part in both.before.parts[block]]
        for name, place in (pair for row in claims.rows for pair in row):
            lost = way.beside or way.lost >> self._number(name) & 1
            if not lost or name in part.undefined or place in self._threads:
                continue
            is_kept = name == ("^", place, 0, 0) and place not in both.named_after
            is_live = (
                is_kept
                or may_hold(both, place, frozenset())
                or all(
                    any(may_hold(both, place, declared_units(both.after, successor)) for successor in ahead)
                    for ahead in ends
                )
            )
            if way.written >> self._number(place) & 1 or not is_live:
                return _goes_to(place)
        return ""

    # Which way.

    def _leads_by_zero(self, number: int, successor: int) -> bool:
        """Whether a branch on EXEC leads to a successor where EXEC is 0."""
        if number not in self._tests:
            self._tests[number] = test_of(self.both, number)
        test = self._tests[number]
        return test is not None and test.of_exec and test.is_zero(successor)

    def _origins(self, number: int, successor: int) -> Iterator[tuple[int, frozenset[int]]]:
        """The blocks whose branch leads to this edge where EXEC is 0: by way of blocks with one successor, which are
        all gone, may be, before LLVM deletes the branch.
        """
        lanes = self.both.before
        if len(lanes.successors(number)) != 1:
            if self._leads_by_zero(number, successor):
                yield number, frozenset()
            return
        pending = [(number, frozenset((number,)))]
        while pending:
            block, led = pending.pop()
            for ahead in lanes.predecessors[block] - led:
                if len(lanes.successors(ahead)) == 1:
                    pending.append((ahead, led | {ahead}))
                elif self._leads_by_zero(ahead, block):
                    yield ahead, led

    def _onward(self, number: int) -> set[int]:
        """A block and those behind it, as long as each leads to one, or to several that may become one."""
        onward, pending = {number}, [number]
        while pending:
            ahead = self.both.before.successors(pending.pop())
            if len({self._one[block] for block in ahead}) == 1:
                pending += {*ahead} - onward
                onward.update(ahead)
        return onward

    def _way(self, origin: int, led: frozenset[int], successor: int) -> Way | None:
        """What LLVM may go through if it deletes a branch, up to a block that it leads to where EXEC is 0; None:
        nothing.

        Args:
            led: blocks with one successor by way of which it leads there.
        """
        lanes = self.both.before
        if not self._one:
            self._one, self._aims = _made_one(self.both)
        forward = self._onward(successor)
        aims = self._aims[successor]
        blocks, ends = set[int](), set[int]()
        pending = [s for s in lanes.successors(origin) if not self._leads_by_zero(origin, s)]
        while pending:
            block = pending.pop()
            if block in forward:
                ends.add(block)
            elif block in led or block == origin:
                return None
            elif block not in blocks:
                blocks.add(block)
                ahead = lanes.successors(block)
                if len({self._one[place] for place in ahead}) != 1 and self._aims[block] == aims:
                    ends.add(-1)
                elif not ahead:
                    return None
                else:
                    pending += ahead
        order = self._in_order(blocks)
        codes = [self._code(block) for block in order]
        beside = any(self._code(b).is_code for b in led) or (ends != {successor} and self._code(successor).is_code)
        if not order or (not beside and any(code.calls for code in codes)):
            return None
        wide, wakes, acts = self._widely(origin, order)
        exec_unread = not aims and not any(self._code(b).reads_exec for b in forward)
        places = NONE.union(*(code.places if wide else code.everywhere for code in codes))
        lost = defined = written = 0
        for code in codes:
            lost, defined, written = lost | code.lost, defined | code.defined, written | code.written
        return Way(order, beside, lost & ~defined, written, wide, places, acts or (wakes and not exec_unread))

    def _in_order(self, blocks: set[int]) -> list[int]:
        """Blocks, each behind all that lead to it; none where some are in a loop."""
        lanes = self.both.before
        left = {block: len(lanes.predecessors[block] & blocks) for block in blocks}
        ready = [block for block, count in left.items() if not count]
        order: list[int] = []
        while ready:
            block = ready.pop()
            order.append(block)
            for successor in {*lanes.successors(block)} & blocks:
                left[successor] -= 1
                if not left[successor]:
                    ready.append(successor)
        return order if len(order) == len(blocks) else []

    def _widely(self, origin: int, order: list[int]) -> tuple[Names, bool, bool]:
        """Vector names that P defines for threads that wait at a branch, too, in blocks that it skips; whether threads
        may be active behind those, and where something acts in them.
        """
        lanes = self.both.before
        wide, wakes, acts, within = set[Key](), False, False, frozenset(order)
        known: dict[int, Nobody] = {}
        for block in order:
            leading = [known[ahead] for ahead in lanes.predecessors[block] if ahead in known]
            if block in lanes.successors(origin):
                leading.append(Nobody())
            left = leading[0]
            for other in leading[1:]:
                left = left.meet(other)
            for step in self._code(block).steps:
                wide |= step.wide
                if left.active is not False:
                    wide |= step.awake
                    acts = acts or step.acts
                if step.last is not None:
                    left = left.behind(*step.last, lanes, self._bits)
            known[block] = left
            ahead = lanes.successors(block)
            wakes = wakes or (left.active is not False and not within.issuperset(ahead or (-1,)))
        return frozenset(wide), wakes, acts

    # What is known of blocks.

    def _number(self, key: Key) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _bits(self, keys: Iterable[Key]) -> int:
        bits = 0
        for key in keys:
            bits |= 1 << self._number(key)
        return bits

    def _code(self, number: int) -> _Code:
        code = self._codes.get(number)
        if code is None:
            code = self._codes[number] = self._read(number)
        return code

    def _read(self, number: int) -> _Code:
        both = self.both
        before, after = both.before.code(number), both.after.code(number)
        opcodes = [both.forms.opcode(i).traits for i in (*before, *after)]
        is_code = any("no-code" not in traits and not {"branch", "barrier"} <= traits for traits in opcodes)
        lost, defined = self._of_p(number)
        written, everywhere, places = set[Key](), set[Key](), set[Key]()
        for i in after:
            move, keys = both.moves[True].read(i, both.forms.opcode(i)), both.after.operand_keys(i)
            own: set[Key] = {*keys.defined, *(_cells(move) if move is not None else ())}
            vectors = {k for k in keys.defined if both.after.is_vector(k)} | (own - keys.defined)
            written |= own
            places |= vectors
            everywhere |= vectors if move is not None and move.everywhere else NONE
        return _Code(
            is_code,
            self._bits(lost),
            self._bits(defined),
            self._bits(written),
            any("call" in both.forms.opcode(i).traits for i in before),
            any(o.register in EXEC_NAMES for i in before for o in i.operands),
            self._steps(before),
            frozenset(everywhere),
            frozenset(places),
        )

    def _of_p(self, number: int) -> tuple[set[Key], set[Key]]:
        """Names that P leaves undefined in a block, and those that it defines."""
        both, lanes = self.both, self.both.before
        lost, defined = set[Key](), set[Key]()
        for part in lanes.parts[number]:
            lost |= both.scalars_before - declared_units(lanes, part)
        for i in lanes.code(number):
            opcode = both.forms.opcode(i)
            own, others = lanes.operand_keys(i).defined, [o.vreg for o in i.operands if o.is_def and "undef" in o.flags]
            move, cells = both.moves[False].read(i, opcode), both.moves[False].cells
            lost |= {k for v in others if v >= 0 for k in lanes.all_lanes(v)} - own
            if "no-code" in opcode.traits:
                lost.update(own, *(cells.get(k, ()) for k in own))
            elif move is None:
                defined |= own
            else:
                lost.update(both.moves[False].beside(i, move, after=False))
                (lost if move.undef else defined).update(_cells(move))
                lost |= cells[move.register[0]] if move.fresh else NONE
        return lost, defined

    def _steps(self, code: Iterable[Instruction]) -> list[_Step]:
        lanes = self.both.before
        steps: list[_Step] = []
        awake, wide, acts = set[Key](), set[Key](), False
        for i in code:
            opcode = self.both.forms.opcode(i)
            reaches = opcode.value("reach") in ("writes", "unclear") and not opcode.value("lane-operand")
            acts = acts or not opcode.traits.isdisjoint(_ACTS)
            defined = lanes.operand_keys(i).defined
            (wide if reaches else awake).update(k for k in defined if lanes.is_vector(k))
            if not all(map(lanes.is_vector, defined)):
                steps.append(_Step(frozenset(awake), frozenset(wide), (i, opcode), acts))
                awake, wide, acts = set[Key](), set[Key](), False
        steps.append(_Step(frozenset(awake), frozenset(wide), None, acts))
        return steps


def _made_one(both: Both) -> tuple[list[int], list[frozenset[int]]]:
    """For each block a number, the same for those that LLVM may make one of; and the numbers of the blocks to which it
    leads where the way behind it parts, none where the function ends.

    BranchFolder makes one of blocks with equal code that lead to the same ones, in any order of their instructions
    (MachineBlockPlacement does it again behind the scheduler). Stores and calls are in no other number then.
    """
    lanes = both.before
    ahead = [lanes.successors(number) for number in range(len(lanes.parts))]
    effects: list[int] = []
    for number in range(len(ahead)):
        rows = [(i, both.forms.opcode(i)) for i in lanes.code(number)]
        rows = [row for row in rows if not row[1].traits.isdisjoint(("may-store", "call"))]
        effects.append(sum(both.moves[False].read(*row) is None for row in rows))
    one = list(range(len(ahead)))
    count = len(ahead)
    while True:
        ways: list[tuple[int, frozenset[int]]] = []
        for number in range(len(ahead)):
            total, aims, way, last = 0, frozenset[int](), set[int](), number
            while last not in way:
                way.add(last)
                total += effects[last]
                aims = frozenset(one[place] for place in ahead[last])
                last = min(ahead[last]) if len(aims) == 1 else last
            ways.append((total, aims))
        numbers: dict[tuple[int, frozenset[int]], int] = {}
        one = [numbers.setdefault(row, len(numbers)) for row in ways]
        if len(numbers) == count:
            return one, [aims for _, aims in ways]
        count = len(numbers)


def _cells(move: Move) -> Iterator[Key]:
    """What a move writes: lanes, or cells of one."""
    yield from move.to
    if move.saves:
        yield from (cell(move.register[0], move.thread, half) for half in range(len(move.of)))
