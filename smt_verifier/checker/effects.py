"""What steps write: moves, repeats and results over a state (specification 5.10, 7, 8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from smt_verifier.checker.certificate import LANES, SLOT, VIRTUAL, Key
from smt_verifier.checker.forms import Definition, Forms, Pair
from smt_verifier.checker.joined import Copied
from smt_verifier.checker.lanes import Lanes, cell, container
from smt_verifier.checker.limits import Limits
from smt_verifier.checker.model import Instruction, Operand
from smt_verifier.checker.moves import Move, Moves
from smt_verifier.checker.outcome import Refused
from smt_verifier.checker.propagated import Propagated
from smt_verifier.checker.state import NONE, State, ThreadClass
from smt_verifier.checker.tables import Processor

Place = tuple[int, int]
"""Block and number of an instruction of P."""


class Original(NamedTuple):
    """An instruction of P that some ``repeat`` names (8.3).

    Attributes:
        reads: keys of the lanes that it reads, ``@B.I.0`` first.
        first: for each operand that it reads, by number, how many lanes the operands before it read.
        is_defined: none of what it reads is ``undef``.
        execs: how many of the first lanes are EXEC, of which the mask is remembered, no value.
    """

    instruction: Instruction
    reads: tuple[int, ...]
    first: dict[int, int]
    is_defined: bool
    execs: int


@dataclass(eq=False, repr=False, slots=True)
class Both:
    """The two texts of one function, and what is known of them without a state.

    Attributes:
        fixed: units that moves and instructions without code of P define (13.6).
        reserved_after: units that Q's header reserves for whole-wave use.
        is_last: all registers are allocated in Q, and LLVM saves nothing more that the function must
            restore, nor makes slots of scalars lanes.
        is_entry: nobody calls the function.
        restored: units that hold at a return what they held at entry (12.3).
        named_after: lanes that some instruction of Q names.
        frames: units that slots are addressed with, in P and in Q (6).
        existing: lanes, without those of ``originals``, that are known to be of P, and of Q.
        scalars_before: units of scalar registers that P names and that may be allocated (4.4).
        live_after: for each block, the lanes of virtual vector registers that Q reads before it writes them (11.3).
        copied: what LLVM may move to the ends of Q's blocks (10.11, 12.3).
        propagated: what LLVM makes of COPYs of Q (10.13).
        spills_to_registers: LLVM may keep slots of vectors in registers of the other vector file (9.1).
        is_obscure: assembly may be other than its text shows (5.4).
        is_counted: P waits for a number of accesses to memory (8.4).
    """

    before: Lanes
    after: Lanes
    moves: tuple[Moves, Moves]
    forms: Forms
    processor: Processor
    limits: Limits
    fixed: frozenset[int]
    reserved_after: frozenset[int]
    is_last: bool
    is_entry: bool
    restored: frozenset[int]
    named_after: frozenset[int]
    frames: tuple[frozenset[int], frozenset[int]]
    scalars_before: frozenset[int]
    live_after: list[set[int]]
    copied: Copied
    propagated: Propagated
    spills_to_registers: bool
    is_obscure: bool
    is_counted: bool
    originals: dict[Place, Original] = field(default_factory=dict[Place, Original])
    existing: tuple[set[Key], set[Key]] = field(default_factory=lambda: (set[Key](), set[Key]()))

    def is_vector(self, key: Key, *, after: bool) -> bool:
        """Whether a name (with ``after``: a place) has one value a thread (3.4)."""
        if isinstance(key, int):
            if key < SLOT:
                return (self.after if after else self.before).is_vector(key)
            return self.moves[after].kinds.get((key - SLOT) // LANES) == "V"
        kind, block, number, part = key
        if kind == "@":
            return self.before.is_vector(self.originals[block, number].reads[part])
        if kind == "!":
            instruction = self.originals[block, number].instruction
            return self.before.is_vector(self.before.keys(instruction.operands[0], instruction)[0])
        return False


class Effects:
    """Writes to a state what instructions do."""

    def __init__(self, both: Both, state: State, block: int) -> None:
        self.both = both
        self.state = state
        self.block = block

    def spoil(self, place: Key, classes: Sequence[ThreadClass]) -> None:
        """A place of Q holds nothing any more; a vector one in these classes."""
        self._spoil(place, self.both.is_vector(place, after=True), classes)

    def expire(self, place: Key, classes: Sequence[ThreadClass]) -> None:
        """A place of Q was read for the last time; a vector one in these classes (11)."""
        vector = self.both.is_vector(place, after=True)
        if vector:
            self._spoil_cells(place)
        self.state.expire(place, vector, classes)

    def _spoil(self, place: Key, vector: bool, classes: Sequence[ThreadClass]) -> None:
        if vector:
            self._spoil_cells(place)
        self.state.spoil(place, vector, classes)

    def _spoil_cells(self, place: Key) -> None:
        """An ordinary write of a register destroys the scalars in its lanes (4)."""
        if self.state.cells and isinstance(place, int):
            for key in self.state.cells.get(container(place), ()):
                self.state.spoil(key, False, ())

    def renew(self, name: Key, classes: Sequence[ThreadClass], *, undefined: bool = False) -> None:
        """A name of P gets another value, or none."""
        self._renew(name, self.both.is_vector(name, after=False), classes, undefined=undefined)

    def _renew(self, name: Key, vector: bool, classes: Sequence[ThreadClass], *, undefined: bool = False) -> None:
        if vector and self.state.name_cells and isinstance(name, int):
            for key in self.state.name_cells.get(container(name), ()):
                self.state.forget_scalar(key)
        if undefined:
            self.state.undefine(name, vector, classes)
        else:
            self.state.define(name, vector, classes)

    def define(
        self,
        a: Instruction,
        definitions: Sequence[Definition],
        writes: Sequence[ThreadClass],
        lost: Sequence[ThreadClass],
    ) -> None:
        """Results of a pair (5.10); in the classes ``lost`` they are known nowhere."""
        both, affected = self.both, [*writes, *lost] if lost else writes
        for d in definitions:
            for name in d.rest_names:
                self.renew(name, writes, undefined=True)
            for place in d.rest_places:
                self.spoil(place, writes)
        for d in definitions:
            vector = bool(d.names) and both.is_vector(d.names[0], after=False)
            if d.names and vector != both.is_vector(d.places[0], after=True):
                raise Refused("register-class", f"{a.opcode} writes another register file", f"line {a.line}")
            for names, places in ((d.names, d.places), (d.lost_names, d.lost_places)):
                for name in names:
                    self._renew(name, vector, affected)
                for place in places:
                    self._spoil(place, vector, affected)
        for d in definitions:
            vector = bool(d.names) and both.is_vector(d.names[0], after=False)
            for part in [c.part for c in writes] if vector else [self.state.scalars]:
                for name, place in zip(d.names, d.places, strict=True):
                    part.hold(name, place)

    def without_code(self, a: Instruction, *, undefined: bool) -> None:
        """What an instruction without code of P defines and does not read is undefined, or of no known value."""
        both, running = self.both, self.state.running()
        read, unread = set[int](), set[int]()
        for o in a.operands:
            if o.is_use:
                (unread if "undef" in o.flags else read).update(both.before.keys(o, a))
        for o in a.operands:
            if o.is_def and o.is_register:
                names = both.before.all_lanes(o.vreg) if o.vreg >= 0 and "undef" in o.flags else both.before.keys(o, a)
                for name in names:
                    if name not in read:
                        nothing = name in unread and not both.is_vector(name, after=False)
                        self.renew(name, running, undefined=undefined or nothing)
                        if undefined:
                            self._undefine_cells(name)

    def _undefine_cells(self, name: int) -> None:
        """Nothing is in a vector register: nor in the cells of it that P names (5.1)."""
        if container(name) == name:
            cells = self.both.moves[False].cells.get(name, ())
            for key in cells:
                self.state.name_cells.setdefault(name, set()).add(key)
                self.state.undefine(key, False, ())

    def drop(self, a: Instruction) -> None:
        """Results of an instruction that only P has (8.4)."""
        running = self.state.running()
        for o in a.operands:
            if o.is_def and o.is_register:
                names = self.both.before.keys(o, a)
                for name in _rest(self.both.before, o, names):
                    self.renew(name, running, undefined=True)
                for name in names:
                    self.renew(name, running)

    # Moves.

    def move_names(self, a: Instruction, move: Move) -> None:
        """A move of P (7)."""
        state, lanes = self.state, self.both.before
        running = state.running(everywhere=move.everywhere)
        rest = _rest(lanes, a.operands[0], move.to) if a.definitions else ()
        beside = [*rest, *self.both.moves[False].beside(a, move, after=False)]
        if move.thread >= 0:
            self._lane_names(move)
        elif move.undef:
            for name in move.to:
                self.renew(name, running, undefined=True)
        else:
            self._carried(move, state.name_cells, names=True)
            state.copy_names(move.to, move.of, move.vector, running)
        for name in beside:
            self.renew(name, running, undefined=True)

    def move_places(self, b: Instruction, move: Move) -> None:
        """A move of Q (7)."""
        state, lanes = self.state, self.both.after
        running = state.running(everywhere=move.everywhere)
        rest = _rest(lanes, b.operands[0], move.to) if b.definitions else ()
        beside = [*rest, *self.both.moves[True].beside(b, move, after=True)]
        if move.thread >= 0:
            self._lane_places(move)
        elif move.undef:
            for place in move.to:
                self.spoil(place, running)
        else:
            before = [[(c, state.held_behind(t, c)) for c in state.classes] for t in move.to if move.is_copy]
            is_gone = b.line in self.both.propagated.again
            again = [is_gone or state.copies.get(t) == s for t, s in zip(move.to, move.of, strict=True)]
            carried = self._carried(move, state.cells, names=False)
            if move.vector[0] and not carried:
                for place in move.to:
                    self._spoil_cells(place)
            written = [state.written.get(s, -1) for s in move.of]
            held = state.held_by(move.to) if b.line in self.both.propagated.dead else []
            state.copy_places(move.to, move.of, move.vector, running)
            if move.is_copy:
                for n, (target, source) in enumerate(zip(move.to, move.of, strict=True)):
                    if max(target, source) < VIRTUAL:
                        state.remember_copy(target, source, before[n], written[n], again=again[n])
            for part, place, names in held:
                if names.isdisjoint(part.holds.get(place, NONE)):
                    part.unwritten.add(place)
        for place in beside:
            self.spoil(place, running)

    def _carried(self, move: Move, registry: dict[Key, set[Key]], *, names: bool) -> bool:
        """A whole-wave move takes the cells of its source along (7.5); says whether it is one."""
        if not move.everywhere:
            return False
        for target, source in zip(move.to, move.of, strict=True):
            threads = {
                (k[2], k[3]) for c in (target, source) for k in registry.get(container(c), ()) if isinstance(k, tuple)
            }
            for thread, half in sorted(threads):
                if half == (target - container(target)) % 2 or self.both.before.grain == 2:
                    to, of = cell(container(target), thread, half), cell(container(source), thread, half)
                    registry.setdefault(container(target), set()).add(to)
                    if names:
                        self.state.copy_names((to,), (of,), (False, False), ())
                    else:
                        self.state.copy_places((to,), (of,), (False, False), ())
        return True

    def _cells(self, move: Move, registry: dict[Key, set[Key]], scalars: Sequence[int]) -> list[Key]:
        register = move.register[0]
        keys = [cell(register, move.thread, half) for half in range(len(scalars))]
        registry.setdefault(register, set()).update(keys)
        return keys

    def _lane_names(self, move: Move) -> None:
        state = self.state
        if not move.saves:
            if move.undef:
                for name in move.to:
                    self.renew(name, (), undefined=True)
            else:
                state.copy_names(move.to, self._cells(move, state.name_cells, move.to), (False, False), ())
            return
        for key in state.name_cells.get(move.register[0], ()) if move.fresh else ():
            state.undefine(key, False, ())
        cells = self._cells(move, state.name_cells, move.of)
        for name in move.register:
            state.define(name, True, state.classes)
        if move.undef:
            for key in cells:
                state.undefine(key, False, ())
        else:
            state.copy_names(cells, move.of, (False, False), ())

    def _lane_places(self, move: Move) -> None:
        state = self.state
        if not move.saves:
            cells = self._cells(move, state.cells, move.to)
            state.copy_places(move.to, cells, (False, False), ())
            if move.undef:
                for place in move.to:
                    state.spoil(place, False, ())
            return
        for key in state.cells.get(move.register[0], ()) if move.fresh else ():
            state.spoil(key, False, ())
        cells = self._cells(move, state.cells, move.of)
        for place in move.register:
            state.spoil(place, True, state.classes)
        state.copy_places(cells, move.of, (False, False), ())
        if move.undef:
            for key in cells:
                state.spoil(key, False, ())

    # Repeats.

    def remember_reads(self, number: int) -> None:
        """An original of P is about to be executed: what it reads (8.3)."""
        original = self.both.originals.get((self.block, number)) if self.both.originals else None
        if original is None:
            return
        state, running = self.state, self.state.running()
        for part, source in enumerate(original.reads):
            name: Key = ("@", self.block, number, part)
            vector = self.both.is_vector(source, after=False)
            if part < original.execs:
                state.forget_scalar(name)
            elif original.is_defined:
                state.copy_names((name,), (source,), (vector, vector), running)
            else:
                self.renew(name, running)

    def remember_result(self, number: int) -> None:
        """It has been executed: its first result (8.3)."""
        original = self.both.originals.get((self.block, number)) if self.both.originals else None
        if original is None:
            return
        instruction, running = original.instruction, self.state.running()
        reads_scalars = any(not self.both.is_vector(k, after=False) for k in original.reads[original.execs :])
        for part, name in enumerate(self.both.before.keys(instruction.operands[0], instruction)):
            vector = self.both.is_vector(name, after=False)
            place: Key = ("!", self.block, number, part)
            if reads_scalars:
                # What waiting threads read then is not remembered any more: the scalar may be another one now.
                self.state.spoil(place, vector, self.state.classes)
            self.state.write(place, vector, frozenset({name}), running)

    def repeat(self, b: Instruction, place: Place, pair: Pair) -> None:
        """The result of an instruction that Q repeats; its operands agree (8.2)."""
        running = self.state.running()
        target = pair.definitions[0]
        for other in (*pair.spoiled, *(k for d in pair.definitions[1:] for k in d.places), *target.rest_places):
            self.spoil(other, running)
        vector = self.both.is_vector(target.names[0], after=False)
        if vector != self.both.is_vector(target.places[0], after=True):
            raise Refused("register-class", f"{b.opcode} writes another register file", f"line {b.line}")
        for key in target.places:
            self._spoil_cells(key)
        sources: list[Key] = [("!", *place, part) for part in range(len(target.places))]
        self.state.copy_places(target.places, sources, (vector, vector), running)


def _rest(lanes: Lanes, o: Operand, keys: Sequence[int]) -> tuple[int, ...]:
    """Other lanes of a virtual register of which an ``undef`` definition writes a part."""
    if o.vreg < 0 or "undef" not in o.flags or not o.is_def:
        return ()
    return tuple(k for k in lanes.all_lanes(o.vreg) if k not in keys)
