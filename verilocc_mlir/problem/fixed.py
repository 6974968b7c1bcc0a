"""Fixed occupations: what holds physical registers besides the registers to be placed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from verilocc_mlir.analysis.cfg import ControlFlow
from verilocc_mlir.analysis.physical import PhysicalLiveness, physical_liveness
from verilocc_mlir.mir.model import MachineFunction
from verilocc_mlir.problem.model import CALL_CLOBBERS, KEPT_FOR_CALLERS, FixedOccupation, Segment
from verilocc_mlir.target.callingconv import regmask
from verilocc_mlir.target.calls import calls_in
from verilocc_mlir.target.registers import AGPR_BASE, VGPR_BASE, physical_register

_WHOLE_WAVE = frozenset({"SI_SPILL_S32_TO_VGPR", "SI_RESTORE_S32_FROM_VGPR"})


def fixed_occupations(
    function: MachineFunction,
    cfg: ControlFlow,
    is_allocatable: Callable[[int], bool],
    units: Iterable[int],
    kept: frozenset[int] = frozenset(),
) -> tuple[FixedOccupation, ...]:
    """Occupations of the units for which ``is_allocatable`` is true.

    Args:
        function: pre-RA machine code, physical registers of earlier phases included.
        is_allocatable: whether a unit can be handed out in this phase.
        units: all of those units; a call clobbers the ones its mask does not preserve.
        kept: units that its callers count on (``kept_for_callers``); none of them may be written anywhere.

    Raises:
        UnsupportedError: an unknown register or register mask.
    """
    whole_wave = _whole_wave_units(function, is_allocatable)
    physical = physical_liveness(function, cfg, lambda u: is_allocatable(u) and u not in whole_wave)
    occupations = [*_ranges(function, physical), *_clobbers(physical, sorted(set(units) - whole_wave - kept))]
    if whole_wave and cfg.slots:
        # Lanes of inactive threads live in them, which no liveness of this text shows
        # (AMDGPUReserveWWMRegs.cpp reserves them for the rest of the function).
        occupations.append(FixedOccupation(tuple(sorted(whole_wave)), ((0, cfg.slots),), "whole-wave registers"))
    if (never := sorted(kept.intersection(units) - whole_wave)) and cfg.slots:
        never += _for_the_frame(function, kept, units)
        occupations.append(FixedOccupation(tuple(never), ((0, cfg.slots),), KEPT_FOR_CALLERS))
    occupations.sort(key=lambda f: (f.segments[0], f.units))
    return tuple(occupations)


def _for_the_frame(function: MachineFunction, kept: frozenset[int], units: Iterable[int]) -> list[int]:
    """The VGPR in whose lanes LLVM keeps the return address of a function that calls others: the first one that nothing
    uses (SIFrameLowering.cpp). The last one before those that are kept is left for it, or it would take one of them.
    """
    if not any(calls_in(function)):
        return []
    first_kept = min((u for u in kept if VGPR_BASE <= u < AGPR_BASE), default=0)
    return sorted(u for u in units if VGPR_BASE <= u < first_kept and u not in kept)[-2:]


def _whole_wave_units(function: MachineFunction, is_allocatable: Callable[[int], bool]) -> set[int]:
    """VGPRs whose lanes hold spilled SGPRs."""
    return {
        unit
        for block in function.blocks
        for instruction in block.instructions
        if instruction.opcode in _WHOLE_WAVE
        for operand in instruction.all_operands
        if operand.phys
        for unit in physical_register(operand.phys).units
        if is_allocatable(unit)
    }


def _ranges(function: MachineFunction, physical: PhysicalLiveness) -> list[FixedOccupation]:
    """Live ranges of physical registers; units of one register with the same segments stay together."""
    entry = {u for livein in function.blocks[0].liveins for u in physical_register(livein.reg).units}
    grouped: dict[tuple[str, tuple[Segment, ...]], list[int]] = {}
    for unit, segments in physical.ranges.items():
        kind = "argument" if unit in entry and segments[0][0] == 0 else "fixed"
        grouped.setdefault((f"{kind} ${physical.names[unit]}", segments), []).append(unit)
    return [FixedOccupation(tuple(units), segments, reason) for (reason, segments), units in grouped.items()]


def _clobbers(physical: PhysicalLiveness, units: list[int]) -> list[FixedOccupation]:
    """What calls overwrite, one occupation for each register mask. Results of a call are definitions, not clobbers."""
    by_mask: dict[str, list[int]] = {}
    for index, mask in physical.clobbers:
        by_mask.setdefault(mask, []).append(index)
    occupations: list[FixedOccupation] = []
    for mask, indices in by_mask.items():
        preserved = regmask(mask)
        clobbered = tuple(u for u in units if u not in preserved)
        if clobbered:
            segments = tuple((4 * i + 2, 4 * i + 3) for i in indices)
            slots = ", ".join(str(4 * i) for i in indices[:3]) + (", …" if len(indices) > 3 else "")
            occupations.append(FixedOccupation(clobbered, segments, f"{CALL_CLOBBERS} at slot {slots}"))
    return occupations
