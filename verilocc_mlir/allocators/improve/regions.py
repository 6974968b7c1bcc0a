"""Large neighbourhoods: the ranges around one place of the program are placed anew, all others stay."""

from __future__ import annotations

import random

from verilocc_mlir.allocators.bounds import Ceiling
from verilocc_mlir.allocators.exact.copies import Objective
from verilocc_mlir.allocators.exact.layout import Layout
from verilocc_mlir.allocators.exact.model import PackingModel
from verilocc_mlir.allocators.exact.solver import Budget
from verilocc_mlir.allocators.improve.moves import Wish, unmet
from verilocc_mlir.allocators.improve.state import State

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
