"""The search for registers, one after the other, for the ranges that an allocator found no place for, and the text that
comes of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from msgspec import Struct
from msgspec.structs import replace

from verilocc_mlir.allocators.items import Candidates, Item, make_item
from verilocc_mlir.allocators.packing import below, fitting
from verilocc_mlir.allocators.protocol import Partial
from verilocc_mlir.allocators.search import by_start, by_width
from verilocc_mlir.allocators.spread import spread_proposal
from verilocc_mlir.allocators.tables import Tables
from verilocc_mlir.budget import check_seconds
from verilocc_mlir.mir.model import Instruction, MachineFunction, VirtualRegister
from verilocc_mlir.problem.model import PROBLEM_VERSION, AllocationProblem, Proposal
from verilocc_mlir.spilling import SpillAction
from verilocc_mlir.spilling.code import copy, runs, subregister
from verilocc_mlir.spilling.ground import Ground
from verilocc_mlir.spilling.insert import renamed
from verilocc_mlir.splitting.parts import Cover, Links, Parts, parts

# The text in which live ranges fall apart, with its copies.


class Split(Struct, frozen=True):
    """The text with its copies, the registers of all its ranges by name, and what was done."""

    function: MachineFunction
    registers: Mapping[str, str]
    actions: tuple[SpillAction, ...]


class LaidRange(Struct):
    """A range in several registers: where each part starts."""

    parts: Parts
    starts: dict[int, int]


class Writing:
    """The text in which the ranges of ``laid`` fall apart, and its registers."""

    def __init__(self, ground: Ground, tables: Tables, starts: Sequence[int], laid: Mapping[int, LaidRange]) -> None:
        self._ground = ground
        self._tables = tables
        self._laid = laid
        self._numbers = count(1 + max((*ground.function.registers, *ground.classes), default=-1))
        self._registers = {
            r.name: tables.cells.name(start, r)
            for r, start in zip(ground.problem.ranges, starts, strict=True)
            if r.id not in laid
        }
        self._rows = dict(ground.function.registers)
        self._names: dict[int, dict[int, int]] = {}
        self._copies: dict[tuple[int, int], list[tuple[frozenset[int], frozenset[int], list[Instruction]]]] = {}
        self._actions: list[SpillAction] = []

    def run(self) -> Split | None:
        for number, laid in self._laid.items():
            self._take_in(number, laid)
        ordered = {place: _in_order(copies) for place, copies in self._copies.items()}
        if any(copies is None for copies in ordered.values()):
            return None
        blocks = tuple(
            replace(block, instructions=tuple(self._block(position, block.instructions, ordered)))
            for position, block in enumerate(self._ground.function.blocks)
        )
        function = replace(self._ground.function, blocks=blocks, registers=self._rows)
        return Split(function, self._registers, tuple(self._actions))

    def _take_in(self, number: int, laid: LaidRange) -> None:
        live_range = self._ground.problem.ranges[number]
        vreg = int(live_range.name[1:])
        cls = self._ground.classes[vreg]
        names: dict[int, int] = {}
        for part in range(len(laid.parts.times)):
            start = laid.starts[part]
            if start not in names:
                names[start] = vreg if not names else next(self._numbers)
                self._rows[names[start]] = VirtualRegister(names[start], cls.name)
                self._registers[f"%{names[start]}"] = self._tables.cells.name(start, live_range)
        for index, part in laid.parts.of_access.items():
            self._names.setdefault(index, {})[vreg] = names[laid.starts[part]]
        places: list[str] = []
        cost = 0.0
        for cut in laid.parts.cuts:
            source, target = laid.starts[cut.left], laid.starts[cut.right]
            if source == target:
                continue
            # Only what is copied is there: an instruction may read more, such as the half that a load of the other one
            # keeps, and that would be live from the function's entry on.
            code = [
                copy((names[target], sub), (names[source], sub), undef=not n)
                for n, (first, size) in enumerate(runs(cut.live, cls, even=self._ground.even))
                for sub in (subregister(first, size, cls.width),)
            ]
            cells = [frozenset(range(s, s + self._tables.singles[number].reach)) for s in (source, target)]
            self._copies.setdefault((cut.block, cut.at), []).append((cells[0], cells[1], code))
            places.append(f"before instruction {cut.at}")
            cost += cut.weight
        self._actions.append(
            SpillAction(
                live_range.name, "split", live_range.width, (), tuple(places),
                4 * min((c.at for c in laid.parts.cuts if laid.starts[c.left] != laid.starts[c.right]), default=0),
                cost, "no register is free for the whole of it",
            )
        )  # fmt: skip

    def _block(
        self,
        position: int,
        instructions: Sequence[Instruction],
        copies: Mapping[tuple[int, int], Sequence[Instruction] | None],
    ) -> Iterable[Instruction]:
        first = self._ground.cfg.first[position]
        for index, instruction in enumerate(instructions, first):
            yield from copies.get((position, index)) or ()
            yield renamed(instruction, self._names.get(index, {}))
        yield from copies.get((position, first + len(instructions))) or ()


def _in_order(
    copies: Sequence[tuple[frozenset[int], frozenset[int], list[Instruction]]],
) -> list[Instruction] | None:
    """The copies of one place one after the other, so that none overwrites what a later one reads; None for a ring."""
    result: list[Instruction] = []
    waiting = list(copies)
    while waiting:
        for number, (_, target, code) in enumerate(waiting):
            if not any(target & source for k, (source, _, _) in enumerate(waiting) if k != number):
                result += code
                del waiting[number]
                break
        else:
            return None
    return result


_LEFT_OUT = 12
"""Most ranges without a place for which the others stay where they are."""

_EVICTIONS = (12, 3)
"""Places tried where others stand in the way, and for each of those where again others do."""

_COVERS = 500
"""Searches for a way to lay one range over several registers, for all of a function."""


@dataclass(frozen=True)
class Laid:
    """An allocator with one answer: the registers of ``registers``, by the names of the ranges, then spread."""

    name: str
    version: str
    registers: Mapping[str, str] = field(repr=False)

    def allocate(self, problem: AllocationProblem) -> Proposal:
        names = tuple(self.registers.get(r.name, "") for r in problem.ranges)
        return spread_proposal(problem, Proposal(PROBLEM_VERSION, f"{self.name}/{self.version}", names))


class Stuck(Struct, frozen=True):
    """There is no way to lay the ranges; ``index`` is the first instruction of one that finds no room."""

    index: int


def split(ground: Ground, partial: Partial) -> Split | Stuck:
    """The ranges that ``partial`` leaves out, and those that they drive out, laid over several registers; all of them
    anew, in program order, where that is no way.
    """
    tables = Tables(ground.problem)
    known = _Known(ground, tables, partial.ceiling)
    starts = [tables.cells.cells_of(name)[0] if name else -1 for name in partial.registers]
    wanted = [i for i in tables.singles if starts[i.members[0][0]] < 0]
    if len(wanted) <= _LEFT_OUT:
        result = _Splitting(known, starts).run(sorted(wanted, key=by_width))
        if isinstance(result, Split):
            return result
    nowhere = [-1] * len(starts)
    # Wide ones first, so that only narrow ones need be split; then in program order, so that those live are in the way.
    result = _Splitting(known, nowhere).run(sorted(tables.singles, key=by_width))
    if isinstance(result, Split):
        return result
    return _Splitting(known, nowhere).run(sorted(tables.singles, key=by_start))


class _Known:
    """What is the same for all tries: where the ranges may start under the ceiling, and the parts they fall into."""

    def __init__(self, ground: Ground, tables: Tables, ceiling: Mapping[str, int]) -> None:
        self.ground = ground
        self.tables = tables
        self._ceiling = dict(ceiling)
        self._candidates: dict[tuple[Candidates, int], Candidates] = {}
        self._links: dict[tuple[int, float], Links | None] = {}

    def candidates(self, item: Item) -> Candidates:
        every = self.tables.candidates.of(item)
        key = every, item.reach
        if key not in self._candidates:
            self._candidates[key] = below(every, self.tables.cells, self._ceiling, item.reach)
        return self._candidates[key]

    def links(self, item: Item, limit: float) -> Links | None:
        """The parts of a range, cut in blocks of at most ``limit`` estimated executions; None where there is no cut."""
        number = item.members[0][0]
        key = number, limit
        if key not in self._links:
            vreg = int(self.ground.problem.ranges[number].name[1:])
            # A copy moves active threads alone.
            gaps = None if vreg in self.ground.waiting else self.ground.gaps.get(vreg)
            cut = gaps and parts(gaps, item, self.tables.timeline.boundaries, self.ground, limit)
            self._links[key] = Links(cut) if cut else None
        return self._links[key]


class _Splitting:
    """The search for one function.

    Args:
        starts: first cell of each range that is in a place, -1 for the others.
    """

    def __init__(self, known: _Known, starts: Sequence[int]) -> None:
        self._known = known
        self._ground = known.ground
        self._tables = tables = known.tables
        self._packing = Places(tables.fixed)
        self._starts = [*starts]
        self._laid: dict[int, LaidRange] = {}
        self._pieces: dict[Item, int] = {}
        """The items that a range in parts is placed as."""
        for item, start in zip(tables.singles, starts, strict=True):
            if start >= 0:
                self._packing.place(item, start)
        self._covers = _COVERS

    def run(self, items: Iterable[Item]) -> Split | Stuck:
        """Place the items that are nowhere yet, in this order."""
        for item in items:
            if not self._somehow(item, ()):
                return Stuck(self._tables.timeline.slot(item.start) // 4)
        return Writing(self._ground, self._tables, self._starts, self._laid).run() or Stuck(0)

    def _somehow(self, item: Item, stay: tuple[int, ...]) -> bool:
        """Put the item somewhere, without driving out the ranges that ``stay``."""
        check_seconds()
        if self._whole(item) or self._over_several(item):
            return True
        return len(stay) < len(_EVICTIONS) and self._in_place_of_others(item, stay)

    def _whole(self, item: Item) -> bool:
        candidates = self._known.candidates(item)
        for start in self._tables.hints.starts(item, self._starts):
            if start in candidates and self._packing.fits(item, start):
                break
        else:
            start = self._packing.first_fit(item, candidates)
        if start < 0:
            return False
        self._put(item, start)
        return True

    def _put(self, item: Item, start: int) -> None:
        self._packing.place(item, start)
        self._starts[item.members[0][0]] = start

    def _over_several(self, item: Item) -> bool:
        """Put the item into several registers that are free; with copies in loops only where none outside suffice."""
        if self._covers <= 0:
            return False
        self._covers -= 1
        number = item.members[0][0]
        taken = self._taken(item)
        everywhere = -1
        for there in taken.values():
            everywhere &= there
        for limit in self._ground.weights:
            links = self._known.links(item, limit)
            if links is None or links.times & everywhere:
                continue  # A part with a time at which no register is free has no start.
            starts = Cover(links, taken).run()
            if starts:
                parts = links.parts
                self._laid[number] = LaidRange(parts, starts)
                self._starts[number] = starts[parts.of_access[min(parts.of_access)]]
                for start in sorted(set(starts.values())):
                    self._place_parts(item, [parts.times[p] for p, s in starts.items() if s == start], start)
                return True
        return False

    def _taken(self, item: Item) -> dict[int, int]:
        """For each start, the times of the range at which something else is there."""
        occupied = self._packing.occupied
        taken: dict[int, int] = {}
        for start in self._known.candidates(item):
            there = 0
            for offset, mask in item.cells:
                there |= occupied[start + offset] & mask
            taken[start] = there
        return taken

    def _place_parts(self, item: Item, times: Iterable[int], start: int) -> None:
        union = 0
        for mask in times:
            union |= mask
        piece = make_item(item.members, {o: m & union for o, m in item.cells}, item.width, item.reach)
        self._pieces[piece] = item.members[0][0]
        self._packing.place(piece, start)

    def _lift(self, number: int) -> None:
        """Take a range out again, whole or in parts."""
        self._starts[number] = -1
        if self._laid.pop(number, None) is None:
            self._packing.remove(self._tables.singles[number])
            return
        for piece in [p for p, whose in self._pieces.items() if whose == number]:
            self._packing.remove(piece)
            del self._pieces[piece]

    def _in_place_of_others(self, item: Item, stay: tuple[int, ...]) -> bool:
        """Put the item where it drives out others, which are put elsewhere, whole or in parts."""
        packing = self._packing
        ranked: list[tuple[int, int]] = []
        for start in fitting(self._tables.fixed, item, self._known.candidates(item)):
            ranked.append((sum((packing.occupied[start + o] & m).bit_count() for o, m in item.cells), start))
        singles = self._tables.singles
        for _, start in sorted(ranked)[: _EVICTIONS[len(stay)]]:
            others = sorted({c.members[0][0] for c in packing.conflicts(item, start)})
            if not set(stay).isdisjoint(others):
                continue
            kept = packing.occupied[:], dict(packing.placed), [dict(r) for r in packing.residents]
            state = self._starts[:], dict(self._laid), dict(self._pieces)
            for other in others:
                self._lift(other)
            self._put(item, start)
            ordered = sorted((singles[other] for other in others), key=lambda o: (-o.width, *by_start(o)))
            if all(self._somehow(other, (*stay, item.members[0][0])) for other in ordered):
                return True
            packing.occupied, packing.placed, packing.residents = kept
            self._starts, self._laid, self._pieces = state
        return False


# Which cells are occupied at which times, where ranges are in parts.


class Places:
    """A partial placement of items, over a given occupation of the cells by others, which can be put back as it was.

    Two parts of one range may hold a cell at one time: where the one is copied to the other.
    """

    def __init__(self, occupied: Iterable[int]) -> None:
        self.occupied: list[int] = list(occupied)
        self.placed: dict[Item, int] = {}
        self.residents: list[dict[Item, int]] = [{} for _ in self.occupied]

    def fits(self, item: Item, start: int) -> bool:
        """Whether the item's cells are free from cell ``start`` on whenever they are live."""
        return self.first_fit(item, (start,)) >= 0

    def first_fit(self, item: Item, candidates: Iterable[int]) -> int:
        """The first of ``candidates`` at which the item fits; -1 where it fits nowhere."""
        return next(fitting(self.occupied, item, candidates), -1)

    def place(self, item: Item, start: int) -> None:
        self.placed[item] = start
        for offset, mask in item.cells:
            self.occupied[start + offset] |= mask
            self.residents[start + offset][item] = mask

    def remove(self, item: Item) -> int:
        """Free the item's cells again; returns where it was."""
        start = self.placed.pop(item)
        for offset, mask in item.cells:
            # Nothing else holds these bits but parts of the same range, which are removed with it.
            self.occupied[start + offset] &= ~mask
            del self.residents[start + offset][item]
        return start

    def conflicts(self, item: Item, start: int) -> list[Item]:
        """Placed items that stand in the way at ``start``, in the order in which they were placed."""
        conflicting: dict[Item, None] = {}
        for offset, mask in item.cells:
            if self.occupied[start + offset] & mask:
                for resident, resident_mask in self.residents[start + offset].items():
                    if resident_mask & mask:
                        conflicting[resident] = None
        return list(conflicting)
