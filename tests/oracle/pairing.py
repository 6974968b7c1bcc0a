"""Which instructions of both sides of a block run together.

Events must be the same on both sides, in order; a load that is neither volatile nor atomic may be left out. Between two
events, pure operations run together where both sides have them in the same order, and alone elsewhere; nothing depends
on how that comes out, because pure operations are computed from their own inputs on each side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from oracle.decode import Decoded
from oracle.opcodes import may_be_left_out


@dataclass(frozen=True, slots=True)
class Slot:
    """A step of one side or of both; ``mismatch`` ends the block: the events are not the same from here on."""

    pre: Decoded | None
    post: Decoded | None
    mismatch: bool = False


def pair(pre: Sequence[Decoded], post: Sequence[Decoded]) -> list[Slot]:
    """The steps of a block, in an order that keeps that of each side."""
    left = _split(pre)
    right = _split(post)
    steps: list[Slot] = []
    for n in range(max(len(left), len(right))):
        if n >= len(left) or n >= len(right):
            steps.append(Slot(left[n][1] if n < len(left) else None, right[n][1] if n < len(right) else None, True))
            return steps
        (a, x), (b, y) = left[n], right[n]
        while x is not None and (y is None or x.shape != y.shape) and may_be_left_out(x.source):
            # What reads its result on the pre-RA side finds a value that the other side does not have.
            more, following = left.pop(n + 1)
            a, x = [*a, replace(x, kind="pure"), *more], following
        steps += _between(a, b)
        if x is None and y is None:
            return steps
        same = x is not None and y is not None and x.shape == y.shape
        steps.append(Slot(x, y, not same))
        if not same:
            return steps
    return steps


def _split(side: Sequence[Decoded]) -> list[tuple[list[Decoded], Decoded | None]]:
    """Runs of non-events, each with the event that ends it; the last has none."""
    found: list[tuple[list[Decoded], Decoded | None]] = []
    run: list[Decoded] = []
    for one in side:
        if one.kind == "nothing":
            continue
        if one.kind == "event":
            found.append((run, one))
            run = []
        else:
            run.append(one)
    found.append((run, None))
    return found


def _between(a: list[Decoded], b: list[Decoded]) -> list[Slot]:
    left = [k for k, one in enumerate(a) if one.kind in ("pure", "wave")]
    right = [k for k, one in enumerate(b) if one.kind in ("pure", "wave")]
    keys = [a[k].shape for k in left], [b[k].shape for k in right]
    pairs = (
        list(zip(left, right, strict=True))
        if keys[0] == keys[1]
        else [
            (left[m.a + k], right[m.b + k])
            for m in SequenceMatcher(None, *keys, autojunk=False).get_matching_blocks()
            for k in range(m.size)
        ]
    )
    steps: list[Slot] = []
    i = j = 0
    for x, y in [*pairs, (len(a), len(b))]:
        steps += [Slot(one, None) for one in a[i:x]]
        steps += [Slot(None, one) for one in b[j:y]]
        if x < len(a):
            steps.append(Slot(a[x], b[y]))
        i, j = x + 1, y + 1
    return steps
