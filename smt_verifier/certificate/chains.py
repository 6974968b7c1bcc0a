"""Which pure instructions belong together, by who reads their results.

Instructions that must stand on both sides pair beyond doubt. What defines an operand of the one defines that operand of
the other: from there on, definitions are followed backwards through the moves of both texts, across blocks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from smt_verifier.checker.certificate import Key
from smt_verifier.checker.effects import Both, Place
from smt_verifier.checker.lanes import Lanes, cell
from smt_verifier.checker.model import Instruction
from smt_verifier.checker.moves import Move, Moves

Defined = tuple[int, int, int]
"""Block and number of an instruction, and which lane of its results."""
Origins = frozenset[Defined]
_NOWHERE: Origins = frozenset()
_Known = dict[Key, Origins]
_MOST = 8
"""Definitions of one lane that are followed."""


@dataclass(frozen=True, slots=True)
class Chains:
    """What readers call for.

    Attributes:
        pairs: of each block, instructions of P and of Q whose results are read in the same place.
        foreign: instructions of Q whose result P's reader takes from another block.
        repeated: for instructions of Q, those of P whose result is read in the same place.
    """

    pairs: defaultdict[int, set[tuple[int, int]]] = field(
        default_factory=lambda: defaultdict[int, set[tuple[int, int]]](set)
    )
    foreign: set[Place] = field(default_factory=set[Place])
    repeated: defaultdict[Place, list[Place]] = field(default_factory=lambda: defaultdict[Place, list[Place]](list))


class Definitions:
    """Where the lanes that each instruction of one text reads were defined.

    Args:
        codes: the instructions of each block.
        followed: numbers of blocks and instructions whose results are of interest.
    """

    def __init__(
        self,
        lanes: Lanes,
        moves: Moves,
        codes: Sequence[Sequence[Instruction]],
        order: Sequence[int],
        followed: Collection[Place],
    ) -> None:
        self._lanes = lanes
        self._codes = codes
        self._rows = [list(self._effects(n, code, moves, followed)) for n, code in enumerate(codes)]
        self._entries: dict[int, _Known] = {order[0]: {}}
        pending = set(order)
        while pending:
            for block in [n for n in order if n in pending]:
                pending.discard(block)
                if block not in self._entries:
                    continue
                known = dict(self._entries[block])
                for row in self._rows[block]:
                    _apply(row, known)
                for successor in lanes.successors(block):
                    if self._join(successor, known):
                        pending.add(successor)

    def _join(self, successor: int, known: _Known) -> bool:
        """What is known at an edge is known at the block's entry too; says whether that is news."""
        entry = self._entries.get(successor)
        if entry is None:
            self._entries[successor] = dict(known)
            return True
        changed = False
        for key, origins in known.items():
            old = entry.get(key, _NOWHERE)
            if not origins <= old and len(old) < _MOST:
                entry[key] = old | origins
                changed = True
        return changed

    def _effects(
        self, block: int, code: Sequence[Instruction], moves: Moves, followed: Collection[Place]
    ) -> Iterator[tuple[Sequence[Key], Sequence[Key], tuple[Defined | None, ...]]]:
        """For each instruction the lanes that it writes, and what they are copies of, or what they are."""
        for number, instruction in enumerate(code):
            opcode = self._lanes.tables.opcode(instruction.opcode)
            move = moves.read(instruction, opcode) if opcode is not None and "no-code" not in opcode.traits else None
            if move is not None:
                yield *_ends(move), ()
                continue
            keys = [
                k for o in instruction.operands if o.is_def and o.is_register for k in self._lanes.keys(o, instruction)
            ]
            own = (block, number) in followed
            yield keys, (), tuple((block, number, n) if own else None for n in range(len(keys)))

    def read(self, block: int) -> list[dict[int, list[Origins]]]:
        """For each instruction of a block, and each operand that it reads: the definitions of its lanes."""
        known = dict(self._entries.get(block, {}))
        rows: list[dict[int, list[Origins]]] = []
        for instruction, row in zip(self._codes[block], self._rows[block], strict=True):
            rows.append(
                {
                    n: [known.get(key, _NOWHERE) for key in self._lanes.keys(o, instruction)]
                    for n, o in enumerate(instruction.operands)
                    if o.is_register and o.is_use
                }
            )
            _apply(row, known)
        return rows


