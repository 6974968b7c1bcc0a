"""Which units a live range may use, from the problem and the target's register classes."""

from __future__ import annotations

from functools import cache, lru_cache

from verilocc_mlir.problem.model import AllocationProblem, BankBudget, LiveRange
from verilocc_mlir.target.classes import RegisterClass, register_class
from verilocc_mlir.target.registers import (
    AGPR_BASE,
    SGPR_BASE,
    SPECIAL_BASE,
    SPECIAL_REGISTERS,
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

_PAIRS = ("vcc", "exec", "flat_scr", "xnack_mask", "tba", "tma")


def merged(intervals: list[Interval]) -> tuple[Interval, ...]:
    """The same set as sorted, disjoint, non-adjacent intervals."""
    result: list[Interval] = []
    for first, end in sorted(intervals):
        if result and first <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((first, end))
    return tuple(result)


@cache
def class_intervals(name: str, banks: tuple[str, ...]) -> tuple[Interval, ...]:
    """Where members of a class may lie, of the banks the problem allows; alignment is a rule of its own."""
    cls = register_class(name)
    result: list[Interval] = []
    for bank, (first, end) in BANKS.items():
        if bank in banks and Bank(bank) in cls.banks:
            result.append((first, first + 2 * cls.limit if cls.limit else end))
    if "special" in banks and Bank.SPECIAL in cls.banks:
        result += _special_members(cls)
    return tuple(result)


def _special_members(cls: RegisterClass) -> list[Interval]:
    """Special registers of the class's width, one interval each, so that no member straddles two."""
    excluded: set[int] = set()
    if "xm0" in cls.excludes:
        excluded.update(physical_register("m0").units)
    if "xexec" in cls.excludes:
        excluded.update(physical_register("exec").units)
    names = (*(name for name, _ in SPECIAL_REGISTERS), *_PAIRS)
    units = [physical_register(name).units for name in names]
    return [(u[0], u[-1] + 1) for u in units if len(u) == cls.lanes and excluded.isdisjoint(u)]


def bank_top(budget: BankBudget) -> int:
    """First unit past the highest allocatable register of a bank."""
    return BANKS[budget.bank][0] + 2 * (max(budget.registers, default=-1) + 1)


@lru_cache(maxsize=8)
def _allocatable(budgets: tuple[BankBudget, ...], special: tuple[str, ...]) -> tuple[Interval, ...]:
    result: list[Interval] = []
    for budget in budgets:
        base = BANKS[budget.bank][0]
        result += [(base + 2 * number, base + 2 * number + 2) for number in budget.registers]
    for name in special:
        units = physical_register(name).units
        result += [(unit, unit + 1) for unit in units]
    return merged(result)


def allocatable(problem: AllocationProblem) -> tuple[Interval, ...]:
    """Units that may be handed out at all: the budgets' registers and the special ones allowed."""
    return _allocatable(problem.budgets, problem.special)


def alignment(live: LiveRange) -> int:
    """The number of the first 32-bit register is a multiple of this power of two: what class and problem demand."""
    return max(live.align, register_class(live.register_class).align)


def unit_mask(live: LiveRange) -> int:
    """Bits of the first unit's number that must be zero. Every bank starts at a multiple of 32 units; 16-bit ranges may
    start at either half."""
    return 2 * alignment(live) - 1 if live.lanes > 1 else 0


def is_legal(problem: AllocationProblem, live: LiveRange, unit: int) -> bool:
    """Whether the live range may start at a unit, as far as everything but occupation goes (for messages only)."""
    end = unit + live.lanes
    if not any(first <= unit and end <= last for first, last in class_intervals(live.register_class, live.banks)):
        return False
    if unit >= SPECIAL_BASE:
        return any(first <= unit and end <= last for first, last in allocatable(problem))
    base = next(first for first, last in BANKS.values() if first <= unit < last)
    return (
        unit & unit_mask(live) == 0
        and (live.limit == 0 or end <= base + 2 * live.limit)
        and any(first <= unit and end <= last for first, last in allocatable(problem))
    )
