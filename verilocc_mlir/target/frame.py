"""Registers that LLVM takes for a function's frame, behind allocation: callers may not count on them (section 9 of the
audit's specification).

Source: LLVM, SIFrameLowering.cpp and SIRegisterInfo::eliminateFrameIndex.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from verilocc_mlir.mir.model import MachineFunction
from verilocc_mlir.target.callingconv import regmask
from verilocc_mlir.target.calls import calls_in
from verilocc_mlir.target.registers import BANK_BASE, Bank, physical_register, unit_bank

REGISTERS = {Bank.AGPR: 256, Bank.SGPR: 106, Bank.VGPR: 256}
"""Register files in LLVM's order, with how many registers masks are made for."""


def is_framed(function: MachineFunction) -> bool:
    """Whether a function needs a frame whatever its allocation is: it calls others, or has stack objects."""
    return bool(function.stack or function.fixed_stack) or any(calls_in(function))


def for_the_frame(function: MachineFunction, bank: Bank) -> tuple[int, int]:
    """How many registers that nothing uses LLVM may take for a function's frame, and how many units each has.

    As the audit's section 9 counts them (SIFrameLowering.cpp): two VGPRs for lanes with the return address, the one
    that LLVM reserves, and the one that it moves that to, and an SGPR for the frame pointer; where there are stack
    objects two more VGPRs, and four pairs of SGPRs.
    """
    if function.stack or function.fixed_stack:
        return (4, 4) if bank is Bank.SGPR else (4, 2)
    return (1 if bank is Bank.SGPR else 2), 2


def unused(function: MachineFunction, units: Iterable[int]) -> frozenset[int]:
    """Those of ``units`` that no operand names and every call leaves alone."""
    operands = [op for b in function.blocks for i in b.instructions for op in i.all_operands if op.is_reg and op.phys]
    left = frozenset(units).difference(*(physical_register(name).units for name in {op.phys for op in operands}))
    return left.intersection(*(regmask(mask) for mask in {m for call in calls_in(function) for m in call.masks}))


def lowest_tuples(units: Collection[int], size: int) -> list[range]:
    """The aligned registers of ``size`` units all of which are given, lowest first."""
    starts = sorted({u - (u - BANK_BASE[unit_bank(u)]) % size for u in units})
    return [t for t in (range(u, u + size) for u in starts) if all(u in units for u in t)]


def spared_by_frame(function: MachineFunction, bank: Bank, usable: frozenset[int]) -> frozenset[int]:
    """Units of a file that LLVM leaves alone for sure when it lays out the frame of ``function``, after allocation.

    It takes the lowest registers that nothing uses; where there are stack objects, whatever is dead; and SGPRs for EXEC
    that are dead in the prologue and the epilogue.

    Args:
        usable: what an allocator may use of the file and need not save.
    """
    every = frozenset(range(BANK_BASE[bank], BANK_BASE[bank] + 2 * REGISTERS[bank]))
    count, size = for_the_frame(function, bank)
    taken = [u for register in lowest_tuples(unused(function, usable), size)[:count] for u in register]
    if len(taken) < count * size or _has_accumulators(function):
        return frozenset()
    if function.stack or function.fixed_stack:
        return frozenset(u for u in every if u > taken[-1])
    spared = every.difference(taken)
    for live in _edges(function) if bank is Bank.SGPR else ():
        pairs = lowest_tuples(usable.difference(live, taken), 4)
        spared = frozenset(u for u in spared if u in live or (pairs and u >= pairs[0].stop))
    return spared


def _edges(function: MachineFunction) -> list[frozenset[int]]:
    """Units that are live where the function begins, and at each of its ends."""
    rows = [[livein.reg for livein in function.blocks[0].liveins]]
    ends = [block.instructions[-1] for block in function.blocks if block.instructions and not block.successors]
    rows += [[op.phys for op in last.all_operands if op.is_use and op.phys] for last in ends]
    return [frozenset(u for name in names for u in physical_register(name).units) for names in rows]


def _has_accumulators(function: MachineFunction) -> bool:
    """Whether an instruction defines an AGPR: LLVM may save it in a VGPR."""
    operands = (op for block in function.blocks for i in block.instructions for op in i.all_operands)
    defined = {op.phys for op in operands if op.is_reg and op.is_def and op.phys}
    return any(unit_bank(unit) is Bank.AGPR for name in defined for unit in physical_register(name).units)
