"""Where a virtual register stops being read: from there on it is nowhere, and LLVM keeps nothing of it."""

from __future__ import annotations

from dataclasses import dataclass

from oracle.decode import STACK, VIRTUAL, Decoded
from oracle.machine import EXEC


@dataclass(frozen=True)
class Dying:
    """Where places of virtual registers stop being read: by block, what is live at its start; by the ``id`` of an
    instruction, what it reads or writes and nobody reads after it, and what is live after one that writes EXEC.
    """

    live_in: list[frozenset[int]]
    after: dict[int, frozenset[int]]
    live_after: dict[int, frozenset[int]]


def dying(blocks: list[list[Decoded]], targets: list[list[int]]) -> Dying:
    live = [set[int]() for _ in blocks]
    changed = True
    while changed:
        changed = False
        for n in reversed(range(len(blocks))):
            found = set[int]().union(*(live[t] for t in targets[n]))
            for one in reversed(blocks[n]):
                found.difference_update(u for u, _ in one.written_places)
                found.update(u for u, _ in one.read_places)
            if found != live[n]:
                live[n] = found
                changed = True
    after: dict[int, frozenset[int]] = {}
    live_after: dict[int, frozenset[int]] = {}
    for n, block in enumerate(blocks):
        found = set[int]().union(*(live[t] for t in targets[n]))
        for one in reversed(block):
            touched = {u for u, _ in (*one.read_places, *one.written_places) if VIRTUAL <= u < STACK}
            if ended := frozenset(touched - found):
                after[id(one)] = ended
            if any(u == EXEC for u, _ in one.written_places):
                live_after[id(one)] = frozenset(found)
            found.difference_update(u for u, _ in one.written_places)
            found.update(u for u, _ in one.read_places)
    return Dying([frozenset(f) for f in live], after, live_after)
