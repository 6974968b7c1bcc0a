"""What every search over one problem needs, computed once: time, cells, items, candidates, copies, costs.

And a complete placement that can be changed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from verilocc_mlir.allocators.bounds import Ceiling
from verilocc_mlir.allocators.cells import CellMap, Timeline, cell_map, runs
from verilocc_mlir.allocators.cost import Cost, CostModel, align_up
from verilocc_mlir.allocators.items import Candidates, CandidateTable, Item, single_items
from verilocc_mlir.allocators.packing import Packing, below, fixed_occupation
from verilocc_mlir.errors import InputError
from verilocc_mlir.problem.model import PROBLEM_VERSION, AllocationProblem, Proposal


class Tables:
    """Tables of one problem. ``starts`` are always first cells, by range id."""

    def __init__(self, problem: AllocationProblem) -> None:
        self.problem = problem
        self.timeline = Timeline(problem)
        self.cells: CellMap = cell_map(problem)
        self.singles: list[Item] = single_items(problem, self.timeline, self.cells)
        self.fixed: list[int] = fixed_occupation(problem, self.timeline, self.cells)
        self.candidates = CandidateTable(problem, self.cells)
        self.cost = CostModel(problem, self.cells)
        self.hints = Hints(problem, self.cells, self.cost)

    def parts(self, item: Item) -> list[Item]:
        """The ranges that an item is joined from, one item each."""
        return [self.singles[member] for member, _ in item.members]

    def proposal(self, starts: Sequence[int], allocator: str) -> Proposal:
        """The proposal that puts the ranges at ``starts``."""
        names = (self.cells.name(start, r) for start, r in zip(starts, self.problem.ranges, strict=True))
        return Proposal(PROBLEM_VERSION, allocator, tuple(names))

    def starts(self, proposal: Proposal) -> list[int]:
        """Where a proposal puts each range.

        Raises:
            InputError: it leaves a range out, or puts it where the range may not start.
        """
        ranges = self.problem.ranges
        if len(proposal.registers) != len(ranges):
            raise InputError(f"{len(proposal.registers)} registers for {len(ranges)} ranges", where="proposal")
        starts: list[int] = []
        for live_range, name in zip(ranges, proposal.registers, strict=True):
            cells = self.cells.cells_of(name) if name else ()
            if not cells or not self.candidates.allows(live_range.id, cells[0]):
                raise InputError(
                    f"{live_range.name} cannot be in {f'${name}' if name else 'no register'}", where="proposal"
                )
            starts.append(cells[0])
        return starts


# Preferred starts of an item: beside the ranges it is copied to or from, in argument registers, at LLVM's hints.


class Hints:
    """Preferred starts, weighed by the copies that they remove."""

    def __init__(self, problem: AllocationProblem, cells: CellMap, cost: CostModel) -> None:
        count = len(problem.ranges)
        # Per range: (other range, its start minus ours, weight), and (cell, weight).
        self._partners: list[list[tuple[int, int, float]]] = [[] for _ in range(count)]
        self._cells: list[list[tuple[int, float]]] = [[] for _ in range(count)]
        for a, goal, weight in cost.fixed:
            self._cells[a].append((goal, weight))
        for a, b, distance, weight in cost.pairs:
            if distance is not None and a != b:
                self._partners[a].append((b, distance, weight))
                self._partners[b].append((a, -distance, weight))
        for live_range in problem.ranges:
            if live_range.hint and (target := cells.cells_of(live_range.hint)):
                # A hinted register shortens an encoding; a removed copy of the same block is worth more.
                self._cells[live_range.id].append((target[0], 0.5))

    def starts(self, item: Item, placed: list[int]) -> list[int]:
        """Preferred starts of ``item``, best first; ``placed`` has each range's start, -1 where it has none yet."""
        weights: dict[int, float] = {}
        for member, offset in item.members:
            for partner, distance, weight in self._partners[member]:
                if placed[partner] >= 0:
                    start = placed[partner] - distance - offset
                    weights[start] = weights.get(start, 0.0) + weight
            for cell, weight in self._cells[member]:
                weights[cell - offset] = weights.get(cell - offset, 0.0) + weight
        if len(weights) < 2:
            return list(weights)
        return sorted(weights, key=lambda start: (-weights[start], start))


# What it costs to reuse a register soon: false dependencies, which tie the scheduler after allocation.
#
# A value that starts in a register shortly after another one ended there may not be computed or loaded earlier, and the
# other one may not be read later. LLVM's scheduler after allocation moves instructions within a block alone, so that
# only reuse within a block counts.


