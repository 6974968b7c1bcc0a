"""Why a function spills or loses a wave: its points of greatest pressure, and the values that are live there."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from verilocc_mlir.analysis.cfg import control_flow
from verilocc_mlir.analysis.lanes import virtual_classes
from verilocc_mlir.explain.boxes import demand_of_bank, is_of_bank, peak, registers_of_lanes
from verilocc_mlir.explain.follow import TextMove, follow
from verilocc_mlir.mir.model import Instruction, MachineFunction
from verilocc_mlir.problem.build import phase_liveness
from verilocc_mlir.problem.model import AllocationProblem, LiveRange
from verilocc_mlir.results.compile import Resources
from verilocc_mlir.results.page import PhaseRecord
from verilocc_mlir.results.why import FilePressure, LiveValue, Moved, Site, Threshold, WhyFunction
from verilocc_mlir.spilling import SpillAction
from verilocc_mlir.spilling.gaps import Gap, RegisterGaps, parts_of, register_gaps
from verilocc_mlir.spilling.ground import constants, writers
from verilocc_mlir.spilling.relieve import Spiller
from verilocc_mlir.target.attributes import function_attributes
from verilocc_mlir.target.occupancy import extra_sgprs, waves, waves_by_work_group
from verilocc_mlir.target.registers import Bank
from verilocc_mlir.target.reserved import allocatable, flat_work_group_size
from verilocc_mlir.target.targets import Target

_ELSEWHERE = 3
_MOVES = {"spill", "reload", "rematerialised"}
_IMPLICIT = re.compile(r",? implicit(?:-def)?(?: (?:dead|killed|undef))* \$\w+")
_FLAGS = re.compile(r"\b(?:renamable|killed|nofpexcept|contract|nsw|nuw|early-clobber) ")

Waves = Callable[[dict[Bank, int]], int]
"""From registers needed in each file to waves per SIMD."""


def why_function(
    preamble: str,
    records: list[PhaseRecord],
    target: Target,
    is_kernel: bool,
    resources: Resources | None,
    launch_lds: int = 0,
) -> WhyFunction:
    """One function.

    Args:
        preamble: the IR module of its file.
        records: its SGPR and its VGPR phase, each with a problem; ``after`` is None where there is no allocation.
        resources: of the finished code.
        launch_lds: bytes of LDS that a launch asks for besides those in the code.

    Raises:
        UnsupportedError: a physical register or spill code of a form that is not known.
    """
    views = [_View(record, preamble, target) for record in records]
    peaks = {bank: peak(view.curve(bank))[0] for view in views for bank in view.banks}
    # Thresholds are those of the code: what is beyond the budget is spilled then.
    needs = {bank: min(peaks[bank], view.available(bank)) for view in views for bank in view.banks}
    attributes = function_attributes(preamble, records[0].function)
    size, lds = flat_work_group_size(attributes, target), attributes.lds_bytes + launch_lds
    most = allocatable(records[0].before, preamble, target).waves[1]

    def occupancy(registers: dict[Bank, int]) -> int:
        scalars = registers.get(Bank.SGPR, 0) + extra_sgprs(target, vcc=True)
        return waves(target, registers.get(Bank.VGPR, 0), registers.get(Bank.AGPR, 0), scalars, lds, size, most)

    files = [view.file(bank, needs, occupancy) for view in views for bank in view.banks if needs[bank]]
    limit = min(most, waves_by_work_group(target, lds, size)[1])
    moved = tuple(move for view in views for move in view.moved())
    taken = resources and replace(resources, waves=min(resources.waves, limit))
    return WhyFunction(records[0].function, is_kernel, occupancy(peaks), limit, tuple(files), moved, taken)


class _View:
    """One phase of one function: what it needs, and what its allocation added."""

    def __init__(self, record: PhaseRecord, preamble: str, target: Target) -> None:
        assert record.problem is not None
        self.record = record
        self.problem: AllocationProblem = record.problem
        self.target = target
        self.function: MachineFunction = record.before
        self.banks = (Bank.SGPR,) if record.phase == "sgpr" else (Bank.VGPR, Bank.AGPR)
        self._instructions = [i for block in self.function.blocks for i in block.instructions]
        self._lines = SourceLines(preamble, self.function)
        self._curves = {bank: demand_of_bank(self.problem, bank) for bank in self.banks}

    def curve(self, bank: Bank) -> list[tuple[int, int]]:
        return self._curves[bank]

    def available(self, bank: Bank) -> int:
        """Registers of a file that LLVM lets the function have."""
        return next((len(b.registers) for b in self.problem.budgets if b.bank == bank.value), 0)

    def file(self, bank: Bank, needs: dict[Bank, int], occupancy: Waves) -> FilePressure:
        """The pressure on one register file."""
        most, slot = peak(self.curve(bank))
        values = self._values(bank, slot)
        available, now = self.available(bank), occupancy(needs)

        def waves_with(registers: int) -> int:
            return occupancy({**needs, bank: registers})

        more = next((n for n in range(needs[bank] - 1, 0, -1) if waves_with(n) > now), 0)
        fewer = next((n for n in range(most + 1, available + 1) if waves_with(n) < now), 0)
        goal = available if most > available else more
        return FilePressure(
            file=bank.value.upper(),
            available=available,
            beside=self._beside(bank, slot),
            most=most,
            held=most - sum(value.registers for value in values),
            at=self._site(slot // 4),
            elsewhere=self._elsewhere(bank, most, slot),
            values=values,
            fewer_waves=Threshold(fewer, waves_with(fewer)) if fewer else None,
            more_waves=Threshold(more, waves_with(more)) if more else None,
            plan=self._plan({**needs, bank: goal}) if goal else (),
        )

    def _beside(self, bank: Bank, slot: int) -> int:
        """AGPRs for values that are live at a slot and may be in either file."""
        if bank is not Bank.VGPR:
            return 0
        ranges = [r for r in self.problem.ranges if {Bank.VGPR.value, Bank.AGPR.value} <= {*r.banks}]
        free = self.available(Bank.AGPR) - peak(self.curve(Bank.AGPR))[0]
        return max(min(sum(_live_registers(r, slot) for r in ranges), free), 0)

    def _elsewhere(self, bank: Bank, most: int, slot: int) -> tuple[Site, ...]:
        others = dict.fromkeys(start // 4 for start, value in self.curve(bank) if value == most and start > slot)
        return tuple(self._site(index) for index in list(others)[:_ELSEWHERE] if index != slot // 4)

    def _values(self, bank: Bank, slot: int) -> tuple[LiveValue, ...]:
        live = [(r, n) for r in self.problem.ranges if is_of_bank(r, bank) and (n := _live_registers(r, slot))]
        cfg = control_flow(self.function)
        classes = virtual_classes(self.function)
        numbers = {int(r.name[1:]) for r, _ in live}
        liveness = phase_liveness(self.function, cfg, classes, numbers.__contains__, self.problem.phase)
        gaps = register_gaps(liveness, cfg, lambda _: True)
        of_numbers = {v: classes[v] for v in numbers}
        known = constants(writers(self.function, of_numbers), of_numbers)
        depths = self.problem.block_depths
        placed = {
            index: (instruction, depths[block])
            for block, start in enumerate(cfg.first[:-1])
            for index, instruction in enumerate(self.function.blocks[block].instructions, start)
        }
        values: list[LiveValue] = []
        for live_range, registers in live:
            number = int(live_range.name[1:])
            idle = idle_at(gaps.get(number), slot // 4)
            defined_at = _definition(live_range, slot)
            parts = parts_of(sum(group.lanes for group in live_range.groups))
            constant = all((number, part) in known for part in range(parts.bit_length()) if parts >> part & 1)
            later = [use for use in idle.uses if use > slot // 4] or list(idle.uses)
            values.append(
                LiveValue(
                    name=live_range.name,
                    registers=registers,
                    register_class=live_range.register_class,
                    defined=None if defined_at is None else self._site(defined_at),
                    live_for=slot // 4 - defined_at if defined_at is not None and defined_at <= slot // 4 else None,
                    idle=idle.instructions,
                    next_use=self._site(later[0]) if later else None,
                    hint=hint(idle, gaps.get(number), constant, slot // 4, placed),
                )
            )
        return tuple(sorted(values, key=lambda value: (-value.idle, -value.registers, value.name)))

    def _plan(self, goals: dict[Bank, int]) -> tuple[SpillAction, ...] | None:
        """What the spiller would do to get along with so many registers of each file; None where it finds no way."""
        budgets = tuple(
            replace(budget, registers=budget.registers[: goals[Bank(budget.bank)]]) for budget in self.problem.budgets
        )
        fewer = replace(self.problem, budgets=budgets)
        relieved = Spiller(self.function, fewer, self.target).relieve(accumulators=False)
        return None if relieved is None else tuple(sorted(relieved.actions, key=lambda action: action.cost))

    def moved(self) -> list[Moved]:
        """What the allocation added, in order."""
        if self.record.after is None:
            return []
        followed = follow(self.function, self.record.after, self.problem)
        if followed is None:
            return []
        return [self._moved(move) for move in followed.moves if move.kind in _MOVES]

    def _moved(self, move: TextMove) -> Moved:
        site = self._site(min(move.slot // 4, len(self._instructions) - 1))
        live_range = next((r for r in self.problem.ranges if r.name == move.name), None)
        defined_at = None if live_range is None else _definition(live_range, move.slot)
        return Moved(
            self.record.phase.upper(),
            move.kind,
            move.name,
            None if defined_at is None else self._site(defined_at),
            replace(site, instruction=_short(move.text)),
        )

    def _site(self, index: int) -> Site:
        block = bisect_right(self.problem.block_starts, 4 * index) - 1
        instruction = self._instructions[index]
        return Site(
            self.function.blocks[block].header.split("(")[0].strip().rstrip(":").strip(),
            self.problem.block_depths[block],
            index,
            _words(instruction),
            self._lines.of(instruction),
        )


def _live_registers(live: LiveRange, slot: int) -> int:
    lanes = sum(group.lanes for group in live.groups if any(start <= slot < end for start, end in group.segments))
    return registers_of_lanes(lanes)


def _definition(live: LiveRange, slot: int) -> int | None:
    """The last instruction up to a slot that defines a live range; else, around a loop, the last one."""
    definitions = [point.slot for point in live.points if point.kind != "use"]
    before = [definition for definition in definitions if definition <= slot]
    return max(before or definitions) // 4 if definitions else None


def _words(instruction: Instruction) -> str:
    return _short(replace(instruction, tail="", comment="").render().strip())


def _short(text: str) -> str:
    return _FLAGS.sub("", _IMPLICIT.sub("", text)).replace(" , ", " ")


# Source lines of machine instructions: ``debug-location !N`` followed through the IR module's metadata.
#
# Source: LLVM's LangRef, "DILocation". A scope is a block or a subprogram, which names its file.


_NODE = re.compile(r"(?:^|')\s*!(?P<number>\d+) = (?:distinct )?!(?P<kind>DI\w+)\((?P<fields>.*)\)", re.MULTILINE)
_AT = re.compile(r"debug-location (?:!(?P<number>\d+)|!DILocation\((?P<fields>[^)]*)\))")
_DEPTH = 64
"""Scopes and inlined calls followed."""


class SourceLines:
    """Where instructions of a function come from, as far as its module says.

    Args:
        preamble: the IR module of its file.
    """

    def __init__(self, preamble: str, function: MachineFunction) -> None:
        header = "\n".join(function.header_lines)
        # Most modules have none; a large one is then not searched line by line.
        text = f"{preamble}\n{header}" if "!DILocation(" in preamble or "!DILocation(" in header else ""
        self._nodes = {int(m["number"]): (m["kind"], m["fields"]) for m in _NODE.finditer(text)}

    def of(self, instruction: Instruction) -> str:
        """``file.py:12:5, inlined at file.py:40:1``; ``""`` where the text does not say."""
        match = _AT.search(instruction.tail)
        if match is None:
            return ""
        fields = match["fields"] or self._fields(int(match["number"]))
        places: list[str] = []
        for _ in range(_DEPTH):
            if not fields:
                break
            line, column = _value(fields, "line") or "0", _value(fields, "column")
            if line != "0":
                places.append(f"{self._file(fields)}:{line}{f':{column}' if column else ''}")
            fields = self._fields(_reference(fields, "inlinedAt"))
        return ", inlined at ".join(places)

    def _fields(self, number: int) -> str:
        return self._nodes.get(number, ("", ""))[1]

    def _file(self, fields: str) -> str:
        for _ in range(_DEPTH):
            file = self._fields(_reference(fields, "file"))
            if file:
                return _value(file, "filename").strip('"')
            fields = self._fields(_reference(fields, "scope"))
        return "?"


def _value(fields: str, name: str) -> str:
    match = re.search(rf'\b{name}: ("[^"]*"|[^,]+)', fields)
    return match[1] if match else ""


def _reference(fields: str, name: str) -> int:
    """The number of the node that a field refers to, -1 where there is none."""
    value = _value(fields, name)
    return int(value[1:]) if re.fullmatch(r"!\d+", value) else -1


# How long the values that are live at a point lie idle there, and what might free their registers.
#
# Hints rest on how often a value is defined and where it is next used. Whether the memory that a load reads has changed
# by then is not looked at: they are for people to judge.


@dataclass(frozen=True)
class Idle:
    """A stretch of code in which a value is live and nothing touches it.

    Attributes:
        instructions: in it, over all blocks.
        uses: instructions that touch it next, ascending.
        opened_by: instructions at which it begins.
    """

    instructions: int
    uses: tuple[int, ...]
    opened_by: tuple[int, ...]


_WORTH_A_HINT = 8
"""Instructions that a value must lie idle."""

NOT_IDLE = Idle(0, (), ())


def idle_at(register: RegisterGaps | None, index: int) -> Idle:
    """The stretch around the instruction ``index``; nothing where it touches the register."""
    start = next((gap for gap in register.gaps if gap.first <= index < gap.stop), None) if register else None
    if start is None:
        return NOT_IDLE
    stretch = {start}
    work = [start]
    while work:
        gap: Gap = work.pop()
        for neighbour in (*gap.predecessors, *gap.successors):
            if neighbour not in stretch:
                stretch.add(neighbour)
                work.append(neighbour)
    return Idle(
        sum(gap.stop - gap.first for gap in stretch),
        tuple(sorted(gap.closes.index for gap in stretch if gap.closes is not None)),
        tuple(sorted(gap.opens.index for gap in stretch if gap.opens is not None)),
    )


def hint(
    idle: Idle, register: RegisterGaps | None, constant: bool, at: int, placed: Mapping[int, tuple[Instruction, int]]
) -> str:
    """What might free the registers at instruction ``at``, in a few words, or ``""``.

    Args:
        placed: each instruction with its loop depth.
    """
    if idle.instructions < _WORTH_A_HINT or register is None:
        return ""
    if constant:
        return "constant: make it again"
    deepest = max((placed[use][1] for use in idle.uses), default=0)
    opener = next((access for access in register.accesses if (access.index,) == idle.opened_by), None)
    if idle.uses and opener is not None and opener.after is not None and opener.writes and not opener.reads:
        instruction, depth = placed[opener.index]
        whole = not opener.after.live & ~opener.writes
        fixed = any(op.phys and not op.implicit for op in instruction.operands)
        if whole and not fixed and deepest <= depth:
            return "load it later" if any("load" in m for m in instruction.memory) else "compute it later"
    in_loop = deepest and deepest >= placed[at][1]
    return "let it wait in memory, loaded again in the loop" if in_loop else "let it wait in memory"
