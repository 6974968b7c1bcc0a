"""Claims for the entry of every block: an optimistic forward data flow with the checker's own transfer functions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from smt_verifier.certificate.liveness import Wanted, wanted
from smt_verifier.certificate.pairing import candidates, pair_all, reverse_postorder
from smt_verifier.certificate.write import order as by_kind
from smt_verifier.checker.certificate import BlockCertificate, Certificate, Claims, ClassClaims, Entry, Key
from smt_verifier.checker.check import (
    entry_state,
    initial_state,
    originals_of,
    run_step,
    steps_of,
)
from smt_verifier.checker.effects import Both, Place
from smt_verifier.checker.execute import Execution
from smt_verifier.checker.lanes import declared_units
from smt_verifier.checker.liveins import may_hold
from smt_verifier.checker.model import Instruction
from smt_verifier.checker.outcome import Refused
from smt_verifier.checker.state import NONE, Part, State, ThreadClass
from smt_verifier.checker.tables import Opcode
from smt_verifier.checker.ways import test_of

_ROUNDS = 200


class _Guess(Execution):
    """Executes without asking that anything agrees, and chooses what is repeated."""

    choices: dict[tuple[int, int], list[Place]]
    chosen: dict[int, Place]
    at = 0

    def read(
        self, name: Key, place: int, classes: Sequence[ThreadClass], b: Instruction, *, undef: bool, early: bool
    ) -> None:
        if self.asks:
            super().read(name, place, classes, b, undef=undef, early=early)

    asks = False

    def _repeat(self, b: Instruction, opcode: Opcode, place: Place) -> None:
        options = sorted(self.choices.get((self.block, self.at), [place]), key=self._is_forgotten)
        best = options[0]
        self.asks = True
        compared = self.both.forms.compared
        for option in options:
            try:
                super()._repeat(b, opcode, option)
            except Refused:
                continue
            self.chosen[self.at] = option
            self.asks = False
            return
        self.asks = False
        self.both.forms.compared = compared
        self.chosen[self.at] = best
        for key in self.both.after.operand_keys(b).defined:
            self.spoil(key, self.state.running())

    def _is_forgotten(self, place: Place) -> bool:
        """Whether nobody reads what an instruction of P has made any more: it is not what is repeated."""
        key: Key = ("!", *place, 0)
        vector = self.both.is_vector(key, after=True)
        parts = [c.part for c in self.state.running()] if vector else [self.state.scalars]
        return any(not part.holds.get(key) for part in parts)


_Class = tuple[str, bool, tuple[tuple[Key, bool], ...]]
"""Kind, whether it is active, and masks, by their first name, with whether it is in them."""


@dataclass(slots=True)
class _Observed:
    """What holds at a block's entry on all paths seen so far: parts by class, and the masks by their first name."""

    scalars: Part
    classes: dict[_Class, Part]
    masks: dict[Key, tuple[Key, ...]]
    nonempty: set[Key]
    beside: set[Key]
    some: bool


def make_certificate(
    both: Both,
    unpaired: Collection[Place] = (),
    *,
    witnesses: bool = False,
    joined: bool = False,
    waking_splits: bool = False,
    in_order: bool = False,
    hasty: bool = False,
) -> Certificate:
    """A certificate for one function; whether it shows anything is for a checker to say.

    Args:
        unpaired: pure instructions of P that have no partner, because they seem to have the wrong one.
        witnesses: claim more of masks, to show that some thread is active.
        joined: classes are told apart only by the masks that may wake them, and no comparison splits them. That is
            enough but where a condition is asked again, or all threads must be active behind an else.
        waking_splits: those are split by the results that decide whom a mask wakes. Then, and unless ``joined``, what
            is read of threads that wait is claimed where it is not live, too.
        in_order: see ``pair_all``.
        hasty: a block without successors, in which nothing is repeated, is not executed: nobody needs what holds at its
            end, and what is wrong in it, the checker says.

    Raises:
        Refused: something that no certificate could mend, or the claims do not settle.
    """
    count = len(both.before.parts)
    pairing = pair_all(both, unpaired, in_order=in_order)
    choices = candidates(both, pairing)
    certificate = Certificate(both.before.function.name, [BlockCertificate(steps) for steps in pairing.steps])
    both.originals = originals_of(both, sorted({place for places in choices.values() for place in places}))
    needs = wanted(
        both,
        witnesses=witnesses,
        waiting=waking_splits or not joined,
        splits=not joined,
        waking_splits=joined and waking_splits,
    )
    for n, block in enumerate(certificate.blocks):
        block.splits = needs.splits[n] if not joined else needs.waking_splits[n] if waking_splits else set()
        block.repeats = {number: places[0] for (b, number), places in choices.items() if b == n}
    entries: list[_Observed | None] = [None] * count
    order = reverse_postorder(both)
    pending = {0}
    for _ in range(_ROUNDS):
        if not pending:
            break
        for n in order:
            if n not in pending:
                continue
            pending.discard(n)
            successors = both.before.successors(n)
            if hasty and not successors and not certificate.blocks[n].repeats:
                continue
            state = _run(both, n, certificate.blocks[n], choices)
            for s in successors:
                observed = _observe(both, n, s, state, needs, joined=joined and not witnesses)
                old = entries[s]
                new = observed if old is None else _meet(old, observed)
                if old is None or not _same(old, new):
                    entries[s] = new
                    certificate.blocks[s].entry = _entry(new)
                    pending.add(s)
    else:
        raise Refused("certificate", "the claims do not settle")
    if choices:
        _drop_unused(certificate)
    return certificate