SLOW = frozenset({"load", "lds", "smem", "mfma", "wmma"})
"""Families whose results take long, so that they are better started early."""

SLOW_WEIGHT = 4.0
"""Of a false dependency of theirs, where another one counts 1."""

HORIZON = 32
"""Instructions after which reuse costs nothing. 24, 64 and 400 give the same cycles within what kernels differ by."""

_HORIZON_SLOTS = 4 * HORIZON


class Window(NamedTuple):
    """A stretch of time beside an end of a value, in which no other value should hold the same cell.

    Attributes:
        offset: of the cell, relative to the item's.
        mask: of the timeline.
        slot: where the value starts, or ends.
        before: whether the stretch ends there; else it starts there.
        executions: estimated, of the block.
    """

    offset: int
    mask: int
    slot: int
    before: bool
    executions: float


class Reuse:
    """False dependencies of the placements of one problem."""

    def __init__(self, problem: AllocationProblem, timeline: Timeline) -> None:
        self._boundaries = timeline.boundaries
        self._blocks: list[tuple[int, int, float]] = []
        """First bit, last bit plus one and executions of each block."""
        bits = [bisect_left(self._boundaries, slot) for slot in problem.block_starts]
        for first, stop, depth in zip(bits, [*bits[1:], len(self._boundaries)], problem.block_depths, strict=False):
            self._blocks.append((first, stop, float(10 ** min(depth, 6))))
        self._firsts = [first for first, _, _ in self._blocks]
        self._slow = frozenset(
            point.slot // 4
            for live_range in problem.ranges
            for point in live_range.points
            if point.kind != "use" and point.family in SLOW
        )

    def windows(self, item: Item) -> list[Window]:
        """Where the neighbours of an item in time are looked for."""
        boundaries = self._boundaries
        result: list[Window] = []
        for offset, mask in item.cells:
            for start, stop in runs(mask):
                first, _, executions = self._block(start)
                low = max(first, bisect_left(boundaries, boundaries[start] - _HORIZON_SLOTS))
                if low < start:
                    result.append(Window(offset, (1 << start) - (1 << low), boundaries[start], True, executions))
                _, end, executions = self._block(stop - 1)
                high = min(end, bisect_right(boundaries, boundaries[stop] + _HORIZON_SLOTS)) if stop < end else stop
                if stop < high:
                    result.append(Window(offset, (1 << high) - (1 << stop), boundaries[stop], False, executions))
        return result

    def price(self, windows: Sequence[Window], start: int, occupied: Sequence[int], limit: float) -> float:
        """The false dependencies of an item at cell ``start``, where ``occupied`` has the others.

        An execution counts in full where one value follows another at once, and not at all at ``HORIZON`` instructions.
        Counting ends at ``limit``.
        """
        total = 0.0
        boundaries = self._boundaries
        for offset, mask, slot, before, executions in windows:
            others = occupied[start + offset] & mask
            if others:
                # One value ends, the other one starts: the nearest one ends before its bit, or starts at its bit.
                if before:
                    end, begin = boundaries[others.bit_length()], slot
                else:
                    end, begin = slot, boundaries[(others & -others).bit_length() - 1]
                weight = SLOW_WEIGHT if begin // 4 in self._slow else 1.0
                total += executions * weight * (1 - (begin - end) / _HORIZON_SLOTS)
                if total >= limit:
                    break
        return total

    def executions(self, item: Item) -> float:
        """How often the block runs that runs most of those in which some part of the item starts."""
        return max((self._block(start)[2] for _, mask in item.cells for start, _ in runs(mask)), default=0.0)

    def _block(self, bit: int) -> tuple[int, int, float]:
        # Empty blocks share their first bit with the next one, which is the one found.
        return self._blocks[bisect_right(self._firsts, bit) - 1]


# A complete placement that can be changed, and changed back.


_EJECTIONS = 12
"""Ranges that one change may push aside, each in turn pushing others."""


