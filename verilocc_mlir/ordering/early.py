"""Blocks of a text before allocation in an order of our own, where they need more registers than there are.

A list scheduler that goes up a block from its end. As long as registers suffice, an instruction stands as far before
the first use of its result as hides its latency. Where they do not, that one comes next which leaves the fewest in use,
so that values are made just before they are needed.

What moves is proved like the order behind allocation (docs/trust/spec.md, section 16).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from msgspec import Struct
from msgspec.structs import replace

from verilocc_mlir.analysis.cfg import control_flow, find_loops
from verilocc_mlir.analysis.lanes import Access, virtual_classes
from verilocc_mlir.analysis.liveness import LaneLiveness, lane_liveness, set_bits
from verilocc_mlir.mir.model import BasicBlock, MachineFunction, MirFile
from verilocc_mlir.ordering.dependences import Item, items_of
from verilocc_mlir.ordering.schedule import Ordered, Pace, Timing, in_order, pace_of
from verilocc_mlir.problem.build import frequency
from verilocc_mlir.target.classes import RegisterClass
from verilocc_mlir.target.registers import Bank
from verilocc_mlir.target.reserved import allocatable
from verilocc_mlir.target.targets import Target

MARGIN = 8
"""Registers left over, from which on the order goes by registers alone: tuples need neighbours."""
_MOST_COMPARED = 256


class EarlyOrder(Ordered, frozen=True):
    """A function whose blocks need fewer registers; those of which the list made no better ones are as they were.

    Attributes:
        given, strain: how short of registers the function was and is (``room.strain``), by estimated executions.
    """

    given: float
    strain: float


class _Block(Struct, frozen=True):
    items: Sequence[Item]
    accesses: Accesses
    timings: Sequence[Sequence[Timing]]

    def distance(self, first: int, second: int, slot: float) -> float:
        """Cycles from the issue of one item to that of another that must follow it."""
        if not self.items[first].writes & self.items[second].reads:
            return slot
        return max((t.latency for t in self.timings[first]), default=slot)


def ordered_early(file: MirFile, function: MachineFunction, target: Target) -> EarlyOrder:
    """A function of a text before allocation.

    Raises:
        InputError, UnsupportedError: machine code of which liveness or registers cannot be stated.
    """
    cfg = control_flow(function)
    depths = find_loops(cfg).depths
    classes = virtual_classes(function)
    live = lane_liveness(function, cfg, classes)
    room = room_of(file, function, target, classes, live)
    blocks: list[BasicBlock] = []
    orders: dict[int, Sequence[int]] = {}
    moved = 0
    pace = pace_of(function.opcodes, target)
    before = after = 0.0
    for number, block in enumerate(function.blocks):
        given = _block(block, cfg.first[number], live, number, pace)
        here = strain(given.accesses, room, range(len(given.items)))
        best = here
        if here:
            order = _listed(given, room, pace.slot)
            there = strain(given.accesses, room, order)
            if there < here:
                best = there
                orders[number] = order
                moved += sum(at != of for at, of in enumerate(order))
                block = replace(block, instructions=in_order(given.items, order))
        before += here * frequency(depths[number])
        after += best * frequency(depths[number])
        blocks.append(block)
    return EarlyOrder(replace(function, blocks=tuple(blocks)), orders, moved, before, after)


def _block(block: BasicBlock, first: int, live: LaneLiveness, number: int, pace: Pace) -> _Block:
    accesses = {a.index: a for a in live.accesses.blocks[number]}
    items = items_of(block.instructions, pinned=True)
    atoms: list[tuple[frozenset[int], frozenset[int]]] = []
    timings: list[list[Timing]] = []
    for item in items:
        stop = first + len(item.instructions)
        atoms.append(_atoms([a for index in range(first, stop) if (a := accesses.get(index)) is not None]))
        timings.append([t for i in item.instructions if (t := pace.of.get(i.opcode)) is not None])
        first = stop
    ends = (frozenset(set_bits(sets[number])) for sets in (live.live_in, live.live_out))
    return _Block(items, Accesses([r for r, _ in atoms], [w for _, w in atoms], *ends), timings)


def _atoms(accesses: Iterable[Access]) -> tuple[frozenset[int], frozenset[int]]:
    """What an item reads from outside, and what it writes."""
    reads: set[int] = set()
    writes: set[int] = set()
    for access in accesses:
        reads.update(set(access.reads) - writes)
        writes.update(access.early, access.writes, access.undefines, access.implicit)
    return frozenset(reads), frozenset(writes)


def _listed(block: _Block, room: Room, slot: float) -> list[int]:
    """The order of the list: numbers of the items."""
    pressure = Pressure(room, set(block.accesses.live_out))
    up: list[int] = []
    staying = [item.number for item in block.items if item.stays]
    for low, high in zip([*staying[::-1], -1], [len(block.items), *staying[::-1]], strict=True):
        if high < len(block.items):
            up.append(high)
            pressure.place(block.accesses.reads[high], block.accesses.writes[high])
        up += _Region(block, range(low + 1, high), pressure, slot).up
    return up[::-1]


class _Region:
    """What stands between two items that stay; ``up`` is its order from the end."""

    def __init__(self, block: _Block, region: range, pressure: Pressure, slot: float) -> None:
        self._block = block
        self._pressure = pressure
        self._slot = slot
        self._now = 0.0
        self._wanted = dict.fromkeys(region, 0.0)
        self._busy: dict[object, float] = {}
        self._depth = self._depths(region)
        # By atom: the ready items that access it; what each of them would change is kept.
        self._touching: dict[int, set[int]] = {}
        self._changes: dict[int, list[tuple[int, float]]] = {}
        missing = dict.fromkeys(region, 0)
        for number in region:
            for other in block.items[number].before:
                missing[other] += 1
        ready = [number for number in region if not missing[number]]
        for number in ready:
            self._watch(number)
        self.up: list[int] = []
        while ready:
            best = min(ready[-_MOST_COMPARED:], key=self._rank)
            ready.remove(best)
            self._place(best)
            for other in block.items[best].before:
                missing[other] -= 1
                if not missing[other]:
                    insort(ready, other)
                    self._watch(other)

    def _depths(self, region: range) -> dict[int, float]:
        """Cycles from the start of the region to the issue of each item, at least."""
        depth: dict[int, float] = {}
        for number in region:
            before = self._block.items[number].before
            depth[number] = max((depth[o] + self._block.distance(o, number, self._slot) for o in before), default=0.0)
        return depth

    def _watch(self, number: int) -> None:
        for atom in self._block.accesses.of(number):
            self._touching.setdefault(atom, set()).add(number)
        self._note_change(number)

    def _note_change(self, number: int) -> None:
        accesses = self._block.accesses
        change = self._pressure.change(accesses.reads[number], accesses.writes[number])
        self._changes[number] = [(of, more) for of, more in enumerate(change) if more]

    def _rank(self, number: int) -> tuple[float, float, float, int]:
        """By registers where they are short, or would be; else by waiting; of equals, what most hangs on."""
        late = self._wanted[number]
        for t in self._block.timings[number]:
            late = max(late, self._busy.get(t.kind, 0.0))
        waits = (late - self._now) // self._slot if late > self._now else 0.0
        changes = self._changes[number]
        return self._added(changes) if changes else 0.0, waits, -self._depth[number], -number

    def _added(self, changes: Sequence[tuple[int, float]]) -> float:
        """Registers that an item adds in files that are short, or would be."""
        used, limits = self._pressure.used, self._pressure.room.limits
        return sum(more for of, more in changes if used[of] > limits[of] - MARGIN or used[of] + more > limits[of])

    def _place(self, number: int) -> None:
        block, accesses = self._block, self._block.accesses
        self.up.append(number)
        self._pressure.place(accesses.reads[number], accesses.writes[number])
        again: set[int] = set()
        for atom in accesses.of(number):
            self._touching[atom].discard(number)
            again |= self._touching[atom]
        for other in again:
            self._note_change(other)
        start = self._now
        for t in block.timings[number]:
            self._busy[t.kind] = max(self._busy.get(t.kind, 0.0), self._now) + t.issue
            self._now += self._slot
        for other in block.items[number].before:
            self._wanted[other] = max(self._wanted[other], start + block.distance(other, number, self._slot))


# What registers there are for the values of a block, and how far they suffice in an order of its instructions.


class Room(Struct, frozen=True):
    """What there is for the values of a function.

    Attributes:
        limits: registers of 32 bits, by set of register files in which a value may stand.
        sets: of each atom (``analysis/lanes.py``): the sets whose room it takes.
        weights: of each atom: registers of 32 bits.
    """

    limits: tuple[float, ...]
    sets: tuple[tuple[int, ...], ...]
    weights: tuple[float, ...]


def room_of(
    file: MirFile, function: MachineFunction, target: Target, classes: dict[int, RegisterClass], live: LaneLiveness
) -> Room:
    """The registers that may be handed out, and what each value takes of them.

    Raises:
        UnsupportedError: what is reserved cannot be said.
    """
    free = allocatable(function, file.preamble, target)
    numbers = {Bank.SGPR: free.sgprs, Bank.VGPR: free.vgprs, Bank.AGPR: free.agprs}
    owners = [classes[v].banks.intersection(numbers) for v in live.accesses.owner]
    files = dict.fromkeys(owners)
    sets = {banks: tuple(n for n, other in enumerate(files) if banks <= other) for banks in files}
    return Room(
        tuple(float(sum(len(numbers[bank]) for bank in banks)) for banks in files),
        tuple(sets[banks] for banks in owners),
        tuple(lanes.bit_count() / 2 for lanes in live.accesses.lanes),
    )


class Accesses(Struct, frozen=True):
    """What the items of a block access, in atoms: by item, and what lives at both ends."""

    reads: Sequence[frozenset[int]]
    writes: Sequence[frozenset[int]]
    live_in: frozenset[int]
    live_out: frozenset[int]

    def of(self, number: int) -> frozenset[int]:
        return self.reads[number] | self.writes[number]


@dataclass
class Pressure:
    """What is in use at a point, going up a block: atoms, and registers of 32 bits of each set of files."""

    room: Room
    live: set[int]
    used: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self.used = [0.0] * len(self.room.limits)
        for atom in self.live:
            self._add(self.used, atom, 1)

    @property
    def excess(self) -> float:
        """Registers too many, of the set that is shortest."""
        return max((u - limit for u, limit in zip(self.used, self.room.limits, strict=True) if u > limit), default=0.0)

    def change(self, reads: frozenset[int], writes: frozenset[int]) -> list[float]:
        """By how much each set would change above an instruction with these accesses."""
        change = [0.0] * len(self.used)
        for atom in writes - reads:
            if atom in self.live:
                self._add(change, atom, -1)
        for atom in reads - self.live:
            self._add(change, atom, 1)
        return change

    def place(self, reads: frozenset[int], writes: frozenset[int]) -> None:
        """Go above an instruction."""
        for number, change in enumerate(self.change(reads, writes)):
            self.used[number] += change
        self.live -= writes
        self.live |= reads

    def _add(self, of: list[float], atom: int, sign: int) -> None:
        for number in self.room.sets[atom]:
            of[number] += sign * self.room.weights[atom]


def strain(accesses: Accesses, room: Room, order: Sequence[int]) -> float:
    """How short of registers a block is in an order of its items; 0 where there are enough at every point.

    In registers of 32 bits: what is too much at the worst point, what is too much in the mean, and what is stored and
    reloaded. Chosen on 18 texts of six kernels: less of this sum, less is stored and reloaded after allocation.
    """
    pressure = Pressure(room, set(accesses.live_out))
    excesses = [pressure.excess]
    for number in reversed(order):
        pressure.place(accesses.reads[number], accesses.writes[number])
        excesses.append(pressure.excess)
    worst = max(excesses)
    return worst + sum(excesses) / len(excesses) + _Residence(accesses, room, order).traffic if worst else 0.0


class _Residence:
    """Which values stand in registers, going down a block, where room is made by what is used last (Belady 1966).

    Attributes:
        traffic: registers of 32 bits stored and reloaded. What enters the block is there already as far as it is used
            in it and there is room, the soonest first; what is used and lives on is there again at the end.
    """

    def __init__(self, accesses: Accesses, room: Room, order: Sequence[int]) -> None:
        self._room = room
        self._used = [0.0] * len(room.limits)
        self._resident: set[int] = set()
        self._saved = set(accesses.live_in)
        self._uses = _uses(accesses, order)
        self._next: dict[int, int] = {}
        # By set: the last use first. An entry that is not in ``_next`` is out of date.
        self._queues: list[list[tuple[int, int]]] = [[] for _ in self._used]
        self.traffic = 0.0
        entering = accesses.live_in & self._uses.keys()
        for atom in sorted(entering, key=lambda atom: self._uses[atom][-1]):
            if all(self._used[n] + room.weights[atom] <= room.limits[n] for n in room.sets[atom]):
                self._enter(atom)
        for number in order:
            self._access(accesses.reads[number], accesses.writes[number])
        gone = accesses.live_out & self._next.keys() - self._resident
        self.traffic += sum(room.weights[atom] for atom in gone)

    def _access(self, reads: frozenset[int], writes: frozenset[int]) -> None:
        absent = reads - self._resident
        self.traffic += sum(self._room.weights[atom] for atom in absent)
        self._saved |= absent
        self._saved -= writes
        both = reads | writes
        for atom in both:
            self._uses[atom].pop()
            if atom not in self._resident:
                self._enter(atom)
        self._make_room(both)
        for atom in both:
            if not self._uses[atom]:
                self._leave(atom)
            else:
                self._note(atom)

    def _enter(self, atom: int) -> None:
        self._resident.add(atom)
        for n in self._room.sets[atom]:
            self._used[n] += self._room.weights[atom]
        self._note(atom)

    def _note(self, atom: int) -> None:
        following = self._next[atom] = self._uses[atom][-1] if self._uses[atom] else -1
        for n in self._room.sets[atom]:
            heappush(self._queues[n], (-following, atom))

    def _leave(self, atom: int) -> None:
        if atom in self._resident:
            self._resident.discard(atom)
            for n in self._room.sets[atom]:
                self._used[n] -= self._room.weights[atom]

    def _make_room(self, kept: frozenset[int]) -> None:
        for n, queue in enumerate(self._queues):
            passed: list[tuple[int, int]] = []
            while self._used[n] > self._room.limits[n] and queue:
                entry = heappop(queue)
                following, atom = -entry[0], entry[1]
                if atom not in self._resident or self._next[atom] != following:
                    continue
                if atom in kept:
                    passed.append(entry)
                    continue
                self._leave(atom)
                if atom not in self._saved:
                    self._saved.add(atom)
                    self.traffic += self._room.weights[atom]
            for entry in passed:
                heappush(queue, entry)


def _uses(accesses: Accesses, order: Sequence[int]) -> dict[int, list[int]]:
    """Where each atom is accessed, the first place last; what lives on is so behind the end."""
    uses: dict[int, list[int]] = {atom: [len(order)] for atom in accesses.live_out}
    for at in range(len(order) - 1, -1, -1):
        for atom in accesses.of(order[at]):
            uses.setdefault(atom, []).append(at)
    return uses
