"""The loop: rounds of local moves and of neighbourhoods, until the time or the steps are used up."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from verilocc_mlir.allocators.cost import Cost
from verilocc_mlir.allocators.exact.solver import available
from verilocc_mlir.allocators.improve.moves import local_moves, wishes
from verilocc_mlir.allocators.improve.state import State
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
        from verilocc_mlir.allocators.improve.regions import Regions

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
