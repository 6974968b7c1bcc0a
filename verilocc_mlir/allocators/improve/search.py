"""The loop: rounds of local moves and of neighbourhoods, until the time or the steps are used up."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from verilocc_mlir.allocators.bounds import Ceiling
from verilocc_mlir.allocators.cost import Cost
from verilocc_mlir.allocators.exact.copies import Objective
from verilocc_mlir.allocators.exact.layout import Layout
from verilocc_mlir.allocators.exact.model import PackingModel
from verilocc_mlir.allocators.exact.solver import Budget, available
from verilocc_mlir.allocators.improve.moves import Wish, local_moves, unmet, wishes
from verilocc_mlir.allocators.improve.state import State
from verilocc_mlir.allocators.protocol import Allocator, Patient
from verilocc_mlir.allocators.spread import spread_proposal
from verilocc_mlir.allocators.tables import Tables
from verilocc_mlir.problem.model import AllocationProblem, Proposal

MOVES = 20
"""Local moves in one step."""

VERSION = "1"


@dataclass(frozen=True)
class Improved:
    """The result of an improvement.

    Attributes:
        proposal: the better placement; the one given where none was found.
        cost_before, cost_after: ``cost_after`` is never greater.
        steps: rounds made.
    """

    proposal: Proposal
    cost_before: Cost
    cost_after: Cost
    steps: int


def improve(
    problem: AllocationProblem,
    proposal: Proposal,
    seconds: float,
    seed: int = 0,
    *,
    steps: int | None = None,
    solver: bool | None = None,
    progress: Callable[[int, Cost], bool | None] | None = None,
) -> Improved:
    """A placement that costs no more, by ``CostModel``: lost waves, copies and saves, registers.

    Args:
        seconds: wall time at most. Where it does not cut the search off, equal arguments give equal answers.
        seed: of all random choices.
        steps: rounds at most; None: as many as the time allows.
        solver: whether to use OR-Tools; None: if it is installed.
        progress: called after each step with the number of steps and the cost; returns True to stop there.

    Raises:
        InputError: the proposal is no placement of this problem.
        UnsupportedError: ``solver`` is True and OR-Tools is not installed.
    """
    until = time.monotonic() + seconds
    tables = Tables(problem)
    state = State(tables, tables.starts(proposal))
    before = state.cost
    every = wishes(state)
    rng = random.Random(seed)
    regions = None
    if solver or (solver is None and available()):
        # Loaded only where it is used: it needs an extra.

        regions = Regions(state, seed)
    done_steps = 0
    while (steps is None or done_steps < steps) and (seconds_left := until - time.monotonic()) > 0 and problem.ranges:
        if regions is not None and done_steps % 2:
            regions.step(every, rng, seconds_left)
        else:
            local_moves(state, every, rng, MOVES)
        done_steps += 1
        if progress is not None and progress(done_steps, state.cost):
            break
    if state.cost == before:
        return Improved(proposal, before, before, done_steps)
    return Improved(
        tables.proposal(state.starts, f"{proposal.allocator}+improve/{VERSION}"), before, state.cost, done_steps
    )


# Large neighbourhoods: the ranges around one place of the program are placed anew, all others stay.


SIZES = (12, 24, 48)
"""Ranges placed anew at once, smaller ones tried as often as larger ones."""

WORK = 0.5
"""CP-SAT's deterministic time for one neighbourhood."""


class Regions:
    """Neighbourhoods of one problem."""

    def __init__(self, state: State, seed: int) -> None:
        self._state = state
        self._seed = seed
        self._layout = Layout(state.tables)
        self._spans = [item.live for item in state.tables.singles]

    def step(self, every: list[Wish], rng: random.Random, seconds: float) -> bool:
        """Solve one neighbourhood, around a copy that is left or around the highest register; whether the cost fell."""
        state = self._state
        unmet_wishes = unmet(state, every)
        lowering = not unmet_wishes or rng.random() < 0.25
        ceiling = self._lowered(rng) if lowering else rng.choice(state.ceilings)
        if ceiling is None:
            return False
        movable = self._around(unmet_wishes, ceiling, rng, rng.choice(SIZES), lowering)
        model = PackingModel(self._layout, ceiling=ceiling, movable=movable, starts=state.starts)
        Objective(model, state.starts).minimize()
        if model.possible and not lowering:
            model.hint(state.starts)
        answer = model.ask(Budget(WORK, seconds, self._seed), WORK)
        if not answer.has_solution:
            return False
        before = state.cost
        return state.adopt(model.starts(answer, state.starts)) and state.cost < before

    def _lowered(self, rng: random.Random) -> Ceiling | None:
        """One file a little lower than now."""
        used = [bank for bank, registers in self._state.used.items() if registers > 1]
        if not used:
            return None
        bank = rng.choice(used)
        registers = self._state.used[bank]
        return {**self._state.used, bank: registers - rng.choice((1, 1, 2, min(4, registers - 1)))}

    def _around(
        self, unmet_wishes: list[Wish], ceiling: Ceiling, rng: random.Random, size: int, lowering: bool
    ) -> frozenset[int]:
        state = self._state
        if lowering:
            cells = state.tables.cells
            first = [
                number
                for number, (item, start) in enumerate(zip(state.tables.singles, state.starts, strict=True))
                if start < cells.stop["sgpr"]
                and (where := cells.register_of(start + item.reach - 1))[1] >= ceiling[where[0]]
            ]
        else:
            wish = rng.choices(unmet_wishes, [w.weight for w in unmet_wishes])[0]
            first = [n for n in (wish.a, wish.b) if n >= 0]
        when = 0
        for number in first:
            when |= self._spans[number]
        concurrent = [n for n, span in enumerate(self._spans) if span & when and n not in first]
        # Only ranges live at the same time matter. Each step chooses others among them.
        return frozenset(first) | frozenset(rng.sample(concurrent, min(size, len(concurrent))))


# An allocator that improves the answers of another one before they are proved.


STEPS = 60
"""Most rounds of improvement. Where these end it before the time does, equal problems get equal answers."""


class Improving:
    """``inner``, then ``improve`` by local moves; then registers are spread over what loses no wave (``spread.py``).

    Args:
        inner: finds the first placement.
        seconds: most wall time for the improvement of one problem.
        packed: leave out the last step.
    """

    def __init__(self, inner: Allocator, seconds: float, *, packed: bool = False) -> None:
        self._inner = inner
        self._seconds = seconds
        self._packed = packed
        self.name = f"{inner.name}+improve"
        self.version = f"{inner.version}+{VERSION}"

    def hurried(self) -> Improving:
        """The same allocator, which gives up sooner where ``inner`` does."""
        inner = self._inner.hurried() if isinstance(self._inner, Patient) else self._inner
        return Improving(inner, self._seconds, packed=self._packed)

    def allocate(self, problem: AllocationProblem) -> Proposal:
        """Answer ``problem``.

        Raises:
            AllocationFailure: as ``inner`` does.
        """
        proposal = self._inner.allocate(problem)
        # Without OR-Tools, so that the answer is the same where it is not installed.
        improved = improve(problem, proposal, self._seconds, steps=STEPS, solver=False).proposal
        return improved if self._packed else spread_proposal(problem, improved)