class State:
    """A placement and its cost.

    Raises:
        InputError: ``starts`` puts two values into one place at a time.
    """

    def __init__(self, tables: Tables, starts: Sequence[int]) -> None:
        self.tables = tables
        self.starts = list(starts)
        self.packing = Packing(tables.fixed)
        for item, start in zip(tables.singles, starts, strict=True):
            if not self.packing.fits(item, start):
                name = tables.problem.ranges[item.members[0][0]].name
                raise InputError(f"{name} has no room where it is", where="proposal")
            self.packing.place(item, start)
        self.cost: Cost = tables.cost.of(self.starts)
        self._below: dict[tuple[Candidates, int], Candidates] = {}
        self.used: Ceiling = {}
        self.ceilings: tuple[Ceiling, ...] = ()
        """The ceilings under which no further wave is lost."""
        self._settle()

    def adopt(self, starts: Sequence[int]) -> bool:
        """Take over a valid placement if it costs no more; whether that was so."""
        cost = self.tables.cost.of(starts)
        if cost > self.cost:
            return False
        for number, start in enumerate(starts):
            if start != self.starts[number]:
                self.packing.remove(self.tables.singles[number])
        for number, start in enumerate(starts):
            if start != self.starts[number]:
                self.packing.place(self.tables.singles[number], start)
        self.starts, self.cost = list(starts), cost
        self._settle()
        return True

    def move(self, placements: Iterable[tuple[int, int]]) -> bool:
        """Put ranges at new starts and move the ranges in the way; undone if the cost rises.

        Args:
            placements: range ids and first cells that they are allowed.

        Returns:
            Whether the placement changed.
        """
        before: dict[int, int] = {}
        queue: list[int] = []
        pinned: set[int] = set()
        fits = True
        for number, start in placements:
            pinned.add(number)
            fits = fits and self._put(number, start, before, queue, pinned)
        while fits and queue:
            number = queue.pop(0)
            start = self._room(number)
            fits = start >= 0 and len(before) <= _EJECTIONS and self._put(number, start, before, queue, pinned)
        if fits:
            cost = self.tables.cost.of(self.starts)
            if cost <= self.cost:
                self.cost = cost
                self._settle()
                return True
        self._undo(before)
        return False

    def _settle(self) -> None:
        used = self.tables.cost.highest(self.starts)
        if used != self.used:
            self.used = used
            self.ceilings = self._ceilings()
            self._highest = {bank: max(c[bank] for c in self.ceilings) for bank in used}
            self._below.clear()

    def _ceilings(self) -> tuple[Ceiling, ...]:
        used, cells = self.used, self.tables.cells
        lost = self.tables.cost.lost_waves
        total = self.cost.registers
        top = sum(cells.stop[bank] - cells.base[bank] for bank in used) // cells.halves
        while total < top and lost(total + 1) == self.cost.lost_waves:
            total += 1
        if not self.tables.problem.occupancy.unified or not used["agpr"]:
            return (dict.fromkeys(used, total),)
        vgprs = max(used["vgpr"], (total - used["agpr"]) // 4 * 4)
        agprs = max(used["agpr"], total - align_up(used["vgpr"], 4))
        return ({**used, "vgpr": vgprs}, {**used, "agpr": agprs})

    def _put(self, number: int, start: int, before: dict[int, int], queue: list[int], pinned: set[int]) -> bool:
        item = self.tables.singles[number]
        if item in self.packing.placed:
            before.setdefault(number, self.packing.remove(item))
        if any(self.tables.fixed[start + offset] & mask for offset, mask in item.cells):
            return False
        for conflicting in self.packing.conflicts(item, start):
            ejected = conflicting.members[0][0]
            if ejected in pinned:
                return False
            before.setdefault(ejected, self.packing.remove(conflicting))
            queue.append(ejected)
        self.packing.place(item, start)
        self.starts[number] = start
        return True

    def _room(self, number: int) -> int:
        item = self.tables.singles[number]
        placed = [s if i in self.packing.placed else -1 for i, s in zip(self.tables.singles, self.starts, strict=True)]
        for start in self.tables.hints.starts(item, placed):
            if self.tables.candidates.allows(number, start) and self.packing.fits(item, start):
                return start
        return self.packing.first_fit(item, self.candidates(item))

    def candidates(self, item: Item) -> Candidates:
        """Where a range may start without a wave lost for it alone."""
        every = self.tables.candidates.of(item)
        key = (every, item.reach)
        candidates = self._below.get(key)
        if candidates is None:
            candidates = self._below[key] = below(every, self.tables.cells, self._highest, item.reach)
        return candidates

    def _undo(self, before: dict[int, int]) -> None:
        for number in before:
            item = self.tables.singles[number]
            if item in self.packing.placed:
                self.packing.remove(item)
        for number, start in before.items():
            self.packing.place(self.tables.singles[number], start)
            self.starts[number] = start
