"""Bring a function's register pressure down to what there is, before registers are assigned.

Spill first, then assign: every allocator, a learned one included, then works on a problem that fits. The audit proves
the result against the text without any spill code, so nothing here is trusted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from verilocc_mlir.analysis.cfg import control_flow
from verilocc_mlir.analysis.lanes import virtual_classes
from verilocc_mlir.mir.header import header_field
from verilocc_mlir.mir.model import MachineFunction
from verilocc_mlir.problem.build import frequency, phase_liveness
from verilocc_mlir.problem.model import AllocationProblem
from verilocc_mlir.spilling.choose import Excess, choose
from verilocc_mlir.spilling.constants import constants
from verilocc_mlir.analysis.execution import exec_masks, is_terminator
from verilocc_mlir.spilling.gaps import register_gaps
from verilocc_mlir.spilling.insert import SpillTarget, insert_spills
from verilocc_mlir.spilling.plan import Costs, SpillPlan, insertion_places
from verilocc_mlir.target.targets import Target


@dataclass(frozen=True)
class SpillAction:
    """What was done to one register.

    Attributes:
        register: its name before, ``%346``.
        kind: ``spill`` (to memory) or ``rematerialise`` (constants, computed anew).
        parts: 32-bit registers of it that were concerned.
        saves: ``(instruction or block, registers)`` as in ``plan.Move``, in words: ``after 17``, ``end of bb.2``.
        reloads: likewise.
        cost: stores and loads of 32-bit registers, weighted by estimated executions.
        reason: why: the point with most registers too many.
    """

    register: str
    kind: str
    parts: int
    saves: tuple[str, ...]
    reloads: tuple[str, ...]
    cost: float
    reason: str


@dataclass(frozen=True)
class Relieved:
    """A function that needs no more registers than it may have, and what it took."""

    function: MachineFunction
    actions: tuple[SpillAction, ...]


def relieve(
    function: MachineFunction, problem: AllocationProblem, target: Target, *, spare: int = 0
) -> Relieved | None:
    """``function`` with spill code, so that at every point ``spare`` registers are left over.

    Args:
        function: what ``problem`` was built from.
        problem: one phase's question: live ranges, budgets, what is held by others.
        target: the GPU.
        spare: 32-bit registers to leave free of each file at every point.

    Returns:
        None where the registers that may be spilled do not suffice; the function itself where nothing is to be done.
    """
    cfg = control_flow(function)
    classes = virtual_classes(function)
    members = {int(r.name[1:]): r for r in problem.ranges}
    barred = _barred(function)
    live = phase_liveness(function, cfg, classes, members.__contains__, problem.phase)
    scalar = problem.phase == "sgpr"
    places = insertion_places(function, cfg.first, vectors=not scalar)
    known = constants(function, {v: classes[v] for v in members})
    by_register: dict[int, int] = {}
    for vreg, part in known:
        by_register[vreg] = by_register.get(vreg, 0) | 1 << part
    costs = Costs(
        lambda block: frequency(problem.block_depths[block]),
        None if scalar else exec_masks(function, cfg),
        places,
        lambda vreg: by_register.get(vreg, 0),
    )
    gaps = register_gaps(live, cfg, lambda v: v in members and v not in barred and classes[v].bits % 32 == 0)
    plans: dict[int, SpillPlan] = {}
    reasons: dict[int, str] = {}
    for banks in sorted({r.banks for r in problem.ranges if r.groups}, key=lambda b: (len(b), b)):
        if "special" in banks and len(banks) == 1:
            continue
        excess = Excess(_excess(problem, banks, spare))
        for plan in plans.values():
            if set(members[plan.register.vreg].banks) <= set(banks):
                excess.change(plan.gaps, -1)
        if excess.worst <= 0:
            continue
        reason = _reason(excess, banks)
        chosen = choose(
            {v: g for v, g in gaps.items() if v not in plans and set(members[v].banks) <= set(banks)}, excess, costs
        )
        if chosen is None:
            return None
        plans |= chosen
        reasons |= dict.fromkeys(chosen, reason)
    if not plans:
        return Relieved(function, ())
    spill_target = SpillTarget(
        classes,
        known,
        places,
        (header_field(function, "stackPtrOffsetReg") or "$sgpr32").removeprefix("$"),
        offsets=not target.unified_vgpr,
        even=target.unified_vgpr,
    )
    changed = insert_spills(function, cfg, plans, spill_target)
    return Relieved(changed, tuple(_action(p, reasons[v], by_register.get(v, 0)) for v, p in plans.items()))


def _barred(function: MachineFunction) -> set[int]:
    """Registers that code cannot be put beside: named in bundles, or defined by a terminator."""
    found: set[int] = set()
    for block in function.blocks:
        seen = False
        for instruction in block.instructions:
            ends = is_terminator(instruction)
            if instruction.bundled or instruction.opens_bundle or seen:
                found.update(op.vreg for op in instruction.all_operands if op.vreg >= 0)
            elif ends:
                found.update(op.vreg for op in instruction.all_operands if op.vreg >= 0 and op.is_def)
            seen |= ends
    return found


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
    from verilocc_mlir.target.registers import BANK_BASE, Bank, physical_register

    for budget in problem.budgets:
        if budget.bank in banks:
            base = BANK_BASE[Bank(budget.bank)]
            usable.update(u for n in budget.registers for u in (base + 2 * n, base + 2 * n + 1))
    if "special" in banks:
        usable.update(u for name in problem.special for u in physical_register(name).units)
    for fixed in problem.fixed:
        held = len(usable.intersection(fixed.units))
        if held:
            add(fixed.segments, held)
    total = len(usable) - 2 * spare
    found: list[int] = []
    live = 0
    for point in range(points):
        live += change[point]
        # Two lanes are a register.
        found.append(-(-(live - total) // 2))
    return found


def _point(slot: int) -> int:
    """First point at or after a slot."""
    index, at = divmod(slot, 4)
    return 2 * index + (0 if at <= 1 else 1 if at == 2 else 2)


def _reason(excess: Excess, banks: tuple[str, ...]) -> str:
    worst = excess.worst
    at = excess.over.index(worst) // 2
    return f"{worst} {' or '.join(b.upper() + 's' for b in banks)} too many at instruction {at}"


def _action(plan: SpillPlan, reason: str, constant: int) -> SpillAction:
    moved = 0
    for move in (*plan.saves, *plan.reloads):
        moved |= move.parts
    kind = "spill" if moved & ~constant else "rematerialise"
    return SpillAction(
        f"%{plan.register.vreg}",
        kind,
        moved.bit_count(),
        tuple(f"{m.where} {m.at}" for m in plan.saves),
        tuple(f"{m.where} {m.at}" for m in plan.reloads),
        plan.cost,
        reason,
    )
