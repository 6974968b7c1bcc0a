"""What two sequences have in common, as a search for pairs needs it. Untrusted: any pairing that is proved will do."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from difflib import SequenceMatcher

_EXACT = 1_000_000
"""Comparisons up to which a longest common subsequence is looked for: about a second."""


def common_subsequence(left: Sequence[Hashable], right: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Pairs of positions of a longest common subsequence, in order.

    Not a greedy matching of long runs (difflib): where a repeated instruction stands between each two of a row of equal
    ones, that would pair them with the wrong partners. Only beyond ``_EXACT`` comparisons is it used.
    """
    if left == right:
        return [(n, n) for n in range(len(left))]
    start = 0
    while start < min(len(left), len(right)) and left[start] == right[start]:
        start += 1
    end = 0
    while end < min(len(left), len(right)) - start and left[-1 - end] == right[-1 - end]:
        end += 1
    a, b = left[start : len(left) - end], right[start : len(right) - end]
    middle = _longest(a, b) if len(a) * len(b) <= _EXACT else _blocks(a, b)
    head = [(n, n) for n in range(start)]
    return [
        *head,
        *((start + x, start + y) for x, y in middle),
        *((len(left) - n, len(right) - n) for n in range(end, 0, -1)),
    ]


def _longest(left: Sequence[Hashable], right: Sequence[Hashable]) -> list[tuple[int, int]]:
    """By dynamic programming over the suffixes."""
    rows = [[0] * (len(right) + 1)]
    for key in reversed(left):
        below, row = rows[-1], [0] * (len(right) + 1)
        for n in range(len(right) - 1, -1, -1):
            row[n] = below[n + 1] + 1 if key == right[n] else max(below[n], row[n + 1])
        rows.append(row)
    rows.reverse()
    pairs: list[tuple[int, int]] = []
    i = j = 0
    while i < len(left) and j < len(right):
        if left[i] == right[j]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif rows[i + 1][j] >= rows[i][j + 1]:
            i += 1
        else:
            j += 1
    return pairs


def _blocks(left: Sequence[Hashable], right: Sequence[Hashable]) -> list[tuple[int, int]]:
    blocks = SequenceMatcher(None, left, right, autojunk=False).get_matching_blocks()
    return [(block.a + n, block.b + n) for block in blocks for n in range(block.size)]
