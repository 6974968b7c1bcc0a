"""The allocator that needs no model: first fit in several orders under rising ceilings, repair, then reuse put off.

No clock, no random numbers, no order that depends on hashing: equal problems get equal proposals.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from verilocc_mlir.allocators.bounds import Ceiling, Demand, Room, ceilings, demands, room, splits
from verilocc_mlir.allocators.cost import Cost, align_up
from verilocc_mlir.allocators.items import Item, coalesce
from verilocc_mlir.allocators.protocol import AllocationFailure, Partial
from verilocc_mlir.allocators.search import KnownStarts, Placement, Strategy, by_area, by_start, by_width
from verilocc_mlir.allocators.spread import is_spread, may_grow, spread
from verilocc_mlir.allocators.tables import State, Tables
from verilocc_mlir.budget import check_seconds
from verilocc_mlir.problem.model import AllocationProblem, Proposal

STRATEGIES = (
    Strategy(by_start, coalesced=True),
    Strategy(by_area, coalesced=True),
    Strategy(by_start, coalesced=False),
    Strategy(by_width, coalesced=False),
    Strategy(by_area, coalesced=False),
    Strategy(by_width, coalesced=False, narrow_down=True),
    Strategy(by_width, coalesced=True, narrow_down=True, snug=True),
    Strategy(by_width, coalesced=False, narrow_down=True, snug=True),
)
"""Tried in this order under each ceiling."""

REPAIR_STEPS = 400
"""Evictions allowed under a ceiling that wins a wave."""

LAST_REPAIR_STEPS = 1500
"""Evictions allowed under the last ceiling, past which the allocator gives up."""

OTHER_REPAIR_STEPS = 400
"""Evictions allowed there for each further placement."""

PATIENCE = 400
"""Evictions in a row that may leave no less room missing. Of 31 repairs of nine kernels that may take 1,500 or 400 in
all, four succeed, after 50, 62, 245 and 385; the last has none that helps before it is done.
"""

OTHER_PATIENCE = 200
"""The same for each further placement."""

HURRIED_REPAIR_STEPS = 40
"""Evictions allowed where the caller can spill and ask again. Of 321 such repairs of 33 kernels, seven succeed, all
within 35 (docs/results/negative.md).
"""

MOST_WISHES = 400
"""Copies that are left at calls, for each of which a move is tried; with more of them, none is."""


class DeterministicAllocator:
    """First fit, then repair, then arguments of calls to their registers; then registers are spread over what loses no
    wave (``spread.py``).

    Args:
        repair_steps: evictions allowed under a ceiling; None: ``REPAIR_STEPS``, ``LAST_REPAIR_STEPS`` under the last.
        packed: leave out the last step: few registers, for another search to start from.
    """

    name = "deterministic"
    version = "5"

    def __init__(self, repair_steps: int | None = None, *, packed: bool = False) -> None:
        self._repair_steps = repair_steps
        self._packed = packed

    def hurried(self) -> DeterministicAllocator:
        """The same allocator, which gives up sooner."""
        return DeterministicAllocator(HURRIED_REPAIR_STEPS, packed=self._packed)

    def packing(self) -> DeterministicAllocator:
        """The same allocator, which takes the fewest registers."""
        return DeterministicAllocator(self._repair_steps, packed=True)

    def allocate(self, problem: AllocationProblem) -> Proposal:
        """Place every live range, or say why not.

        Raises:
            AllocationFailure: the pressure exceeds a file, or no place was found for a tuple.
        """
        search = _Search(problem)
        spreading = not self._packed and is_spread(problem)
        # Where registers are spread, those that no wave needs are no gain.
        starts = search.solve(self._repair_steps, tighten=not (spreading and may_grow(problem)))
        if problem.phase == "vgpr" and not may_grow(problem):
            starts = nearer_to_calls(search, starts)
        if spreading:
            starts = spread(search, starts)
        return search.proposal(starts, f"{self.name}/{self.version}")


class _Answer(Struct, frozen=True):
    """A complete placement: its cost, and the first cell of every range."""

    cost: Cost
    starts: list[int]


class _Search(Tables):
    """The walk over ceilings and strategies."""

    def __init__(self, problem: AllocationProblem) -> None:
        super().__init__(problem)
        self.joined: list[Item] = coalesce(problem, self.singles, self.candidates, self.cells)
        """Items in which ranges are joined that a copy or a chain of matrix operations connects."""

    def _strategies(self) -> Iterable[Strategy]:
        """Where nothing is joined, those that differ in that alone do the same."""
        if len(self.joined) < len(self.singles):
            return STRATEGIES
        return dict.fromkeys(replace(strategy, coalesced=False) for strategy in STRATEGIES)

    def solve(self, repair_steps: int | None, *, tighten: bool) -> list[int]:
        """First cell of every range.

        Args:
            tighten: look for fewer registers that win no wave.

        Raises:
            AllocationFailure: as for ``allocate``.
        """
        all_demands = demands(self.problem, self.timeline, self.cells, self.singles, self.fixed)
        for demand in all_demands:
            if demand.registers > demand.available:
                raise self._pressure(demand)
        space = room(self.problem, all_demands)
        tries = ceilings(self.problem, space)
        stuck: Placement | None = None
        hopeless = False
        for number, ceiling in enumerate(tries, 1):
            check_seconds()
            last = number == len(tries)
            if hopeless and not last:
                continue
            best, partial = self._best_of_strategies((ceiling,), every=last)
            if best is not None:
                return (self._tighten(best, space) if tighten else best).starts
            if number == 1 and not last and self.problem.is_large:
                # Each ceiling takes seconds, and those below the last leave less room than that.
                hopeless = self._best_of_strategies(tries[-1:])[0] is None
                if hopeless:
                    continue
            if not partial:
                continue
            closest, *other_placements = partial
            steps = (LAST_REPAIR_STEPS if last else REPAIR_STEPS) if repair_steps is None else repair_steps
            if closest.repair(self.parts, steps, PATIENCE):
                return closest.starts
            stuck = closest
            if last:
                # The alternative is to spill. A repair that succeeds mostly does so early: each gets a few steps.
                for placement in sorted(other_placements, key=lambda p: len(p.waiting)):
                    if placement.repair(self.parts, min(steps, OTHER_REPAIR_STEPS), OTHER_PATIENCE):
                        return placement.starts
                    stuck = min(stuck, placement, key=_area_waiting)
        raise self._fragmented(stuck)

    def _best_of_strategies(
        self, under: Iterable[Ceiling], *, every: bool = False
    ) -> tuple[_Answer | None, list[Placement]]:
        """The cheapest complete placement under any of the ceilings, and the incomplete one that lacks the least area.

        Args:
            every: where none is complete, return all different incomplete ones, ordered by the area that is missing.
        """
        best: _Answer | None = None
        partial: list[tuple[int, Placement]] = []
        for ceiling in under:
            known: KnownStarts = {}
            for strategy in self._strategies():
                items = self.joined if strategy.coalesced else self.singles
                placement = Placement(items, self.fixed, self.candidates, self.hints, self.cells, ceiling, known)
                enough = 0 if best is not None else partial[0][0] if partial and not every else None
                missing = placement.run(strategy, enough)
                if not placement.waiting:
                    # No order of placing looks for pairs. Counting them here would trade copies for chance.
                    answer = _Answer(self.cost.of(placement.starts, pairs=False), placement.starts)
                    if best is None or answer.cost < best.cost:
                        best = answer
                elif enough is None or missing < enough:
                    if not every:
                        partial = [(missing, placement)]
                    elif all(placement.starts != other.starts for _, other in partial):
                        partial.append((missing, placement))
        return best, [placement for _, placement in sorted(partial, key=lambda entry: entry[0])]

    def _tighten(self, best: _Answer, where: Room) -> _Answer:
        """Fewer granules of vector registers at no cost in copies, by bisection, without repair.

        This wins no wave of this kernel, but leaves room for other kernels beside it.
        """
        if self.problem.phase == "sgpr":
            return best
        granule = self.problem.occupancy.granule
        low, high = align_up(where.least_vectors, granule), align_up(best.cost.registers, granule)
        while low < high:
            total = (low + high) // 2 // granule * granule
            answer, _ = self._best_of_strategies(splits(self.problem, where, total))
            if answer is not None and answer.cost < best.cost:
                best, high = answer, align_up(answer.cost.registers, granule)
            else:
                low = total + granule
        return best

    def _pressure(self, demand: Demand) -> AllocationFailure:
        banks = " and ".join(b.upper() + "s" for b in demand.banks)
        return AllocationFailure(
            f"{demand.registers} {banks} are needed at once, {demand.available} are free there",
            reason="pressure",
            where=f"function {self.problem.function}, slot {demand.slot}",
            hint="this allocator does not spill; another one must",
        )

    def _fragmented(self, closest: Placement | None) -> AllocationFailure:
        problem, partial = "no ceiling fits the demand", None
        if closest is not None:
            who = self.problem.ranges[closest.waiting[-1].members[0][0]]
            problem = f"no place found for {who.name} ({who.register_class})"
            registers = (
                self.cells.name(start, r) if start >= 0 else ""
                for start, r in zip(closest.starts, self.problem.ranges, strict=True)
            )
            partial = Partial(tuple(registers), closest.ceiling)
        return AllocationFailure(
            problem,
            reason="fragmentation",
            where=f"function {self.problem.function}",
            hint="this allocator does not spill; another one must",
            partial=partial,
        )


def nearer_to_calls(tables: Tables, starts: list[int]) -> list[int]:
    """The placement with more ranges in the registers that copies before and behind calls want; nothing gets dearer.

    First fit gives these registers to whatever comes first, such as the addresses of the loads of a call's arguments.
    """
    wishes = sorted(
        (-weight, a, goal)
        for a, goal, weight in tables.cost.fixed
        if weight and starts[a] != goal and tables.candidates.allows(a, goal)
    )
    if not 0 < len(wishes) <= MOST_WISHES:
        return starts
    state = State(tables, starts)
    for _, number, goal in wishes:
        if state.starts[number] != goal:
            state.move([(number, goal)])
    return state.starts


def _area_waiting(placement: Placement) -> int:
    return sum(item.area for item in placement.waiting)
