"""The fewest registers: bounds from below by counting and refuted totals, from above by placements found."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass

from verilocc_mlir.allocators.exact.bound import counted_bound, shared_bound
from verilocc_mlir.allocators.exact.layout import Layout
from verilocc_mlir.allocators.exact.model import PackingModel
from verilocc_mlir.allocators.exact.solver import Budget

Progress = Callable[[str], None]

_FIRST_SLICE = 2.0
"""Work spent on a total before the next total is tried."""

_SLACKS = (4, 24)
"""Instants within so many cells of a total are tried alone first: if they do not fit, nothing does."""

_RELAXED_PART = 0.3
"""Of a slice, for each relaxation."""


@dataclass(frozen=True)
class Fewest:
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
