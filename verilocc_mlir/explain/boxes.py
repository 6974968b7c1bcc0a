"""Live ranges as boxes, registers by slots: from an assignment, exactly; and the pressure over the program."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import NamedTuple

from verilocc_mlir.analysis.cfg import control_flow, find_loops
from verilocc_mlir.mir.model import MachineFunction
from verilocc_mlir.problem.model import AllocationProblem, LiveRange, Proposal, united
from verilocc_mlir.target.occupancy import waves_by_sgprs, waves_by_vectors
from verilocc_mlir.target.registers import BANK_BASE, Bank, physical_register, unit_bank, unit_name
from verilocc_mlir.target.targets import Target

LOW, HIGH, WHOLE = 1, 2, 3
"""Which 16-bit halves of its registers a box covers."""


class Box(NamedTuple):
    """``registers`` 32-bit registers from the one whose lower unit is ``unit``, in slots ``[start, end)``.

    Attributes:
        owner: id of a live range, or number of a reason.
        unit: unit (``verilocc_mlir.target.registers``) of the lower half of the first register.
        half: ``LOW``, ``HIGH`` or ``WHOLE``.
        start: first slot.
        end: slot after the last one.
    """

    owner: int
    unit: int
    registers: int
    half: int
    start: int
    end: int


def boxes_of_units(owner: int, units: Iterable[int], start: int, end: int) -> list[Box]:
    """The fewest boxes that cover ``units`` from ``start`` to ``end``."""
    halves: dict[int, int] = {}
    for unit in units:
        low = lower_unit(unit)
        halves[low] = halves.get(low, 0) | (HIGH if unit != low else LOW | _upper(low))
    boxes: list[Box] = []
    for low in sorted(halves):
        last = boxes[-1] if boxes else None
        if last is not None and last.half == halves[low] and last.unit + 2 * last.registers == low:
            boxes[-1] = last._replace(registers=last.registers + 1)
        else:
            boxes.append(Box(owner, low, 1, halves[low], start, end))
    return boxes


def lower_unit(unit: int) -> int:
    """The unit of the lower half of the register that ``unit`` is in."""
    bank = unit_bank(unit)
    if bank is Bank.SPECIAL:
        vcc = physical_register("vcc").units
        return vcc[(unit - vcc[0]) // 2 * 2] if unit in vcc else unit
    base = BANK_BASE[bank]
    return base + (unit - base) // 2 * 2


def _upper(low: int) -> int:
    """``HIGH`` where the register is this one unit, as SCC is."""
    return HIGH if unit_bank(low) is Bank.SPECIAL and low not in physical_register("vcc").units else 0


def row_name(unit: int) -> str:
    """``v12``, ``a0``, ``s7``, ``vcc_lo``: the register whose lower unit this is."""
    return unit_name(unit).removesuffix(".lo").removesuffix("[0:15]")


def assigned_boxes(problem: AllocationProblem, proposal: Proposal) -> list[Box]:
    """What the proposal says: each lane of each range, as long as it is live."""
    boxes: list[Box] = []
    for live, name in zip(problem.ranges, proposal.registers, strict=True):
        units = physical_register(name).units
        for group in live.groups:
            held = [units[k] for k in range(live.lanes) if group.lanes >> k & 1]
            for start, end in group.segments:
                boxes += boxes_of_units(live.id, held, start, end)
    return boxes


def fixed_boxes(problem: AllocationProblem) -> tuple[list[Box], list[str]]:
    """What something else holds; owners are numbers of the reasons that come with it."""
    reasons = list(dict.fromkeys(fixed.reason for fixed in problem.fixed))
    number = {reason: k for k, reason in enumerate(reasons)}
    return [
        box
        for fixed in problem.fixed
        for start, end in fixed.segments
        for box in boxes_of_units(number[fixed.reason], fixed.units, start, end)
    ], reasons


def boxes_of_runs(runs: Mapping[int, Iterable[tuple[int, int, int]]]) -> list[Box]:
    """Boxes of ``(start, end, owner)`` runs of each unit; what belongs to one owner at one time is joined."""
    flat = sorted((owner, start, end, unit) for unit, of_unit in runs.items() for start, end, owner in of_unit)
    return [
        box
        for (owner, start, end), group in groupby(flat, key=lambda run: run[:3])
        for box in boxes_of_units(owner, (run[3] for run in group), start, end)
    ]


def registers_of(boxes: Iterable[Box]) -> dict[int, str]:
    """For each owner the registers of its boxes, ``v4-v7, a0``."""
    lows: dict[int, set[int]] = {}
    for box in boxes:
        lows.setdefault(box.owner, set()).update(range(box.unit, box.unit + 2 * box.registers, 2))
    return {owner: ", ".join(_spans(sorted(units))) for owner, units in lows.items()}


def _spans(lows: list[int]) -> list[str]:
    spans: list[list[int]] = []
    for low in lows:
        if spans and low == spans[-1][1] + 2:
            spans[-1][1] = low
        else:
            spans.append([low, low])
    return [row_name(a) if a == b else f"{row_name(a)}-{row_name(b)}" for a, b in spans]


# Pressure over the program, the register counts at which a wave is lost, and the loops.


Curve = list[tuple[int, int]]
"""``(slot, value)``: the value from that slot to the next entry's; starts at slot 0."""


