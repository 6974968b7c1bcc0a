"""From a machine function to the AllocationProblem of one phase.

LLVM allocates SGPRs, whole-wave (WWM) registers and the other vector registers in this order, lowering spills in
between (AMDGPUTargetMachine.cpp); each phase is a problem of its own. Registers of other phases that are still virtual
are ignored, those already placed are fixed occupations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from verilocc_mlir.analysis.cfg import ControlFlow, control_flow, find_loops
from verilocc_mlir.analysis.execution import has_inactive_lanes
from verilocc_mlir.analysis.lanes import is_debug, lane_mask, virtual_classes
from verilocc_mlir.analysis.liveness import LaneLiveness, PhysicalLiveness, lane_liveness, physical_liveness
from verilocc_mlir.analysis.waiting import Waiting, waiting
from verilocc_mlir.errors import InputError, UnsupportedError
from verilocc_mlir.mir.model import STOP_BEFORE_ALLOCATION, Instruction, MachineFunction, MirFile, Operand
from verilocc_mlir.problem.model import (
    CALL_CLOBBERS,
    KEPT_FOR_CALLERS,
    PROBLEM_VERSION,
    AllocationProblem,
    BankBudget,
    FixedOccupation,
    LaneGroup,
    LiveRange,
    Occupancy,
    Phase,
    Point,
    Segment,
)
from verilocc_mlir.problem.preferences import affinities, opcode_family, preferences
from verilocc_mlir.target.attributes import function_attributes
from verilocc_mlir.target.callingconv import callee_saved, kept_for_callers, regmask
from verilocc_mlir.target.classes import RegisterClass
from verilocc_mlir.target.frame import for_the_frame, is_framed, lowest_tuples, unused
from verilocc_mlir.target.registers import BANK_BASE, Bank, physical_register, unit_bank
from verilocc_mlir.target.reserved import allocatable
from verilocc_mlir.target.targets import Target

_MAX_DEPTH = 6
_VCC = frozenset({"vcc", "vcc_lo", "vcc_hi"})
_BANKS_OF: dict[str, tuple[Bank, ...]] = {
    "sgpr": (Bank.SGPR,),
    "wwm": (Bank.VGPR, Bank.AGPR),
    "vgpr": (Bank.VGPR, Bank.AGPR),
}


def frequency(depth: int) -> float:
    """Estimated executions of a block at a loop depth: ten for each loop, at most a million."""
    return float(10 ** min(depth, _MAX_DEPTH))


def phase_of(cls: RegisterClass, flags: tuple[str, ...]) -> Phase:
    """The phase in which a virtual register of a class, with its flags from ``registers:``, is placed."""
    if cls.is_scalar:
        return "sgpr"
    return "wwm" if "WWM_REG" in flags else "vgpr"


def build_problem(
    file: MirFile, function: MachineFunction, target: Target, phase: Phase, *, pressure_alone: bool = False
) -> AllocationProblem:
    """State the allocation problem of one phase.

    Args:
        file: the file ``function`` is in; its preamble holds the attributes that set budgets.
        function: pre-RA machine code as llc prints it before its pass ``greedy,0``, or a later stage of it.
        phase: which virtual registers to place.
        pressure_alone: leave out what does not say how many registers are live where: points, affinities, preferences.

    Raises:
        InputError: malformed machine code: no blocks, a register without class, a subregister outside of its register.
        UnsupportedError: something this version cannot state: tied operands in different registers, generic registers,
            an unknown physical register or register mask.
    """
    return build_with_liveness(file, function, target, phase, pressure_alone=pressure_alone)[0]


def build_with_liveness(
    file: MirFile, function: MachineFunction, target: Target, phase: Phase, *, pressure_alone: bool = False
) -> tuple[AllocationProblem, Waiting]:
    """The same, and the liveness that it was built with, as the spiller takes it.

    Raises:
        As ``build_problem``.
    """
    where = f"function {function.name}"
    if not function.blocks:
        raise InputError("the function has no body", where=where)
    _check_ties(function)
    cfg = control_flow(function)
    depths = find_loops(cfg).depths
    classes = virtual_classes(function)
    flags = {v: function.registers[v].flags if v in function.registers else () for v in classes}
    members = {v for v, cls in classes.items() if phase_of(cls, flags[v]) == phase}
    waits = phase_waiting(function, cfg, classes, members.__contains__, phase)
    live = waits.at_matrices
    budgets, special = _budgets(file, function, target, phase)
    points: Mapping[int, tuple[Point, ...]] = dict.fromkeys(members, ())
    if not pressure_alone:
        points = _points(function, cfg, depths, classes, members, not _inactive_lanes(function, phase))
    # Renaming must not matter: ranges are numbered by their first definition, or first mention where there is none.
    order = sorted(
        (v for v in classes if v in members),
        key=lambda v: next((p.slot for p in points[v] if p.kind != "use"), points[v][0].slot if points[v] else 0),
    )
    ids = {vreg: k for k, vreg in enumerate(order)}
    hints = {v: function.registers[v].preferred for v in order if v in function.registers}
    banks = frozenset(b.bank for b in budgets if b.registers)
    allowed = frozenset(u for b in budgets for n in b.registers for u in _register_units(Bank(b.bank), n)) | frozenset(
        u for name in special for u in physical_register(name).units
    )
    ranges = tuple(_live_range(ids[v], v, classes[v], live, points[v], hints.get(v, ""), banks) for v in order)
    wants_preferences = phase == "vgpr" and not pressure_alone
    problem = AllocationProblem(
        version=PROBLEM_VERSION,
        target=target.name,
        function=function.name,
        phase=phase,
        slots=cfg.slots,
        block_starts=cfg.block_starts,
        block_depths=depths,
        ranges=ranges,
        affinities=() if pressure_alone else affinities(function, cfg, depths, classes, ids, allowed, hints),
        fixed=fixed_occupations(
            function,
            cfg,
            allowed.__contains__,
            allowed,
            _promise(file, function, target),
        ),
        budgets=budgets,
        occupancy=Occupancy(target.vgpr_granule, target.vgpr_total, target.max_waves, target.unified_vgpr),
        special=special,
        preferences=preferences(function, cfg, depths, classes, ids, ranges, target) if wants_preferences else (),
    )
    return problem, waits


def phase_liveness(
    function: MachineFunction,
    cfg: ControlFlow,
    classes: dict[int, RegisterClass],
    chosen: Callable[[int], bool],
    phase: str,
) -> LaneLiveness:
    """Live ranges of a phase's registers."""
    return lane_liveness(function, cfg, classes, chosen, inactive_lanes=_inactive_lanes(function, phase))


