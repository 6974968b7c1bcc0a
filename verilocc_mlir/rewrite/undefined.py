"""Lanes that a partial definition leaves undefined, but that a successor block declares live.

After ``undef %5.sub3 = …`` a branch may lead to a join at which ``%5.sub1`` is live, because another path defines it.
On this path the physical register of ``sub1`` would then be live without a definition. LLVM's rewriter marks it defined
by an ``implicit-def`` on the partial definition (VirtRegRewriter.cpp, liveOutUndefPhiLanesForUndefSubregDef) provided
that nothing else is held there at that point; so does this module.
"""

from __future__ import annotations

from collections.abc import Mapping

from verilocc_mlir.analysis.cfg import ControlFlow
from verilocc_mlir.mir.model import Instruction, Operand
from verilocc_mlir.mir.operands import register_operand
from verilocc_mlir.problem.model import AllocationProblem, Segment
from verilocc_mlir.rewrite.assignment import Placed
from verilocc_mlir.target.lanes import full_lanes, subregister_lanes
from verilocc_mlir.target.registers import register_of_units


class UndefinedLanes:
    """Finds the implicit definitions to add, for one function."""

    def __init__(self, problem: AllocationProblem, places: Mapping[int, Placed], cfg: ControlFlow) -> None:
        self._problem = problem
        self._places = places
        self._cfg = cfg
        self._held: dict[int, list[Segment]] | None = None

    def definitions(self, instruction: Instruction, block: int, index: int) -> tuple[Operand, ...]:
        """Operands ``implicit-def $…`` for instruction number ``index``, in the block at layout position ``block``."""
        if instruction.bundled or instruction.opens_bundle or instruction.opcode == "INLINEASM":
            return ()
        found: list[Operand] = []
        for operand in instruction.defs:
            if operand.undef and operand.sub and (place := self._places.get(operand.vreg)):
                lanes = self._wanted(place, subregister_lanes(operand.sub), block)
                if lanes:
                    found += self._operands(place, lanes, index)
        return tuple(found)

    def _wanted(self, place: Placed, defined: int, block: int) -> int:
        """Lanes outside ``defined`` that are not live at the block's end, but are where a successor starts."""
        first = self._cfg.first
        entered = 0
        for successor in self._cfg.successors[block]:
            entered |= place.live_lanes(4 * first[successor])
        others = full_lanes(16 * place.live_range.lanes) & ~defined & entered
        return others & ~place.live_lanes(4 * first[block + 1] - 1) if others else 0

    def _operands(self, place: Placed, lanes: int, index: int) -> list[Operand]:
        units = place.register.units
        step = 1 if len(units) == 1 else 2
        found: list[Operand] = []
        for at in range(0, len(units), step):
            part = units[at : at + step]
            if lanes >> at & 1 and not any(self._is_held(unit, 4 * index, 4 * index + 3) for unit in part):
                found.append(register_operand(phys=register_of_units(part), flags=("implicit-def",)))
        return found

    def _is_held(self, unit: int, begin: int, end: int) -> bool:
        if self._held is None:
            self._held = self._all_held()
        return any(start < end and begin < stop for start, stop in self._held.get(unit, ()))

    def _all_held(self) -> dict[int, list[Segment]]:
        held: dict[int, list[Segment]] = {}
        for place in self._places.values():
            for group in place.live_range.groups:
                for lane, unit in enumerate(place.register.units):
                    if group.lanes >> lane & 1:
                        held.setdefault(unit, []).extend(group.segments)
        for fixed in self._problem.fixed:
            for unit in fixed.units:
                held.setdefault(unit, []).extend(fixed.segments)
        return held
