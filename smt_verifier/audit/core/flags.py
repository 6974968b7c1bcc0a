"""What the post-RA text says about liveness must be true, because later passes rely on it: kill and dead flags,
live-ins.

Liveness here is the wave's, as LLVM's: a lane is live where some path of blocks reads it before writing it. It is
computed backwards for *pairs* of a post-RA place and the pre-RA lane that the place is read for, so that it ends where
the pre-RA side leaves that lane undefined: what is undefined need not be kept, and LLVM says so in the text. A copy or
spill reads a lane only if the lane it moves it to is live.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from smt_verifier.audit.core.lanes import STACK, LaneMap, key_name
from smt_verifier.audit.core.moves import lane_cells, lane_move, really_written, register_moves, scalar_moves
from smt_verifier.audit.core.opcodes import COPIES, DEBUG, NO_CODE
from smt_verifier.audit.core.pairs import Step
from smt_verifier.audit.core.report import Finding
from smt_verifier.outcome import Outcome
from verilocc_mlir.mir.model import Instruction, MachineFunction

# Which pre-RA lanes may have been written, for the wave: along paths, without EXEC.
#
# As in LLVM, a register need not be declared live for a lane that no path has defined.


def definitions(instruction: Instruction, lanes: LaneMap) -> tuple[set[int], set[int]]:
    """Keys of virtual registers that an instruction defines, and those it leaves undefined."""
    defined: set[int] = set()
    undefined: set[int] = set()
    for op in instruction.all_operands:
        if op.is_def and op.vreg >= 0:
            defined.update(lanes.keys(op))
            undefined.update(lanes.register_lanes(op.vreg) if op.undef else ())
    undefines_all = instruction.opcode == "IMPLICIT_DEF" or (
        instruction.opcode in COPIES and any(op.is_use and op.undef and not op.implicit for op in instruction.operands)
    )
    return (set(), defined | undefined) if undefines_all else (defined, undefined - defined)


@dataclass(frozen=True, slots=True)
class KeySet:
    """A set of keys as the bits of a number: sets that grow along a function are too large one by one."""

    bits: int
    position: dict[int, int]

    def __contains__(self, key: int) -> bool:
        at = self.position.get(key)
        return at is not None and bool(self.bits >> at & 1)

    def members(self) -> Container[int]:
        """The same set, for many questions: of a long number, each bit costs a copy of it."""
        return _Members(self.bits.to_bytes(self.bits.bit_length() // 8 + 1, "little"), self.position)

    def __or__(self, other: KeySet) -> KeySet:
        return KeySet(self.bits | other.bits, self.position)

    def after(self, gained: Iterable[int], lost: Iterable[int]) -> KeySet:
        """The set without ``lost`` and with ``gained``."""
        return KeySet(self.bits & ~bits_of(lost, self.position) | bits_of(gained, self.position), self.position)


@dataclass(frozen=True, slots=True)
class _Members:
    """The bits of a ``KeySet``, eight to a byte."""

    octets: bytes
    position: dict[int, int]

    def __contains__(self, key: object) -> bool:
        at = self.position.get(key) if isinstance(key, int) else None
        return at is not None and at >> 3 < len(self.octets) and bool(self.octets[at >> 3] >> (at & 7) & 1)


def defined_at_exit(function: MachineFunction, lanes: LaneMap) -> list[KeySet]:
    """For each block, in layout order, the keys of virtual registers that some path to its end defines.

    ``IMPLICIT_DEF`` and the lanes that ``undef %5.sub1 = …`` leaves out end a definition.
    """
    position = {b.number: n for n, b in enumerate(function.blocks)}
    number: dict[int, int] = {}
    gained: list[int] = []
    ended: list[int] = []
    for block in function.blocks:
        defined: set[int] = set()
        undefined: set[int] = set()
        for instruction in block.instructions:
            defined_here, undefined_here = definitions(instruction, lanes)
            defined -= undefined_here
            defined |= defined_here
            undefined |= undefined_here
            undefined -= defined_here
        gained.append(bits_of(defined, number))
        ended.append(bits_of(undefined, number))
    successors = [[position[s] for s, _ in b.successors] for b in function.blocks]
    entry = [0] * len(function.blocks)
    changed = True
    while changed:
        # Layout order is close to the order of execution: as many rounds as loops are nested, and one.
        changed = False
        for n, after in enumerate(successors):
            out = entry[n] & ~ended[n] | gained[n]
            for at in after:
                if out & ~entry[at]:
                    entry[at] |= out
                    changed = changed or at <= n
    return [KeySet(entry[n] & ~ended[n] | gained[n], number) for n in range(len(entry))]


def bits_of(keys: Iterable[int], number: dict[int, int]) -> int:
    bits = 0
    for key in keys:
        bits |= 1 << number.setdefault(key, len(number))
    return bits


ANY = STACK - 1
"""Stands for the pre-RA lane where it is not known: such a read counts on every path."""
Live = dict[int, set[int]]
"""For each live place, the pre-RA lanes it is read for."""
Reads = Mapping[int, Iterable[tuple[int, int]]]
"""``(place, pre-RA lane)`` that a paired instruction reads, by the ``id`` of the post-RA one."""
Place = tuple[str, int, int]
"""Rule, and the instruction's ``id`` or the block's layout position, and the key."""


@dataclass(frozen=True, slots=True)
class FlagCheck:
    """How many flags and blocks were looked at, and what is wrong, by place."""

    checked: int
    faults: dict[Place, Finding]


class Effect(NamedTuple):
    """What one step does to what is live, from behind it to before it.

    Attributes:
        flagged: the post-RA instruction, where it has kill or dead flags.
        moves: ``(written, read)`` places: of what is live, the second is read for what the first was.
        written: places whose life begins here.
        reads: places that are read, with the pre-RA lane each is read for; of a move, see ``moves``.
        ended: pre-RA lanes that begin here, with the lane that is read for each of them, if there is one.
    """

    flagged: Instruction | None
    moves: Sequence[tuple[int, int]]
    written: Sequence[int]
    reads: Iterable[tuple[int, int]]
    ended: dict[int, int | None]


@dataclass(slots=True)
class Liveness:
    """What the flags of one function are checked against.

    Args:
        steps: the steps of each block, in layout order; steps without a pre-RA side for a function on its own.
        successors: layout positions.
        reached: blocks to look at.
        post: lanes of the side whose flags are checked.
        reads: what paired instructions really read; all operands where an instruction is not in it.
        defined: for each block, the pre-RA lanes of virtual registers that some path to its end defines.
        always_available: units that need no declaration: reserved registers, EXEC, MODE and the like.
        follow_moves: a move reads a lane only if the lane it moves it to is live; else it reads as others do.
    """

    steps: list[list[Step]]
    successors: list[list[int]]
    reached: list[int]
    pre: LaneMap
    post: LaneMap
    reads: Reads
    defined: list[KeySet]
    always_available: Callable[[int], bool]
    follow_moves: bool = True
    _live_in: list[Live] = field(default_factory=list[Live])
    _arriving: list[KeySet] = field(default_factory=list[KeySet])
    _effects: dict[int, list[Effect]] = field(default_factory=dict[int, list[Effect]])
    _checked: int = 0
    _faults: dict[Place, Finding] = field(default_factory=dict[Place, Finding])
    _block: int = -1

    def check(self, function: MachineFunction) -> FlagCheck:
        """Check kill flags, dead flags and block live-ins of physical registers of the post-RA side."""
        self._arriving = [KeySet(0, d.position) for d in self.defined]
        predecessors: list[list[int]] = [[] for _ in self.steps]
        for block in self.reached:
            for successor in self.successors[block]:
                self._arriving[successor] |= self.defined[block]
                predecessors[successor].append(block)
        checked, faults_in = self._settle(predecessors)
        faults: dict[Place, Finding] = {}
        for block in self.reached:
            faults |= faults_in[block]
            declared = {k for livein in function.blocks[block].liveins for k in self.post.livein_keys(livein)}
            arriving = self._arriving[block].members()
            for key, lanes in sorted(self._live_in[block].items()):
                if not _carried(lanes, arriving):
                    continue
                if key < 0 and key not in declared and not self.always_available(-1 - key):
                    message = f"{key_name(key, self.post.grain)} is read, but not declared live-in"
                    faults["live-in", block, key] = Finding("live-in", Outcome.REFUTED, message, block)
        return FlagCheck(sum(checked.values()) + len(self.reached), faults)

    def _settle(self, predecessors: list[list[int]]) -> tuple[dict[int, int], dict[int, dict[Place, Finding]]]:
        """What is live at each block's entry: the least solution. For each block, how many flags it has, and which are
        wrong, by what is live when it was last gone through: a block is, again, whenever more is live at its exits.
        """
        self._live_in = [{} for _ in self.steps]
        checked: dict[int, int] = {}
        faults: dict[int, dict[Place, Finding]] = {}
        pending = set(self.reached)
        while pending:
            for block in reversed(self.reached):
                if block not in pending:
                    continue
                pending.discard(block)
                self._block, self._checked, self._faults = block, 0, {}
                live = self._before(block)
                checked[block], faults[block] = self._checked, self._faults
                if live != self._live_in[block]:
                    self._live_in[block] = live
                    pending.update(predecessors[block])
        return checked, faults

    def _before(self, block: int) -> Live:
        live: Live = {}
        defined = self.defined[block].members()
        for successor in self.successors[block]:
            for place, keys in self._live_in[successor].items():
                if carried := _carried(keys, defined):
                    live.setdefault(place, set()).update(carried)
        effects = self._effects.get(block)
        if effects is None:
            rows = [self._effect(step) for step in reversed(self.steps[block])]
            effects = self._effects[block] = [row for row in rows if row is not None]
        read_for = _ReadFor(effects, live)
        for effect in effects:
            if effect.flagged is not None:
                self._check_flags(effect.flagged, live)
            reads = effect.reads
            if effect.moves:
                reads = [(source, k) for target, source in effect.moves for k in live.get(target, ())]
            for place in effect.written:
                live.pop(place, None)
            for place, key in reads:
                keys = live.get(place)
                if keys is None:
                    live[place] = {key}
                else:
                    keys.add(key)
                if key in read_for.lanes:
                    read_for.note(place, key)
            if effect.ended:
                read_for.end(effect.ended, live)
        return live

    def _effect(self, step: Step) -> Effect | None:
        """What a step does, of both sides; None: nothing."""
        ended = {} if step.pre is None else self._ended(step.pre, alone=step.post is None)
        post = step.post
        if post is None or post.opcode in DEBUG or post.opcode == "BUNDLE":
            return Effect(None, (), (), (), ended) if ended else None
        flagged = post if _has_flags(post) else None
        if post.opcode == "KILL":
            return Effect(flagged, (), (), (), ended)
        moves = self._moves(post) if self.follow_moves else None
        reads = self._reads(post) if moves is None and post.opcode not in NO_CODE else ()
        written = [place for op in really_written(post) for place in self.post.keys(op)]
        return Effect(flagged, moves or (), [*written, *(place for place, _ in moves or ())], reads, ended)

    def _ended(self, instruction: Instruction, *, alone: bool) -> dict[int, int | None]:
        """Pre-RA lanes for which another is read before it: the source of a move; for an undefined lane, none."""
        moves = scalar_moves(instruction, self.pre) if alone else None
        ended: dict[int, int | None] = dict(moves or ())
        for op in instruction.defs:
            if op.vreg >= 0 and (op.undef or instruction.opcode == "IMPLICIT_DEF"):
                keys = self.pre.register_lanes(op.vreg) if op.undef else self.pre.keys(op)
                written = () if instruction.opcode == "IMPLICIT_DEF" else self.pre.keys(op)
                ended.update((k, None) for k in keys if k not in written)
        for op in really_written(instruction) if moves is not None else ():
            ended.update((k, None) for k in self.pre.keys(op) if k not in ended)
        return ended

    def _check_flags(self, instruction: Instruction, live: Live) -> None:
        """The kill and dead flags of an instruction against what is live after it."""
        operands = instruction.all_operands
        killed = [op for op in operands if op.killed and op.phys]
        for op in operands:
            if op.dead and op.phys and op.is_reg:
                self._flag("dead-flag", "marked dead, but read later", self.post.keys(op), live, instruction)
        if killed:
            # What a save of a scalar defines implicitly is no write, but ends the life of what was there.
            printed = {k for op in operands if op.is_def and op.is_reg for k in self.post.keys(op)}
            for op in killed:
                ended = [k for k in self.post.keys(op) if k not in printed]
                self._flag("kill-flag", "marked killed, but read later", ended, live, instruction)

    def _moves(self, instruction: Instruction) -> list[tuple[int, int]] | None:
        """``(written, read)`` places of a move; a register must be kept wherever one of its cells is."""
        move = lane_move(instruction)
        if move is None:
            return register_moves(instruction, self.post)
        scalar, cells = self.post.keys(move.scalar), lane_cells(move, self.post)
        register = self.post.keys(move.register)
        if move.is_save:
            saves = [] if move.scalar.undef else list(zip(cells, scalar, strict=True))
            return saves + [(k, k) for k in register] + [(c, k) for c in cells for k in register]
        return list(zip(scalar, cells, strict=True)) + [(s, k) for s in scalar for k in register]

    def _reads(self, instruction: Instruction) -> Iterable[tuple[int, int]]:
        real = self.reads.get(id(instruction))
        if real is not None:
            return real
        return [(k, ANY) for op in instruction.operands if op.is_use and not op.undef for k in self.post.keys(op)]

    def _flag(self, rule: str, claim: str, keys: Iterable[int], live: Live, instruction: Instruction) -> None:
        self._checked += 1
        for key in keys:
            if key in live and _carried(live[key], self._defined_by(instruction).members()):
                self._faults[rule, id(instruction), key] = Finding(
                    rule,
                    Outcome.REFUTED,
                    f"{key_name(key, self.post.grain)} is {claim}",
                    self._block,
                    post_line=instruction.line,
                    instruction=str(instruction),
                )

    def _defined_by(self, instruction: Instruction) -> KeySet:
        """Pre-RA lanes of virtual registers that may be defined once a post-RA instruction of this block is done."""
        defined = self._arriving[self._block]
        for step in self.steps[self._block]:
            if step.pre is not None:
                gained, lost = definitions(step.pre, self.pre)
                for to, of in scalar_moves(step.pre, self.pre) or ():
                    if 0 <= of < ANY and of not in defined:
                        gained.discard(to)
                        lost.add(to)
                defined = defined.after(gained, lost)
            if step.post is instruction:
                break
        return defined


def _has_flags(instruction: Instruction) -> bool:
    return any(True for op in instruction.all_operands if (op.killed or op.dead) and op.phys)


class _ReadFor:
    """Where the pre-RA lanes that begin in a block are read from: of all that is live, few are read for those."""

    def __init__(self, effects: Iterable[Effect], live: Live) -> None:
        self.lanes = frozenset(lane for effect in effects for lane in effect.ended)
        self._places: dict[int, list[int]] = {}
        """At least the live places that are read for each of these lanes, where it has not begun yet."""
        if self.lanes:
            for place, keys in live.items():
                for lane in self.lanes.intersection(keys):
                    self.note(place, lane)

    def note(self, place: int, lane: int) -> None:
        """``place`` is read for ``lane``, one of these."""
        self._places.setdefault(lane, []).append(place)

    def end(self, ended: dict[int, int | None], live: Live) -> None:
        """Of what is live, no place is read for these lanes any more, but for what each of them comes from."""
        places = {p for lane in ended for p in self._places.pop(lane, ()) if p in live and lane in live[p]}
        for place in places:
            keys = live[place]
            sources = {s for k in keys if (s := ended.get(k)) is not None}
            now = {k for k in keys if k not in ended} | sources
            if not now:
                del live[place]
                continue
            live[place] = now
            for source in self.lanes.intersection(sources):
                self.note(place, source)


def _carried(keys: set[int], defined: Container[int]) -> set[int]:
    """Those of the pre-RA lanes that may hold a value: all but virtual registers that no path defines."""
    return {k for k in keys if not 0 <= k < ANY or k in defined}


def check_alone(
    function: MachineFunction,
    lanes: LaneMap,
    successors: list[list[int]],
    always_available: Callable[[int], bool],
    reads: Reads | None = None,
) -> FlagCheck:
    """The same check of one text on its own: every operand counts as read, on every path.

    With ``reads``, as for ``Liveness``, those do, and moves are read as other instructions.
    """
    steps = [[Step(None, i) for i in b.instructions] for b in function.blocks]
    nothing = [KeySet(0, {}) for _ in steps]
    reached = list(range(len(steps)))
    liveness = Liveness(
        steps, successors, reached, lanes, lanes, reads or {}, nothing, always_available, follow_moves=reads is None
    )
    return liveness.check(function)


def new_faults(after: FlagCheck, before: FlagCheck, partner: dict[int, int], added: FlagCheck) -> dict[Place, Finding]:
    """Faults of the post-RA text that the pre-RA text does not have already.

    The text an allocator is given may read a physical register that an earlier phase left undefined, and say so by not
    declaring it; that is not the allocator's fault. ``partner`` maps the ``id`` of a paired post-RA instruction to that
    of its pre-RA one. What instructions without a partner read (``added``) is never excused.
    """
    return {
        (rule, where, key): finding
        for (rule, where, key), finding in after.faults.items()
        if (rule, where, key) in added.faults
        or (rule, where if rule == "live-in" else partner.get(where, -1), key) not in before.faults
    }
