"""Which pre-RA lanes are still read from a block's entry on, for the wave: along paths, without EXEC; and who reads
what a wrong flag ends. Untrusted.

Inference keeps relations small by it; no verdict depends on that.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from msgspec.structs import replace

from smt_verifier.audit.core.flags import KeySet, Place, bits_of
from smt_verifier.audit.core.lanes import ENTRY, key_name, other_half
from smt_verifier.audit.core.moves import cell_threads, really_written, scalar_moves
from smt_verifier.audit.core.opcodes import DEBUG, NO_CODE, facts
from smt_verifier.audit.core.product import Product
from smt_verifier.audit.core.report import Fact, Finding, Site, Value
from smt_verifier.audit.core.semantics import is_move
from verilocc_mlir.mir.model import Instruction


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


# Which instruction makes a liveness flag or a block's live-ins wrong: the first read of the register after it.


def explain_faults(product: Product, faults: dict[Place, Finding]) -> list[Finding]:
    """One finding for each flagged instruction and each block, with all its registers and the read that matters."""
    groups: dict[tuple[str, int], list[int]] = {}
    first: dict[tuple[str, int], Finding] = {}
    for (rule, where, key), finding in faults.items():
        groups.setdefault((rule, where), []).append(key)
        first.setdefault((rule, where), finding)
    reads = _Reads(product)
    return [_explained(product, first[place], keys, place[1], reads) for place, keys in groups.items()]


def _explained(product: Product, finding: Finding, keys: list[int], where: int, reads: _Reads) -> Finding:
    grain = product.post_lanes.grain
    names = list(dict.fromkeys(key_name(k, 2 if other_half(k) in keys else grain) for k in sorted(keys, reverse=True)))
    _, verb, predicate = finding.message.partition(" is ")
    message = f"{', '.join(names)} {'are' if len(names) > 1 else verb.strip()} {predicate}"
    first_read = reads.after(finding.block, -1 if finding.rule == "live-in" else where, keys[0])
    if first_read is None:
        return replace(finding, message=message)
    site, path = first_read
    value = Value(names[0], (Fact(f"{key_name(keys[0], 2)} is read by", site),))
    return replace(finding, message=message, found=value, path=path)


class _Reads:
    """Reads of the post-RA side; what the pre-RA side leaves undefined does not count as read."""

    def __init__(self, product: Product) -> None:
        self._product = product
        self._real = product.real_reads()

    def after(self, block: int, instruction: int, key: int) -> tuple[Site, tuple[str, ...]] | None:
        """The first read of ``key`` after an instruction (by ``id``; -1: from the start), and the path to it."""
        blocks = self._product.post.blocks
        row = blocks[block].instructions
        start = next((n + 1 for n, i in enumerate(row) if id(i) == instruction), 0)
        queue = deque[tuple[int, int, tuple[str, ...]]]([(block, start, (f"bb.{blocks[block].number}",))])
        visited: set[int] = set()
        while queue:
            here, start, path = queue.popleft()
            reader, ended = self._scan(blocks[here].instructions[start:], key)
            label = f"bb.{blocks[here].number}"
            if reader is not None:
                return Site("post", here, label, reader.line, str(reader).partition(" :: ")[0]), path
            for successor in () if ended else self._product.successors[here]:
                if successor not in visited:
                    visited.add(successor)
                    queue.append((successor, 0, (*path, f"bb.{blocks[successor].number}")))
        return None

    def _scan(self, instructions: tuple[Instruction, ...], key: int) -> tuple[Instruction | None, bool]:
        """The first read, and whether the register is written before it."""
        keys = self._product.post_lanes.keys
        for instruction in instructions:
            if instruction.opcode in DEBUG or instruction.opcode == "BUNDLE":
                continue
            real = self._real.get(id(instruction))
            is_read = (
                any(key == k for k, _ in real)
                if real is not None
                else any(op.is_use and not op.undef and key in keys(op) for op in instruction.all_operands)
            )
            if is_read and instruction.opcode not in NO_CODE:
                return instruction, True
            if any(op.is_def and op.is_reg and key in keys(op) for op in instruction.all_operands):
                return None, True
        return None, False
