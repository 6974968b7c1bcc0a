"""Control flow of final machine code: edges, loops, and how often each block runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from verilocc_mlir.analysis.cfg import ControlFlow, reverse_post_order
from verilocc_mlir.analysis.loops import LoopForest, find_loops
from verilocc_mlir.cost.assembly import Function

DEFAULT_TRIPS = 10
"""Iterations of a loop whose count is not known (FACTS: 10 a loop level)."""


@dataclass(frozen=True, slots=True)
class Flow:
    """Edges and loops of a function, blocks by position."""

    cfg: ControlFlow
    loops: LoopForest


def control_flow(function: Function) -> Flow:
    """Edges from branches and from falling through; loops of one header merged, irreducible ones included."""
    position = {block.label: k for k, block in enumerate(function.blocks) if block.label}
    count = len(function.blocks)
    successors: list[tuple[int, ...]] = []
    for k, block in enumerate(function.blocks):
        goals = [position[label] for label in block.targets if label in position]
        if block.falls_through and k + 1 < count:
            goals.append(k + 1)
        successors.append(tuple(dict.fromkeys(goals)))
    predecessors: list[list[int]] = [[] for _ in range(count)]
    for k, goals in enumerate(successors):
        for goal in goals:
            predecessors[goal].append(k)
    first = [0]
    for block in function.blocks:
        first.append(first[-1] + len(block.instructions))
    edges = tuple(successors)
    cfg = ControlFlow(edges, tuple(tuple(p) for p in predecessors), reverse_post_order(edges), tuple(first))
    return Flow(cfg, find_loops(cfg))


def executions(flow: Flow, trips: Mapping[int, int]) -> list[float]:
    """How often each block runs: the product of the trips of the loops around it; 0 where nothing leads to it.

    Args:
        flow: the function's.
        trips: iterations of a loop by its index in ``flow.loops``; ``DEFAULT_TRIPS`` for the others. A branch that is
            no loop's is taken to go both ways, so that all blocks of a body run each time.
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
