"""Live ranges as boxes, registers by slots: from an assignment, exactly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import NamedTuple

from verilocc_mlir.problem.model import AllocationProblem, Proposal
from verilocc_mlir.target.registers import BANK_BASE, Bank, physical_register, unit_bank, unit_name

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
