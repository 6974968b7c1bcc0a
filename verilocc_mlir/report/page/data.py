"""The picture of one phase as JSON: registers by slots, in boxes; everything that the script draws or shows.

Keys, ``DATA_VERSION`` 1. Slots are four an instruction of the text before the phase (``problem/model.py``).

* ``instructions``: texts, memory operands left out; ``blocks``: ``[first instruction, label, loop depth]``;
  ``loops``: ``[first instruction, instruction after the last, depth]``; ``slots``: how many.
* ``rows``: names of the registers, one a row; ``banks``: ``[bank, first row, how many]``.
* ``ranges``: ``[name, class, width, weight, definitions, uses]``, the last two as instruction numbers.
* ``placements``: one or two of ``{name, used, boxes, registers}``; a box is ``[range, first row, rows, half, start
  slot, end slot]`` with half 1 low, 2 high, 3 both; ``registers`` says in words where each range is.
* ``fixed``: boxes of what something else holds, by number of its reason; ``reasons``.
* ``difference``: for each range, where LLVM's allocation of the same text puts it: an index of ``differenceNames``;
  empty where there is nothing to compare.
* ``use``, ``demand``: ``[slot, registers]``, each until the next; ``steps``: ``[registers, waves]``; ``budget``:
  registers that may be used.
* ``moves``: ``[slot, kind]`` of what the list beside the picture says.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from verilocc_mlir.analysis.cfg import control_flow
from verilocc_mlir.explain.boxes import (
    Box,
    Curve,
    assigned_boxes,
    at,
    demand,
    fixed_boxes,
    in_use,
    loops,
    peak,
    registers_of,
    row_name,
    wave_steps,
)
from verilocc_mlir.explain.follow import Followed, TextMove, follow
from verilocc_mlir.problem.build import frequency
from verilocc_mlir.problem.model import AllocationProblem
from verilocc_mlir.results.page import Action, PhaseRecord
from verilocc_mlir.target.registers import AGPR_BASE, SGPR_BASE, VGPR_BASE, Bank, physical_register, unit_bank
from verilocc_mlir.target.targets import Target

DATA_VERSION = 1
DIFFERENCES = ("not comparable", "same registers", "other registers", "other bank", "split or spilled there")


@dataclass(frozen=True)
class Picture:
    """One phase, worked out.

    Attributes:
        data: for the script; see the module.
        moves: rows of what moves in the text that was used.
        removed: copies that are gone.
        registers: for each bank the numbers of registers used and the highest plus one, of the allocation used.
        peak_use: most registers that hold something at once, and where; None without an allocation.
        peak_demand: most registers wanted at once, and the slot.
    """

    data: dict[str, Any]
    moves: tuple[MoveRow, ...]
    removed: int
    registers: tuple[tuple[str, int, int], ...]
    peak_use: tuple[int, int] | None
    peak_demand: tuple[int, int]
    budget: int


def picture(record: PhaseRecord, target: Target, allocator: str) -> Picture | None:
    """The phase as a picture; None where its problem could not be stated.

    Raises:
        UnsupportedError: a text with registers or spill code of a form that is not known.
    """
    problem = record.problem
    if problem is None:
        return None
    used = follow(record.before, record.after, problem) if record.after is not None else None
    llvm_text = follow(record.before, record.llvm, problem) if record.llvm is not None else None
    placements: list[tuple[str, bool, list[Box]]] = []
    if record.proposal is not None and record.after is not None:
        placements.append((allocator, True, assigned_boxes(problem, record.proposal)))
    elif used is not None:
        placements.append((allocator, True, used.boxes))
    if llvm_text is not None and record.after is not record.llvm:
        placements.append(("llvm", False, llvm_text.boxes))
    fixed, reasons = fixed_boxes(problem)
    rows = _Rows(problem.phase, [box for _, _, boxes in placements for box in boxes], fixed)
    demand_curve = demand(problem)
    main_boxes = placements[0][2] if placements and placements[0][1] else []
    use = in_use([*main_boxes, *(b for b in fixed if not reasons[b.owner].startswith("clobbered"))])
    registers = [registers_of(boxes) for _, _, boxes in placements]
    moves = move_rows(
        record, used.moves if used else (), demand_curve, "LLVM" if record.proposal is None else allocator
    )
    budget = sum(len(b.registers) for b in problem.budgets)
    most = max(budget, peak(demand_curve)[0], len(rows.units)) + 2
    data: dict[str, Any] = {
        "version": DATA_VERSION,
        "function": record.function,
        "phase": record.phase,
        "slots": problem.slots,
        "instructions": [str(i).split(" :: ")[0] for b in record.before.blocks for i in b.instructions],
        "blocks": [
            [start // 4, f"bb.{b.number}", depth]
            for b, start, depth in zip(record.before.blocks, problem.block_starts, problem.block_depths, strict=True)
        ],
        "loops": loops(record.before),
        "rows": [row_name(unit) for unit in rows.units],
        "banks": rows.banks,
        "ranges": _ranges(problem),
        "placements": [
            {
                "name": name,
                "used": is_used,
                "boxes": rows.placed(boxes),
                "registers": [of.get(live.id, "") for live in problem.ranges],
            }
            for (name, is_used, boxes), of in zip(placements, registers, strict=True)
        ],
        "fixed": rows.placed(fixed),
        "reasons": reasons,
        "difference": _differences(problem, placements, llvm_text),
        "differenceNames": DIFFERENCES,
        "use": use,
        "demand": demand_curve,
        "steps": wave_steps(target, problem.phase, most),
        "budget": budget,
        "moves": [[4 * row.index, row.kind] for row in moves],
    }
    return Picture(
        data,
        tuple(moves),
        used.removed if used else 0,
        tuple(_counts(main_boxes)),
        peak(use) if main_boxes else None,
        peak(demand_curve),
        budget,
    )


class _Rows:
    """The registers that a picture has rows for: of each bank, from number 0 to the highest one that holds a range."""

    def __init__(self, phase: str, boxes: Iterable[Box], fixed: Iterable[Box]) -> None:
        ends: dict[Bank, int] = {}
        for box in boxes:
            bank = unit_bank(box.unit)
            ends[bank] = max(ends.get(bank, 0), box.unit + 2 * box.registers)
        if not ends:
            for box in fixed:
                bank = unit_bank(box.unit)
                ends[bank] = max(ends.get(bank, 0), box.unit + 2 * box.registers)
        order = ((Bank.SGPR, SGPR_BASE), (Bank.VGPR, VGPR_BASE), (Bank.AGPR, AGPR_BASE))
        self.units: list[int] = []
        self.banks: list[list[object]] = []
        for bank, base in order:
            if bank in ends:
                self.banks.append([bank.value, len(self.units), (ends[bank] - base) // 2])
                self.units += range(base, ends[bank], 2)
        if Bank.SPECIAL in ends:
            vcc = physical_register("vcc").units[::2]
            self.banks.append([Bank.SPECIAL.value, len(self.units), len(vcc)])
            self.units += vcc
        self._row = {unit: k for k, unit in enumerate(self.units)}

    def placed(self, boxes: Iterable[Box]) -> list[list[int]]:
        """Boxes by row; what has no row is cut off."""
        rows: list[list[int]] = []
        for box in boxes:
            row = self._row.get(box.unit)
            if row is None:
                continue
            count = next(k for k in range(box.registers, 0, -1) if box.unit + 2 * (k - 1) in self._row)
            rows.append([box.owner, row, count, box.half, box.start, box.end])
        return rows


def _ranges(problem: AllocationProblem) -> list[list[object]]:
    return [
        [
            live.name,
            live.register_class,
            live.width,
            live.weight,
            sorted({p.slot // 4 for p in live.points if p.kind != "use"}),
            sorted({p.slot // 4 for p in live.points if p.kind == "use"}),
        ]
        for live in problem.ranges
    ]


def _differences(
    problem: AllocationProblem, placements: Sequence[tuple[str, bool, list[Box]]], theirs: Followed | None
) -> list[int]:
    """For each range an index of ``DIFFERENCES``; empty where LLVM's is the only allocation, or there is none."""
    if theirs is None or len(placements) < 2:
        return []
    ours, other = _covered(placements[0][2]), _covered(theirs.boxes)
    length = _lives(placements[0][2]), _lives(theirs.boxes)
    indices: list[int] = []
    for live in problem.ranges:
        a, b = ours.get(live.id, frozenset()), other.get(live.id, frozenset())
        if not a and not b:
            indices.append(0)
        elif len(b) > len(a) or length[1].get(live.id, 0) < length[0].get(live.id, 0):
            indices.append(4)
        elif a == b:
            indices.append(1)
        else:
            indices.append(2 if {unit_bank(u) for u in a} == {unit_bank(u) for u in b} else 3)
    return indices