def phase_waiting(
    function: MachineFunction,
    cfg: ControlFlow,
    classes: dict[int, RegisterClass],
    chosen: Callable[[int], bool],
    phase: str,
) -> Waiting:
    """The same, with what inactive threads need."""
    live = phase_liveness(function, cfg, classes, chosen, phase)
    return waiting(function, cfg, live) if _inactive_lanes(function, phase) else Waiting(live, live)


def lane_groups(live: LaneLiveness, vreg: int) -> tuple[LaneGroup, ...]:
    """When the lanes of a register are live, as a problem says it."""
    return tuple(LaneGroup(lanes, segments) for lanes, segments in live.ranges.get(vreg, ()))


def _inactive_lanes(function: MachineFunction, phase: str) -> bool:
    """Whether registers of a phase have lanes that may be inactive; scalars have not."""
    return phase != "sgpr" and has_inactive_lanes(function)


def _register_units(bank: Bank, number: int) -> tuple[int, int]:
    base = BANK_BASE[bank] + 2 * number
    return base, base + 1


def _saved(file: MirFile, function: MachineFunction, target: Target) -> frozenset[int]:
    return callee_saved(function_attributes(file.preamble, function.name).calling_convention, target)


class Promise(Struct, frozen=True):
    """What the callers of a function count on, beyond its convention.

    Attributes:
        kept: units that may not be written anywhere (``kept_for_callers``).
        saved: units that the convention preserves.
        framed: LLVM takes registers for a frame whatever the allocation is. Without one it takes none, as long as
            nothing is saved.
    """

    kept: frozenset[int] = frozenset()
    saved: frozenset[int] = frozenset()
    framed: bool = False


