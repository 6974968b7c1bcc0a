"""Which instruction of the text after allocation stands for which one of the text before it.

Moves and instructions without code never pair. The others pair in order: those that must stand on both sides by a
longest common subsequence of their keys, pure ones likewise between two of those.
"""

from __future__ import annotations

from bisect import bisect
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from smt_verifier.certificate.chains import Chains, follow, increasing
from smt_verifier.certificate.matching import common_subsequence
from smt_verifier.checker.effects import Both, Place
from smt_verifier.checker.lanes import Lanes
from smt_verifier.checker.model import Instruction, Kind, Operand
from smt_verifier.checker.purity import is_pure

Steps = list[tuple[str, int]]


def operation(instruction: Instruction, both: Both, *, after: bool) -> Hashable:
    """What an instruction of P and one of Q (``after``) must have in common to be the same operation on registers."""
    opcode = both.forms.opcode(instruction)
    shape = tuple(_same_of(o, both, after=after) for o in instruction.operands if not o.is_implicit)
    return opcode.value("canon") or instruction.opcode, instruction.definitions, instruction.flags, shape


_OBJECTS = {Kind.FRAME_INDEX: "stack", Kind.FIXED_FRAME: "fixed-stack"}


def _same_of(o: Operand, both: Both, *, after: bool) -> Hashable:
    """What is equal of an operand that is the same in P and Q: blocks and stack objects have numbers of their own."""
    if o.kind is Kind.REGISTER:
        return ""
    if o.kind is Kind.BLOCK:
        return o.number
    if o.kind in _OBJECTS:
        at = _OBJECTS[o.kind], o.number
        return both.forms.objects.get(at) if after else at[1]
    return o.text


class _Side:
    """The instructions of a block that may pair, with their keys.

    Attributes:
        at: their numbers.
        certain: numbers of those that must stand on both sides; ``pure``: keys of the others. Loads, which P may have
            alone, are among the first: Q never has.
    """

    def __init__(self, block: int, lanes: Lanes, both: Both, *, after: bool) -> None:
        self.code = lanes.code(block)
        self.at: list[int] = []
        self.keys: dict[int, Hashable] = {}
        self.certain: list[int] = []
        self.pure: dict[int, Hashable] = {}
        for number, instruction in enumerate(self.code):
            opcode = both.forms.opcode(instruction)
            if "no-code" in opcode.traits or both.moves[after].read(instruction, opcode) is not None:
                continue
            key = self.keys[number] = operation(instruction, both, after=after)
            self.at.append(number)
            if not is_pure(instruction, opcode, lanes):
                self.certain.append(number)
            else:
                self.pure[number] = key


@dataclass(frozen=True, slots=True)
class Pairing:
    """How both texts are gone through.

    Attributes:
        steps: for each block runs of steps, as a certificate has them.
        repeated: instructions of Q, with those of P that they seem to stand for.
    """

    steps: list[Steps]
    repeated: Mapping[Place, Sequence[Place]]


def pair_all(both: Both, unpaired: Collection[Place] = (), *, in_order: bool = False) -> Pairing:
    """How both texts are gone through.

    Args:
        unpaired: instructions of P that stand alone.
        in_order: pure instructions pair as they stand, whatever their readers call for.
    """
    count = len(both.before.parts)
    ps = [_Side(n, both.before, both, after=False) for n in range(count)]
    qs = [_Side(n, both.after, both, after=True) for n in range(count)]
    differ = [list(p.keys.values()) != list(q.keys.values()) for p, q in zip(ps, qs, strict=True)]
    anchors: list[list[tuple[int, int]]] = [
        [
            (p.certain[a], q.certain[b])
            for a, b in common_subsequence([p.keys[n] for n in p.certain], [q.keys[n] for n in q.certain])
        ]
        for p, q in zip(ps, qs, strict=True)
    ]
    chains = Chains()
    if (any(differ) or unpaired) and not in_order:
        keys = _pure(ps), _pure(qs)
        certain = [((n, a), (n, b)) for n, of_block in enumerate(anchors) for a, b in of_block]
        codes = [p.code for p in ps], [q.code for q in qs]
        chains = follow(both, codes, reverse_postorder(both), certain, keys)
    steps: list[Steps] = []
    for n, (p, q) in enumerate(zip(ps, qs, strict=True)):
        if differ[n]:
            pairs = _pairs(
                p,
                q,
                anchors[n],
                chains.pairs[n],
                {i for block, i in chains.foreign if block == n},
            )
        else:
            pairs = list(zip(p.at, q.at, strict=True))
        pairs = [pair for pair in pairs if (n, pair[0]) not in unpaired]
        steps.append(_runs(pairs, len(p.code), len(q.code)))
    return Pairing(steps, chains.repeated)


