"""Which pre-RA lanes are still read, and which may have been written, for the wave: along paths, without EXEC.

Inference uses the reads to keep relations small; no verdict depends on that. ``flags.py`` uses both: as in LLVM, a
register need not be declared live for a lane that is dead or that no path has defined.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from smt_verifier.audit.core.lanes import LaneMap
from smt_verifier.audit.core.moves import cell_threads, really_written, scalar_moves
from smt_verifier.audit.core.semantics import COPIES, is_move
from verilocc_mlir.mir.model import Instruction, MachineFunction


@dataclass(frozen=True, slots=True)
class Reads:
    """Keys that are read from a block's entry on, for each block in layout order.

    Attributes:
        live: on some path, before it writes them.
        later: on some path, written or not: a thread that waits keeps what others write.
    """

    live: list[set[int]]
    later: list[KeySet]


def reads_from_entry(function: MachineFunction, lanes: LaneMap, remembered: Mapping[int, set[int]]) -> Reads:
    """What is read from each block's entry on; where a key is that ``remembered`` has, its keys are too: of the result
    of a repeated operation, what it was computed from is worth knowing.
    """
    position = {b.number: n for n, b in enumerate(function.blocks)}
    successors = [[position[s] for s, _ in b.successors] for b in function.blocks]
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
            if is_move(instruction):
                moves = scalar_moves(instruction, lanes, threads) or ()
                used.update(of for _, of in moves)
                exposed.update(of for _, of in moves if of not in written)
                written.update(to for to, _ in moves)
            for op in really_written(instruction):
                written.update(lanes.keys(op))
        first.append(exposed)
        for key in remembered.keys() & used:
            used |= remembered[key]
        every.append(_bits(used, number))
        writes.append(written)
    live = _backward(successors, first, writes)
    for keys in live:
        for key in remembered.keys() & keys:
            keys |= remembered[key]
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


def definitions(instruction: Instruction, lanes: LaneMap) -> tuple[set[int], set[int]]:
    """Keys of virtual registers that an instruction defines, and those it leaves undefined."""
    defined: set[int] = set()
    undefined: set[int] = set()
    for op in instruction.all_operands:
        if op.is_def and op.vreg >= 0:
            defined.update(lanes.keys(op))
            undefined.update(lanes.register_lanes(op.vreg) if op.undef else ())
    undefines_all = instruction.opcode == "IMPLICIT_DEF" or (
        instruction.opcode in COPIES and any(op.is_use and op.undef and not op.implicit for op in instruction.operands)
    )
    return (set(), defined | undefined) if undefines_all else (defined, undefined - defined)


@dataclass(frozen=True, slots=True)
class KeySet:
    """A set of keys as the bits of a number: sets that grow along a function are too large one by one."""

    bits: int
    position: dict[int, int]

    def __contains__(self, key: int) -> bool:
        at = self.position.get(key)
        return at is not None and bool(self.bits >> at & 1)

    def members(self) -> Container[int]:
        """The same set, for many questions: of a long number, each bit costs a copy of it."""
        return _Members(self.bits.to_bytes(self.bits.bit_length() // 8 + 1, "little"), self.position)

    def __or__(self, other: KeySet) -> KeySet:
        return KeySet(self.bits | other.bits, self.position)

    def after(self, gained: Iterable[int], lost: Iterable[int]) -> KeySet:
        """The set without ``lost`` and with ``gained``."""
        return KeySet(self.bits & ~_bits(lost, self.position) | _bits(gained, self.position), self.position)


@dataclass(frozen=True, slots=True)
class _Members:
    """The bits of a ``KeySet``, eight to a byte."""

    octets: bytes
    position: dict[int, int]

    def __contains__(self, key: object) -> bool:
        at = self.position.get(key) if isinstance(key, int) else None
        return at is not None and at >> 3 < len(self.octets) and bool(self.octets[at >> 3] >> (at & 7) & 1)


def defined_at_exit(function: MachineFunction, lanes: LaneMap) -> list[KeySet]:
    """For each block, in layout order, the keys of virtual registers that some path to its end defines.

    ``IMPLICIT_DEF`` and the lanes that ``undef %5.sub1 = …`` leaves out end a definition.
    """
    position = {b.number: n for n, b in enumerate(function.blocks)}
    number: dict[int, int] = {}
    gained: list[int] = []
    ended: list[int] = []
    for block in function.blocks:
        defined: set[int] = set()
        undefined: set[int] = set()
        for instruction in block.instructions:
            defined_here, undefined_here = definitions(instruction, lanes)
            defined -= undefined_here
            defined |= defined_here
            undefined |= undefined_here
            undefined -= defined_here
        gained.append(_bits(defined, number))
        ended.append(_bits(undefined, number))
    successors = [[position[s] for s, _ in b.successors] for b in function.blocks]
    entry = [0] * len(function.blocks)
    changed = True
    while changed:
        # Layout order is close to the order of execution: as many rounds as loops are nested, and one.
        changed = False
        for n, after in enumerate(successors):
            out = entry[n] & ~ended[n] | gained[n]
            for at in after:
                if out & ~entry[at]:
                    entry[at] |= out
                    changed = changed or at <= n
    return [KeySet(entry[n] & ~ended[n] | gained[n], number) for n in range(len(entry))]


def _bits(keys: Iterable[int], number: dict[int, int]) -> int:
    bits = 0
    for key in keys:
        bits |= 1 << number.setdefault(key, len(number))
    return bits
