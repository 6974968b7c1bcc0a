"""Which units a live range may use, from the problem and the target's register classes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from verilocc_mlir.problem.model import AllocationProblem, BankBudget, LiveRange
from verilocc_mlir.target.classes import RegisterClass, members, register_class
from verilocc_mlir.target.registers import (
    AGPR_BASE,
    NULL_REGISTERS,
    SGPR_BASE,
    TTMP_BASE,
    VGPR_BASE,
    Bank,
    physical_register,
)

BANKS: dict[str, tuple[int, int]] = {
    "vgpr": (VGPR_BASE, AGPR_BASE),
    "agpr": (AGPR_BASE, SGPR_BASE),
    "sgpr": (SGPR_BASE, TTMP_BASE),
}
"""Units ``[first, end)`` of each bank a budget can be given for."""

Interval = tuple[int, int]
"""Units ``[first, end)``; a register lies in it when all of its units do."""


def merged(intervals: list[Interval]) -> tuple[Interval, ...]:
    """The same set as sorted, disjoint, non-adjacent intervals."""
    result: list[Interval] = []
    for first, end in sorted(intervals):
        if result and first <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((first, end))
    return tuple(result)


@dataclass(frozen=True, slots=True)
class ClassPlaces:
    """Where members of a class lie, of some banks and below a register number.

    Together with the alignment, which is a rule of its own, exact: an interval holds every aligned place from the first
    member of a run to the last, and each special register is an interval.
    """

    intervals: tuple[Interval, ...]
    alignment: int


@cache
def class_places(name: str, banks: tuple[str, ...], limit: int) -> ClassPlaces:
    """The places of a live range of a class; ``limit``: the register number that it allows, 0 for any."""
    cls = register_class(name)
    alignment = max((cls.alignment(Bank(bank)) for bank in banks if bank in BANKS), default=1)
    return ClassPlaces(_class_intervals(cls, banks, limit), alignment)


def _class_intervals(cls: RegisterClass, banks: tuple[str, ...], limit: int) -> tuple[Interval, ...]:
    result: list[Interval] = []
    for bank, (base, end) in BANKS.items():
        if bank in banks:
            last = base + 2 * limit if limit else end
            result += [(first, min(stop, last)) for first, stop in _runs(cls, Bank(bank), base)]
    if "special" in banks:
        units = [physical_register(special).units for special in sorted(cls.specials - NULL_REGISTERS)]
        result += [(u[0], u[-1] + 1) for u in units if len(u) == cls.lanes]
    return tuple(result)


def _runs(cls: RegisterClass, bank: Bank, base: int) -> list[Interval]:
    """The units of a class's members in a numbered file, one interval for each run of members a step apart."""
    if cls.half:
        high = cls.half == "hi16"
        return [(base + 2 * number + high, base + 2 * number + high + 1) for number in members(cls, bank)]
    step = cls.alignment(bank)
    runs: list[list[int]] = []
    for number in members(cls, bank):
        if runs and number == runs[-1][1] + step:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return [(base + 2 * first, base + 2 * (last + cls.width)) for first, last in runs]


def bank_top(budget: BankBudget) -> int:
    """First unit past the highest allocatable register of a bank."""
    return BANKS[budget.bank][0] + 2 * (max(budget.registers, default=-1) + 1)


def allocatable(problem: AllocationProblem) -> tuple[Interval, ...]:
    """Units that may be handed out at all: the budgets' registers and the special ones allowed."""
    result: list[Interval] = []
    for budget in problem.budgets:
        base = BANKS[budget.bank][0]
        result += [(base + 2 * number, base + 2 * number + 2) for number in budget.registers]
    for name in problem.special:
        units = physical_register(name).units
        result += [(unit, unit + 1) for unit in units]
    return merged(result)


def alignment(live: LiveRange) -> int:
    """The number of the first 32-bit register is a multiple of this power of two: what class and problem demand."""
    return max(live.align, class_places(live.register_class, live.banks, live.limit).alignment)


def unit_mask(live: LiveRange) -> int:
    """Bits of the first unit's number that must be zero; a 16-bit range may start at either half.

    The numbers of all banks start at a multiple of 2048 units.
    """
    return 2 * alignment(live) - 1 if live.lanes > 1 else 0
