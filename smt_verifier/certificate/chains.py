"""Which pure instructions of a block belong together, by who reads their results.

Instructions that must stand on both sides pair beyond doubt. What defines an operand of the one defines that operand of
the other: from there on, definitions are followed backwards through the moves of both texts.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from smt_verifier.checker.effects import Both
from smt_verifier.checker.lanes import Lanes
from smt_verifier.checker.model import Instruction
from smt_verifier.checker.moves import Move, Moves
from smt_verifier.checker.outcome import Refused

Defined = tuple[int, int]
"""An instruction, and which lane of its results."""


@dataclass(frozen=True, slots=True)
class Chains:
    """Pairs that readers call for.

    Attributes:
        pairs: instructions of P and of Q whose results are read in the same place.
        foreign: instructions of Q whose result P's reader takes from elsewhere.
    """

    pairs: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    foreign: set[int] = field(default_factory=set[int])


def origins(code: Sequence[Instruction], lanes: Lanes, moves: Moves) -> list[dict[int, list[Defined | None]]]:
    """For each instruction and operand that it reads: what in the block defined each lane, None for nothing."""
    known: dict[int, Defined | None] = {}
    rows: list[dict[int, list[Defined | None]]] = []
    for number, instruction in enumerate(code):
        rows.append(
            {
                n: [known.get(key) for key in lanes.keys(o, instruction)]
                for n, o in enumerate(instruction.operands)
                if o.is_register and o.is_use
            }
        )
        move = _move(instruction, lanes, moves)
        if move is not None:
            known.update([(to, known.get(of)) for to, of in zip(move.to, move.of, strict=True)])
            continue
        lane = 0
        for o in instruction.operands:
            if o.is_def and o.is_register:
                for key in lanes.keys(o, instruction):
                    known[key] = (number, lane)
                    lane += 1
    return rows


def _move(instruction: Instruction, lanes: Lanes, moves: Moves) -> Move | None:
    opcode = lanes.tables.opcode(instruction.opcode)
    if opcode is None or "no-code" in opcode.traits:
        return None
    try:
        move = moves.read(instruction, opcode)
    except Refused:
        return None
    return move if move is not None and move.thread < 0 else None


def follow(
    both: Both,
    codes: tuple[Sequence[Instruction], Sequence[Instruction]],
    anchors: Iterable[tuple[int, int]],
    keys: tuple[dict[int, Hashable], dict[int, Hashable]],
) -> Chains:
    """Pairs that follow from pairs that are certain.

    Args:
        codes: the block in P and in Q.
        keys: of the pure instructions on each side, by number: what two of them must have in common.
    """
    sides = [origins(code, lanes, moves) for code, lanes, moves in zip(codes, (both.before, both.after), both.moves, strict=True)]
    chains = Chains()
    pending = list(anchors)
    seen = set(pending)
    while pending:
        a, b = pending.pop()
        for number, of_p in sides[0][a].items():
            of_q = sides[1][b].get(number)
            if of_q is None or len(of_p) != len(of_q):
                continue
            for x, y in zip(of_p, of_q, strict=True):
                if y is None or y[0] not in keys[1]:
                    continue
                if x is None or x[1] != y[1] or keys[0].get(x[0]) != keys[1][y[0]]:
                    chains.foreign.add(y[0])
                elif (x[0], y[0]) not in seen:
                    seen.add((x[0], y[0]))
                    pending.append((x[0], y[0]))
                    chains.pairs.append((x[0], y[0]))
    chains.foreign.difference_update(b for _, b in chains.pairs)
    return chains


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
