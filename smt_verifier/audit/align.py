"""Pairing the instructions of both sides of a block.

The pairing is a guess that the rest of the audit checks: any pairing under which everything is proved is a proof.
Copies, spill code and instructions without code never pair; each acts on its own side. Mandatory instructions pair in
order, pure ones by longest common subsequence between them.
"""

from __future__ import annotations

from collections import Counter
from difflib import SequenceMatcher

from smt_verifier.audit.core.semantics import (
    DEBUG,
    acts_alone,
    canonical_opcode,
    explicit_shape,
    is_pure,
    result_depends_on_exec,
)
from smt_verifier.audit.core.steps import Step
from verilocc_mlir.mir.model import Instruction

Key = tuple[object, ...]

_EXACT = 1_000_000
"""Comparisons up to which a longest common subsequence is looked for: about a second."""


def anchor_key(instruction: Instruction) -> Key:
    """What two instructions must share to be paired."""
    return (canonical_opcode(instruction.opcode), len(instruction.defs), explicit_shape(instruction.operands))


def align(pre: tuple[Instruction, ...], post: tuple[Instruction, ...]) -> list[Step]:
    """Steps in an order that keeps the order of each side. Unpaired mandatory instructions come out as steps of one
    side.
    """
    left = [i for i in pre if i.opcode not in DEBUG]
    right = [i for i in post if i.opcode not in DEBUG]
    left_at = [k for k, i in enumerate(left) if not acts_alone(i)]
    right_at = [k for k, i in enumerate(right) if not acts_alone(i)]
    left_keys = [anchor_key(left[k]) for k in left_at]
    right_keys = [anchor_key(right[k]) for k in right_at]
    if left_keys == right_keys:
        pairs = list(zip(left_at, right_at, strict=True))
    else:
        pairs = _common(left, right, left_at, right_at, left_keys, right_keys)
    steps: list[Step] = []
    i = j = 0
    for a, b in [*pairs, (len(left), len(right))]:
        steps += [Step(x, None) for x in left[i:a]]
        steps += [Step(None, y) for y in right[j:b]]
        if a < len(left):
            steps.append(Step(left[a], right[b]))
        i, j = a + 1, b + 1
    return steps


def _common(
    left: list[Instruction],
    right: list[Instruction],
    left_at: list[int],
    right_at: list[int],
    left_keys: list[Key],
    right_keys: list[Key],
) -> list[tuple[int, int]]:
    """Pair mandatory instructions first, then pure ones between two neighbouring mandatory pairs."""
    # What depends on the active threads is seldom repeated: where it stands as often on both sides, it is an anchor.
    times, other_times = Counter(left_keys), Counter(right_keys)
    steady = {key for key, number in times.items() if other_times[key] == number}

    def is_fixed(instruction: Instruction, key: Key) -> bool:
        return not is_pure(instruction) or (result_depends_on_exec(instruction.opcode) and key in steady)

    left_fixed = [n for n, k in enumerate(left_at) if is_fixed(left[k], left_keys[n])]
    right_fixed = [n for n, k in enumerate(right_at) if is_fixed(right[k], right_keys[n])]
    anchors = _matches([left_keys[n] for n in left_fixed], [right_keys[n] for n in right_fixed])
    pairs: list[tuple[int, int]] = []
    i = j = 0
    ends = [*((left_fixed[a], right_fixed[b]) for a, b in anchors), (len(left_keys), len(right_keys))]
    for a, b in ends:
        # A mandatory instruction inside the gap has no partner and must not get one: it is reported as missing or
        # added.
        gap_left = [n for n in range(i, a) if not is_fixed(left[left_at[n]], left_keys[n])]
        gap_right = [n for n in range(j, b) if not is_fixed(right[right_at[n]], right_keys[n])]
        for x, y in _matches([left_keys[n] for n in gap_left], [right_keys[n] for n in gap_right]):
            pairs.append((left_at[gap_left[x]], right_at[gap_right[y]]))
        if a < len(left_keys):
            pairs.append((left_at[a], right_at[b]))
        i, j = a + 1, b + 1
    return pairs


def _matches(left: list[Key], right: list[Key]) -> list[tuple[int, int]]:
    """Positions of a longest common subsequence, in order.

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
    middle = _longest(a, b) if len(a) * len(b) <= _EXACT else _runs(a, b)
    return [
        *((n, n) for n in range(start)),
        *((start + x, start + y) for x, y in middle),
        *((len(left) - n, len(right) - n) for n in range(end, 0, -1)),
    ]


def _longest(left: list[Key], right: list[Key]) -> list[tuple[int, int]]:
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


def _runs(left: list[Key], right: list[Key]) -> list[tuple[int, int]]:
    blocks = SequenceMatcher(None, left, right, autojunk=False).get_matching_blocks()
    return [(block.a + n, block.b + n) for block in blocks for n in range(block.size)]
