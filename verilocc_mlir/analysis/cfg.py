"""Control flow of a machine function, by layout position.

Blocks are known by their position in the layout, never by the number printed in ``bb.N``: LLVM renumbers blocks when it
reads MIR back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

from verilocc_mlir.mir.model import MachineFunction


@dataclass(frozen=True, slots=True)
class ControlFlow:
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
