"""Which instruction of the text after allocation stands for which one of the text before it.

Moves and instructions without code never pair. The others pair in order: those that must stand on both sides by a
longest common subsequence of their keys, pure ones likewise between two of those.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from difflib import SequenceMatcher

from smt_verifier.checker.check import code_of
from smt_verifier.checker.effects import Both
from smt_verifier.checker.lanes import Lanes
from smt_verifier.checker.model import Instruction, Kind
from smt_verifier.checker.purity import is_dropped, is_pure

Steps = list[tuple[str, int]]
_EXACT = 1_000_000
"""Comparisons up to which a longest common subsequence is looked for."""


def operation(instruction: Instruction, both: Both) -> Hashable:
    """What two instructions must have in common to be the same operation on other registers."""
    opcode = both.forms.opcode(instruction)
    shape = tuple(
        o.number if o.kind is Kind.BLOCK else "" if o.kind in (Kind.REGISTER, Kind.FRAME_INDEX) else o.text
        for o in instruction.operands
        if not o.is_implicit
    )
    return opcode.value("canon") or instruction.opcode, instruction.definitions, instruction.flags, shape


class _Side:
    """The instructions of a block that may pair, with their keys."""

    def __init__(self, block: int, lanes: Lanes, both: Both, *, after: bool) -> None:
        self.code = code_of(lanes.function.blocks[block], lanes.tables)
        self.at: list[int] = []
        self.keys: list[Hashable] = []
        self.fixed: list[bool] = []
        for number, instruction in enumerate(self.code):
            opcode = both.forms.opcode(instruction)
            if "no-code" in opcode.traits or both.moves[after].read(instruction, opcode) is not None:
                continue
            self.at.append(number)
            self.keys.append(operation(instruction, both))
            self.fixed.append(not is_dropped(instruction, opcode, lanes) or "pure-exec" in opcode.traits)


def pair_block(block: int, both: Both, unpaired: Collection[tuple[int, int]] = ()) -> Steps:
    """Runs of steps of a block, as a certificate has them; instructions of P in ``unpaired`` stand alone."""
    p, q = _Side(block, both.before, both, after=False), _Side(block, both.after, both, after=True)
    if p.keys == q.keys:
        pairs = list(zip(p.at, q.at, strict=True))
    else:
        fixed = [[n for n, f in enumerate(side.fixed) if f] for side in (p, q)]
        anchors = [
            (fixed[0][a], fixed[1][b])
            for a, b in _matches([p.keys[n] for n in fixed[0]], [q.keys[n] for n in fixed[1]])
        ]
        pairs: list[tuple[int, int]] = []
        i = j = 0
        for a, b in [*anchors, (len(p.keys), len(q.keys))]:
            gaps = [[n for n in range(*bounds) if not side.fixed[n]] for side, bounds in ((p, (i, a)), (q, (j, b)))]
            for x, y in _matches([p.keys[n] for n in gaps[0]], [q.keys[n] for n in gaps[1]]):
                pairs.append((p.at[gaps[0][x]], q.at[gaps[1][y]]))
            if a < len(p.keys):
                pairs.append((p.at[a], q.at[b]))
            i, j = a + 1, b + 1
    pairs = [pair for pair in pairs if (block, pair[0]) not in unpaired]
    return _runs(pairs, len(p.code), len(q.code))


def _runs(pairs: Sequence[tuple[int, int]], p_length: int, q_length: int) -> Steps:
    steps: Steps = []

    def add(kind: str, count: int) -> None:
        if steps and steps[-1][0] == kind:
            steps[-1] = kind, steps[-1][1] + count
        elif count:
            steps.append((kind, count))

    i = j = 0
    for a, b in [*pairs, (p_length, q_length)]:
        add("-", a - i)
        add("+", b - j)
        if a < p_length:
            add("=", 1)
        i, j = a + 1, b + 1
    return steps


def _matches(left: Sequence[Hashable], right: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Positions of a longest common subsequence, in order."""
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


def candidates(both: Both, steps: Sequence[Steps]) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """For each instruction of Q that stands alone and is pure: the instructions of P that it may repeat."""
    wanted: dict[tuple[int, int], Hashable] = {}
    for block, runs in enumerate(steps):
        code = code_of(both.after.function.blocks[block], both.after.tables)
        at = 0
        for kind, count in runs:
            for number in range(at, at + count) if kind == "+" else ():
                instruction = code[number]
                if is_pure(instruction, both.forms.opcode(instruction), both.after):
                    wanted[block, number] = operation(instruction, both)
            at += count if kind != "-" else 0
    by_operation: dict[Hashable, list[tuple[int, int]]] = {key: [] for key in wanted.values()}
    for block, of_block in enumerate(both.before.function.blocks) if wanted else ():
        for number, instruction in enumerate(code_of(of_block, both.before.tables)):
            key = operation(instruction, both)
            if key in by_operation and is_pure(instruction, both.forms.opcode(instruction), both.before):
                by_operation[key].append((block, number))
    return {at: by_operation[key] for at, key in wanted.items() if by_operation[key]}
