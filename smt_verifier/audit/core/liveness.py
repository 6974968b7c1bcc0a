"""Which pre-RA lanes may have been written, for the wave: along paths, without EXEC.

As in LLVM, a register need not be declared live for a lane that no path has defined (``flags.py``).
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass

from smt_verifier.audit.core.lanes import LaneMap
from smt_verifier.audit.core.opcodes import COPIES
from verilocc_mlir.mir.model import Instruction, MachineFunction


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
        return KeySet(self.bits & ~bits_of(lost, self.position) | bits_of(gained, self.position), self.position)


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
        gained.append(bits_of(defined, number))
        ended.append(bits_of(undefined, number))
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


def bits_of(keys: Iterable[int], number: dict[int, int]) -> int:
    bits = 0
    for key in keys:
        bits |= 1 << number.setdefault(key, len(number))
    return bits
