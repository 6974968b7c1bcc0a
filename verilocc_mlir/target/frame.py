"""Registers that LLVM takes for a function's frame, behind allocation: callers may not count on them (section 9 of the
audit's specification).

Source: LLVM, SIFrameLowering.cpp and SIRegisterInfo::eliminateFrameIndex.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from verilocc_mlir.mir.header import section
from verilocc_mlir.mir.model import MachineFunction
from verilocc_mlir.target.attributes import FunctionAttributes
from verilocc_mlir.target.callingconv import calls_in, regmask
from verilocc_mlir.target.registers import BANK_BASE, Bank, physical_register, unit_bank
from verilocc_mlir.target.reserved import function_info

REGISTERS = {Bank.AGPR: 256, Bank.SGPR: 106, Bank.VGPR: 256}
"""Register files in LLVM's order, with how many registers masks are made for."""

_LANES = 32
"""Lanes of the smaller waves: so many scalars a VGPR keeps for the frame."""
_FRAME_SCALARS = 4
"""Frame pointer, base pointer and the return address."""
_ADDRESSES = 2
"""VGPRs that LLVM takes at one instruction for an address, and for what is stored there."""
_SCALAR_PAIRS = 4
"""Pairs of SGPRs for frame and base pointer, EXEC, and addresses."""
_STACK_ALIGNMENT = 16
_REGISTER = re.compile(r"\$(\w+)")


def is_framed(function: MachineFunction, attributes: FunctionAttributes, saved: frozenset[int]) -> bool:
    """Whether LLVM needs registers to save, address or move something in a function.

    Args:
        saved: what its convention preserves.
    """
    rows = (line.partition(":") for line in section(function.header_lines, "frameInfo"))
    flags = {key.strip(): value.strip() for key, _, value in rows}
    return (
        bool(function.stack or function.fixed_stack or saved & written(function))
        or any(calls_in(function))
        or any(value == "true" for key, value in flags.items() if key != "isCalleeSavedInfoValid")
        or flags.get("stackSize", "0") != "0"
        or attributes.strings.get("frame-pointer", "none") != "none"
        or bool(_listed(function, "wwmReservedRegs", "spillPhysVGPRs", "longBranchReservedReg"))
    )


def for_the_frame(function: MachineFunction, bank: Bank, saved: frozenset[int]) -> tuple[int, int]:
    """How many registers that nothing uses LLVM may take for the frame of a function, and how many units each has.

    VGPRs for lanes, and an SGPR for the frame pointer; where there are stack objects two more VGPRs, and pairs of
    SGPRs.

    Args:
        saved: what its convention preserves.
    """
    addressed = _is_addressed(function)
    if bank is Bank.SGPR:
        return (_SCALAR_PAIRS, 4) if addressed else (1, 2)
    return _lane_registers(function, saved & written(function)) + (_ADDRESSES if addressed else 0), 2


def written(function: MachineFunction) -> frozenset[int]:
    """Units that an instruction defines."""
    operands = [op for b in function.blocks for i in b.instructions for op in i.all_operands]
    return _units({op.phys for op in operands if op.is_reg and op.is_def and op.phys})


def unused(function: MachineFunction, units: Iterable[int], *, copied: bool = True) -> frozenset[int]:
    """Those of ``units`` that no operand names and every call leaves alone.

    Args:
        copied: a COPY, too, names what it does: MachineCopyPropagation may delete it before LLVM lays out the frame.
    """
    code = [i for b in function.blocks for i in b.instructions if copied or i.opcode != "COPY"]
    operands = [op for i in code for op in i.all_operands if op.is_reg and op.phys]
    left = frozenset(units) - _units({op.phys for op in operands})
    return left.intersection(*(regmask(mask) for mask in {m for call in calls_in(function) for m in call.masks}))


def lowest_tuples(units: Collection[int], size: int) -> list[range]:
    """The aligned registers of ``size`` units all of which are given, lowest first."""
    starts = sorted({u - (u - BANK_BASE[unit_bank(u)]) % size for u in units})
    return [t for t in (range(u, u + size) for u in starts) if all(u in units for u in t)]


