"""What registers there are for the values of a block, and how far they suffice in an order of its instructions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from verilocc_mlir.analysis.liveness import LaneLiveness
from verilocc_mlir.mir.model import MachineFunction, MirFile
from verilocc_mlir.target.classes import RegisterClass
from verilocc_mlir.target.registers import Bank
from verilocc_mlir.target.reserved import allocatable
from verilocc_mlir.target.targets import Target


@dataclass(frozen=True)
class Room:
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


@dataclass(frozen=True)
class Accesses:
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
