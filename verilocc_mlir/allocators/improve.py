"""Anytime improvement of a placement: local moves, and with OR-Tools exact answers for a part of the program at a time.

The loop does rounds of local moves and of neighbourhoods that CP-SAT solves, until the time or the steps are used up.
The result is never worse than the placement given. An allocator improves every answer of another one so.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from msgspec import Struct

from verilocc_mlir.allocators.bounds import Ceiling
from verilocc_mlir.allocators.cost import Cost
from verilocc_mlir.allocators.exact.bound import PackingModel
from verilocc_mlir.allocators.exact.copies import Objective
from verilocc_mlir.allocators.exact.frame import Budget, Layout, available
from verilocc_mlir.allocators.items import meet
from verilocc_mlir.allocators.protocol import Allocator, Patient
from verilocc_mlir.allocators.spread import spread_proposal
from verilocc_mlir.allocators.tables import State, Tables
from verilocc_mlir.problem.model import AllocationProblem, Proposal

MOVES = 20
"""Local moves in one step."""

VERSION = "1"


class Improved(Struct, frozen=True):
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


# Local moves: join a copy's ends, swap two ranges, shift one, lower what reaches highest.


_WAYS = 3
"""Places tried for each range of a preference."""


class Wish(Struct, frozen=True):
    """A copy, and what makes it vanish: range ``b`` at ``distance`` from ``a``, or, with ``b`` -1, ``a`` at cell
    ``distance``."""

    a: int
    b: int
    distance: int
    weight: float


def wishes(state: State) -> list[Wish]:
    """Every copy that some placement could do without, heaviest first."""
    cost, candidates, singles = state.tables.cost, state.tables.candidates, state.tables.singles
    result = [Wish(a, -1, goal, weight) for a, goal, weight in cost.fixed if candidates.allows(a, goal)]
    result += [
        Wish(a, b, distance, weight)
        for a, b, distance, weight in cost.pairs
        if distance is not None and not meet(singles[a], singles[b], distance)
    ]
    return sorted((w for w in result if w.weight), key=lambda w: (-w.weight, w.a, w.b))


def unmet(state: State, every: list[Wish]) -> list[Wish]:
    """The wishes whose copy is still there."""
    return [w for w in every if state.starts[w.a] != (w.distance if w.b < 0 else state.starts[w.b] - w.distance)]


def local_moves(state: State, every: list[Wish], rng: random.Random, count: int) -> None:
    """Make ``count`` moves; the placement never gets worse."""
    for _ in range(count):
        open_wishes = unmet(state, every)
        which = rng.random()
        if open_wishes and which < 0.4:
            _join(state, rng.choices(open_wishes, [w.weight for w in open_wishes])[0], rng)
        elif which < 0.8 and state.tables.cost.preferences:
            _prefer(state, rng)
        else:
            rng.choice((_swap, _shift, _lower))(state, rng)


def _join(state: State, wish: Wish, rng: random.Random) -> None:
    starts, candidates = state.starts, state.tables.candidates
    if wish.b < 0:
        state.move([(wish.a, wish.distance)])
        return
    ways = [(wish.b, starts[wish.a] + wish.distance), (wish.a, starts[wish.b] - wish.distance)]
    rng.shuffle(ways)
    for number, start in ways:
        if candidates.allows(number, start) and state.move([(number, start)]):
            return
    # Neither end's place will do: put both somewhere else.
    start = rng.choice(candidates.by_range[wish.a])
    if candidates.allows(wish.b, start + wish.distance):
        state.move([(wish.a, start), (wish.b, start + wish.distance)])


def _prefer(state: State, rng: random.Random) -> None:
    """Move one range so that a preference of the machine is met."""
    starts = state.starts
    open_ones = [
        (relations, weight)
        for relations, weight in state.tables.cost.preferences
        if not all(r.holds(starts[r.a], starts[r.b]) for r in relations)
    ]
    if not open_ones:
        return
    relations, _ = rng.choices(open_ones, [weight for _, weight in open_ones])[0]
    numbers = sorted({n for r in relations for n in (r.a, r.b)})
    rng.shuffle(numbers)
    for number in numbers:
        ways = [
            start
            for start in state.candidates(state.tables.singles[number])
            if all(
                r.holds(start if r.a == number else starts[r.a], start if r.b == number else starts[r.b])
                for r in relations
            )
        ]
        for start in rng.sample(ways, min(_WAYS, len(ways))):
            if state.move([(number, start)]):
                return


def _swap(state: State, rng: random.Random) -> None:
    a, b = (rng.randrange(len(state.starts)) for _ in range(2))
    candidates = state.tables.candidates
    if a != b and candidates.allows(a, state.starts[b]) and candidates.allows(b, state.starts[a]):
        state.move([(a, state.starts[b]), (b, state.starts[a])])


def _shift(state: State, rng: random.Random) -> None:
    number = rng.randrange(len(state.starts))
    candidates = state.candidates(state.tables.singles[number])
    if candidates:
        state.move([(number, rng.choice(candidates))])


def _lower(state: State, rng: random.Random) -> None:
    """Move one of the ranges that reach the top of a file to any lower place."""
    cells = state.tables.cells
    tops = {
        cells.base[bank] + registers * cells.halves: cells.base[bank]
        for bank, registers in state.used.items()
        if registers
    }
    highest = [
        (number, start, tops[start + item.reach])
        for number, (item, start) in enumerate(zip(state.tables.singles, state.starts, strict=True))
        if start + item.reach in tops
    ]
    if highest:
        number, start, base = rng.choice(highest)
        lower = [c for c in state.tables.candidates.by_range[number] if base <= c < start]
        if lower:
            state.move([(number, rng.choice(lower))])