def _promise(file: MirFile, function: MachineFunction, target: Target) -> Promise:
    saved = _saved(file, function, target)
    framed = is_framed(function, function_attributes(file.preamble, function.name), saved)
    return Promise(kept_for_callers(file, function.name, target), saved, framed)


def _budgets(
    file: MirFile, function: MachineFunction, target: Target, phase: Phase
) -> tuple[tuple[BankBudget, ...], tuple[str, ...]]:
    """Registers that may be handed out in a phase, and special registers besides."""
    free = allocatable(function, file.preamble, target)
    saved = _saved(file, function, target)
    numbers = {Bank.SGPR: free.sgprs, Bank.VGPR: free.vgprs, Bank.AGPR: free.agprs}
    budgets = tuple(
        BankBudget(
            bank.value,
            numbers[bank],
            tuple(n for n in numbers[bank] if not saved.isdisjoint(_register_units(bank, n))),
        )
        for bank in _BANKS_OF[phase]
        if numbers[bank] or bank is not Bank.AGPR
    )
    special = ("vcc", "vcc_lo", "vcc_hi") if phase == "sgpr" else ()
    return budgets, tuple(s for s in special if free.reserved_units.isdisjoint(physical_register(s).units))


def _points(
    function: MachineFunction,
    cfg: ControlFlow,
    depths: tuple[int, ...],
    classes: dict[int, RegisterClass],
    members: set[int],
    ends: bool,
) -> dict[int, tuple[Point, ...]]:
    """Uses and definitions of each register, in slot order; operands of one instruction and kind are one point.

    ``ends``: ``IMPLICIT_DEF`` ends what a register held (``lane_liveness``, no inactive lanes).
    """
    points_of: dict[int, list[Point]] = {v: [] for v in members}
    masks: dict[int, int] = {}
    families = {opcode: opcode_family(opcode) for opcode in function.opcodes}
    for block, start, depth in zip(function.blocks, cfg.first, depths, strict=False):
        for index, instruction in enumerate(block.instructions, start):
            if instruction.opcode == "BUNDLE" or is_debug(instruction):
                continue
            if ends and instruction.opcode == "IMPLICIT_DEF":
                # It occupies nothing and is left out of the text.
                continue
            touched: dict[tuple[int, str], int] = {}
            for operand in instruction.all_operands:
                if operand.vreg not in members or (operand.undef and not operand.is_def):
                    continue
                mask = masks.get(id(operand))
                if mask is None:
                    mask = masks[id(operand)] = lane_mask(operand, classes[operand.vreg])
                key = (operand.vreg, _kind(operand))
                touched[key] = touched.get(key, 0) | mask
            if touched:
                family = families[instruction.opcode]
                for (vreg, kind), mask in touched.items():
                    slot = 4 * index + (2 if kind == "def" else 1)
                    points_of[vreg].append(Point(slot, mask, kind, depth, family))
    return {v: tuple(sorted(points, key=lambda p: (p.slot, p.kind))) for v, points in points_of.items()}


def _kind(operand: Operand) -> str:
    if not operand.is_def:
        return "use"
    return "early-def" if operand.early_clobber else "def"


def _live_range(
    number: int,
    vreg: int,
    cls: RegisterClass,
    live: LaneLiveness,
    points: tuple[Point, ...],
    preferred: str,
    available: frozenset[str],
) -> LiveRange:
    banks = {b.value for b in cls.banks if b.value in available}
    if not _VCC.isdisjoint(cls.specials):
        # The other special registers are reserved in every function (SIRegisterInfo::getReservedRegs).
        banks.add("special")
    hint = preferred[1:] if preferred.startswith("$") else ""
    return LiveRange(
        id=number,
        name=f"%{vreg}",
        banks=tuple(sorted(banks)),
        width=cls.width,
        lanes=cls.lanes,
        align=cls.align if cls.is_scalar else cls.vector_align,
        limit=cls.limit,
        register_class=cls.name,
        groups=lane_groups(live, vreg),
        points=points,
        weight=sum(frequency(p.depth) for p in points),
        hint=hint,
    )


