"""Which paths of blocks may lose a value: a backward search from the operand that reads it.

The search follows a lane of the pre-RA side and the place of the post-RA side that should hold its value together,
through moves on both sides, until one of them is written and the other is not. It goes backwards over blocks breadth
first, so the first path found is a shortest one. It guesses which threads are active; ``journal.py`` executes the path
and knows.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass

from smt_verifier.audit.core.product import Product
from smt_verifier.audit.effects import Effects

_MAX_STATES = 20_000
_MAX_VISITS = 4
"""How often the search goes through one state: of the paths that lead there, not all need be taken by some thread."""


@dataclass(frozen=True, slots=True)
class _Walk:
    """A point of the walk: before step ``index`` of ``block``; ``post`` None: its wrong value is known already."""

    block: int
    index: int
    pre: int
    post: int | None
    active: bool
    blocks: tuple[int, ...]


class PathSearch:
    """Candidate paths in one product."""

    def __init__(self, product: Product, effects: Effects) -> None:
        self.product = product
        self.effects = effects
        self.predecessors: list[list[int]] = [[] for _ in product.steps]
        for block in product.order:
            for successor in dict.fromkeys(product.successors[block]):
                self.predecessors[successor].append(block)
        self.diverges = any(effects.of(s).changes_exec for row in product.steps for s in row)
        self._prefix = self._shortest()

    def candidates(self, block: int, index: int, pre: int, post: int | None) -> Iterator[tuple[int, ...]]:
        """Paths from the function's entry to step ``index`` of ``block``, as layout positions, shortest first.

        Args:
            block: layout position of the block of the operand.
            index: of its step in ``product.steps[block]``.
            post: the place that should hold its value; None: any path on which ``pre`` is defined.
        """
        modes = (True, False) if self.diverges else (True,)
        queue = deque(_Walk(block, index, pre, post, mode, (block,)) for mode in modes)
        visits: Counter[tuple[int, int, int, int | None, bool]] = Counter()
        queued: set[_Walk] = set(queue)
        proposed: set[tuple[int, ...]] = set()
        while queue and len(queued) < _MAX_STATES:
            path, following, sideways = self._back(queue.popleft())
            if path is not None and path not in proposed:
                proposed.add(path)
                yield self._prefix[path[0]] + path
            for enqueue, walks in ((queue.appendleft, sideways), (queue.append, following)):
                for walk in walks:
                    state = (walk.block, walk.index, walk.pre, walk.post, walk.active)
                    if walk not in queued and visits[state] < _MAX_VISITS:
                        queued.add(walk)
                        visits[state] += 1
                        enqueue(walk)

    def _back(self, walk: _Walk) -> tuple[tuple[int, ...] | None, list[_Walk], list[_Walk]]:
        """Walk back to the block's start.

        Returns:
            A path, if the two lanes parted in this block; walks that go on in its predecessors; walks of the other
            set of threads, where EXEC changes.
        """
        block, pre, post = walk.block, walk.pre, walk.post
        sideways: list[_Walk] = []
        for index in range(walk.index - 1, -1, -1):
            effect = self.effects.of(self.product.steps[block][index])
            pre_write = effect.written("pre", pre)
            post_write = None if post is None else effect.written("post", post)
            pre_write = None if pre_write is not None and pre_write.masked and not walk.active else pre_write
            post_write = None if post_write is not None and post_write.masked and not walk.active else post_write
            if pre_write is not None and pre_write.undefined:
                return None, [], sideways
            if pre_write is not None and pre_write.source is None:
                same = (
                    post_write is not None and post_write.result is not None and post_write.result == pre_write.result
                )
                return (None if same else walk.blocks), [], sideways
            if pre_write is not None and pre_write.source is not None:
                pre = pre_write.source
            if post_write is not None:
                post = post_write.source
            if effect.changes_exec and self.diverges:
                sideways.append(_Walk(block, index, pre, post, not walk.active, walk.blocks))
        if block == 0:
            return (walk.blocks if pre < 0 and pre != post else None), [], sideways
        following = [
            _Walk(p, len(self.product.steps[p]), pre, post, walk.active, (p, *walk.blocks))
            for p in self.predecessors[block]
            if not (walk.active and self.product.is_idle(p, block))
        ]
        return None, following, sideways

    def _shortest(self) -> list[tuple[int, ...]]:
        """For each block, a shortest path from the entry up to it, itself left out; threads stay active if they can."""
        prefix: list[tuple[int, ...]] = [()] * len(self.product.steps)
        reached = {0}
        for idle in (False, True):
            queue = deque(sorted(reached))
            while queue:
                block = queue.popleft()
                for successor in self.product.successors[block]:
                    if successor not in reached and (idle or not self.product.is_idle(block, successor)):
                        reached.add(successor)
                        prefix[successor] = (*prefix[block], block)
                        queue.append(successor)
        return prefix
