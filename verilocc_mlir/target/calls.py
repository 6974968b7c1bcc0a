"""Calls whose callee is known, and what their register masks make of it: registers that it must leave alone.

A callee keeps what its calling convention says. A mask that is written out (``CustomRegMask``) may say that it keeps
more; then it must, and whoever allocates the callee, and whoever checks it, reads that off the calls.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from verilocc_mlir.mir.model import Instruction, MachineFunction, MirFile, OperandKind
from verilocc_mlir.target.attributes import function_attributes, unquote
from verilocc_mlir.target.callingconv import callee_saved, regmask
from verilocc_mlir.target.registers import BANK_BASE, Bank, physical_register, unit_bank
from verilocc_mlir.target.targets import Target

_COUNTS = {Bank.SGPR: 106, Bank.VGPR: 256}


@dataclass(frozen=True, slots=True)
class Call:
    """One instruction with a register mask.

    Attributes:
        caller: the function it stands in.
        callee: the function that it names; ``""`` where the address alone says.
        masks: its register masks as written.
    """

    caller: str
    callee: str
    instruction: Instruction
    masks: tuple[str, ...]

    @property
    def is_written_out(self) -> bool:
        """Whether a mask is not one of the calling conventions'."""
        return any(mask.startswith("CustomRegMask") for mask in self.masks)

    @property
    def kept(self) -> frozenset[int]:
        """Units that the caller counts on: those that every mask preserves."""
        first, *others = map(regmask, self.masks)
        return first.intersection(*others)


def calls_in(function: MachineFunction) -> Iterator[Call]:
    """The calls of a function, in layout order."""
    for block in function.blocks:
        for instruction in block.instructions:
            masks = tuple([op.text for op in instruction.operands if op.kind is OperandKind.REGMASK])
            if masks:
                names = [op.text for op in instruction.operands if op.kind is OperandKind.GLOBAL]
                callee = unquote(names[0].removeprefix("@")) if len(names) == 1 else ""
                yield Call(function.name, callee, instruction, masks)


def beyond_convention(call: Call, file: MirFile, target: Target) -> frozenset[int]:
    """Units that a call's caller counts on and its callee's calling convention does not preserve.

    Raises:
        InputError: the file does not define the callee. UnsupportedError: a convention or mask that is not known.
    """
    return call.kept - callee_saved(function_attributes(file.preamble, call.callee).calling_convention, target)


def kept_for_callers(file: MirFile, name: str, target: Target) -> frozenset[int]:
    """Units that the function ``name`` must leave alone because calls in its file say so, beyond its convention.

    Raises:
        UnsupportedError: as for ``beyond_convention``.
    """
    calls = (c for f in file.functions for c in calls_in(f) if c.callee == name and c.is_written_out)
    return frozenset[int]().union(*(beyond_convention(call, file, target) for call in calls))


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
    every = frozenset(range(BANK_BASE[bank], BANK_BASE[bank] + 2 * _COUNTS[bank]))
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