def spared_by_frame(function: MachineFunction, usable: frozenset[int], saved: frozenset[int]) -> frozenset[int]:
    """Registers that LLVM leaves alone for sure when it lays out the frame of ``function``, which is allocated.

    It takes the lowest registers that nothing uses; where there are stack objects, whatever is dead; SGPRs for EXEC
    that are dead in the prologue and the epilogue; and AGPRs for VGPRs that it saves. With AGPRs in use it may do
    anything.

    Args:
        usable: what an allocator may use and need not save.
        saved: what the convention preserves.
    """
    defined = written(function)
    if any(unit_bank(unit) is Bank.AGPR for unit in defined):
        return frozenset()
    free = unused(function, usable)
    lanes = _lane_registers(function, saved & defined)
    branches = int(bool(_listed(function, "longBranchReservedReg")))
    if _is_addressed(function):
        vectors = _above(free, Bank.VGPR, 1, lanes + _ADDRESSES)
        return vectors | _above(free, Bank.SGPR, 2, _SCALAR_PAIRS + branches) if vectors else vectors
    vectors = _first(free, Bank.VGPR, 1, lanes)
    if len(vectors) < 2 * lanes:
        return frozenset()
    pointer = _first(free, Bank.SGPR, 1, 1)
    registers = (Bank.VGPR, vectors), (Bank.SGPR, pointer | _first(free, Bank.SGPR, 2, branches))
    taken = _or_lower(unused(function, usable, copied=False), registers)
    of_exec = _for_exec(function, usable - taken, has_frame_pointer=bool(pointer))
    spared = (file_units(Bank.VGPR) | file_units(Bank.SGPR)) - taken - of_exec
    return spared if _saves_vectors(function, saved) else spared | file_units(Bank.AGPR)


def _or_lower(units: frozenset[int], registers: Iterable[tuple[Bank, frozenset[int]]]) -> frozenset[int]:
    """Registers of some files, and those of ``units`` that are as low."""
    lower = ({u for u in units & file_units(bank) if u <= max(own, default=u)} | own for bank, own in registers)
    return frozenset[int]().union(*lower)


def _saves_vectors(function: MachineFunction, saved: frozenset[int]) -> bool:
    """Whether LLVM saves some of ``saved`` by spill code. Registers for lanes it saves by plain stores, and moves."""
    vectors = saved - file_units(Bank.SGPR) - _listed(function, "wwmReservedRegs")
    masks = {mask for call in calls_in(function) for mask in call.masks}
    return bool(vectors & written(function)) or any(not vectors <= regmask(mask) for mask in masks)


def _is_addressed(function: MachineFunction) -> bool:
    """Whether something is addressed in the frame, or with a base pointer."""
    aligned = int(function.header_value("maxAlignment") or "1") > _STACK_ALIGNMENT
    return aligned or bool(function.stack or function.fixed_stack)


def _lane_registers(function: MachineFunction, saved: frozenset[int]) -> int:
    """VGPRs that LLVM takes for lanes of scalars: of the frame, and moved ones of spilled scalars."""
    scalars = sum(unit_bank(unit) is Bank.SGPR for unit in saved) // 2
    return 1 + (scalars + _FRAME_SCALARS) // _LANES + len(_listed(function, "wwmReservedRegs", "spillPhysVGPRs")) // 2


def _for_exec(function: MachineFunction, usable: frozenset[int], *, has_frame_pointer: bool) -> frozenset[int]:
    """SGPRs of which LLVM may take a pair for EXEC: up to the first dead one, where the function begins and ends.

    Args:
        has_frame_pointer: else it takes the first dead register for that before.
    """
    taken: set[int] = set()
    scalars = file_units(Bank.SGPR)
    for live in _edges(function):
        dead = usable - live
        dead -= frozenset() if has_frame_pointer else _first(dead, Bank.SGPR, 1, 1)
        end = max(_first(dead, Bank.SGPR, 2, 1), default=max(scalars))
        taken.update(u for u in scalars - live if u <= end)
    return frozenset(taken)


def _edges(function: MachineFunction) -> list[frozenset[int]]:
    """Units that are live where the function begins, and at each of its ends."""
    rows = [{livein.reg for livein in function.blocks[0].liveins}]
    ends = [block.instructions[-1] for block in function.blocks if block.instructions and not block.successors]
    rows += [{op.phys for op in last.all_operands if op.is_use and op.phys} for last in ends]
    return [_units(names) for names in rows]


def file_units(bank: Bank) -> frozenset[int]:
    """Units of the registers of a file that masks are made for."""
    return frozenset(range(BANK_BASE[bank], BANK_BASE[bank] + 2 * REGISTERS[bank]))


def _first(units: frozenset[int], bank: Bank, width: int, count: int) -> frozenset[int]:
    """The first ``count`` aligned registers of ``width`` in a file all of whose units are given."""
    tuples = lowest_tuples(units & file_units(bank), 2 * width)[:count]
    return frozenset(unit for register in tuples for unit in register)


def _above(units: frozenset[int], bank: Bank, width: int, count: int) -> frozenset[int]:
    """Units of a file above those; none if there are fewer."""
    first = _first(units, bank, width, count)
    return frozenset(u for u in file_units(bank) if u > max(first)) if len(first) == 2 * width * count else frozenset()


def _listed(function: MachineFunction, *fields: str) -> frozenset[int]:
    """Units of the registers that fields of the header name."""
    info = function_info(function)
    return _units({name for field in fields for name in _REGISTER.findall(info.get(field, ""))})


def _units(names: Collection[str]) -> frozenset[int]:
    return frozenset(unit for name in names for unit in physical_register(name).units)
