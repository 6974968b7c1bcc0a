"""A complete placement that can be changed, and changed back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from verilocc_mlir.allocators.bounds import Ceiling
from verilocc_mlir.allocators.cost import Cost, align_up
from verilocc_mlir.allocators.items import Candidates, Item
from verilocc_mlir.allocators.packing import Packing, below
from verilocc_mlir.allocators.tables import Tables
from verilocc_mlir.errors import InputError

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
