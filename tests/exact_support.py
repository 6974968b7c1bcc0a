"""Shared by the tests of exact allocation and of the improver: small problems and their best answers by enumeration."""

from __future__ import annotations

import random
from collections.abc import Iterator

from builders import live, problem
from msgspec.structs import replace

from verilocc_mlir.allocators.cost import Cost
from verilocc_mlir.allocators.tables import Tables
from verilocc_mlir.problem.model import Affinity, AllocationProblem, BankBudget, LiveRange, Segment


def small_problem(seed: int) -> AllocationProblem:
    """A random problem of a few ranges, small enough to enumerate: tuples, alignment, holes, banks, copies."""
    rng = random.Random(seed)
    banks = rng.choice(((("vgpr",),), (("vgpr",), ("agpr", "vgpr"), ("agpr",))))
    ranges: list[LiveRange] = []
    for number in range(rng.randrange(3, 6)):
        width = rng.choice((1, 1, 2, 2, 3))
        align = rng.choice((1, 2)) if width > 1 else 1
        ranges.append(
            live(number, *_segments(rng), width=width, align=align, banks=rng.choice(banks), register_class="test")
        )
    affinities = tuple(
        Affinity(a.id, 0, b.id, 0, 2, float(rng.choice((1, 10))), 0)
        for a in ranges
        for b in ranges
        if a.id < b.id and rng.random() < 0.4
    )
    files = sorted({bank for r in ranges for bank in r.banks})
    budgets = tuple(BankBudget(file, tuple(range(6)), (5,)) for file in files)
    return replace(problem(*ranges), affinities=affinities, budgets=budgets)


def _segments(rng: random.Random) -> tuple[Segment, ...]:
    cuts = sorted(rng.sample(range(12), 2 * rng.choice((1, 1, 2))))
    return tuple((cuts[k], cuts[k + 1]) for k in range(0, len(cuts), 2))


def placements(tables: Tables) -> Iterator[list[int]]:
    """Every placement without overlap, by backtracking."""
    count = len(tables.singles)
    starts = [-1] * count
    occupied = list(tables.fixed)

    def place(number: int) -> Iterator[list[int]]:
        if number == count:
            yield list(starts)
            return
        cells = tables.singles[number].cells
        for start in tables.candidates.by_range[number]:
            if any(occupied[start + offset] & mask for offset, mask in cells):
                continue
            for offset, mask in cells:
                occupied[start + offset] |= mask
            starts[number] = start
            yield from place(number + 1)
            for offset, mask in cells:
                occupied[start + offset] &= ~mask

    return place(0)


def best(question: AllocationProblem) -> tuple[int, float, Cost] | None:
    """Fewest registers, fewest copies in so many, and the least cost, over all placements; None if there is none."""
    tables = Tables(question)
    costs = [tables.cost.of(starts) for starts in placements(tables)]
    if not costs:
        return None
    registers = min(c.registers for c in costs)
    return registers, min(c.saves_and_copies for c in costs if c.registers == registers), min(costs)
