"""Loops and loop depth, for reducible and irreducible control flow alike.

A loop is a strongly connected component of the graph; the loops inside it are the components that remain when its
header's incoming edges are cut (the loop-nesting forest of Steensgaard, "Sequentializing program dependence graphs", 1993).
On reducible graphs these are the natural loops with loops of one header merged, as in LLVM's MachineLoopInfo. A component
with several entries is one loop too, with the entry that comes first in reverse post-order as its header and ``reducible``
false, where natural loops would see none and count the body as executed once.
"""

from __future__ import annotations

from dataclasses import dataclass

from verilocc_mlir.analysis.cfg import ControlFlow


@dataclass(frozen=True, slots=True)
class Loop:
    """One loop: ``header`` and ``blocks`` are layout positions; ``depth`` is 1 for an outermost loop."""

    header: int
    blocks: frozenset[int]
    depth: int
    reducible: bool


@dataclass(frozen=True, slots=True)
class LoopForest:
    """All loops, outer before inner, and the number of loops around each block (0 for unreachable blocks)."""

    loops: tuple[Loop, ...]
    depths: tuple[int, ...]


def find_loops(cfg: ControlFlow) -> LoopForest:
    """The loop-nesting forest of the blocks reachable from the entry."""
    rank = {block: k for k, block in enumerate(cfg.order)}
    depths = [0] * len(cfg.successors)
    loops: list[Loop] = []
    # A task is a set of blocks, the header whose incoming edges are cut (-1: none), and the depth of loops found in it.
    tasks: list[tuple[frozenset[int], int, int]] = [(frozenset(cfg.order), -1, 1)]
    for region, cut, depth in tasks:  # grows while it is read: outer loops come before inner ones
        for component in _components(cfg, region, cut, rank):
            entries = [
                b for b in component if b == cfg.order[0] or any(p not in component for p in cfg.predecessors[b] if p in rank)
            ]
            header = min(entries, key=rank.__getitem__)
            inner = frozenset(component)
            loops.append(Loop(header, inner, depth, len(entries) == 1))
            for block in component:
                depths[block] = depth
            tasks.append((inner, header, depth + 1))
    return LoopForest(tuple(loops), tuple(depths))


def _components(cfg: ControlFlow, region: frozenset[int], cut: int, rank: dict[int, int]) -> list[list[int]]:
    """Strongly connected components with an edge inside, of ``region`` without the edges into ``cut`` (Tarjan)."""
    successors = cfg.successors
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    on_stack: set[int] = set()
    stack: list[int] = []
    found: list[list[int]] = []
    for root in sorted(region, key=rank.__getitem__):
        if root in index:
            continue
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        work = [(root, iter(successors[root]))]
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in region or target == cut:
                    continue
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(successors[target])))
                    break
                if target in on_stack:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[node])
                if low[node] == index[node]:
                    component: list[int] = []
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        component.append(member)
                        if member == node:
                            break
                    if len(component) > 1 or (node != cut and node in successors[node]):
                        found.append(component)
    found.sort(key=lambda c: min(rank[b] for b in c))
    return found