def _drop_unused(certificate: Certificate) -> None:
    """Leave out what is claimed of instructions that nothing repeats after all."""
    used = {place for block in certificate.blocks for place in block.repeats.values()}

    def is_used(key: Key) -> bool:
        return not isinstance(key, tuple) or key[0] not in "@!" or (key[1], key[2]) in used

    for entry in [block.entry for block in certificate.blocks if block.entry is not None]:
        gone = {mask for name, (mask, _) in entry.masks.items() if not is_used(name)}
        known = ~sum(1 << mask for mask in gone)
        if gone:
            entry.masks = {name: of for name, of in entry.masks.items() if of[0] not in gone}
            entry.nonempty -= gone
            entry.beside -= gone
            for cls in entry.classes:
                cls.within, cls.without = cls.within & known, cls.without & known
        for claims in (entry.scalars, *(c.claims for c in entry.classes)):
            claims.rows = [[pair for pair in row if all(map(is_used, pair))] for row in claims.rows]
            claims.undefined = list(filter(is_used, claims.undefined))
            claims.doubtful = list(filter(is_used, claims.doubtful))


def _run(both: Both, n: int, block: BlockCertificate, choices: dict[tuple[int, int], list[Place]]) -> State:
    state, taken = entry_state(both, block.entry, n) if block.entry else (initial_state(both), 0)
    execution = _Guess(both, state, n, block.splits, taken)
    execution.choices, execution.chosen = choices, {}
    for step in steps_of(both, n, block):
        execution.at = step[1][0] if step[1] is not None else -1
        run_step(execution, step, block)
    execution.end_block()
    block.repeats = {**block.repeats, **execution.chosen}
    return state


def _observe(both: Both, n: int, successor: int, state: State, needs: Wanted, *, joined: bool) -> _Observed:
    test = test_of(both, n)
    known = set(state.nonempty)
    exec_is_zero = test.is_zero(successor) if test is not None and test.of_exec else None
    if test is not None and not test.of_exec and not test.is_zero(successor):
        known.add(state.scc)
    if exec_is_zero:
        known |= state.beside
    ghosts = {name for name in state.masks if isinstance(name, tuple) and name[0] == "@"}
    masks = _runs(both, state, needs.masks[successor] | ghosts)
    numbers = {first: state.masks[keys[0]][0] for first, keys in masks.items()}
    declared = declared_units(both.after, successor)
    live, later = needs.live[successor], needs.read_later[successor]
    scalars = _kept(both, state.scalars, live, declared, every=True)
    classes: dict[_Class, Part] = {}
    for cls in state.classes:
        if exec_is_zero and cls.active and cls.kind != "P":
            continue
        path = cls.kind == "P"
        told_apart = () if path else needs.waking[successor] | ghosts if joined else masks.keys()
        inside = ((f, cls.is_in(m)) for f, m in numbers.items() if f in told_apart)
        member = tuple((f, truth) for f, truth in inside if truth is not None)
        read = live if cls.active else later
        if joined and cls.kind == "O" and not cls.active:
            read = set[int]()  # Mostly nobody wakes them.
        part = _kept(both, cls.part, read, declared, every=cls.active)
        at = cls.kind, cls.active, member
        classes[at] = part if at not in classes else _meet_parts(classes[at], part, scalars, scalars)
    in_vectors = {n for part in classes.values() for n in part.where}
    scalars.doubtful |= state.scalars.doubtful & in_vectors
    some = state.some if exec_is_zero is None else not exec_is_zero
    nonempty = {first for first, m in numbers.items() if m in known}
    beside = {first for first, m in numbers.items() if some or m in known or m in state.beside}
    return _Observed(scalars, classes, masks, nonempty, beside, some)


