"""Lower bounds on registers, and the ceilings worth trying."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from msgspec import Struct

from verilocc_mlir.allocators.cells import CellMap, Timeline, add_ones
from verilocc_mlir.allocators.cost import align_up, scalar_waves, vector_waves
from verilocc_mlir.allocators.items import Item
from verilocc_mlir.problem.model import AllocationProblem

Ceiling = dict[str, int]
"""For each file, registers with this number and above are not used."""


class Demand(Struct, frozen=True):
    """Most registers needed at once by ranges that may sit in exactly these ``banks``, or in fewer of them.

    Attributes:
        banks: files.
        registers: 32-bit registers needed at the worst point.
        available: registers of those files that may be used. Where they do not suffice, those are left out that
            something fixed holds at that point.
        slot: the worst point: where most registers are missing, or, if none is missing, where most are needed.
    """

    banks: tuple[str, ...]
    registers: int
    available: int
    slot: int


def demands(
    problem: AllocationProblem, timeline: Timeline, cells: CellMap, singles: list[Item], fixed: list[int]
) -> tuple[Demand, ...]:
    """The demand on each set of files that some range names, and on unions of them (``av_*`` ranges take either)."""
    names = sorted({r.banks for r in problem.ranges if r.groups}, key=lambda b: (len(b), b))
    return tuple(_demand(problem, banks, timeline, cells, singles, fixed) for banks in names)


def _demand(
    problem: AllocationProblem,
    banks: tuple[str, ...],
    timeline: Timeline,
    cells: CellMap,
    singles: list[Item],
    fixed: list[int],
) -> Demand:
    bits = len(timeline.boundaries)
    change = [0] * (bits + 1)
    for live_range in problem.ranges:
        if set(live_range.banks).issubset(banks):
            for _, mask in singles[live_range.id].cells:
                add_ones(change, mask)
    usable = [
        c
        for bank in banks
        if bank in cells.base
        for c in range(cells.base[bank], cells.stop[bank])
        if c in cells.allocatable
    ]
    total = len(usable)
    if "special" in banks:
        specials = {c for start, _, width in cells.specials for c in range(start, start + width * cells.halves)}
        usable += sorted(specials)
        total += len(specials)
    blocked_change = [0] * (bits + 1)
    # Calls block most cells at the same times.
    for mask, times in Counter(fixed[cell] for cell in usable).items():
        add_ones(blocked_change, mask, times)
    most, peak = 0, 0
    worst, over, free_there = 0, -1, total
    live = blocked = 0
    for bit in range(bits):
        live += change[bit]
        blocked += blocked_change[bit]
        if live > most:
            most, peak = live, bit
        if live + blocked - total > worst:
            worst, over, free_there = live + blocked - total, bit, total - blocked
    halves = cells.halves
    if over >= 0:
        return Demand(banks, -(-(worst + free_there) // halves), free_there // halves, timeline.slot(over))
    return Demand(banks, -(-most // halves), total // halves, timeline.slot(peak) if bits else 0)


class Room(Struct, frozen=True):
    """What ceilings are made from.

    Attributes:
        top: one past the highest register of each file that may be used.
        least: registers needed at once, by the set of files they may be in.
    """

    top: Ceiling
    least: dict[tuple[str, ...], int]

    @property
    def least_vectors(self) -> int:
        """Every placement takes at least this many vector registers."""
        return max((n for banks, n in self.least.items() if "sgpr" not in banks), default=0)


def room(problem: AllocationProblem, by_banks: tuple[Demand, ...]) -> Room:
    top = {b.bank: max(b.registers, default=-1) + 1 for b in problem.budgets}
    return Room(top, {d.banks: d.registers for d in by_banks})


def ceilings(problem: AllocationProblem, where: Room) -> tuple[Ceiling, ...]:
    """Ceilings to try, fewest registers first: the largest before each loss of a wave, and last the whole budget."""
    if problem.phase == "sgpr":
        least, budget = where.least.get(("sgpr",), 0), where.top.get("sgpr", 0)
        return tuple({"sgpr": total} for total in _scalar_steps(problem, budget) if total >= least)
    budget = sum(where.top.get(b, 0) for b in ("vgpr", "agpr"))
    result: list[Ceiling] = []
    for total in _vector_steps(problem, budget):
        result += [c for c in splits(problem, where, total) if c not in result]
    return tuple(result)


def _scalar_steps(problem: AllocationProblem, budget: int) -> Iterator[int]:
    """Largest numbers of SGPRs before a wave is lost, ascending, then the whole budget."""
    for count in range(1, budget):
        if scalar_waves(problem, count) > scalar_waves(problem, count + 1):
            yield count
    yield budget


def _vector_steps(problem: AllocationProblem, budget: int) -> Iterator[int]:
    """Largest register counts of each number of waves, ascending, then the whole budget."""
    occupancy = problem.occupancy
    for count in range(occupancy.max_waves, 0, -1):
        total = occupancy.file // count // occupancy.granule * occupancy.granule
        if total >= budget:
            break
        if total and vector_waves(total, occupancy) == count:
            yield total
    yield budget


def splits(problem: AllocationProblem, where: Room, total: int) -> Iterator[Ceiling]:
    """Ways to share ``total`` vector registers between VGPRs and AGPRs that the demand does not rule out."""
    vgprs, agprs = where.top.get("vgpr", 0), where.top.get("agpr", 0)
    need_v, need_a = where.least.get(("vgpr",), 0), where.least.get(("agpr",), 0)
    need_both = max((n for banks, n in where.least.items() if "vgpr" in banks), default=0)
    if not problem.occupancy.unified or not agprs:
        if total >= max(need_v, need_a) and min(total, vgprs) + min(total, agprs) >= need_both:
            yield {"vgpr": min(total, vgprs), "agpr": min(total, agprs)}
        return
    # The fewest AGPRs possible; or just so many that every VGPR can be used; or the fewest VGPRs possible.
    for agpr_count in (need_a, total - vgprs, total - align_up(need_v, 4)):
        a = min(max(agpr_count, need_a), agprs)
        v = min(vgprs, total - a if a == 0 else (total - a) // 4 * 4)
        if v >= need_v and v + a >= need_both:
            yield {"vgpr": v, "agpr": a}