def _check_ties(function: MachineFunction) -> None:
    """Tied operands must already be one register: after TwoAddressInstruction only odd hand-written MIR differs."""
    for block in function.blocks:
        for instruction in block.instructions:
            for operand in instruction.operands:
                if operand.tied >= 0 and not _same_place(operand, _definition(instruction, operand.tied)):
                    raise UnsupportedError(
                        f"{operand.text} is tied to a definition in another register",
                        where=f"function {function.name}, line {instruction.line}",
                        hint=f"run the text through llc up to {STOP_BEFORE_ALLOCATION}, which joins tied operands",
                    )


def _definition(instruction: Instruction, number: int) -> Operand | None:
    operands = instruction.all_operands
    return operands[number] if number < len(operands) else None


def _same_place(use: Operand, definition: Operand | None) -> bool:
    return definition is not None and (use.vreg, use.phys, use.sub) == (
        definition.vreg,
        definition.phys,
        definition.sub,
    )


# Fixed occupations: what holds physical registers besides the registers to be placed.


_WHOLE_WAVE = frozenset({"SI_SPILL_S32_TO_VGPR", "SI_RESTORE_S32_FROM_VGPR"})


def fixed_occupations(
    function: MachineFunction,
    cfg: ControlFlow,
    is_allocatable: Callable[[int], bool],
    units: Iterable[int],
    promise: Promise = Promise(),
) -> tuple[FixedOccupation, ...]:
    """Occupations of the units for which ``is_allocatable`` is true.

    Args:
        function: pre-RA machine code, physical registers of earlier phases included.
        is_allocatable: whether a unit can be handed out in this phase.
        units: all of those units; a call clobbers the ones its mask does not preserve.
        promise: what its callers count on.

    Raises:
        UnsupportedError: an unknown register or register mask.
    """
    whole_wave = _whole_wave_units(function, is_allocatable)
    physical = physical_liveness(function, cfg, lambda u: is_allocatable(u) and u not in whole_wave)
    occupations = [*_ranges(function, physical), *_clobbers(physical, sorted(set(units) - whole_wave - promise.kept))]
    if whole_wave and cfg.slots:
        # Lanes of inactive threads live in them, which no liveness of this text shows
        # (AMDGPUReserveWWMRegs.cpp reserves them for the rest of the function).
        occupations.append(FixedOccupation(tuple(sorted(whole_wave)), ((0, cfg.slots),), "whole-wave registers"))
    if (never := _never_written(function, promise, frozenset(units)) - whole_wave) and cfg.slots:
        occupations.append(FixedOccupation(tuple(sorted(never)), ((0, cfg.slots),), KEPT_FOR_CALLERS))
    occupations.sort(key=lambda f: (f.segments[0], f.units))
    return tuple(occupations)


def _never_written(function: MachineFunction, promise: Promise, units: frozenset[int]) -> frozenset[int]:
    """Those of ``units`` that are left alone for callers, and so that LLVM leaves those alone too."""
    if not promise.kept:
        return frozenset()
    others = _for_the_frame(function, promise, units) if promise.framed else units & promise.saved
    return units & promise.kept | others


def _for_the_frame(function: MachineFunction, promise: Promise, units: frozenset[int]) -> frozenset[int]:
    """Registers that LLVM takes for a frame: the lowest ones that nothing uses. The last ones before those that are
    kept are left for it, or it would take one of them.
    """
    left: set[int] = set()
    free, promised = unused(function, units - promise.saved - promise.kept), unused(function, promise.kept)
    for bank in (Bank.VGPR, Bank.SGPR):
        count, size = for_the_frame(function, bank, promise.saved)
        first = min((u for u in promised if unit_bank(u) is bank), default=0)
        below = lowest_tuples({u for u in free if unit_bank(u) is bank and u < first}, size)
        left.update(u for register in below[-count:] for u in register)
    return frozenset(left)


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
