"""The exact allocator: the fewest registers, then the fewest copies, each with a proved bound."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from msgspec import Struct, structs

from verilocc_mlir.allocators.cost import Cost
from verilocc_mlir.allocators.deterministic import DeterministicAllocator
from verilocc_mlir.allocators.exact.bound import PackingModel, counted_bound, shared_bound
from verilocc_mlir.allocators.exact.copies import Cheapest, fewest_copies, no_dearer
from verilocc_mlir.allocators.exact.frame import Budget, Layout, load
from verilocc_mlir.allocators.protocol import AllocationFailure
from verilocc_mlir.allocators.spread import spread_proposal
from verilocc_mlir.allocators.tables import Tables
from verilocc_mlir.problem.model import AllocationProblem, Proposal

Order = Literal["registers", "waves"]
"""What comes first: the fewest registers, or the fewest lost waves. With waves first, saving a register costs no copy
unless it wins a wave."""

_COPIES_PART = 0.25
"""Part of the budget that the search for registers leaves for copies."""

_NARROWING_PART = 0.2
"""Part of what is left for the search for fewer registers at no cost in copies."""
_NARROWING_STEPS = 4
"""Calls of the solver in that search."""


class ExactResult(Struct, frozen=True):
    """A placement and what is proved about it.

    Attributes:
        registers: register count; with a unified file, AGPRs after aligned VGPRs.
        registers_bound: no placement has fewer registers.
        copies: ``Cost.saves_and_copies`` of the placement.
        copies_bound: no placement in as many registers, or as many waves (``Order``), costs less.
        seconds: wall time of the search.
    """

    proposal: Proposal
    cost: Cost
    registers: int
    registers_bound: int
    copies: float
    copies_bound: float
    seconds: float

    @property
    def registers_optimal(self) -> bool:
        """Whether no placement has fewer registers."""
        return self.registers_bound >= self.registers

    @property
    def copies_optimal(self) -> bool:
        """Whether the copies are the least there can be in this many registers or waves."""
        return self.copies_bound >= self.copies


class ExactAllocator:
    """CP-SAT over the whole problem, warm-started by the deterministic allocator.

    Args:
        time_limit_s: most wall time, and most units of CP-SAT's deterministic time. Where the latter ends the search
            first, the answer is the same on every run and machine.
        order: see ``Order``. With ``"waves"`` the register bound is still the bound on registers.
        progress: called with a line of text after each step.
        hurried: give up at once where the deterministic allocator, hurried too, finds no place.

    Raises:
        UnsupportedError: OR-Tools is not installed.
    """

    name = "exact"
    version = "2"

    def __init__(
        self,
        time_limit_s: float,
        *,
        order: Order = "registers",
        progress: Progress | None = None,
        hurried: bool = False,
    ) -> None:
        load()
        self.time_limit_s = time_limit_s
        self.order: Order = order
        self.progress = progress
        self._hurried = hurried

    def hurried(self) -> ExactAllocator:
        """The same allocator, which gives up sooner, for a caller that can spill and ask again."""
        return ExactAllocator(self.time_limit_s, order=self.order, progress=self.progress, hurried=True)

    def allocate(self, problem: AllocationProblem) -> Proposal:
        """The best placement found in the time. Where waves come first, its registers are spread (``spread.py``).

        Raises:
            AllocationFailure: as for ``solve``.
        """
        proposal = self.solve(problem).proposal
        return spread_proposal(problem, proposal) if self.order == "waves" else proposal

    def solve(self, problem: AllocationProblem) -> ExactResult:
        """The best placement found in the time, with its bounds.

        Raises:
            AllocationFailure: ``reason`` is ``"pressure"`` (more registers are needed at one point than there are),
                ``"infeasible"`` (proved: each point fits, and yet there is no placement without spilling or splitting)
                or ``"fragmentation"`` (none was found in the time, and none was ruled out).
        """
        began = time.monotonic()
        tables = Tables(problem)
        layout = Layout(tables)
        starts = _warm_start(problem, tables, self._hurried)
        budget = Budget(self.time_limit_s, self.time_limit_s)
        fewest = self._registers(layout, starts, budget)
        if fewest.starts is None:
            raise _failure(problem, fewest, layout.top)
        if self.order == "registers":
            cheapest = fewest_copies(layout, fewest.registers, fewest.starts, budget)
        else:
            cheapest = _fewest_copies_in_as_many_waves(layout, starts, fewest, budget)
        cost = tables.cost.of(cheapest.starts)
        return ExactResult(
            proposal=tables.proposal(cheapest.starts, f"{self.name}/{self.version}"),
            cost=cost,
            registers=cost.registers,
            registers_bound=fewest.bound,
            copies=cheapest.copies,
            copies_bound=cheapest.bound,
            seconds=time.monotonic() - began,
        )

    def _registers(self, layout: Layout, starts: list[int] | None, budget: Budget) -> Fewest:
        """The fewest registers, found with a part of the budget."""
        part = replace(budget, work=budget.work * (1 - _COPIES_PART), seconds=budget.seconds * (1 - _COPIES_PART))
        before = part.work
        lost_waves = layout.tables.cost.lost_waves
        fewest = fewest_registers(
            layout,
            starts,
            part,
            enough=operator.ge
            if self.order == "registers"
            else lambda bound, registers: lost_waves(bound) >= lost_waves(registers),
            progress=self.progress,
        )
        budget.work -= before - part.work
        return fewest


def _fewest_copies_in_as_many_waves(
    layout: Layout, known_starts: list[int] | None, fewest: Fewest, budget: Budget
) -> Cheapest:
    """The fewest copies in all the registers that lose no further wave; then the fewest registers at that cost."""
    cost = layout.tables.cost
    lost = cost.lost_waves(fewest.registers)
    total = fewest.registers
    while total < layout.top and cost.lost_waves(total + 1) == lost:
        total += 1
    starts = fewest.starts or []
    if known_starts is not None and cost.of(known_starts) < cost.of(starts):
        starts = known_starts
    cheapest = fewest_copies(layout, total, starts, replace(budget, work=budget.work * (1 - _NARROWING_PART)))
    low, high = fewest.bound, cost.of(cheapest.starts).registers
    for _ in range(_NARROWING_STEPS):
        if low >= high or budget.spent:
            break
        middle = (low + high) // 2
        work = budget.work * _NARROWING_PART / _NARROWING_STEPS
        fewer = no_dearer(layout, middle, cheapest.copies, cheapest.starts, budget, work)
        if fewer:
            high = cost.of(fewer).registers
            cheapest = structs.replace(cheapest, starts=fewer)
        else:
            low = middle + 1
    return cheapest


def _warm_start(problem: AllocationProblem, tables: Tables, hurried: bool) -> list[int] | None:
    first = DeterministicAllocator(packed=True)
    try:
        return tables.starts((first.hurried() if hurried else first).allocate(problem))
    except AllocationFailure as failure:
        if failure.reason == "pressure" or hurried:
            raise
        return None


def _failure(problem: AllocationProblem, fewest: Fewest, top: int) -> AllocationFailure:
    proved = fewest.bound > top
    return AllocationFailure(
        "proved: each point fits the registers, and yet there is no placement"
        if proved
        else "no placement found in the time, and none ruled out",
        reason="infeasible" if proved else "fragmentation",
        where=f"function {problem.function}",
        hint="spill or split a live range" if proved else "allow more time, or spill or split a live range",
    )


# The fewest registers: bounds from below by counting and refuted totals, from above by placements found.


Progress = Callable[[str], None]

_FIRST_SLICE = 2.0
"""Work spent on a total before the next total is tried."""

_SLACKS = (4, 24)
"""Instants within so many cells of a total are tried alone first: if they do not fit, nothing does."""

_RELAXED_PART = 0.3
"""Of a slice, for each relaxation."""


class Fewest(Struct, frozen=True):
    """What is known of the register count.

    Attributes:
        starts: the best placement; None if none was found.
        registers: its count.
        bound: no placement has fewer registers.
    """

    starts: list[int] | None
    registers: int
    bound: int


def fewest_registers(
    layout: Layout,
    starts: list[int] | None,
    budget: Budget,
    *,
    enough: Callable[[int, int], bool] = operator.ge,
    progress: Progress | None = None,
) -> Fewest:
    """Close in on the fewest registers.

    Args:
        starts: a placement to begin with; None if there is none yet.
        enough: whether to stop, given the bound and the count of a placement.
    """
    bound = counted_bound(layout)
    # One more register than the file has stands for "no placement".
    registers = layout.tables.cost.of(starts).registers if starts is not None else layout.top + 1
    if bound >= registers or (starts is not None and enough(bound, registers)):
        return Fewest(starts, registers, bound)
    if layout.unified:
        bound = max(bound, shared_bound(layout, budget, _FIRST_SLICE))
    unknown: set[int] = set()
    share = _FIRST_SLICE
    while bound < registers and not (starts is not None and enough(bound, registers)) and not budget.spent:
        open_totals = [t for t in range(bound, registers) if t not in unknown]
        if not open_totals:
            # All totals were tried: try them again, longer.
            unknown.clear()
            share *= 3
            continue
        # The whole file as long as there is no placement; else the bound, which is most often the answer; then the
        # middle.
        total = (
            open_totals[-1] if starts is None else bound if bound not in unknown else open_totals[len(open_totals) // 2]
        )
        attempt = _try_total(layout, total, starts, budget, share)
        if isinstance(attempt, list):
            starts, registers = attempt, layout.tables.cost.of(attempt).registers
        elif attempt:
            bound = total + 1
        else:
            unknown.add(total)
        unknown = {t for t in unknown if bound <= t < registers}
        if progress is not None:
            progress(f"{layout.tables.problem.function}: {bound} to {registers} registers")
    return Fewest(starts, registers, bound)


def _try_total(layout: Layout, total: int, starts: list[int] | None, budget: Budget, work: float) -> list[int] | bool:
    """A placement in ``total`` registers; True if it is proved that there is none, False if neither was reached."""
    every = layout.instants.bits
    before = 0
    for slack in _SLACKS:
        some = layout.instants.tightest(total * layout.tables.cells.halves - slack)
        if not before < len(some) < len(every) // 2:
            continue
        before = len(some)
        if PackingModel(layout, total, instants=some).ask(budget, work * _RELAXED_PART).refuted:
            return True
    model = PackingModel(layout, total)
    if starts is not None and model.possible:
        model.hint(starts)
    answer = model.ask(budget, work)
    return model.starts(answer) if answer.has_solution else answer.refuted