def _ends(move: Move) -> tuple[Sequence[Key], Sequence[Key]]:
    if move.thread < 0:
        return move.to, move.of
    cells = [cell(move.register[0], move.thread, half) for half in range(len(move.of or move.to))]
    return (cells, move.of) if move.saves else (move.to, cells)


def _apply(row: tuple[Sequence[Key], Sequence[Key], tuple[Defined | None, ...]], known: _Known) -> None:
    to, of, defined = row
    if of:
        known.update([(key, known.get(source, _NOWHERE)) for key, source in zip(to, of, strict=True)])
    else:
        known.update((key, _NOWHERE if d is None else frozenset((d,))) for key, d in zip(to, defined, strict=True))


def follow(
    both: Both,
    codes: tuple[Sequence[Sequence[Instruction]], Sequence[Sequence[Instruction]]],
    order: Sequence[int],
    anchors: Iterable[tuple[Place, Place]],
    keys: tuple[dict[Place, Hashable], dict[Place, Hashable]],
) -> Chains:
    """Pairs that follow from pairs that are certain.

    Args:
        codes: the blocks of P and of Q.
        order: the blocks that can be reached, the first one first.
        keys: of the pure instructions on each side: what two of them must have in common.
    """
    sides = [
        Definitions(lanes, moves, code, order, of)
        for lanes, moves, code, of in zip((both.before, both.after), both.moves, codes, keys, strict=True)
    ]
    reads: list[dict[int, list[dict[int, list[Origins]]]]] = [{}, {}]
    chains = Chains()
    pending = list(anchors)
    seen = set(pending)
    elsewhere: set[Place] = set()
    while pending:
        a, b = pending.pop()
        for side, block, known in zip(sides, (a[0], b[0]), reads, strict=True):
            if block not in known:
                known[block] = side.read(block)
        for number, of_p in reads[0][a[0]][a[1]].items():
            of_q = reads[1][b[0]][b[1]].get(number, [])
            for x, y in zip(of_p, of_q, strict=False):
                for q in y:
                    fitting = [p for p in x if p[2] == q[2] and keys[0][p[:2]] == keys[1][q[:2]]]
                    near = [p for p in fitting if p[0] == q[0]] or (fitting if len(x) == 1 else [])
                    # What is no operation that P's reader may take is in a register that P leaves undefined.
                    if fitting and not near:
                        elsewhere.add(q[:2])
                    for pair in [(p[:2], q[:2]) for p in near]:
                        if pair not in seen:
                            seen.add(pair)
                            pending.append(pair)
                            _note(pair, chains)
    chains.foreign.update(
        q for q in (elsewhere | chains.repeated.keys()) if all(p[0] != q[0] for p in chains.repeated[q])
    )
    return chains


def _note(pair: tuple[Place, Place], chains: Chains) -> None:
    (block, p), (other, q) = pair
    chains.repeated[other, q].append((block, p))
    if block == other:
        chains.pairs[block].add((p, q))


def increasing(pairs: Collection[tuple[int, int]]) -> list[tuple[int, int]]:
    """As many of the pairs as can stand in order, each instruction once (patience sorting)."""
    ordered = sorted(pairs, key=lambda pair: (pair[0], -pair[1]))
    tails: list[int] = []
    before: list[int] = []
    for n, (_, b) in enumerate(ordered):
        low, high = 0, len(tails)
        while low < high:
            middle = (low + high) // 2
            if ordered[tails[middle]][1] < b:
                low = middle + 1
            else:
                high = middle
        before.append(tails[low - 1] if low else -1)
        tails[low : low + 1] = [n]
    found: list[tuple[int, int]] = []
    at = tails[-1] if tails else -1
    while at >= 0:
        found.append(ordered[at])
        at = before[at]
    return found[::-1]
