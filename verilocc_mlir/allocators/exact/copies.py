"""The cheapest placement under a ceiling: copies left in the code, callee-saved registers used, preferences not met."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from verilocc_mlir.allocators.cost import SAVE_AND_RESTORE, cell_relation
from verilocc_mlir.allocators.exact.bound import PackingModel
from verilocc_mlir.allocators.exact.frame import SCALE, Answer, Budget, Layout, load
from verilocc_mlir.allocators.items import meet
from verilocc_mlir.problem.model import Preference

_Ends = TypeVar("_Ends", bound="tuple[int | None, ...]")


class Cheapest(Struct, frozen=True):
    """What is known of the copies.

    Attributes:
        starts: a placement of that cost.
        copies: ``Cost.saves_and_copies`` of it.
        bound: no placement under the ceiling costs less.
    """

    starts: list[int]
    copies: float
    bound: float


def fewest_copies(layout: Layout, total: int, starts: list[int], budget: Budget) -> Cheapest:
    """The least cost in copies among the placements in ``total`` registers.

    Args:
        starts: a placement in no more than ``total`` registers.
        budget: used up, unless the optimum is proved before.
    """
    copies = layout.tables.cost.of(starts).saves_and_copies
    if copies == 0 or budget.spent:
        return Cheapest(starts, copies, 0.0 if copies else copies)
    model = PackingModel(layout, total)
    Objective(model).minimize()
    model.hint(starts)
    answer = model.ask(budget, budget.work, portfolio=True)
    return _better(layout, model, answer, starts, copies)


def no_dearer(layout: Layout, total: int, at_most: float, starts: list[int], budget: Budget, work: float) -> list[int]:
    """A placement in ``total`` registers that costs no more in copies than ``at_most``; empty where none was found."""
    model = PackingModel(layout, total)
    Objective(model).limit(at_most)
    model.hint(starts)
    answer = model.ask(budget, work)
    return model.starts(answer, starts) if answer.has_solution else []


def _better(layout: Layout, model: PackingModel, answer: Answer, starts: list[int], copies: float) -> Cheapest:
    bound = max(answer.bound / SCALE, 0.0)
    if not answer.has_solution:
        return Cheapest(starts, copies, min(bound, copies))
    starts_found = model.starts(answer, starts)
    cost = layout.tables.cost.of(starts_found).saves_and_copies
    best, value = (starts_found, cost) if cost < copies else (starts, copies)
    return Cheapest(best, value, value if answer.optimal else min(bound, value))


class Objective:
    """Adds to a model the literals of copies and saves, weighted as ``CostModel`` weighs them, in 1/``SCALE``.

    Args:
        fixed_starts: first cells of the ranges that do not move, by range id.
    """

    def __init__(self, model: PackingModel, fixed_starts: Sequence[int] = ()) -> None:
        self._model = model
        self._fixed_starts = fixed_starts
        self._layout = model.layout
        self._terms: list[Any] = []
        self._constant = 0
        if not model.possible:
            return
        cost = self._layout.tables.cost
        for (a, b, distance), weight in _summed(((a, b, d), w) for a, b, d, w in cost.pairs).items():
            self._pair(a, b, distance, weight)
        for (a, goal), weight in _summed(((a, goal), w) for a, goal, w in cost.fixed).items():
            self._goal(a, goal, weight)
        self._residues: dict[tuple[int, int], Any] = {}
        for preference in self._layout.tables.problem.preferences:
            self._prefer(preference)
        self._saves()

    def minimize(self) -> None:
        """Make the sum the model's objective."""
        if self._model.possible:
            self._model.model.minimize(sum(self._terms) + self._constant)

    def limit(self, at_most: float) -> None:
        """Allow no greater sum."""
        if self._model.possible:
            self._model.model.add(sum(self._terms) + self._constant <= round(at_most * SCALE))

    def _pair(self, a: int, b: int, distance: int | None, weight: int) -> None:
        positions = self._model.positions
        if distance is None or meet(self._layout.items[a], self._layout.items[b], distance):
            self._constant += weight
            return
        if a not in positions and b not in positions:
            self._constant += weight * (self._fixed_starts[b] != self._fixed_starts[a] + distance)
            return
        first, second = (positions[n] if n in positions else self._fixed_starts[n] for n in (a, b))
        joined = self._model.model.new_bool_var("")
        self._model.model.add(second - first == distance).only_enforce_if(joined)
        self._terms.append(weight * (1 - joined))

    def _goal(self, a: int, goal: int, weight: int) -> None:
        file = self._layout.file_of(goal)
        if goal not in self._layout.starts[a].get(file, ()):
            self._constant += weight
            return
        if a not in self._model.positions:
            self._constant += weight * (self._fixed_starts[a] != goal)
            return
        joined = self._model.model.new_bool_var("")
        self._model.model.add(self._model.positions[a] == self._model.frame.at(goal)).only_enforce_if(joined)
        literal = self._model.within[a].get(file)
        if literal is None:
            self._model.model.add(joined == 0)
        elif not isinstance(literal, int):
            self._model.model.add_implication(joined, literal)
        self._terms.append(weight * (1 - joined))

    def _prefer(self, preference: Preference) -> None:
        weight = round(preference.weight * SCALE)
        relations = [cell_relation(r, self._layout.tables.cells) for r in preference.relations]
        positions = self._model.positions
        free = [r for r in relations if r.a in positions or r.b in positions]
        settled = [r for r in relations if r.a not in positions and r.b not in positions]
        items = self._layout.items
        if any(not r.holds(self._fixed_starts[r.a], self._fixed_starts[r.b]) for r in settled) or any(
            not r.modulus and meet(items[r.a], items[r.b], r.distance) for r in free
        ):
            self._constant += weight
            return
        if not free:
            return
        model = self._model.model
        holds = model.new_bool_var("")
        for relation in free:
            if not relation.modulus:
                difference = self._position(relation.b) - self._position(relation.a)
                model.add(difference == relation.distance).only_enforce_if(holds)
                continue
            m = relation.modulus
            difference = self._residue(relation.b, m) - self._residue(relation.a, m)
            allowed = [d for d in range(1 - m, m) if (d - relation.distance) % m]
            inside = load().Domain.from_values(allowed)
            model.add_linear_expression_in_domain(difference, inside).only_enforce_if(holds)
        self._terms.append(weight * (1 - holds))

    def _position(self, number: int) -> Any:
        return self._model.positions.get(number, self._fixed_starts[number] if self._fixed_starts else 0)

    def _residue(self, number: int, modulus: int) -> Any:
        if number not in self._model.positions:
            return self._fixed_starts[number] % modulus
        residue = self._residues.get((number, modulus))
        if residue is None:
            residue = self._residues[number, modulus] = self._model.model.new_int_var(0, modulus - 1, "")
            self._model.model.add_modulo_equality(residue, self._model.positions[number], modulus)
        return residue

    def _saves(self) -> None:
        cells = self._layout.tables.cells
        price = round(SAVE_AND_RESTORE * SCALE / cells.halves)
        for cell in sorted(cells.expensive):
            used = self._model.model.new_bool_var("")
            self._model.reserve(cell, used)
            self._terms.append(price * used)


def _summed(copies: Iterable[tuple[_Ends, float]]) -> dict[_Ends, int]:
    """The weight of all copies with the same ends, in 1/``SCALE``."""
    weights: dict[_Ends, int] = {}
    for ends, weight in copies:
        if weight:
            weights[ends] = weights.get(ends, 0) + round(weight * SCALE)
    return weights
