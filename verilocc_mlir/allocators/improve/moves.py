"""Local moves: join a copy's ends, swap two ranges, shift one, lower what reaches highest."""

from __future__ import annotations

import random
from dataclasses import dataclass

from verilocc_mlir.allocators.coalesce import meet
from verilocc_mlir.allocators.improve.state import State

_WAYS = 3
"""Places tried for each range of a preference."""


@dataclass(frozen=True)
class Wish:
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
