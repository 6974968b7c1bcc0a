"""Arguments that stay in their registers: a value that is an argument of several calls, kept where these expect it.

A call reads its arguments in fixed registers. A value that lives on behind the call cannot be placed there, since from
the copy to the call the register is in use, though by the very same value. Where the callee keeps the register (its
mask says so, ``pipeline/callees.py``), the value may stay in it from its definition on, and no call needs a copy.

So such values are given their register before all others are placed. What is written is an ordinary step of the
allocation, and audited as part of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from verilocc_mlir.analysis.liveness import Segment
from verilocc_mlir.mir.model import Instruction, MachineFunction, MirFile, Operand
from verilocc_mlir.mir.operands import register_operand
from verilocc_mlir.mir.printer import with_register_rows
from verilocc_mlir.problem.model import (
    CALL_CLOBBERS,
    KEPT_FOR_CALLERS,
    Affinity,
    AllocationProblem,
    LiveRange,
    Proposal,
)
from verilocc_mlir.rewrite.function import rewrite_function
from verilocc_mlir.target.classes import contains, register_class
from verilocc_mlir.target.frame import REGISTERS
from verilocc_mlir.target.registers import BANK_BASE, Bank, PhysicalRegister, physical_register, tuple_name
from verilocc_mlir.target.targets import Target


def arguments_in_place(
    file: MirFile, function: MachineFunction, problem: AllocationProblem, target: Target
) -> MachineFunction | None:
    """The function in which values that stay in an argument's register are in it; None where there are none.

    Args:
        problem: that of the function; the ranges that are left want a problem of their own.
    """
    if not any(f.reason.startswith((CALL_CLOBBERS, KEPT_FOR_CALLERS)) for f in problem.fixed):
        return None
    places = _Places(function, problem).chosen()
    if not places:
        return None
    ranges = tuple(replace(problem.ranges[old], id=new) for new, old in enumerate(places))
    alone = replace(problem, ranges=ranges, affinities=(), preferences=())
    proposal = Proposal(problem.version, "arguments in place", tuple(places.values()))
    # The table of what is left is read from its rows.
    changed = rewrite_function(file, with_register_rows(function), alone, proposal, target, whole=False)
    units = {unit for name in places.values() for unit in physical_register(name).units}
    blocks = tuple(
        replace(block, instructions=tuple(_living_on(i, units) for i in block.instructions)) for block in changed.blocks
    )
    return replace(changed, blocks=blocks)


def _living_on(instruction: Instruction, units: set[int]) -> Instruction:
    """Without ``killed`` at registers that now live on behind the call."""
    if not any(_ends(operand, units) for operand in instruction.operands):
        return instruction
    return replace(instruction, operands=tuple(_not_killed(o) if _ends(o, units) else o for o in instruction.operands))


def _ends(operand: Operand, units: set[int]) -> bool:
    return operand.killed and bool(operand.phys) and not units.isdisjoint(physical_register(operand.phys).units)


def _not_killed(operand: Operand) -> Operand:
    flags = tuple(flag for flag in operand.flags if flag != "killed")
    return register_operand(phys=operand.phys, tied=operand.tied, llt=operand.llt, flags=flags, is_def=operand.is_def)


class _Places:
    """Which range may stay in which register."""

    def __init__(self, function: MachineFunction, problem: AllocationProblem) -> None:
        self._problem = problem
        self._kept = _units(problem, KEPT_FOR_CALLERS)
        self._free = frozenset(_handed_out(problem))
        self._written = _written(function)
        self._copies: dict[tuple[int, str], list[Affinity]] = {}
        """Copies of a range or of a part of it, by range and by the register in which the copy would not be needed."""
        for affinity in problem.affinities:
            if name := _whole(affinity, problem.ranges[affinity.a]):
                self._copies.setdefault((affinity.a, name), []).append(affinity)

    def chosen(self) -> Mapping[int, str]:
        """Registers by range; of two ranges that want one register, the one with more copies."""
        gains = {key: sum(a.weight for a in copies) for key, copies in self._copies.items()}
        result: dict[int, str] = {}
        held: dict[int, list[Segment]] = {}
        for range_id, name in sorted(gains, key=lambda key: (-gains[key], key)):
            live_range, units = self._problem.ranges[range_id], physical_register(name).units
            segments = _segments(live_range)
            taken = [s for unit in units for s in held.get(unit, ())]
            if range_id in result or _overlap(segments, taken) or not self._stays(live_range, name):
                continue
            result[range_id] = name
            for unit in units:
                held.setdefault(unit, []).extend(segments)
        return result

    def _stays(self, live_range: LiveRange, name: str) -> bool:
        """Whether the range may be in the register throughout, and is there for a call.

        In a register that is kept for callers only what arrives there may be: it is not written then.
        """
        register = physical_register(name)
        if not contains(register_class(live_range.register_class), register):
            return False
        if not self._free.issuperset(register.units):
            return False
        joined = [a for a in self._copies.get((live_range.id, name), ()) if a.weight > 0]
        copies = {a.slot for a in joined}
        defined = {p.slot & ~3 for p in live_range.points if p.kind != "use"}
        segments = _segments(live_range)
        arrives, passed = defined <= copies, copies - defined
        if self._kept.isdisjoint(register.units):
            # A tuple is put together for a call, and lives on in parts.
            if any(a.lanes < live_range.lanes for a in joined):
                return False
            is_wanted = any(_is_live(segments, slot + 2) for slot in passed) or (arrives and passed)
        else:
            is_wanted = arrives
        return bool(is_wanted) and self._has_its_value(live_range, register, passed)

    def _has_its_value(self, live_range: LiveRange, register: PhysicalRegister, copies: set[int]) -> bool:
        """Whether nothing else is in the register where the range is live.

        What else writes the register there is a copy of the range into it. What was in it before is not read once the
        range is defined: so wherever both are in use, the last to be written was a copy.
        """
        for lane, unit in enumerate(register.units):
            segments = [s for group in live_range.groups if group.lanes >> lane & 1 for s in group.segments]
            definitions = [p.slot for p in live_range.points if p.kind != "use" and p.lanes >> lane & 1]
            for fixed in self._problem.fixed:
                if unit not in fixed.units or fixed.reason.startswith(KEPT_FOR_CALLERS):
                    continue
                if not fixed.reason.startswith(("argument", "fixed")):
                    if _overlap(segments, fixed.segments):
                        return False
                elif any(s <= slot < e for slot in definitions for s, e in fixed.segments):
                    return False
            if any(_is_live(segments, slot + 2) for slot in set(self._written.get(unit, ())) - copies):
                return False
        return True


def _segments(live_range: LiveRange) -> list[Segment]:
    return [segment for group in live_range.groups for segment in group.segments]


def _whole(affinity: Affinity, live_range: LiveRange) -> str:
    """The register in which the range makes a copy of it, or of a part of it, needless; ``""``: there is none."""
    if not affinity.fixed or affinity.lanes == live_range.lanes:
        return affinity.fixed
    part, width = physical_register(affinity.fixed), live_range.lanes // 2
    first = part.first - affinity.a_lane // 2
    if (affinity.a_lane | affinity.lanes) % 2 or not 0 <= first <= REGISTERS.get(part.bank, 0) - width:
        return ""
    return tuple_name(part.bank, first, width)


def _written(function: MachineFunction) -> Mapping[int, list[int]]:
    """Slots of the instructions that write a physical register, by unit; call clobbers are in the problem."""
    slots: dict[int, list[int]] = {}
    instructions = (i for block in function.blocks for i in block.instructions)
    for index, instruction in enumerate(instructions):
        for operand in instruction.all_operands:
            if operand.is_def and operand.phys and operand.is_reg:
                for unit in physical_register(operand.phys).units:
                    slots.setdefault(unit, []).append(4 * index)
    return slots


def _handed_out(problem: AllocationProblem) -> Iterator[int]:
    """Units that the allocators may use and need not restore."""
    for budget in problem.budgets:
        for number in {*budget.registers} - {*budget.expensive}:
            base = BANK_BASE[Bank(budget.bank)] + 2 * number
            yield from (base, base + 1)


def _units(problem: AllocationProblem, reason: str) -> frozenset[int]:
    return frozenset(unit for fixed in problem.fixed if fixed.reason.startswith(reason) for unit in fixed.units)


def _is_live(segments: Iterable[Segment], slot: int) -> bool:
    return any(s <= slot < e for s, e in segments)


def _overlap(a: Iterable[Segment], b: Iterable[Segment]) -> bool:
    others = list(b)
    return any(s < f and t < e for s, e in a for t, f in others)
