"""The text in which live ranges fall apart, with its copies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from verilocc_mlir.allocators.tables import Tables
from verilocc_mlir.mir.model import Instruction, MachineFunction, VirtualRegister
from verilocc_mlir.spilling.actions import SpillAction
from verilocc_mlir.spilling.code import copy, runs, subregister
from verilocc_mlir.spilling.ground import Ground
from verilocc_mlir.spilling.insert import renamed
from verilocc_mlir.splitting.parts import Parts


@dataclass(frozen=True)
class Split:
    """The text with its copies, the registers of all its ranges by name, and what was done."""

    function: MachineFunction
    registers: Mapping[str, str]
    actions: tuple[SpillAction, ...]


@dataclass
class LaidRange:
    """A range in several registers: where each part starts."""

    parts: Parts
    starts: dict[int, int]


class Writing:
    """The text in which the ranges of ``laid`` fall apart, and its registers."""

    def __init__(self, ground: Ground, tables: Tables, starts: Sequence[int], laid: Mapping[int, LaidRange]) -> None:
        self._ground = ground
        self._tables = tables
        self._laid = laid
        self._numbers = count(1 + max((*ground.function.registers, *ground.classes), default=-1))
        self._registers = {
            r.name: tables.cells.name(start, r)
            for r, start in zip(ground.problem.ranges, starts, strict=True)
            if r.id not in laid
        }
        self._rows = dict(ground.function.registers)
        self._names: dict[int, dict[int, int]] = {}
        self._copies: dict[tuple[int, int], list[tuple[frozenset[int], frozenset[int], list[Instruction]]]] = {}
        self._actions: list[SpillAction] = []

    def run(self) -> Split | None:
        for number, laid in self._laid.items():
            self._take_in(number, laid)
        ordered = {place: _in_order(copies) for place, copies in self._copies.items()}
        if any(copies is None for copies in ordered.values()):
            return None
        blocks = tuple(
            replace(block, instructions=tuple(self._block(position, block.instructions, ordered)))
            for position, block in enumerate(self._ground.function.blocks)
        )
        function = replace(self._ground.function, blocks=blocks, registers=self._rows)
        return Split(function, self._registers, tuple(self._actions))

    def _take_in(self, number: int, laid: LaidRange) -> None:
        live_range = self._ground.problem.ranges[number]
        vreg = int(live_range.name[1:])
        cls = self._ground.classes[vreg]
        names: dict[int, int] = {}
        for part in range(len(laid.parts.times)):
            start = laid.starts[part]
            if start not in names:
                names[start] = vreg if not names else next(self._numbers)
                self._rows[names[start]] = VirtualRegister(names[start], cls.name)
                self._registers[f"%{names[start]}"] = self._tables.cells.name(start, live_range)
        for index, part in laid.parts.of_access.items():
            self._names.setdefault(index, {})[vreg] = names[laid.starts[part]]
        places: list[str] = []
        cost = 0.0
        for cut in laid.parts.cuts:
            source, target = laid.starts[cut.left], laid.starts[cut.right]
            if source == target:
                continue
            code = [
                copy((names[target], sub), (names[source], sub))
                for first, size in runs(cut.live, cls, even=self._ground.even)
                for sub in (subregister(first, size, cls.width),)
            ]
            cells = [frozenset(range(s, s + self._tables.singles[number].reach)) for s in (source, target)]
            self._copies.setdefault((cut.block, cut.at), []).append((cells[0], cells[1], code))
            places.append(f"before instruction {cut.at}")
            cost += cut.weight
        self._actions.append(
            SpillAction(
                live_range.name, "split", live_range.width, (), tuple(places),
                4 * min((c.at for c in laid.parts.cuts if laid.starts[c.left] != laid.starts[c.right]), default=0),
                cost, "no register is free for the whole of it",
            )
        )  # fmt: skip

    def _block(
        self,
        position: int,
        instructions: Sequence[Instruction],
        copies: Mapping[tuple[int, int], Sequence[Instruction] | None],
    ) -> Iterable[Instruction]:
        first = self._ground.cfg.first[position]
        for index, instruction in enumerate(instructions, first):
            yield from copies.get((position, index)) or ()
            yield renamed(instruction, self._names.get(index, {}))
        yield from copies.get((position, first + len(instructions))) or ()


def _in_order(
    copies: Sequence[tuple[frozenset[int], frozenset[int], list[Instruction]]],
) -> list[Instruction] | None:
    """The copies of one place one after the other, so that none overwrites what a later one reads; None for a ring."""
    result: list[Instruction] = []
    waiting = list(copies)
    while waiting:
        for number, (_, target, code) in enumerate(waiting):
            if not any(target & source for k, (source, _, _) in enumerate(waiting) if k != number):
                result += code
                del waiting[number]
                break
        else:
            return None
    return result