def _covered(boxes: Iterable[Box]) -> dict[int, frozenset[int]]:
    """Lower units of the registers each owner has anywhere."""
    units_of: dict[int, set[int]] = {}
    for box in boxes:
        units_of.setdefault(box.owner, set()).update(range(box.unit, box.unit + 2 * box.registers, 2))
    return {owner: frozenset(units) for owner, units in units_of.items()}


def _lives(boxes: Iterable[Box]) -> dict[int, int]:
    """Registers times instructions of each owner."""
    lengths: dict[int, int] = {}
    for box in boxes:
        # Boundaries of both kinds of boxes may differ by parts of an instruction.
        lengths[box.owner] = lengths.get(box.owner, 0) + box.registers * (box.end // 4 - box.start // 4)
    return lengths


def _counts(boxes: Iterable[Box]) -> Iterable[tuple[str, int, int]]:
    units = {unit for box in boxes for unit in range(box.unit, box.unit + 2 * box.registers, 2)}
    for bank, base in ((Bank.SGPR, SGPR_BASE), (Bank.VGPR, VGPR_BASE), (Bank.AGPR, AGPR_BASE)):
        numbers = [(unit - base) // 2 for unit in units if unit_bank(unit) is bank]
        if numbers:
            yield bank.value, len(numbers), max(numbers) + 1


# Rows about what moves, with the reason: as an allocator gave it, or as far as the text shows it.


TITLES = {
    "spill": "spilled",
    "reload": "reloaded",
    "rematerialised": "rematerialised",
    "rematerialise": "rematerialised",
    "split": "split",
    "copy": "copied",
    "accumulator": "moved between banks",
    "added": "added",
}


@dataclass(frozen=True, slots=True)
class MoveRow:
    """One row.

    Attributes:
        kind: as of ``TextMove`` or ``Action``.
        name: the live range, or ``""``.
        block: ``bb.3``.
        index: instruction of the text before allocation that it stands at.
        text: the instruction, ``""`` where only an action is known.
        line: its line in the text after allocation, 0 where there is none.
        depth: loops around it.
        weight: estimated executions.
        reason: why, in a sentence.
    """

    kind: str
    name: str
    block: str
    index: int
    text: str
    line: int
    depth: int
    weight: float
    reason: str

    @property
    def title(self) -> str:
        return TITLES.get(self.kind, self.kind)


def move_rows(record: PhaseRecord, moves: Sequence[TextMove], wanted: Curve, by: str) -> list[MoveRow]:
    """Actions as they were given, then the text's moves, each in program order.

    Args:
        record: the phase; its problem is there.
        moves: those of the text that was used.
        wanted: demand over the program.
        by: whose allocation it is, for the reasons.
    """
    problem = record.problem
    if problem is None:
        return []
    starts = problem.block_starts
    labels = [f"bb.{b.number}" for b in record.before.blocks]

    def block_of(slot: int) -> int:
        return max(bisect_right(starts, slot) - 1, 0)

    rows = [_action_row(a, labels[block_of(a.point)], problem.block_depths[block_of(a.point)]) for a in record.actions]
    last = control_flow(record.before).first[-1] - 1
    room = sum(len(b.registers) for b in problem.budgets) + (2 if problem.special else 0)
    for move in moves:
        depth = problem.block_depths[move.block]
        reason = _reason(move, at(wanted, move.slot), room, by, problem.phase == "sgpr")
        index = min(move.slot // 4, last)
        rows.append(
            MoveRow(
                move.kind, move.name, labels[move.block], index, move.text, move.line, depth, frequency(depth), reason
            )
        )
    return rows


def _action_row(action: Action, block: str, depth: int) -> MoveRow:
    return MoveRow(action.kind, action.register, block, action.point // 4, "", 0, depth, action.weight, action.reason)


def _reason(move: TextMove, wanted: int, room: int, by: str, scalar: bool) -> str:
    if move.kind == "copy":
        if len(set(move.banks)) == 2:
            return f"from {move.banks[1].upper()} to {move.banks[0].upper()}; stood before allocation"
        return "stood before allocation; its ends have different registers"
    if move.kind == "accumulator":
        return "moves between VGPR and AGPR; stood before allocation"
    live = f"{wanted} of {room} registers are wanted here"
    if move.kind == "split":
        between = f" from {move.banks[1].upper()} to {move.banks[0].upper()}" if len(set(move.banks)) == 2 else ""
        return f"{by} split the live range{between}; {live}"
    if move.kind in ("spill", "reload"):
        lane = "_TO_VGPR" in move.text or "_FROM_VGPR" in move.text
        where = "a lane of a vector register" if lane else "a slot that LLVM lowers to lanes" if scalar else "memory"
        return f"{by} keeps it in {where} for a while; {live}"
    if move.kind == "rematerialised":
        return f"{by} repeats it instead of keeping the value; {live}"
    return f"added by {by}"


def summary(rows: Sequence[MoveRow]) -> list[tuple[str, int, float]]:
    """``(title, how many, estimated executions)`` of each kind, heaviest first."""
    totals: dict[str, tuple[int, float]] = {}
    for row in rows:
        count, weight = totals.get(row.title, (0, 0.0))
        totals[row.title] = (count + 1, weight + row.weight)
    return sorted(((k, n, w) for k, (n, w) in totals.items()), key=lambda item: (-item[2], item[0]))
