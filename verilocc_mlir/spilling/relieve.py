"""Bring a function's register pressure down to what there is, before registers are assigned.

Spill first, then assign: every allocator, a learned one included, then works on a problem that fits. The audit proves
the result against the text without any spill code, so nothing here is trusted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from verilocc_mlir.analysis.cfg import control_flow
from verilocc_mlir.analysis.execution import exec_masks, is_terminator
from verilocc_mlir.analysis.lanes import virtual_classes
from verilocc_mlir.mir.header import header_field
from verilocc_mlir.mir.model import MachineFunction
from verilocc_mlir.problem.build import frequency, phase_liveness
from verilocc_mlir.problem.model import AllocationProblem
from verilocc_mlir.spilling.actions import SpillAction
from verilocc_mlir.spilling.choose import Candidates, Excess, choose, load_ahead
from verilocc_mlir.spilling.constants import constants
from verilocc_mlir.spilling.gaps import register_gaps
from verilocc_mlir.spilling.insert import SpillTarget, insert_spills
from verilocc_mlir.spilling.plan import Costs, Places, SpillMove, SpillPlan, in_accumulators, insertion_places
from verilocc_mlir.target.registers import BANK_BASE, Bank, physical_register
from verilocc_mlir.target.targets import Target


@dataclass(frozen=True)
class Relieved:
    """A function that needs no more registers than it may have, and what was done to it."""

    function: MachineFunction
    actions: tuple[SpillAction, ...]


@dataclass(frozen=True)
class _Chosen:
    """What is spilled: a plan for each register, why, and the registers too many in each set of files after it."""

    plans: dict[int, SpillPlan]
    reasons: dict[int, str]
    excesses: list[tuple[frozenset[str], Excess]]


class Spiller:
    """Spills one phase's registers of one function. ``relieve`` can be called again with more or less room to spare.

    Args:
        function: the function that ``problem`` was built from.
        problem: the phase's allocation problem.
    """

    def __init__(self, function: MachineFunction, problem: AllocationProblem, target: Target) -> None:
        self._function = function
        self._problem = problem
        self._members = {int(r.name[1:]): r for r in problem.ranges}
        self._cfg = control_flow(function)
        classes = virtual_classes(function)
        scalar = problem.phase == "sgpr"
        barred = _barred(function)
        live = phase_liveness(function, self._cfg, classes, self._members.__contains__, problem.phase)
        known_constants = constants(function, {v: classes[v] for v in self._members})
        self._constant: dict[int, int] = {}
        for vreg, part in known_constants:
            self._constant[vreg] = self._constant.get(vreg, 0) | 1 << part
        places = insertion_places(function, self._cfg.first, vectors=not scalar)
        self._costs = Costs(
            lambda block: frequency(problem.block_depths[block]),
            None if scalar else exec_masks(function, self._cfg),
            places,
            lambda vreg: self._constant.get(vreg, 0),
        )
        self._target = SpillTarget(
            classes,
            known_constants,
            places,
            (header_field(function, "stackPtrOffsetReg") or "$sgpr32").removeprefix("$"),
            offsets=not target.unified_vgpr,
            even=target.align2,
        )
        gaps = register_gaps(
            live, self._cfg, lambda v: v in self._members and v not in barred and classes[v].bits % 32 == 0
        )
        self._candidates = {v: Candidates(g, self._costs) for v, g in gaps.items()}
        self._chosen: dict[tuple[int, bool], _Chosen | None] = {}

    def relieve(self, spare: int = 0, *, ahead: bool = True, accumulators: bool = True) -> Relieved | None:
        """The function with spill code, so that ``spare`` registers of each file are left over at every point.

        Args:
            spare: 32-bit registers.
            ahead: put a load some instructions before its use where registers are free.
            accumulators: copy values to free AGPRs before memory is used, and let LLVM do the same with the rest.

        Returns:
            None where the registers that may be spilled do not suffice; the function itself where nothing needs to be
            spilled.
        """
        key = spare, accumulators
        if key not in self._chosen:
            self._chosen[key] = self._choose(spare, accumulators)
        chosen = self._chosen[key]
        if chosen is None:
            return None
        if not chosen.plans:
            return Relieved(self._function, ())
        plans = self._ahead(chosen) if ahead else chosen.plans
        changed = insert_spills(self._function, self._cfg, plans, self._target, accumulators=accumulators)
        actions = (
            _action(p, self._costs.places, chosen.reasons[v], self._constant.get(v, 0)) for v, p in plans.items()
        )
        return Relieved(changed, tuple(actions))

    def _choose(self, spare: int, accumulators: bool) -> _Chosen | None:
        """What is spilled, with each load beside its use."""
        plans: dict[int, SpillPlan] = {}
        reasons: dict[int, str] = {}
        members = self._members
        excesses: list[tuple[frozenset[str], Excess]] = []
        for banks in sorted({r.banks for r in self._problem.ranges if r.groups}, key=lambda b: (len(b), b)):
            excess = Excess(_excess(self._problem, banks, spare))
            for plan in plans.values():
                if set(members[plan.register.vreg].banks) <= set(banks) and not (plan.accumulators and "agpr" in banks):
                    excess.change(plan.gaps, -1)
            excesses.append((frozenset(banks), excess))
            if excess.worst <= 0:
                continue
            reason = _reason(excess, banks)
            open_to = {
                v: c for v, c in self._candidates.items() if v not in plans and set(members[v].banks) <= set(banks)
            }
            chosen = choose(open_to, excess)
            if chosen is None:
                return None
            if accumulators and banks == ("vgpr",):
                chosen = self._in_accumulators(chosen, spare)
            plans |= chosen
            reasons |= dict.fromkeys(chosen, reason)
        return _Chosen(plans, reasons, excesses)

    def _ahead(self, chosen: _Chosen) -> dict[int, SpillPlan]:
        """The same plans with each load ahead of its use, where registers are free."""
        plans = dict(chosen.plans)
        excesses = [(banks, Excess([*excess.over])) for banks, excess in chosen.excesses]
        for vreg, plan in plans.items():
            if plan.accumulators:
                continue
            taking_part = [e for banks, e in excesses if banks.issuperset(self._members[vreg].banks)]
            plans[vreg] = load_ahead(plan, taking_part, self._costs)
        return plans

    def _in_accumulators(self, plans: dict[int, SpillPlan], spare: int) -> dict[int, SpillPlan]:
        """The plans, with AGPRs instead of memory as far as AGPRs are free, the most expensive plans first."""
        if not any(b.bank == "agpr" and b.registers for b in self._problem.budgets):
            return plans
        excess = Excess(_excess(self._problem, ("agpr",), spare))
        result = dict(plans)
        for vreg, plan in sorted(plans.items(), key=lambda p: (-p[1].cost, p[0])):
            if excess.room(plan.gaps) and any(m.parts & ~self._constant.get(vreg, 0) for m in plan.saves):
                excess.change(plan.gaps, 1)
                result[vreg] = in_accumulators(plan, self._costs)
        return result


def _barred(function: MachineFunction) -> set[int]:
    """Registers that spill code cannot be put beside: named in a bundle or after a terminator, or defined by one."""
    barred: set[int] = set()
    for block in function.blocks:
        after_terminator = False
        for instruction in block.instructions:
            is_last = is_terminator(instruction)
            if instruction.bundled or instruction.opens_bundle or after_terminator:
                barred.update(op.vreg for op in instruction.all_operands if op.vreg >= 0)
            elif is_last:
                barred.update(op.vreg for op in instruction.all_operands if op.vreg >= 0 and op.is_def)
            after_terminator |= is_last
    return barred


def _excess(problem: AllocationProblem, banks: tuple[str, ...], spare: int) -> list[int]:
    """Registers too many in a set of files at each point (``choose.Excess``)."""
    points = problem.slots // 2
    change = [0] * (points + 1)

    def add(segments: Iterable[tuple[int, int]], amount: int) -> None:
        for start, stop in segments:
            # Point p is slot 2p + 1 for reads (p even), 2p for writes (p odd): slots 4i + 1 and 4i + 2.
            low, high = _point(start), _point(stop)
            change[low] += amount
            change[high] -= amount

    for live_range in problem.ranges:
        if set(live_range.banks) <= set(banks):
            for group in live_range.groups:
                add(group.segments, group.lanes.bit_count())
    usable: set[int] = set()
    for budget in problem.budgets:
        if budget.bank in banks:
            base = BANK_BASE[Bank(budget.bank)]
            usable.update(u for n in budget.registers for u in (base + 2 * n, base + 2 * n + 1))
    if "special" in banks:
        usable.update(u for name in problem.special for u in physical_register(name).units)
    occupied: dict[int, list[tuple[int, int]]] = {}
    for fixed in problem.fixed:
        for unit in usable.intersection(fixed.units):
            occupied.setdefault(unit, []).extend(fixed.segments)
    for segments in occupied.values():
        # A call may both take a register as an argument and clobber it: that counts once.
        add(_merged(segments), 1)
    total = len(usable) - 2 * spare
    excesses: list[int] = []
    live = 0
    for point in range(points):
        live += change[point]
        # Two lanes are a register.
        excesses.append(-(-(live - total) // 2))
    return excesses


def _merged(segments: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same stretches of time without overlaps."""
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(segments):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(stop, merged[-1][1])
        else:
            merged.append((start, stop))
    return merged


def _point(slot: int) -> int:
    """First point at or after a slot."""
    index, at = divmod(slot, 4)
    return 2 * index + (0 if at <= 1 else 1 if at == 2 else 2)


def _reason(excess: Excess, banks: tuple[str, ...]) -> str:
    worst = excess.worst
    at = excess.over.index(worst) // 2
    return f"{worst} {' or '.join(b.upper() + 's' for b in banks)} too many at instruction {at}"


def _action(plan: SpillPlan, places: Places, reason: str, constant: int) -> SpillAction:
    moves = (*plan.saves, *plan.reloads)
    parts_moved = 0
    for move in moves:
        parts_moved |= move.parts
    return SpillAction(
        f"%{plan.register.vreg}",
        ("accumulate" if plan.accumulators else "spill") if parts_moved & ~constant else "rematerialise",
        parts_moved.bit_count(),
        tuple(map(_words, plan.saves)),
        tuple(map(_words, plan.reloads)),
        4 * min((places.index(m) for m in moves), default=0),
        plan.cost,
        reason,
    )


def _words(move: SpillMove) -> str:
    if move.where in ("start", "end"):
        return f"at the {move.where} of block {move.at}"
    return f"{move.where} instruction {move.at}"
