"""Control flow of a machine function, by layout position.

Blocks are known by their position in the layout, never by the number printed in ``bb.N``: LLVM renumbers blocks when it
reads MIR back.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

from msgspec import Struct

from verilocc_mlir.mir.model import MachineFunction


class ControlFlow(Struct, frozen=True):
    """Successors and predecessors of each block, and an order to visit them in.

    Attributes:
        successors: for each block in layout order, positions of its successors, each once, in the order written.
        predecessors: likewise, ascending.
        order: blocks reachable from the entry (position 0) in reverse post-order.
        first: index of the first instruction of each block, and one more entry with the number of instructions.
    """

    successors: tuple[tuple[int, ...], ...]
    predecessors: tuple[tuple[int, ...], ...]
    order: tuple[int, ...]
    first: tuple[int, ...]

    @property
    def slots(self) -> int:
        """Number of slots: four an instruction (problem/model.py)."""
        return 4 * self.first[-1]

    @property
    def block_starts(self) -> tuple[int, ...]:
        return tuple(4 * f for f in self.first[:-1])


def control_flow(function: MachineFunction) -> ControlFlow:
    """The control-flow graph that the ``successors:`` lines state."""
    position = {block.number: k for k, block in enumerate(function.blocks)}
    successors = tuple(tuple(dict.fromkeys(position[n] for n, _ in block.successors)) for block in function.blocks)
    return flow_graph(successors, (len(block.instructions) for block in function.blocks))


def flow_graph(successors: tuple[tuple[int, ...], ...], sizes: Iterable[int]) -> ControlFlow:
    """The control-flow graph with these edges; ``sizes`` has the number of instructions of each block."""
    predecessors: list[list[int]] = [[] for _ in successors]
    for k, targets in enumerate(successors):
        for target in targets:
            predecessors[target].append(k)
    return ControlFlow(
        successors=successors,
        predecessors=tuple(tuple(p) for p in predecessors),
        order=reverse_post_order(successors),
        first=tuple(accumulate(sizes, initial=0)),
    )


def reverse_post_order(successors: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    """Nodes reachable from node 0, every node before those it leads to unless by a retreating edge."""
    if not successors:
        return ()
    visited = [False] * len(successors)
    visited[0] = True
    finished: list[int] = []
    stack = [(0, iter(successors[0]))]
    while stack:
        node, targets = stack[-1]
        for target in targets:
            if not visited[target]:
                visited[target] = True
                stack.append((target, iter(successors[target])))
                break
        else:
            stack.pop()
            finished.append(node)
    return tuple(reversed(finished))


# Loops and loop depth, for reducible and irreducible control flow alike, in nearly linear time.
#
# A depth-first search finds the edges that lead back to a block still being visited; the loop of such a block, its
# header, is everything that reaches the edge without passing the header (Havlak, "Nesting of reducible and irreducible
# loops", TOPLAS 1997, after Tarjan 1974). On reducible graphs these are the natural loops with loops of one header
# merged, as in LLVM's MachineLoopInfo. A cycle with several entries is a loop too, with ``reducible`` false, where
# natural loops would see none and count the body as executed once.


class Loop(Struct, frozen=True):
    """One loop.

    Attributes:
        header: layout position of its header.
        parent: index of the loop around it in ``LoopForest.loops``; -1 for an outermost loop.
        depth: 1 for an outermost loop.
        reducible: every path from outside enters at the header.
    """

    header: int
    parent: int
    depth: int
    reducible: bool


class LoopForest(Struct, frozen=True):
    """All loops of a function.

    Attributes:
        loops: outer before inner.
        innermost: for each block, the index of the innermost loop it is in, or -1 (also for unreachable blocks).
        depths: for each block, the number of loops around it.
    """

    loops: tuple[Loop, ...]
    innermost: tuple[int, ...]
    depths: tuple[int, ...]

    def blocks(self, loop: int) -> frozenset[int]:
        """Layout positions of all blocks of a loop, inner loops included."""
        inside = [False] * len(self.loops)
        for k, candidate in enumerate(self.loops):
            inside[k] = k == loop or (candidate.parent >= 0 and inside[candidate.parent])
        return frozenset(b for b, k in enumerate(self.innermost) if k >= 0 and inside[k])


def find_loops(cfg: ControlFlow) -> LoopForest:
    """The loop-nesting forest of the blocks reachable from the entry."""
    count = len(cfg.successors)
    order, last = _depth_first(cfg)
    number = {block: k for k, block in enumerate(order)}
    # From here on blocks are their depth-first numbers; w is an ancestor of v where w <= v <= last[w].
    back: list[list[int]] = [[] for _ in order]
    forward: list[list[int]] = [[] for _ in order]
    for v, block in enumerate(order):
        for predecessor in cfg.predecessors[block]:
            if predecessor in number:
                u = number[predecessor]
                (back if v <= u <= last[v] else forward)[v].append(u)
    header = [-1] * len(order)
    is_header = [False] * len(order)
    reducible = [True] * len(order)
    leader = list(range(len(order)))
    for w in range(len(order) - 1, -1, -1):
        if not back[w]:
            continue
        is_header[w] = True
        body = dict.fromkeys(_find(leader, v) for v in back[w] if v != w)
        body.pop(w, None)
        work = list(body)
        while work:
            x = work.pop()
            for y in forward[x]:
                z = _find(leader, y)
                if not w <= z <= last[w]:
                    # An entry that does not come through the header: outer headers must see it as theirs.
                    reducible[w] = False
                    forward[w].append(z)
                elif z != w and z not in body:
                    body[z] = None
                    work.append(z)
        for x in body:
            header[x] = w
            leader[x] = w
    loops: list[Loop] = []
    index: dict[int, int] = {}
    innermost = [-1] * count
    for v, block in enumerate(order):
        around = index[header[v]] if header[v] >= 0 else -1
        if is_header[v]:
            index[v] = len(loops)
            loops.append(Loop(block, around, loops[around].depth + 1 if around >= 0 else 1, reducible[v]))
            around = index[v]
        innermost[block] = around
    return LoopForest(tuple(loops), tuple(innermost), tuple(loops[k].depth if k >= 0 else 0 for k in innermost))


def _depth_first(cfg: ControlFlow) -> tuple[list[int], list[int]]:
    """Reachable blocks in depth-first preorder, and for each number the greatest number in its subtree."""
    if not cfg.successors:
        return [], []
    order = [0]
    number = {0: 0}
    last = [0]
    stack = [(0, iter(cfg.successors[0]))]
    while stack:
        node, targets = stack[-1]
        for target in targets:
            if target not in number:
                number[target] = len(order)
                order.append(target)
                last.append(0)
                stack.append((target, iter(cfg.successors[target])))
                break
        else:
            stack.pop()
            last[number[node]] = len(order) - 1
    return order, last


def _find(leader: list[int], node: int) -> int:
    """The header that represents ``node``'s collapsed loop (union-find with path halving)."""
    while leader[node] != node:
        leader[node] = leader[leader[node]]
        node = leader[node]
    return node
