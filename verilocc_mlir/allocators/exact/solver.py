"""CP-SAT of OR-Tools, loaded when it is first needed: the budget of a search, and one call of the solver."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from verilocc_mlir.errors import UnsupportedError

SCALE = 1000
"""Objectives are whole numbers: thousandths of an estimated execution."""


def load() -> Any:
    """The module ``ortools.sat.python.cp_model``.

    Raises:
        UnsupportedError: OR-Tools is not installed; the hint names the extra.
    """
    try:
        return import_module("ortools.sat.python.cp_model")
    except ImportError as error:
        raise UnsupportedError(
            f"exact allocation needs OR-Tools, and it cannot be loaded: {error}",
            hint="pip install 'verilocc-mlir[exact]'; beside the service's packages: docs/design/allocation.md",
        ) from error


def available() -> bool:
    try:
        load()
    except UnsupportedError:
        return False
    return True


@dataclass
class Budget:
    """What a search may still use.

    ``work`` is CP-SAT's deterministic time: about a second a unit, and the same on every machine. ``seconds`` of wall
    time cut the search off where the machine is slower. Without that cut-off, the answer is the same on every run.
    """

    work: float
    seconds: float
    seed: int = 0
    _until: float = field(init=False)

    def __post_init__(self) -> None:
        self._until = time.monotonic() + self.seconds

    @property
    def seconds_left(self) -> float:
        """Wall time to the cut-off."""
        return self._until - time.monotonic()

    @property
    def spent(self) -> bool:
        """Whether nothing is left."""
        return self.work <= 0 or self.seconds_left <= 0


@dataclass(frozen=True)
class Answer:
    """The solver's answer to a model.

    Attributes:
        has_solution: there is a solution; ``value`` reads it.
        refuted: it is proved that there is none.
        optimal: no other solution has a smaller objective.
        bound: no solution has an objective smaller than this.
        value: the value of a variable of the model in the solution.
    """

    has_solution: bool
    refuted: bool
    optimal: bool
    bound: float
    value: Callable[[Any], int]


def ask(model: Any, budget: Budget, work: float, *, portfolio: bool = False) -> Answer:
    """Solve with at most ``work`` of the budget.

    Args:
        budget: what the call uses is taken from it.
        work: deterministic time for this call.
        portfolio: take turns between several search strategies; better for objectives.
    """
    cp_model = load()
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.num_workers = 1
    parameters.random_seed = budget.seed
    parameters.max_deterministic_time = max(min(work, budget.work), 1e-3)
    parameters.max_time_in_seconds = max(budget.seconds_left, 1e-3)
    parameters.interleave_search = portfolio
    status = solver.solve(model)
    budget.work -= max(float(solver.response_proto.deterministic_time), 1e-3)
    if status == cp_model.MODEL_INVALID:
        raise AssertionError(f"the model is not valid: {model.validate()}")
    has_solution = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    refuted = status == cp_model.INFEASIBLE
    bound = float(solver.best_objective_bound) if not refuted else 0.0
    return Answer(has_solution, refuted, status == cp_model.OPTIMAL, bound, solver.value)
