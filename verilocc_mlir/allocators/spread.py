"""The last step of an allocation: registers that no wave needs are used to put off reuse.

First fit reuses the lowest registers at once. Here each value moves to the register that has been free longest and
stays free longest (``reuse.py``), those in the innermost loops first. It gives nothing away for that:

* No register above those that lose no wave, and no file exchanged for another.
* Copies that are gone stay gone, and so do the machine's preferences that are met: joined ranges move as one.
* No further callee-saved register, and no further register in functions that are called: what calls them pays for both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from verilocc_mlir.allocators.bounds import Ceiling
from verilocc_mlir.allocators.cost import CellRelation
from verilocc_mlir.allocators.items import Candidates, Item, join_items
from verilocc_mlir.allocators.packing import Packing
from verilocc_mlir.allocators.tables import Reuse, Tables
from verilocc_mlir.errors import InputError
from verilocc_mlir.problem.model import CALL_CLOBBERS, AllocationProblem, Proposal

_GROUP = 256
"""On gfx1250, registers above these need another instruction to name them (S_SET_VGPR_MSB)."""


def spread_proposal(problem: AllocationProblem, proposal: Proposal) -> Proposal:
    """The proposal with its registers spread; as it is where they are not, or where it is no placement."""
    if not is_spread(problem):
        return proposal
    tables = Tables(problem)
    try:
        return tables.proposal(spread(tables, tables.starts(proposal)), proposal.allocator)
    except InputError:
        return proposal


def spread(tables: Tables, starts: Sequence[int]) -> list[int]:
    """First cells of all ranges, from a complete placement.

    Raises:
        InputError: two values are in one place at a time.
    """
    return _Spread(tables, starts).run()


def is_spread(problem: AllocationProblem) -> bool:
    """Whether registers of its phase are spread. With scalar registers too, cycles were the same."""
    return problem.phase == "vgpr"


def may_grow(problem: AllocationProblem) -> bool:
    """Whether the function alone decides how many registers its wave takes: no callee, and none that calls."""
    return not any(budget.expensive for budget in problem.budgets) and not any(
        fixed.reason.startswith(CALL_CLOBBERS) for fixed in problem.fixed
    )


def most_registers(tables: Tables, starts: Sequence[int]) -> Ceiling:
    """The registers of each file that can be used without a wave lost."""
    cost, problem = tables.cost, tables.problem
    used = cost.highest(starts)
    if not may_grow(problem):
        return used
    top = {budget.bank: max(budget.registers, default=-1) + 1 for budget in problem.budgets}
    total = cost.registers(used)
    lost = cost.lost_waves(total)
    while total < sum(top.values()) and cost.lost_waves(total + 1) == lost:
        total += 1
    if problem.phase == "sgpr":
        return {"sgpr": total}
    # VGPRs are what matrix operands and loads need; AGPRs hold accumulators, which live long.
    agprs = used["agpr"]
    vgprs = (total - agprs) // 4 * 4 if agprs and problem.occupancy.unified else total
    # Cells beyond the last VGPR are those of AGPRs.
    return {"vgpr": max(used["vgpr"], min(vgprs, _GROUP, top["vgpr"])), "agpr": agprs}


class _Spread:
    """A placement whose items move one after the other."""

    def __init__(self, tables: Tables, starts: Sequence[int]) -> None:
        self._tables = tables
        self._starts = list(starts)
        self._reuse = Reuse(tables.problem, tables.timeline)
        self._packing = Packing(tables.fixed)
        self._items = self._joined()
        for item in self._items:
            start = self._start(item)
            if not self._packing.fits(item, start):
                raise InputError("two values are in one place at a time", where="placement")
            self._packing.place(item, start)
        cells = tables.cells
        self._limits = {
            bank: cells.base[bank] + registers * cells.halves
            for bank, registers in most_registers(tables, starts).items()
        }
        self._unsaved = cells.expensive.difference(
            *(range(start, start + item.reach) for item, start in zip(tables.singles, starts, strict=True))
        )
        self._preferences: dict[int, list[tuple[tuple[CellRelation, ...], float]]] = {}
        for preference in tables.cost.preferences:
            for number in {n for relation in preference[0] for n in (relation.a, relation.b)}:
                self._preferences.setdefault(number, []).append(preference)
        self._candidates: dict[tuple[Candidates, int, str, int], list[int]] = {}

    def run(self) -> list[int]:
        reuse, fixed = self._reuse, self._fixed()
        movable = [item for item in self._items if item.cells and fixed.isdisjoint(m for m, _ in item.members)]
        for item in sorted(movable, key=lambda item: (-reuse.executions(item), item.start, item.members[0][0])):
            self._move(item)
        return self._starts

    def _move(self, item: Item) -> None:
        """Put an item where its registers are reused least."""
        here = self._start(item)
        bank, _ = self._tables.cells.register_of(here)
        if not self._tables.cells.base[bank] <= here < self._limits.get(bank, 0):
            return
        reuse, occupied = self._reuse, self._packing.occupied
        windows = reuse.windows(item)
        self._packing.remove(item)
        best, least = here, reuse.price(windows, here, occupied, math.inf)
        met = self._met(item, here) if least else 0.0
        for start in self._packing.fitting(item, self._where(item, bank, here)) if least else ():
            price = reuse.price(windows, start, occupied, least)
            if price < least and self._met(item, start) >= met:
                best, least = start, price
                if not price:
                    break
        self._packing.place(item, best)
        for member, offset in item.members:
            self._starts[member] = best + offset

    def _where(self, item: Item, bank: str, here: int) -> list[int]:
        """Cells of the same file at which the item may start."""
        cells = self._tables.cells
        every = self._tables.candidates.of(item)
        # Halves of registers keep to the low or to the high one.
        key = every, item.reach, bank, here % cells.halves
        starts = self._candidates.get(key)
        if starts is None:
            lowest = cells.base[bank] - min(offset for _, offset in item.members)
            highest = self._limits[bank] - item.reach
            starts = self._candidates[key] = [
                start
                for start in every
                if lowest <= start <= highest
                and (start - here) % cells.halves == 0
                and self._unsaved.isdisjoint(range(start, start + item.reach))
            ]
        return starts

    def _met(self, item: Item, start: int) -> float:
        """The weight of the preferences of the item that are met when it is at ``start``."""
        if not self._preferences:
            return 0.0
        at = {member: start + offset for member, offset in item.members}
        starts = self._starts
        return sum(
            weight
            for member in at
            for relations, weight in self._preferences.get(member, ())
            if all(r.holds(at.get(r.a, starts[r.a]), at.get(r.b, starts[r.b])) for r in relations)
        )

    def _start(self, item: Item) -> int:
        member, offset = item.members[0]
        return self._starts[member] - offset

    def _fixed(self) -> set[int]:
        """Ranges that stay: those at the register of a copy or a hint, and those that copies fill.

        Where copies write the same value to several registers, LLVM drops those that change nothing.
        """
        cost, cells, starts = self._tables.cost, self._tables.cells, self._starts
        fixed = {a for a, goal, _ in cost.fixed if starts[a] == goal}
        for r in self._tables.problem.ranges:
            if any(p.family == "copy" and p.kind != "use" for p in r.points):
                fixed.add(r.id)
            if r.hint and starts[r.id] in cells.cells_of(r.hint)[:1]:
                fixed.add(r.id)
        return fixed

    def _joined(self) -> list[Item]:
        """Items in which those are one whose copy or chain of matrix operations is met."""
        cost, starts = self._tables.cost, self._starts
        item_of = list(self._tables.singles)
        links = [(a, b) for a, b, distance, _ in cost.pairs if a != b and starts[b] - starts[a] == distance]
        links += [(r.a, r.b) for (r, *_), _ in cost.preferences if not r.modulus and r.holds(starts[r.a], starts[r.b])]
        for a, b in links:
            first, second = item_of[a], item_of[b]
            if first is second:
                continue
            joined = join_items(first, second, self._start(second) - self._start(first))
            if joined is not None:
                for member, _ in joined.members:
                    item_of[member] = joined
        return list(dict.fromkeys(item_of))
