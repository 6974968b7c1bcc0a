"""The stores and loads that keep one register in memory through a set of its gaps, and their cost."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from verilocc_mlir.analysis.execution import ExecMasks, is_terminator, writes_exec
from verilocc_mlir.mir.model import MachineFunction
from verilocc_mlir.spilling.gaps import Access, Gap, RegisterGaps

Where = Literal["before", "after", "start", "end"]

REMATERIALISED = 0.2
"""Cost of computing a constant anew, against 1 for storing or loading a 32-bit register."""

ACCUMULATED = 0.2
"""Cost of a copy to an accumulator or back, likewise."""


class SpillMove(Struct, frozen=True):
    """A save or a reload of some parts of a register.

    Attributes:
        where: ``before`` or ``after`` instruction ``at``, or at the ``start`` or ``end`` of the block at layout
            position ``at``.
        at: instruction or block.
        parts: mask of 32-bit parts.
        ahead: instructions between a reload and ``at``, so that the load has time.
    """

    where: Where
    at: int
    parts: int
    ahead: int = 0


class SpillPlan(Struct, frozen=True):
    """One register, in memory in ``gaps``.

    Attributes:
        register: the register's accesses and gaps.
        gaps: the gaps in which it is in memory.
        cost: loads and stores of 32-bit registers, weighted by estimated executions.
        accumulators: it waits in AGPRs, not in memory.
    """

    register: RegisterGaps
    gaps: frozenset[Gap]
    saves: tuple[SpillMove, ...]
    reloads: tuple[SpillMove, ...]
    cost: float
    accumulators: bool = False


class Places(Struct, frozen=True):
    """Where code may be inserted, by layout position of a block.

    Attributes:
        first: index of the first instruction of each block, and one more entry with the number of instructions.
        start: instruction before which code at the block's start goes. For vector registers it is the first one after
            those that restore EXEC there (SIInstrInfo::isBasicBlockPrologue).
        end: instruction before which code at its end goes: its first terminator.
    """

    first: tuple[int, ...]
    start: tuple[int, ...]
    end: tuple[int, ...]

    def index(self, move: SpillMove) -> int:
        """Instruction before which a move goes."""
        if move.where == "start":
            return self.start[move.at]
        if move.where == "end":
            return self.end[move.at]
        return move.at - move.ahead + (move.where == "after")

    def mask(self, move: SpillMove, masks: ExecMasks) -> int:
        """EXEC where a move stands."""
        index, block = self.index(move), self.block(move)
        return masks.before[index] if index < self.first[block + 1] else masks.leaving[block]

    def block(self, move: SpillMove) -> int:
        """Layout position of the block in which a move stands."""
        return move.at if move.where in ("start", "end") else bisect_right(self.first, move.at) - 1


def insertion_places(function: MachineFunction, first: tuple[int, ...], *, vectors: bool) -> Places:
    """Places of a function, for vector registers or for scalars."""
    start: list[int] = []
    end: list[int] = []
    for block, begin in zip(function.blocks, first, strict=False):
        at = begin
        while vectors and at - begin < len(block.instructions) and writes_exec(block.instructions[at - begin]):
            at += 1
        start.append(at)
        last = begin + len(block.instructions)
        while last > at and is_terminator(block.instructions[last - 1 - begin]):
            last -= 1
        end.append(last)
    return Places(first, tuple(start), tuple(end))


class Costs(Struct, frozen=True):
    """What the cost of a plan depends on.

    Attributes:
        weight: estimated executions of the block at a layout position.
        masks: EXEC of each instruction; None where it does not matter (scalars).
        places: where code may go.
        constant: mask of the parts of a register that hold a constant.
    """

    weight: Callable[[int], float]
    masks: ExecMasks | None
    places: Places
    constant: Callable[[int], int]


def spill_plan(
    register: RegisterGaps, gaps: frozenset[Gap], costs: Costs, written: Mapping[Gap, Mapping[Access, int]]
) -> SpillPlan | None:
    """The cheapest way known to keep ``register`` out of registers in ``gaps``; None where there is none.

    Args:
        written: ``written_before`` of the register.
    """
    in_order = sorted(gaps, key=lambda gap: gap.number)
    reloads = _reloads(in_order, gaps, costs)
    if reloads is None:
        return None
    constant = costs.constant(register.vreg)
    choices = [_saves_at_writes(gaps, written, constant)]
    at_entry = _saves_at_entries(in_order, gaps, constant)
    if at_entry is not None and _saved_for(at_entry, reloads, costs):
        choices.append(at_entry)
    priced = [(sum(_price(m, costs, 0) for m in saves), saves) for saves in choices]
    price, saves = min(priced, key=lambda p: p[0])
    total = price + sum(_price(m, costs, constant) for m in reloads)
    return SpillPlan(register, gaps, tuple(saves), tuple(reloads), total)


def in_accumulators(plan: SpillPlan, costs: Costs) -> SpillPlan:
    """The same plan with AGPRs in the place of memory."""
    moves = (*plan.saves, *plan.reloads)
    cost = sum(costs.weight(costs.places.block(m)) * ACCUMULATED * m.parts.bit_count() for m in moves)
    return replace(plan, cost=cost, accumulators=True)


def held_in_accumulators(
    plan: SpillPlan, constant: int, predecessors: Sequence[Sequence[int]]
) -> list[tuple[int, int, int]] | None:
    """When parts of a register wait in AGPRs, from each save to the last reload: the first point, one past the last
    (``choose.Excess``), and how many parts. What is saved where it is defined waits in gaps before those of the plan
    too.

    Args:
        constant: mask of the parts that are computed anew.
        predecessors: of each block.

    Returns:
        None where nothing is saved on some way, as behind an ``IMPLICIT_DEF``: the AGPRs then keep what an earlier
        iteration of a loop left in them, all the way there.
    """
    gaps = plan.register.gaps
    accesses = {access.index: access for access in plan.register.accesses}
    starts = {gap.block: gap for gap in gaps if gap.opens is None}
    ends = {gap.block: gap for gap in gaps if gap.closes is None}
    saved_after = {move.at: move.parts for move in plan.saves if move.where == "after"}
    saved_at_start = {move.at: move.parts for move in plan.saves if move.where == "start"}
    work: list[tuple[Gap, int]] = []
    for move in plan.reloads:
        if move.where == "before":
            before = accesses[move.at].before
            assert before is not None
            work.append((before, move.parts & ~constant))
        elif move.where == "end":
            work.append((ends[move.at], move.parts & ~constant))
        else:
            arriving = starts[move.at].predecessors
            if len(arriving) < len(predecessors[move.at]):
                return None
            work += [(gap, move.parts & ~constant) for gap in arriving]
    held: dict[Gap, int] = {}
    passed: set[Gap] = set()
    """Those at whose ends something stays in AGPRs."""
    while work:
        gap, parts = work.pop()
        if not (parts := parts & gap.live & ~held.get(gap, 0)):
            continue
        held[gap] = held.get(gap, 0) | parts
        if gap.opens is None:
            parts &= ~saved_at_start.get(gap.block, 0)
            if not parts:
                continue
            if len(gap.predecessors) < len(predecessors[gap.block]):
                return None
            for predecessor in gap.predecessors:
                if parts & ~predecessor.live:
                    return None
                work.append((predecessor, parts))
        elif parts := parts & ~(saved_after.get(gap.opens.index, 0) & ~gap.opens.keeps):
            before = gap.opens.before
            if before is None or parts & ~before.live:
                return None
            work.append((before, parts))
            passed.add(before)
    # A reload reads them right before its instruction, and another save may stand there before it.
    return [
        (2 * gap.first, 2 * gap.stop + (0 if gap.closes is None else 2 if gap in passed else 1), parts.bit_count())
        for gap, parts in held.items()
    ]


def _price(move: SpillMove, costs: Costs, constant: int) -> float:
    cheap = (move.parts & constant).bit_count()
    return costs.weight(costs.places.block(move)) * (move.parts.bit_count() - cheap + REMATERIALISED * cheap)


def _reloads(in_order: Sequence[Gap], gaps: frozenset[Gap], costs: Costs) -> list[SpillMove] | None:
    reloads: list[SpillMove] = []
    for before in in_order:
        access = before.closes
        if access is None:
            continue
        parts_needed = access.reads
        if access.keeps & before.live and access.after not in gaps:
            # Threads that wait would find in the register what they left in memory.
            return None
        if access.after is not None and access.after not in gaps:
            # The register stays in use after the access, so the parts that the access does not write are needed too.
            parts_needed |= access.after.live & ~access.writes & before.live
        if parts_needed:
            reload = SpillMove("before", access.index, parts_needed & before.live)
            reloads.append(reload)
            after = access.after
            stays = after is not None and after not in gaps and bool(after.live & ~access.writes)
            if after is not None and stays and not _visible(after, reload, gaps, costs):
                return None
    started: set[int] = set()
    for gap in in_order:
        outside = [s for s in gap.successors if s not in gaps]
        if not outside:
            continue
        parts = 0
        for successor in outside:
            parts |= successor.live
        if len(outside) == len(gap.successors):
            boundary_reloads = [SpillMove("end", gap.block, parts & gap.live)]
        elif all(p in gaps for s in outside for p in s.predecessors):
            boundary_reloads = [SpillMove("start", s.block, s.live) for s in outside if s.block not in started]
            started.update(move.at for move in boundary_reloads)
        else:
            return None
        reloads += boundary_reloads
        if not all(_visible(s, move, gaps, costs) for s in outside for move in boundary_reloads):
            return None
    return reloads


def _visible(start: Gap, reload: SpillMove, gaps: frozenset[Gap], costs: Costs) -> bool:
    """Whether the reload fills every thread that is read, wherever the value is read from ``start`` on."""
    masks = costs.masks
    if masks is None:
        return True
    mask = costs.places.mask(reload, masks)
    visited = {start}
    work = [start]
    while work:
        gap = work.pop()
        following = list(gap.successors)
        if gap.closes is not None:
            if gap.closes.reads & gap.live and not masks.covers(mask, masks.before[gap.closes.index]):
                return False
            if gap.closes.after is not None and gap.closes.after.live & ~(gap.closes.writes & ~gap.closes.keeps):
                following.append(gap.closes.after)
        for successor in following:
            if successor not in gaps and successor not in visited:
                visited.add(successor)
                work.append(successor)
    return True


def _saved_for(saves: list[SpillMove], reloads: list[SpillMove], costs: Costs) -> bool:
    """Whether every save stores the threads that every reload needs. A save right after the definition always does."""
    masks, places = costs.masks, costs.places
    return masks is None or all(
        masks.covers(places.mask(s, masks), places.mask(r, masks)) for s in saves for r in reloads
    )


def written_before(register: RegisterGaps) -> dict[Gap, dict[Access, int]]:
    """For each gap, the writes whose values are in the register there, with their parts."""
    written: dict[Gap, dict[Access, int]] = {gap: {} for gap in register.gaps}
    work = list(range(len(register.gaps)))
    waiting = set(work)
    while work:
        # In the order of the layout, so that most gaps are seen once.
        gap = register.gaps[heappop(work)]
        waiting.discard(gap.number)
        arriving = gap.predecessors if gap.opens is None else () if gap.opens.before is None else (gap.opens.before,)
        passing = gap.live if gap.opens is None else gap.live & ~(gap.opens.writes & ~gap.opens.keeps)
        writes: dict[Access, int] = {}
        for before in arriving:
            for access, parts in written[before].items():
                if parts & passing:
                    writes[access] = writes.get(access, 0) | parts & passing
        if gap.opens is not None and gap.opens.writes & gap.live:
            writes[gap.opens] = writes.get(gap.opens, 0) | gap.opens.writes & gap.live
        if writes != written[gap]:
            written[gap] = writes
            after = None if gap.closes is None else gap.closes.after
            for following in (*gap.successors, *(() if after is None else (after,))):
                if following.number not in waiting:
                    waiting.add(following.number)
                    heappush(work, following.number)
    return written


def _saves_at_writes(
    gaps: frozenset[Gap], written: Mapping[Gap, Mapping[Access, int]], constant: int
) -> list[SpillMove]:
    """Stores right after the definitions whose values reach one of the gaps."""
    stores: dict[Access, int] = {}
    for gap in gaps:
        for access, parts in written[gap].items():
            if parts & ~constant:
                stores[access] = stores.get(access, 0) | parts & ~constant
    return _merge_stores(gaps, stores)


def _merge_stores(gaps: frozenset[Gap], stores: dict[Access, int]) -> list[SpillMove]:
    """Merge stores of parts that one block writes in succession, so that instructions are fewer and wider."""
    stores_together: list[SpillMove] = []
    waiting = 0
    for access in sorted(stores, key=lambda access: access.index):
        # Parts wait to be stored with later ones, but not beyond their next write or a gap in memory.
        waiting |= stores[access]
        after = access.after
        following = after.closes if after is not None and after not in gaps and not waiting & ~after.live else None
        later = following is not None and following in stores and not following.writes & waiting
        if waiting and not later:
            stores_together.append(SpillMove("after", access.index, waiting))
            waiting = 0
    return stores_together


def _saves_at_entries(in_order: Sequence[Gap], gaps: frozenset[Gap], constant: int) -> list[SpillMove] | None:
    """Stores at the entries of the gaps; None where a path on which the value is already stored joins an entry."""
    saves: list[SpillMove] = []
    for gap in in_order:
        if gap.opens is None:
            inside = [p in gaps for p in gap.predecessors]
            if all(inside):
                continue
            if any(inside):
                return None
            if gap.live & ~constant:
                saves.append(SpillMove("start", gap.block, gap.live & ~constant))
        else:
            parts = gap.live & ~constant
            if gap.opens.before in gaps:
                parts &= gap.opens.writes
            elif gap.opens.keeps & parts:
                return None
            if parts:
                saves.append(SpillMove("after", gap.opens.index, parts))
    return saves