def _runs(both: Both, state: State, names: set[Key]) -> dict[Key, tuple[Key, ...]]:
    """Registers of wave size, and cells, that hold a mask which may reach EXEC, by their first name."""
    width = both.before.wave // (16 * both.before.grain)
    found: dict[Key, tuple[Key, ...]] = {}
    cells: dict[int, dict[int, list[Key]]] = {}
    for name in sorted(names, key=by_kind):
        known = state.masks.get(name)
        if known is None:
            continue
        if isinstance(name, tuple) and name[0] == "@":
            if not name[3]:
                keys = tuple((*name[:3], k) for k in range(width))
                if all(state.masks.get(key) == (known[0], k) for k, key in enumerate(keys)):
                    found[name] = keys
        elif not isinstance(name, int):
            cells.setdefault(known[0], {}).setdefault(known[1], []).append(name)
        elif not known[1]:
            keys = tuple(name + k * both.before.grain for k in range(width))
            if all(state.masks.get(key) == (known[0], k) for k, key in enumerate(keys)):
                found[name] = keys
    for parts in cells.values():
        while len(parts) == width and all(parts.values()):
            keys = tuple(parts[k].pop(0) for k in range(width))
            found[keys[0]] = keys
    return found


def _kept(both: Both, part: Part, live: set[int], declared: frozenset[int], *, every: bool) -> Part:
    """What is worth claiming: names that are read later, in places of which something may be claimed (4.3).

    Args:
        every: that is asked of vector places too.
    """
    new = Part()
    for place, names in part.holds.items():
        if (every or not both.is_vector(place, after=True)) and not may_hold(both, place, declared):
            names &= NONE if place in both.named_after else {("^", place, 0, 0)}
        left = frozenset(n for n in names if not isinstance(n, int) or n in live)
        if left:
            new.write(place, left)
    new.undefined = {n for n in part.undefined if not isinstance(n, int) or n in live}
    new.doubtful = {n for n in part.doubtful if n in new.where or n in new.undefined}
    return new


def _meet_parts(a: Part, b: Part, a_scalars: Part, b_scalars: Part) -> Part:
    new = Part()
    for one, other, other_scalars in ((a, b, b_scalars), (b, a, a_scalars)):
        for place, names in one.holds.items():
            held = other.holds.get(place, NONE)
            for name in names:
                if name in held or name in other.undefined or name in other_scalars.undefined:
                    new.add(name, (place,))
    new.undefined = a.undefined & b.undefined
    new.doubtful = a.doubtful | b.doubtful
    return new


def _meet(a: _Observed, b: _Observed) -> _Observed:
    masks = {first: keys for first, keys in a.masks.items() if first in b.masks}
    scalars = _meet_parts(a.scalars, b.scalars, a.scalars, b.scalars)
    classes: dict[_Class, Part] = {}
    owners: dict[_Class, Part] = {}
    for side in (a, b):
        for (kind, active, member), part in side.classes.items():
            at = kind, active, tuple((f, inside) for f, inside in member if f in masks)
            if at in classes:
                classes[at] = _meet_parts(classes[at], part, owners[at], side.scalars)
            else:
                classes[at] = part
            owners[at] = side.scalars
    nonempty, beside = a.nonempty & b.nonempty & masks.keys(), a.beside & b.beside & masks.keys()
    return _Observed(scalars, classes, masks, nonempty, beside, a.some and b.some)


def _same(a: _Observed, b: _Observed) -> bool:
    facts = [(o.masks, o.nonempty, o.beside, o.some, o.classes.keys()) for o in (a, b)]
    return facts[0] == facts[1] and all(
        _same_part(x, y) for x, y in ((a.scalars, b.scalars), *((a.classes[k], b.classes[k]) for k in a.classes))
    )


def _same_part(a: Part, b: Part) -> bool:
    return (a.holds, a.undefined, a.doubtful) == (b.holds, b.undefined, b.doubtful)


def _entry(observed: _Observed) -> Entry:
    numbers = {first: number for number, first in enumerate(observed.masks)}
    masks = {key: (numbers[first], k) for first, keys in observed.masks.items() for k, key in enumerate(keys)}
    entry = Entry()
    for (kind, active, member), part in observed.classes.items():
        within, without = (_bits(numbers, member, inside=inside) for inside in (True, False))
        entry.classes.append(ClassClaims(kind, active, within, without))
        entry.classes[-1].claims = _claims(part)
    entry.scalars, entry.masks, entry.some = _claims(observed.scalars), masks, observed.some
    entry.nonempty = {numbers[f] for f in observed.nonempty}
    entry.beside = {numbers[f] for f in (() if observed.some else observed.beside - observed.nonempty)}
    return entry


def _bits(numbers: dict[Key, int], member: tuple[tuple[Key, bool], ...], *, inside: bool) -> int:
    """The masks that a class is in, or else out of."""
    return sum(1 << numbers[first] for first, is_in in member if is_in is inside)


def _claims(part: Part) -> Claims:
    pairs = [(name, place) for place, names in part.holds.items() for name in names]
    claims = Claims()
    claims.rows = [pairs]
    claims.undefined, claims.doubtful = list(part.undefined), list(part.doubtful - part.undefined)
    return claims
