"""Values that one instruction makes again from another register, instead of a store and a load.

Addresses in a loop are often one value plus many constants. As long as that value, the *base*, stays in its register,
each of them costs one instruction where it is used. A base that would not live so long takes one register for all of
them.

A value counts if one instruction of the function writes it, and does so from a base and immediates alone; a base if one
instruction writes it, and no value made from it is live there: the base then holds the same as long as the value lives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct

from verilocc_mlir.mir.model import Instruction
from verilocc_mlir.problem.model import LiveRange
from verilocc_mlir.spilling.plan import SpillPlan
from verilocc_mlir.target.classes import RegisterClass

_OPERATIONS = frozenset(
    f"V_{name}_e64"
    for name in (
        *("ADD_U32", "SUB_U32", "SUBREV_U32", "XOR_B32", "OR_B32", "AND_B32", "NOT_B32", "ADD3_U32", "LSHL_ADD_U32"),
        *("LSHLREV_B32", "LSHRREV_B32", "ASHRREV_I32", "LSHL_OR_B32", "AND_OR_B32", "OR3_B32", "XOR3_B32"),
        *("ADD_LSHL_U32", "XAD_U32", "BFE_U32", "BFE_I32", "MUL_U32_U24", "MUL_I32_I24", "MAD_U32_U24"),
    )
)
"""Integer arithmetic that is as cheap as a move and reads nothing but its operands (VOP2Instructions.td,
VOP3Instructions.td)."""

STEPS = 3
"""Instructions between a base and a value."""

Part = tuple[int, int]
"""A virtual register and one of its 32-bit parts."""


class Base(Struct, frozen=True):
    """A register from which others are made.

    Attributes:
        values: what is made from it, with the instructions that do so.
    """

    vreg: int
    values: Mapping[Part, tuple[Instruction, ...]]

    @property
    def users(self) -> frozenset[int]:
        """The registers that have something made from it."""
        return frozenset(vreg for vreg, _ in self.values)

    def of(self, plans: Mapping[int, SpillPlan]) -> Base:
        """The same with what plans make from it alone."""
        made: dict[int, int] = {}
        for vreg in self.users & plans.keys():
            for move in plans[vreg].reloads:
                made[vreg] = made.get(vreg, 0) | move.parts
        return Base(self.vreg, {(v, part): i for (v, part), i in self.values.items() if made.get(v, 0) >> part & 1})


def bases(
    writers_of: Mapping[Part, Sequence[tuple[int, Instruction]]],
    classes: Mapping[int, RegisterClass],
    members: Mapping[int, LiveRange],
) -> list[Base]:
    """The bases among the registers of a phase, each with two values at least.

    Args:
        writers_of: ``ground.writers`` of the function.
    """
    once = {part: writers[0] for part, writers in writers_of.items() if len(writers) == 1 and part[0] in members}

    def is_base(vreg: int, values: Sequence[int]) -> bool:
        """Whether it is written once, while none of these values is live."""
        return (
            (vreg, 0) in once
            and classes[vreg].bits == 32
            and not any(_is_live(members[value], 4 * once[vreg, 0][0] + 1) for value in values)
        )

    makers: dict[Part, list[tuple[int, tuple[Instruction, ...]]]] = {}
    users: Counter[int] = Counter()
    for part, (_, instruction) in once.items():
        values, steps = [part[0]], (instruction,)
        while len(steps) <= STEPS and is_base(base := _base(steps[0]), values):
            makers.setdefault(part, []).append((base, steps))
            users[base] += 1
            values.append(base)
            steps = (once[base, 0][1], *steps)
    result: dict[int, dict[Part, tuple[Instruction, ...]]] = {}
    for part, ways in makers.items():
        shared = next((way for way in ways if users[way[0]] > 1), None)
        if shared is not None:
            result.setdefault(shared[0], {})[part] = shared[1]
    return [base for vreg, values in result.items() if len((base := Base(vreg, values)).users) > 1]


def _base(instruction: Instruction) -> int:
    """The one register that an instruction makes its value from; -1 where it may not be repeated."""
    registers = {operand.vreg for operand in instruction.operands if operand.is_reg and not operand.implicit}
    if (
        instruction.opcode not in _OPERATIONS
        or instruction.bundled
        or instruction.tail
        or len(registers) != 1
        or any(operand.sub or operand.undef or operand.killed for operand in instruction.operands)
        or instruction.defs[0].sub.endswith(("lo16", "hi16"))
    ):
        return -1
    return registers.pop()


def _is_live(live_range: LiveRange, slot: int) -> bool:
    return any(start <= slot < stop for group in live_range.groups for start, stop in group.segments)
