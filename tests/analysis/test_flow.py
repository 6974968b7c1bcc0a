"""Control flow and loops, against networkx's dominators where graphs are reducible."""

from __future__ import annotations

import random
from typing import Any

import networkx as nx
import pytest
from builders import machine_function

from verilocc_mlir.analysis.cfg import ControlFlow, control_flow, find_loops, reverse_post_order


def graph(*successors: tuple[int, ...]) -> ControlFlow:
    predecessors = tuple(tuple(p for p, s in enumerate(successors) if k in s) for k in range(len(successors)))
    return ControlFlow(successors, predecessors, reverse_post_order(successors), tuple(range(len(successors) + 1)))


def test_blocks_are_known_by_position() -> None:
    body = """
  bb.7:
    successors: %bb.3(0x40000000), %bb.9(0x40000000)

    S_NOP 0
    S_NOP 0

  bb.3:
    successors: %bb.9(0x80000000)


  bb.9:
    S_ENDPGM 0
"""
    cfg = control_flow(machine_function(body))
    assert cfg.successors == ((1, 2), (2,), ())
    assert cfg.predecessors == ((), (0,), (0, 1))
    assert cfg.first == (0, 2, 2, 3)
    assert cfg.block_starts == (0, 8, 8)
    assert cfg.slots == 12
    assert cfg.order == (0, 1, 2)


def test_nested_loops_and_a_loop_of_one_block() -> None:
    forest = find_loops(graph((1,), (2,), (2, 3), (1, 4), ()))
    assert forest.depths == (0, 1, 2, 1, 0)
    assert [(loop.header, loop.parent, loop.depth) for loop in forest.loops] == [(1, -1, 1), (2, 0, 2)]
    assert [sorted(forest.blocks(k)) for k in (0, 1)] == [[1, 2, 3], [2]]


def test_entry_block_as_header() -> None:
    assert find_loops(graph((1,), (0, 2), ())).depths == (1, 1, 0)


def test_irreducible_cycle_is_a_loop() -> None:
    forest = find_loops(graph((1, 2), (2,), (1, 3), ()))
    assert forest.depths == (0, 1, 1, 0)
    assert [loop.reducible for loop in forest.loops] == [False]


def test_unreachable_blocks_are_in_no_loop() -> None:
    assert find_loops(graph((1,), (), (2, 1))).depths == (0, 0, 0)


def test_long_chains_need_no_deep_recursion() -> None:
    count = 5000
    successors = [(k + 1, k - 1) if k else (k + 1,) for k in range(count)]
    predecessors = [tuple(p for p in (k - 1, k + 1) if 0 <= p < count) for k in range(count)] + [(count - 1,)]
    cfg = ControlFlow(
        (*successors, ()), tuple(predecessors), reverse_post_order((*successors, ())), tuple(range(count + 2))
    )
    assert max(find_loops(cfg).depths) == count - 1


def natural_depths(cfg: ControlFlow) -> list[int] | None:
    """Loop depths from dominators; None for an irreducible graph."""
    reachable: Any = nx.DiGraph()
    reachable.add_nodes_from(cfg.order)
    reachable.add_edges_from((a, b) for a in cfg.order for b in cfg.successors[a])
    idom: dict[int, int] = dict(nx.immediate_dominators(reachable, 0))

    def dominates(a: int, b: int) -> bool:
        while b != a and idom.get(b, b) not in (b, None):
            b = idom[b]
        return a == b

    loops: dict[int, set[int]] = {}
    rank = {b: k for k, b in enumerate(cfg.order)}
    for tail in cfg.order:
        for head in cfg.successors[tail]:
            if dominates(head, tail):
                body = loops.setdefault(head, {head})
                work = [tail]
                while work:
                    node = work.pop()
                    if node not in body:
                        body.add(node)
                        work += [p for p in cfg.predecessors[node] if p in rank]
            elif rank[head] <= rank[tail]:
                return None
    return [sum(block in body for body in loops.values()) for block in range(len(cfg.successors))]


def test_reducible_graphs_agree_with_natural_loops() -> None:
    compared = 0
    for seed in range(400):
        rng = random.Random(seed)
        count = rng.randrange(2, 9)
        successors = [tuple(sorted({rng.randrange(count) for _ in range(rng.choice((1, 1, 2)))})) for _ in range(count)]
        cfg = graph(*successors)
        expected = natural_depths(cfg)
        if expected is not None:
            compared += 1
            assert list(find_loops(cfg).depths) == expected, successors
    assert compared > 200


@pytest.mark.parametrize("seed", range(30))
def test_every_cycle_is_in_a_loop(seed: int) -> None:
    rng = random.Random(1000 + seed)
    successors = [tuple(sorted({rng.randrange(12) for _ in range(2)})) for _ in range(12)]
    cfg = graph(*successors)
    depths = find_loops(cfg).depths
    whole: Any = nx.DiGraph((a, b) for a in cfg.order for b in successors[a])
    for component in nx.strongly_connected_components(whole):
        cyclic = len(component) > 1 or any(b in successors[b] for b in component)
        assert all((depths[b] > 0) == cyclic for b in component)
