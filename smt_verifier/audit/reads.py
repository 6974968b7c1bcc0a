"""Which pre-RA lanes are still read from a block's entry on, for the wave: along paths, without EXEC. Untrusted.

Inference keeps relations small by it; no verdict depends on that.
"""

from __future__ import annotations

from dataclasses import dataclass

from smt_verifier.audit.core.lanes import ENTRY
from smt_verifier.audit.core.liveness import KeySet, bits_of
from smt_verifier.audit.core.moves import cell_threads, really_written, scalar_moves
from smt_verifier.audit.core.opcodes import facts
from smt_verifier.audit.core.product import Product
from smt_verifier.audit.core.semantics import is_move


@dataclass(frozen=True, slots=True)
class Reads:
    """Keys that are read from a block's entry on, for each block in layout order.

    Attributes:
        live: on some path, before it writes them.
        later: on some path, written or not: a thread that waits keeps what others write.
    """

    live: list[set[int]]
    later: list[KeySet]


def reads_from_entry(product: Product) -> Reads:
    """What is read from each block's entry on; with the result of a repeated operation, what it was computed from."""
    function, lanes, successors = product.pre, product.pre_lanes, product.successors
    remembered = _remembered(product)
    threads = cell_threads(function)
    first: list[set[int]] = []
    every: list[int] = []
    number: dict[int, int] = {}
    writes: list[set[int]] = []
    for block in function.blocks:
        exposed: set[int] = set()
        used: set[int] = set()
        written: set[int] = set()
        for instruction in block.instructions:
            for op in instruction.operands:
                if op.is_use and not op.undef:
                    keys = lanes.keys(op)
                    used.update(keys)
                    if not written.issuperset(keys):
                        exposed.update([k for k in keys if k not in written])
            if facts(instruction.opcode).may_move and is_move(instruction):
                moves = scalar_moves(instruction, lanes, threads) or ()
                used.update(of for _, of in moves)
                exposed.update(of for _, of in moves if of not in written)
                written.update(to for to, _ in moves)
            for op in really_written(instruction):
                written.update(lanes.keys(op))
        first.append(exposed)
        for key in remembered.keys() & used:
            used |= remembered[key]
        every.append(bits_of(used, number))
        writes.append(written)
    live = _backward(successors, first, writes)
    for keys in live:
        for key in remembered.keys() & keys:
            keys |= remembered[key]
        keys.update(ENTRY - 1 - k for k in product.saved_keys)
        keys.update(product.executor.addressing)
    return Reads(live, [KeySet(bits, number) for bits in _reachable(successors, every)])


def _reachable(successors: list[list[int]], reads: list[int]) -> list[int]:
    """The bits of each block and of all that can be reached from it."""
    later = list(reads)
    changed = True
    while changed:
        changed = False
        for n in range(len(later) - 1, -1, -1):
            new = later[n]
            for successor in successors[n]:
                new |= later[successor]
            changed = changed or new != later[n]
            later[n] = new
    return later


def _backward(successors: list[list[int]], reads: list[set[int]], writes: list[set[int]]) -> list[set[int]]:
    live = [set(r) for r in reads]
    changed = True
    while changed:
        changed = False
        for n in range(len(live) - 1, -1, -1):
            out: set[int] = set()
            for successor in successors[n]:
                out |= live[successor]
            new = (out - writes[n]) | reads[n]
            if len(new) != len(live[n]):
                live[n] = new
                changed = True
    return live


def _remembered(product: Product) -> dict[int, set[int]]:
    """For each lane that holds the result of a repeated operation, the keys that remember what it was computed from."""
    arguments: dict[int, set[int]] = {}
    ghosts = product.executor.ghosts
    for block in product.pre.blocks if ghosts else ():
        for instruction in block.instructions:
            if id(instruction) in ghosts:
                for key in product.pre_lanes.keys(instruction.defs[0]):
                    arguments.setdefault(key, set()).update(ghosts[id(instruction)].arguments)
    return arguments
