"""Why a mutant that the audit proves is no fault: an argument about the two texts after allocation, made by machine.

``FLAGS``: only kill and dead flags went or live-ins came, or nothing changed: the text promises less. ``HEADER``:
nothing but header fields changed, and the oracle's own rules (``oracle.statics``) mind none of them. ``BLOCKWISE``: it
promises no more either, nothing changed from a block's first branch on, and each block, run symbolically from any
state, has the same events on the same inputs and leaves the same values in every place that is read later, so the
mutant does what the original does, which is proved. That is value numbering: instructions are uninterpreted functions
of what they read; under one EXEC a vector write replaces the last one. It covers dead results, code moved past code
that does not touch it, and copies of what is there already. ``BY_CONSTRUCTION``: the class says why
(``mutants.equivalent``). ``RUNS``: none of these (the blocks differ, but in values that the pre-RA side leaves
undefined, or through equal values in other registers across blocks); then the oracle's runs through the changed blocks
are the evidence, with flags and live-ins taken at their word in most of them, and their number is recorded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from oracle.decode import VIRTUAL, Decoded, Decoder, Place, names_halves
from oracle.machine import EXEC

from verilocc_mlir.mir.model import BasicBlock, MachineFunction, OperandKind
from verilocc_mlir.target.registers import SGPR_BASE, SPECIAL_BASE

FLAGS = "only fewer kill and dead flags, or more live-ins"
HEADER = "only the header, in what nothing relies on"
BLOCKWISE = "every block has the same events and leaves the same values"
RUNS = "no difference in concrete runs through the changed blocks"
BY_CONSTRUCTION = "the class's edits keep the meaning by construction"
NEVER_RUN = "the changed blocks were never reached"

_FLAGS = re.compile(r"\b(?:killed|dead|renamable) ")
Symbol = tuple[object, ...]


def why_equivalent(original: MachineFunction, mutant: MachineFunction, wave_size: int) -> str:
    """``FLAGS``, ``HEADER``, ``BLOCKWISE``, or ``""`` where neither holds."""
    if not _promises_less(original, mutant):
        return ""
    if _plain(original) == _plain(mutant):
        return FLAGS if original.header_lines == mutant.header_lines else HEADER
    if any(_from_branches(a) != _from_branches(b) for a, b in zip(original.blocks, mutant.blocks, strict=True)):
        return ""  # what stands there runs on some edges only
    grain = 1 if names_halves(original, mutant) else 2
    left, right = (_decoded(f, Decoder(f, grain, wave_size)) for f in (original, mutant))
    if [b.successors for b in original.blocks] != [b.successors for b in mutant.blocks]:
        return ""
    reads = [_read_later(original, left), _read_later(mutant, right)]
    for n in range(len(left)):
        a, b = _Block(left[n]), _Block(right[n])
        if a.events != b.events:
            return ""
        later = reads[0][n] | reads[1][n]
        if any(a.value(p, v) != b.value(p, v) for p, v in later):
            return ""
    return BLOCKWISE


def _plain(function: MachineFunction) -> list[tuple[object, list[str]]]:
    stack = tuple(sorted((n, row.text) for n, row in function.stack.items()))
    return [
        ((b.successors, stack), [_FLAGS.sub("", i.render()) for i in b.instructions]) for b in function.blocks
    ]  # fmt: skip


def _from_branches(block: BasicBlock) -> list[str]:
    """The block from its first branch on."""
    rows = [_FLAGS.sub("", i.render()) for i in block.instructions]
    branches = [n for n, i in enumerate(block.instructions) if any(op.kind is OperandKind.BLOCK for op in i.operands)]
    return rows[branches[0] :] if branches else []


def _promises_less(original: MachineFunction, mutant: MachineFunction) -> bool:
    """The mutant ends no live range earlier, as far as flags and live-ins of unchanged instructions say."""
    for a, b in zip(original.blocks, mutant.blocks, strict=True):
        if not {(r.reg, r.mask) for r in a.liveins} <= {(r.reg, r.mask) for r in b.liveins}:
            return False
        given = {_FLAGS.sub("", i.render()): i for i in a.instructions}
        for instruction in b.instructions:
            other = given.get(_FLAGS.sub("", instruction.render()))
            if other is not None and any(
                (now.killed and not old.killed) or (now.dead and not old.dead)
                for now, old in zip(instruction.all_operands, other.all_operands, strict=True)
            ):
                return False
    return True


def _decoded(function: MachineFunction, decoder: Decoder) -> list[list[Decoded]]:
    return [[decoder.decode(i) for i in b.instructions] for b in function.blocks]


def _read_later(function: MachineFunction, blocks: list[list[Decoded]]) -> list[set[tuple[int, bool]]]:
    """Places that may be read after each block. Vector writes never end a live range: threads may wait."""
    position = {b.number: n for n, b in enumerate(function.blocks)}
    live_in: list[set[tuple[int, bool]]] = [set() for _ in blocks]
    live_out: list[set[tuple[int, bool]]] = [set() for _ in blocks]
    changed = True
    while changed:
        changed = False
        for n in reversed(range(len(blocks))):
            live = set[tuple[int, bool]]().union(*(live_in[position[s]] for s, _ in function.blocks[n].successors))
            live_out[n] = set(live)
            for one in reversed(blocks[n]):
                live.difference_update(w for w in one.written_places if not w[1])
                live.update(one.read_places)
            if live != live_in[n]:
                live_in[n] = live
                changed = True
    return live_out


class _Block:
    """One block run symbolically from any state."""

    def __init__(self, block: Iterable[Decoded]) -> None:
        self.state: dict[int, Symbol] = {}
        self.events: list[Symbol] = []
        self._calls: list[tuple[frozenset[int], int, Symbol]] = []
        for one in block:
            self._step(one)

    def value(self, place: int, vector: bool) -> Symbol:
        """What a place holds."""
        found = self.state.get(place)
        if found is None:
            found = ("in", place)
            for preserved, number, executive in self._calls:
                if place < VIRTUAL and place not in preserved:
                    found = _selected(executive, ("call", number, place), found) if vector else ("call", number, place)
            self.state[place] = found
        return found

    def _exec(self) -> Symbol:
        return tuple(self.value(EXEC + k, False) for k in range(4))

    def _read(self, place: Place, everywhere: bool = False) -> Symbol:
        if place.undef:
            return ("undefined",)
        values = [self.value(u, place.vector) for u in place.places]
        if place.vector and not everywhere:
            executive = self._exec()
            values = [_projected(executive, v) for v in values]
        return tuple(values)

    def _write(self, unit: int, vector: bool, value: Symbol, everywhere: bool = False) -> None:
        if vector and not everywhere:
            value = _selected(self._exec(), value, self.value(unit, True))
        self.state[unit] = value

    def _step(self, one: Decoded) -> None:
        if one.kind in ("copy", "save", "restore"):
            self._move(one)
        elif one.kind == "undefine":
            for p in one.writes:
                for u in p.places:
                    self._write(u, p.vector, ("garbage", u))
        elif one.kind == "pure":
            self._results(one, ("pure", one.shape, tuple(map(self._read, self._inputs(one)))))
        elif one.kind in ("event", "lane"):
            number = len(self.events)
            early = {u for w in one.writes if w.early for u in w.places}
            reads = [p for p in one.reads if p is not None]
            lost = tuple(u in early for p in reads for u in p.places)
            inputs = tuple(self._read(p, one.everywhere) for p in reads)
            places = tuple(p.places for p in reads if p.fixed and p.implicit)
            self.events.append((one.shape, inputs, lost, places, self._exec()))
            if one.preserved is not None:
                self._call(one.preserved, number)
            self._results(one, ("event", number))

    def _inputs(self, one: Decoded) -> list[Place]:
        return [one.writes[p.tied] if 0 <= p.tied < len(one.writes) else p for p in one.inputs]

    def _results(self, one: Decoded, origin: Symbol) -> None:
        values = [
            (u, p.vector, (*origin, d, k), one.writes_everywhere)
            for d, p in enumerate(one.writes)
            for k, u in enumerate(p.places)
        ]
        rest = [(u, p.vector, ("garbage", u), False) for p in one.writes for u in p.rest]
        for u, vector, value, everywhere in [*rest, *reversed(values)]:
            self._write(u, vector, value, everywhere)

    def _move(self, one: Decoded) -> None:
        register = one.reads[0] if one.kind == "save" else one.writes[0]
        assert register is not None
        if one.kind == "copy":
            source = one.reads[0]
            assert source is not None
            values, of, to = self._read(source), len(source.places), list(register.places)
            if source.undef:
                values = tuple(("undefined",) for _ in source.places)
            if of == 2 and len(to) == 1:
                values, of = values[:1], 1
        elif one.kind == "save":
            values, of, to = self._read(register), len(register.places), list(one.slots)
        else:
            rows = [self.value(u, register.vector) for u in one.slots]
            values = tuple(_projected(self._exec(), r) for r in rows) if register.vector else tuple(rows)
            of, to = len(rows), list(register.places)
        whole = len(values) == of == len(to)
        extras = [(u, p.vector) for p in one.writes[1:] for u in p.places if u not in to]
        for u, vector in [*extras, *((u, register.vector) for u in register.rest)]:
            self._write(u, vector, ("garbage", u))
        for k, u in enumerate(to):
            value = values[k] if whole else ("garbage", u)
            assert isinstance(value, tuple)
            self._write(u, register.vector, value, one.writes_everywhere)

    def _call(self, preserved: frozenset[int], number: int) -> None:
        executive = self._exec()
        # Special registers other than VCC, SCC and M0 and reserved ones survive; that they are kept apart suffices.
        for u in list(self.state):
            if u < SPECIAL_BASE and u < VIRTUAL and u not in preserved:
                vector = u < SGPR_BASE
                lost: Symbol = ("call", number, u)
                self.state[u] = _selected(executive, lost, self.state[u]) if vector else lost
        self._calls.append((preserved | frozenset(range(SPECIAL_BASE, VIRTUAL)), number, executive))


def _selected(executive: Symbol, new: Symbol, old: Symbol) -> Symbol:
    """``new`` in active threads, ``old`` in the others."""
    if old[0] == "select" and old[1] == executive:
        old = old[3]  # pyright: ignore[reportAssignmentType]
    return old if new == old else ("select", executive, new, old)


def _projected(executive: Symbol, value: Symbol) -> Symbol:
    """What active threads see of a value."""
    return value[2] if value[0] == "select" and value[1] == executive else value  # pyright: ignore[reportReturnType]