def _pure(sides: Sequence[_Side]) -> dict[Place, Hashable]:
    return {(n, i): key for n, side in enumerate(sides) for i, key in side.pure.items()}


def _pairs(
    p: _Side,
    q: _Side,
    anchors: list[tuple[int, int]],
    called_for: Collection[tuple[int, int]],
    foreign: Collection[int],
) -> list[tuple[int, int]]:
    """The pairs of a block.

    Args:
        anchors: those that are certain.
        called_for: those that readers call for.
        foreign: instructions of Q that have no partner in the block.
    """
    within: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    bounds = [a for a, _ in anchors], [b for _, b in anchors]
    for a, b in called_for:
        gap = bisect(bounds[0], a)
        if gap == bisect(bounds[1], b):
            within[gap].append((a, b))
    ordered = [pair for gap, anchor in enumerate([*anchors, None]) for pair in (*increasing(within[gap]), anchor)]
    pairs: list[tuple[int, int]] = []
    for ps, qs in _gaps([pair for pair in ordered if pair is not None], len(p.code), len(q.code)):
        rest = [n for n in ps if n in p.pure], [n for n in qs if n in q.pure and n not in foreign]
        matches = common_subsequence([p.pure[n] for n in rest[0]], [q.pure[n] for n in rest[1]])
        pairs += [*((rest[0][a], rest[1][b]) for a, b in matches), (ps.stop, qs.stop)]
    return pairs[:-1]


def reverse_postorder(both: Both) -> list[int]:
    """The blocks that can be reached, each before its successors but for loops."""
    successors = [both.before.successors(number) for number in range(len(both.before.parts))]
    order: list[int] = []
    visited = {0}
    stack = [(0, iter(successors[0]))]
    while stack:
        block, remaining = stack[-1]
        following = next((s for s in remaining if s not in visited), None)
        if following is None:
            order.append(block)
            stack.pop()
        else:
            visited.add(following)
            stack.append((following, iter(successors[following])))
    return order[::-1]


def _gaps(pairs: Sequence[tuple[int, int]], p_stop: int, q_stop: int) -> Iterator[tuple[range, range]]:
    """What lies between pairs that are in order; each range stops at the next pair, or at the end."""
    p_start = q_start = 0
    for a, b in [*pairs, (p_stop, q_stop)]:
        yield range(p_start, a), range(q_start, b)
        p_start, q_start = a + 1, b + 1


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


def candidates(both: Both, pairing: Pairing) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """For each instruction of Q that stands alone and is pure: the instructions of P that it may repeat."""
    wanted: dict[tuple[int, int], Hashable] = {}
    for block, steps in enumerate(pairing.steps):
        code = both.after.code(block)
        at = 0
        for kind, count in steps:
            for number in range(at, at + count) if kind == "+" else ():
                instruction = code[number]
                if is_pure(instruction, both.forms.opcode(instruction), both.after):
                    wanted[block, number] = operation(instruction, both, after=True)
            at += count if kind != "-" else 0
    by_operation: dict[Hashable, list[tuple[int, int]]] = {key: [] for key in wanted.values()}
    for block in range(len(both.before.parts)) if wanted else ():
        for number, instruction in enumerate(both.before.code(block)):
            key = operation(instruction, both, after=False)
            if key in by_operation and is_pure(instruction, both.forms.opcode(instruction), both.before):
                by_operation[key].append((block, number))
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for at, key in wanted.items():
        likely = [place for place in pairing.repeated.get(at, ()) if place in by_operation[key]]
        if by_operation[key]:
            found[at] = [*likely, *(place for place in by_operation[key] if place not in likely)]
    return found