def demand(problem: AllocationProblem) -> Curve:
    """32-bit registers of which some half must be kept, whatever the assignment."""
    return _sum(_needs(problem.ranges))


def demand_of_bank(problem: AllocationProblem, bank: Bank) -> Curve:
    """32-bit registers that must be in a bank: ranges that may be in no other, and what physical registers hold.

    Ranges that may be in VGPRs or AGPRs count as VGPRs, where LLVM puts them first.
    """
    free = {
        BANK_BASE[bank] + 2 * n for budget in problem.budgets if budget.bank == bank.value for n in budget.registers
    }
    parts = list(_needs(live for live in problem.ranges if is_of_bank(live, bank)))
    held: dict[int, list[tuple[int, int]]] = {}
    for fixed in problem.fixed:
        for unit in {unit & ~1 for unit in fixed.units} & free:
            held.setdefault(unit, []).extend(fixed.segments)
    parts += [(start, end, 1) for segments in held.values() for start, end in united(segments)]
    return _sum(parts)


def is_of_bank(live: LiveRange, bank: Bank) -> bool:
    """Whether a live range counts for a bank in ``demand_of_bank``."""
    return bank.value in live.banks if bank is not Bank.AGPR else live.banks == (bank.value,)


def in_use(boxes: Iterable[Box]) -> Curve:
    """32-bit registers that hold something; a register of which both halves do counts once."""
    halves: dict[tuple[int, int], int] = {}
    whole: list[tuple[int, int, int]] = []
    by_register: dict[int, list[tuple[int, int]]] = {}
    for box in boxes:
        if box.half == 3:
            whole.append((box.start, box.end, box.registers))
        else:
            for k in range(box.registers):
                by_register.setdefault(box.unit + 2 * k, []).append((box.start, box.end))
    for segments in by_register.values():
        for start, end in united(segments):
            halves[start, end] = halves.get((start, end), 0) + 1
    return _sum([*whole, *((start, end, count) for (start, end), count in halves.items())])


def peak(curve: Curve) -> tuple[int, int]:
    """The highest value and the first slot at which it is reached."""
    slot, value = max(curve, key=lambda point: (point[1], -point[0]))
    return value, slot


def at(curve: Curve, slot: int) -> int:
    return curve[max(bisect_right(curve, slot, key=lambda point: point[0]) - 1, 0)][1]


def wave_steps(target: Target, phase: str, most: int) -> list[tuple[int, int]]:
    """``(registers, waves)``: with so many registers that many waves fit, with one more fewer; up to ``most``.

    Vector registers are VGPRs and AGPRs together where the file is unified. Scalar ones include those that the hardware
    adds (VCC, XNACK_MASK, FLAT_SCRATCH); on gfx10 and later they cost no wave.
    """
    count = waves_by_sgprs if phase == "sgpr" else waves_by_vectors
    steps = [(n, count(target, n)) for n in range(most) if count(target, n + 1) < count(target, n)]
    return [(n, waves) for n, waves in steps if n]


def loops(function: MachineFunction) -> list[tuple[int, int, int]]:
    """``(first instruction, instruction after the last, depth)`` of each loop, in pieces where its blocks lie apart."""
    cfg = control_flow(function)
    forest = find_loops(cfg)
    result: list[tuple[int, int, int]] = []
    for number, loop in enumerate(forest.loops):
        pieces: list[tuple[int, int, int]] = []
        for block in sorted(forest.blocks(number)):
            start, end = cfg.first[block], cfg.first[block + 1]
            if pieces and pieces[-1][1] == start:
                pieces[-1] = (pieces[-1][0], end, loop.depth)
            else:
                pieces.append((start, end, loop.depth))
        result += pieces
    return result


def _needs(ranges: Iterable[LiveRange]) -> Iterator[tuple[int, int, int]]:
    for live in ranges:
        lanes = sum(group.lanes for group in live.groups)
        if sum(registers_of_lanes(group.lanes) for group in live.groups) == registers_of_lanes(lanes):
            for group in live.groups:
                for start, end in group.segments:
                    yield start, end, registers_of_lanes(group.lanes)
            continue
        # Halves of one register that are live at different times.
        for part in range(live.width):
            segments = [segment for group in live.groups if group.lanes >> 2 * part & 3 for segment in group.segments]
            for start, end in united(segments):
                yield start, end, 1


def registers_of_lanes(lanes: int) -> int:
    """32-bit registers that a mask of 16-bit lanes touches."""
    return sum(1 for k in range(0, lanes.bit_length(), 2) if lanes >> k & 3)


def _sum(parts: Iterable[tuple[int, int, int]]) -> Curve:
    changes: dict[int, int] = {0: 0}
    for start, end, amount in parts:
        changes[start] = changes.get(start, 0) + amount
        changes[end] = changes.get(end, 0) - amount
    curve: Curve = []
    total = 0
    for slot in sorted(changes):
        total += changes[slot]
        if not curve or curve[-1][1] != total:
            curve.append((slot, total))
    return curve
