"""Lanes that are live where a successor starts, but that nothing defines on the way there from this block.

Another path into the join defines them; on this one any value would do. The physical register is a live-in of the join
all the same, and LLVM's machine verifier looks for its definition as soon as a later pass copies the join's code into
this block. So

* a partial definition (``undef %5.sub3 = …`` before a join at which ``%5.sub1`` is live) gets an ``implicit-def`` of
  those lanes, as from LLVM's rewriter (VirtRegRewriter.cpp, liveOutUndefPhiLanesForUndefSubregDef);
* for the others the block ends in an ``IMPLICIT_DEF``. LLVM keeps the one of the given text, and the register with it
  on all the way to the join; here the register is free on that way (``analysis/liveness.py``).

Nothing is added where another value is held in the register at that point: that value has defined it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping

from verilocc_mlir.analysis.cfg import ControlFlow
from verilocc_mlir.analysis.execution import is_terminator
from verilocc_mlir.mir.model import Instruction, Operand
from verilocc_mlir.mir.operands import register_operand
from verilocc_mlir.problem.model import AllocationProblem, Segment
from verilocc_mlir.rewrite.assignment import Placed
from verilocc_mlir.target.lanes import full_lanes, subregister_lanes
from verilocc_mlir.target.registers import register_of_units


class UndefinedLanes:
    """Finds the definitions to add, for one function."""

    def __init__(self, problem: AllocationProblem, places: Mapping[int, Placed], cfg: ControlFlow) -> None:
        self._problem = problem
        self._places = places
        self._cfg = cfg
        self._missing = self._all_missing()
        self._held: dict[int, list[Segment]] | None = None

    def definitions(self, instruction: Instruction, block: int, index: int) -> tuple[Operand, ...]:
        """Operands ``implicit-def $…`` for instruction number ``index``, in the block at layout position ``block``."""
        missing = self._missing.get(block)
        if not missing or instruction.bundled or instruction.opens_bundle or instruction.opcode == "INLINEASM":
            return ()
        operands: list[Operand] = []
        for operand in instruction.defs:
            lanes = missing.get(operand.vreg, 0)
            if lanes and operand.undef and operand.sub:
                place = self._places[operand.vreg]
                added = self._free(place, lanes & ~subregister_lanes(operand.sub), 4 * index, 4 * index + 3)
                missing[operand.vreg] &= ~added
                operands += [register_operand(phys=r, flags=("implicit-def",)) for r in _registers(place, added)]
        return tuple(operands)

    def at_end(self, block: int, instructions: list[Instruction]) -> list[Instruction]:
        """A block after rewriting, with an ``IMPLICIT_DEF`` before its terminators for what is still missing."""
        missing = self._missing.get(block)
        if not missing:
            return instructions
        last = len(instructions)
        while last and is_terminator(instructions[last - 1]):
            last -= 1
        end = 4 * self._cfg.first[block + 1]
        defined_names = {op.phys for i in instructions if i.opcode == "IMPLICIT_DEF" for op in i.defs}
        added: list[Instruction] = []
        for vreg, lanes in missing.items():
            place = self._places[vreg]
            if place.register.name in defined_names:
                continue
            registers = _registers(place, self._free(place, lanes, end - 4 * (len(instructions) - last) - 1, end))
            defined_names.update(registers)
            defined = [register_operand(phys=register, flags=("renamable",)) for register in registers]
            added += [Instruction("IMPLICIT_DEF", defs=(register,), operands=()) for register in defined]
        return [*instructions[:last], *added, *instructions[last:]]

    def _all_missing(self) -> dict[int, dict[int, int]]:
        """For each block, the virtual registers of which lanes are live in a successor, but not at its own end."""
        first, predecessors = self._cfg.first, self._cfg.predecessors
        joins = [block for block, sources in enumerate(predecessors) if len(sources) > 1]
        # An empty block ends where it starts; what it lets through is not told apart from what the next one holds.
        sources = sorted({p for join in joins for p in predecessors[join] if first[p] < first[p + 1]})
        entered = self._live_at([4 * first[join] for join in joins])
        at_exit = dict(zip(sources, self._live_at([4 * first[source + 1] - 1 for source in sources]), strict=True))
        missing: dict[int, dict[int, int]] = {}
        for join, live in zip(joins, entered, strict=True):
            for source in predecessors[join]:
                live_at_exit = at_exit.get(source, live)
                for vreg, lanes in live.items():
                    if missing_lanes := lanes & ~live_at_exit.get(vreg, 0):
                        of_source = missing.setdefault(source, {})
                        of_source[vreg] = of_source.get(vreg, 0) | missing_lanes
        return missing

    def _live_at(self, slots: list[int]) -> list[dict[int, int]]:
        """For each of the slots, ascending, the virtual registers that are live there, with their lanes."""
        live_at_slot: list[dict[int, int]] = [{} for _ in slots]
        for vreg, place in self._places.items():
            for group in place.live_range.groups:
                for begin, end in group.segments:
                    for live in live_at_slot[bisect_left(slots, begin) : bisect_left(slots, end)]:
                        live[vreg] = live.get(vreg, 0) | group.lanes
        return live_at_slot

    def _free(self, place: Placed, lanes: int, begin: int, end: int) -> int:
        """Those of ``lanes`` in whose place nothing is held between two slots."""
        free = 0
        for at, part in _parts(place):
            if lanes >> at & 1 and not any(self._is_held(unit, begin, end) for unit in part):
                free |= full_lanes(16 * len(part)) << at
        return free & lanes

    def _is_held(self, unit: int, begin: int, end: int) -> bool:
        if self._held is None:
            self._held = self._all_occupied()
        return any(start < end and begin < stop for start, stop in self._held.get(unit, ()))

    def _all_occupied(self) -> dict[int, list[Segment]]:
        segments_of: dict[int, list[Segment]] = {}
        for place in self._places.values():
            for group in place.live_range.groups:
                for lane, unit in enumerate(place.register.units):
                    if group.lanes >> lane & 1:
                        segments_of.setdefault(unit, []).extend(group.segments)
        for fixed in self._problem.fixed:
            for unit in fixed.units:
                segments_of.setdefault(unit, []).extend(fixed.segments)
        return segments_of


def _parts(place: Placed) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The 32-bit parts of a register (16 bits of a register that has no more), each with its first lane."""
    units = place.register.units
    step = 1 if len(units) == 1 else 2
    for at in range(0, len(units), step):
        yield at, units[at : at + step]


def _registers(place: Placed, lanes: int) -> list[str]:
    """Names of the registers that make up ``lanes``: the whole one, or its parts."""
    if lanes == full_lanes(16 * place.live_range.lanes):
        return [place.register.name]
    return [register_of_units(part) for at, part in _parts(place) if lanes >> at & 1]
