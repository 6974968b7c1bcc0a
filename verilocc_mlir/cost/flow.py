"""Control flow of final machine code: edges, loops, and how often each block runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from verilocc_mlir.analysis.cfg import ControlFlow, LoopForest, find_loops, flow_graph
from verilocc_mlir.cost.assembly import Function
from verilocc_mlir.cost.rates import Figure, Origin, Source

_TRIPS = Figure(10, Source(Origin.ASSUMED, "iterations where neither the IR nor the code says how many"))
FIGURES = {"iterations of a loop": _TRIPS}
DEFAULT_TRIPS = int(_TRIPS.value)
"""Iterations of a loop whose count is not known."""


@dataclass(frozen=True, slots=True)
class Flow:
    """Edges and loops of a function, blocks by position."""

    cfg: ControlFlow
    loops: LoopForest


def control_flow(function: Function) -> Flow:
    """Edges from branches and from falling through. Loops with one header are merged; irreducible ones are included."""
    position = {block.label: k for k, block in enumerate(function.blocks) if block.label}
    successors: list[tuple[int, ...]] = []
    for k, block in enumerate(function.blocks):
        goals = [position[label] for label in block.targets if label in position]
        if block.falls_through and k + 1 < len(function.blocks):
            goals.append(k + 1)
        successors.append(tuple(dict.fromkeys(goals)))
    cfg = flow_graph(tuple(successors), (len(block.instructions) for block in function.blocks))
    return Flow(cfg, find_loops(cfg))


def executions(flow: Flow, trips: Mapping[int, int]) -> list[float]:
    """How often each block runs: the product of the trips of the loops around it; 0 where no path leads to it.

    A branch inside a loop body counts as going both ways, so all blocks of the body run in each iteration.

    Args:
        trips: iterations of a loop by its index in ``flow.loops``; the others have ``DEFAULT_TRIPS``.
    """
    total: list[float] = []
    for k, loop in enumerate(flow.loops.loops):
        outside = total[loop.parent] if loop.parent >= 0 else 1.0
        total.append(outside * trips.get(k, DEFAULT_TRIPS))
    counts = [0.0] * len(flow.cfg.successors)
    for block in flow.cfg.order:
        innermost = flow.loops.innermost[block]
        counts[block] = total[innermost] if innermost >= 0 else 1.0
    return counts
