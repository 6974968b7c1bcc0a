"""Which live range is where, read off the texts before and after allocation: for allocations that are only text.

LLVM splits live ranges and moves them through memory; what it decided is not written anywhere but in its text. Both
sides are paired as the audit does it, each operand pair says which register a virtual register has there, moves carry
it on, and liveness of the physical registers says how long. This is for pictures: no verdict rests on it. Where
both ends of a move live on, the next instruction that reads decides whose the register is.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace

from smt_verifier.audit.align import align
from smt_verifier.audit.core.moves import lane_move
from smt_verifier.audit.core.opcodes import COPIES, NO_CODE, WHOLE_WAVE_COPIES
from smt_verifier.audit.core.semantics import is_pure, spill_slot
from verilocc_mlir.analysis.cfg import control_flow
from verilocc_mlir.analysis.lanes import lane_mask, virtual_classes
from verilocc_mlir.analysis.liveness import Segment, physical_liveness
from verilocc_mlir.explain.boxes import Box, boxes_of_runs
from verilocc_mlir.mir.model import Instruction, MachineFunction, Operand
from verilocc_mlir.problem.model import AllocationProblem
from verilocc_mlir.target.classes import RegisterClass
from verilocc_mlir.target.registers import Bank, physical_register, unit_bank

Lane = tuple[int, int]
"""Virtual register and 16-bit lane."""

_BANKS = {"sgpr": (Bank.SGPR, Bank.SPECIAL), "wwm": (Bank.VGPR, Bank.AGPR), "vgpr": (Bank.VGPR, Bank.AGPR)}
_ACCUMULATOR_MOVE = "V_ACCVGPR_"


@dataclass(frozen=True, slots=True)
class TextMove:
    """An instruction of the text after allocation that moves or repeats a value.

    Attributes:
        kind: ``spill``, ``reload``, ``copy`` (stood before allocation too), ``split`` (a copy that did not),
            ``rematerialised``, ``accumulator`` (V_ACCVGPR_*).
        block: layout position of its block.
        slot: where it stands in the text before allocation.
        line: 1-based line in the text after allocation.
        name: the virtual register whose value it moves, ``""`` where it could not be told.
        banks: banks of the registers it writes and reads, where there are two.
    """

    kind: str
    block: int
    slot: int
    text: str
    line: int
    name: str
    banks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Followed:
    """Where live ranges are, and the moves; ``removed`` copies stood before allocation and do not after it."""

    boxes: list[Box]
    moves: tuple[TextMove, ...]
    removed: int


def follow(before: MachineFunction, after: MachineFunction, problem: AllocationProblem) -> Followed | None:
    """Follow the live ranges of ``problem`` through ``after``; None where the blocks do not correspond.

    Raises:
        UnsupportedError: a physical register or spill code of a form that is not known.
    """
    if len(before.blocks) != len(after.blocks):
        return None
    return _Follower(before, after, problem).run()


class _Follower:
    """State of one walk. Slots are those of the text before; ``holds`` says whose value a place has."""

    def __init__(self, before: MachineFunction, after: MachineFunction, problem: AllocationProblem) -> None:
        self.before, self.after, self.problem = before, after, problem
        self.cfg, self.cfg_after = control_flow(before), control_flow(after)
        self.classes: dict[int, RegisterClass] = virtual_classes(before)
        self.ids = {int(r.name[1:]): r.id for r in problem.ranges}
        banks = _BANKS[problem.phase]
        self.live = physical_liveness(after, self.cfg_after, lambda unit: unit_bank(unit) in banks)
        self.holds: dict[Hashable, Lane] = {}
        self.since: dict[int, int] = {}
        self.runs: dict[int, list[tuple[int, int, int]]] = {}
        self.slots: dict[int, tuple[int, bool]] = {}
        self.moves: list[TextMove] = []
        self.repeated: dict[int, int] = {}
        self.removed = 0
        self.block = 0

    def run(self) -> Followed:
        leaving: dict[int, dict[Hashable, Lane]] = {}
        order = [*self.cfg.order, *sorted(set(range(len(self.before.blocks))) - set(self.cfg.order))]
        for block in order:
            entering = next((leaving[p] for p in self.cfg.predecessors[block] if p in leaving), dict[Hashable, Lane]())
            alive = self.live.live_in[block]
            self.holds = {k: lane for k, lane in entering.items() if not isinstance(k, int) or k in alive}
            self.block = block
            self._walk(block)
            leaving[block] = self.holds
        runs = {unit: _clip(of_unit, self._alive(unit)) for unit, of_unit in self.runs.items()}
        moves = sorted(self.moves, key=lambda m: (m.slot, m.line))
        return Followed(boxes_of_runs(runs), tuple(moves), self.removed)

    def _walk(self, block: int) -> None:
        start = 4 * self.cfg.first[block]
        self.since = {unit: start for unit in self.holds if isinstance(unit, int)}
        self.repeated = {}
        before, after = self.before.blocks[block].instructions, self.after.blocks[block].instructions
        left_at = {id(x): k for k, x in enumerate(before, self.cfg.first[block])}
        right_at = {id(x): k for k, x in enumerate(after, self.cfg_after.first[block])}
        # Copies of the text before that have not been met again in the text after.
        waiting: list[tuple[int, Instruction]] = []
        here = self.cfg.first[block]
        for step in align(before, after):
            if step.pre is not None and step.post is not None:
                self._coincide(waiting)
                here = left_at[id(step.pre)]
                self.slots[right_at[id(step.post)]] = (here, True)
                self._pair(step.pre, step.post, here)
                if step.post.opcode.startswith(_ACCUMULATOR_MOVE):
                    self._note("accumulator", step.post, 4 * here + 1, step.post.operands[:1], step.post.defs)
                here += 1
            elif step.pre is not None:
                if step.pre.opcode in COPIES:
                    waiting.append((left_at[id(step.pre)], step.pre))
            elif step.post is not None:
                position = self._kept(step.post, waiting)
                if position is not None:
                    self._coincide(waiting[:position])
                    here, pre = waiting[position]
                    del waiting[: position + 1]
                    self.slots[right_at[id(step.post)]] = (here, True)
                    ends = (op.vreg for op in (pre.defs[0], pre.operands[0]) if op.vreg in self.ids)
                    name = f"%{vreg}" if (vreg := next(ends, -1)) >= 0 else ""
                    self._note("copy", step.post, 4 * here + 1, step.post.operands[:1], step.post.defs, name)
                    self._pair(pre, step.post, here)
                    here += 1
                else:
                    self.slots[right_at[id(step.post)]] = (here, False)
                    self._alone(step.post, 4 * here)
        self._coincide(waiting)
        end = 4 * self.cfg.first[block + 1]
        for unit in self.since:
            self._close(unit, end)

    def _lanes(self, operand: Operand) -> list[Lane]:
        mask = lane_mask(operand, self.classes[operand.vreg])
        return [(operand.vreg, k) for k in range(mask.bit_length()) if mask >> k & 1]

    def _pair(self, pre: Instruction, post: Instruction, index: int) -> None:
        """Both sides execute the same: each operand pair says who is where. Reads come before writes."""
        pairs = [
            (a, b)
            for a, b in zip(pre.all_operands, post.all_operands, strict=False)
            if b.phys and (a.vreg in self.ids or b.is_def)
        ]
        for a, b in pairs:
            if a.vreg >= 0 and not b.is_def and not a.undef:
                for unit, lane in zip(physical_register(b.phys).units, self._lanes(a), strict=False):
                    self._read(unit, lane)
        for _, b in pairs:
            if b.is_def:
                for unit in physical_register(b.phys).units:
                    self._write(unit, None, 4 * index + (1 if b.early_clobber else 2))
        for a, b in pairs:
            if a.vreg >= 0 and b.is_def:
                for unit, lane in zip(physical_register(b.phys).units, self._lanes(a), strict=False):
                    self.holds[unit] = lane
                    self.since.setdefault(unit, 4 * index + 2)

    def _read(self, unit: int, lane: Lane) -> None:
        """What is read here was there since the register was written last."""
        if unit in self.repeated:
            number = self.repeated.pop(unit)
            self.moves[number] = replace(self.moves[number], name=f"%{lane[0]}")
        self.since.setdefault(unit, 4 * self.cfg.first[self.block])
        self.holds[unit] = lane

    def _write(self, unit: int, lane: Lane | None, slot: int) -> None:
        if unit in self.since:
            self._close(unit, slot)
        self.repeated.pop(unit, None)
        self.since[unit] = slot
        if lane is None:
            self.holds.pop(unit, None)
        else:
            self.holds[unit] = lane

    def _close(self, unit: int, end: int) -> None:
        owner = self.ids.get(self.holds[unit][0]) if unit in self.holds else None
        if owner is not None and self.since[unit] < end:
            self.runs.setdefault(unit, []).append((self.since[unit], end, owner))

    def _kept(self, post: Instruction, waiting: list[tuple[int, Instruction]]) -> int | None:
        """Which copy of the text before a copy after it is."""
        if post.opcode not in COPIES:
            return None
        target, source = post.defs[0], post.operands[0]
        holds = [self.holds.get(unit) for unit in physical_register(source.phys).units] if source.phys else []
        for k, (_, pre) in enumerate(waiting):
            to, of = pre.defs[0], pre.operands[0]
            if of.vreg in self.ids and not of.undef and holds != self._lanes(of):
                continue
            if of.vreg not in self.ids and not of.undef and _place(of) != _place(source):
                continue
            if to.vreg not in self.ids and _place(to) != _place(target):
                continue
            return k
        return None

    def _coincide(self, copies: list[tuple[int, Instruction]]) -> None:
        """Copies that are gone: their ends have one register, which changes hands."""
        for index, copy in copies:
            to, of = copy.defs[0], copy.operands[0]
            if of.undef:
                continue
            self.removed += 1
            if of.vreg in self.ids:
                sources = self._lanes(of)
                units = {lane: unit for unit, lane in self.holds.items() if isinstance(unit, int) and lane in sources}
                places = [units.get(lane) for lane in sources]
            elif of.phys:
                places = list(physical_register(of.phys).units)
            else:
                continue
            lanes = self._lanes(to) if to.vreg in self.ids else [None] * len(places)
            for unit, lane in zip(places, lanes, strict=False):
                if unit is not None:
                    self._write(unit, lane, 4 * index + 2)
        copies.clear()

    def _alone(self, post: Instruction, slot: int) -> None:
        """An instruction that the allocator added."""
        places: list[tuple[Hashable, Hashable]] = []
        if post.opcode in NO_CODE:
            return
        slot_of = spill_slot(post)
        lane_of = lane_move(post) if slot_of is None else None
        if slot_of is not None:
            units = physical_register(slot_of.register.phys).units if slot_of.register.phys else ()
            memory = [("stack", slot_of.number, slot_of.offset // 2 + k) for k in range(len(units))]
            is_save = slot_of.is_save
            places = [(m, u) if is_save else (u, m) for m, u in zip(memory, units, strict=True)]
        elif lane_of is not None:
            units = physical_register(lane_of.scalar.phys).units if lane_of.scalar.phys else ()
            cells = [("cell", str(lane_of.register), lane_of.lane, k) for k in range(len(units))]
            is_save = lane_of.is_save
            places = [(c, u) if is_save else (u, c) for c, u in zip(cells, units, strict=True)]
        elif post.opcode in COPIES or post.opcode in WHOLE_WAVE_COPIES:
            is_save = None
            target, source = post.defs[0], post.operands[0]
            if target.phys and source.phys:
                pair = physical_register(target.phys).units, physical_register(source.phys).units
                places = list(zip(*pair, strict=False))
        else:
            self._repeat(post, slot)
            return
        kind = "split" if is_save is None else "spill" if is_save else "reload"
        values = [self.holds.get(of) for _, of in places]
        name = next((f"%{lane[0]}" for lane in values if lane is not None), "")
        operands = post.operands[:1], post.defs[:1]
        self._note(kind, post, slot, *(operands if is_save is None else ((), ())), name)
        for (to, _), lane in zip(places, values, strict=True):
            if isinstance(to, int):
                self._write(to, lane, slot)
            elif lane is not None:
                self.holds[to] = lane

    def _repeat(self, post: Instruction, slot: int) -> None:
        number = len(self.moves)
        self._note("rematerialised" if is_pure(post) else "added", post, slot, (), ())
        for operand in post.defs:
            for unit in physical_register(operand.phys).units if operand.phys else ():
                self._write(unit, None, slot)
                self.repeated[unit] = number

    def _note(
        self,
        kind: str,
        post: Instruction,
        slot: int,
        sources: Iterable[Operand],
        targets: Iterable[Operand],
        name: str | None = None,
    ) -> None:
        registers = [physical_register(op.phys) for op in (*targets, *sources) if op.phys]
        if name is None:
            units = [u for op in sources if op.phys for u in physical_register(op.phys).units]
            name = next((f"%{self.holds[u][0]}" for u in units if u in self.holds), "")
        banks = tuple(r.bank.value for r in registers) if len(registers) == 2 else ()
        self.moves.append(TextMove(kind, self.block, slot, str(post), post.line, name, banks))

    def _alive(self, unit: int) -> list[Segment]:
        """When the unit is in use in the text after, in slots of the text before."""
        ends = dict(zip(self.cfg_after.first, self.cfg.first, strict=True))

        def slot(value: int) -> int:
            index, rest = divmod(value, 4)
            if rest == 0:
                return 4 * ends[index]
            index_before, paired = self.slots.get(index, (0, False))
            return 4 * index_before + (rest if paired else 0)

        return [(slot(start), slot(end)) for start, end in self.live.ranges.get(unit, ())]


def _place(operand: Operand) -> tuple[int, str, str]:
    return operand.vreg, operand.phys, operand.sub


def _clip(runs: list[tuple[int, int, int]], alive: list[Segment]) -> list[tuple[int, int, int]]:
    """The parts of the runs that lie in a segment, neighbours of one owner joined."""
    runs.sort()
    alive = sorted(alive)
    clipped: list[tuple[int, int, int]] = []
    at = 0
    for start, end, owner in runs:
        while at < len(alive) and alive[at][1] <= start:
            at += 1
        k = at
        while k < len(alive) and alive[k][0] < end:
            low, high = max(start, alive[k][0]), min(end, alive[k][1])
            if clipped and clipped[-1][2] == owner and clipped[-1][1] == low:
                clipped[-1] = (clipped[-1][0], high, owner)
            elif low < high:
                clipped.append((low, high, owner))
            k += 1
    return clipped
