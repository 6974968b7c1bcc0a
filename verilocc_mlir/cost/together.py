"""Costs of two codes of the same functions, whose loops run equally often in both (``matching.py``).

Everything that compares cycles gets them from here: ``verilocc compare``, the hooks, the choice among candidates and
the guard, the labels of the model of plans.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from verilocc_mlir.cost.assembly import Function, parse_assembly
from verilocc_mlir.cost.matching import match
from verilocc_mlir.cost.model import CostedFile, KernelCost, cost_of_function, costs
from verilocc_mlir.cost.trips import IrLoop
from verilocc_mlir.target.targets import Target


@dataclass(frozen=True, slots=True)
class Pair:
    """One function in two codes.

    Attributes:
        first, second: its cost in each; None where it is not there.
        problem: why the two costs do not compare, in words; ``""`` where they do, and where one is missing.
    """

    first: KernelCost | None
    second: KernelCost | None
    problem: str = ""

    @property
    def compares(self) -> bool:
        """Whether there are two costs, and they compare."""
        return self.first is not None and self.second is not None and not self.problem


def costs_together(
    first: Sequence[Function],
    second: Sequence[Function],
    target: Target,
    ir_loops: Mapping[str, Sequence[IrLoop]] | None = None,
) -> dict[str, Pair]:
    """Every function: first those of ``first``, in their order, then those that only ``second`` has.

    Args:
        ir_loops: loops of the IR that both come from, by function.
    """
    left, right = ({function.name: function for function in side} for side in (first, second))
    loops = ir_loops or {}
    return {
        name: _pair(left.get(name), right.get(name), target, loops.get(name, ()))
        for name in dict.fromkeys([*left, *right])
    }


def files_together(first: CostedFile, second: CostedFile, target: Target) -> dict[str, Pair]:
    """The same of two files; the IR of either counts for both."""
    return costs_together(first.code, second.code, target, {**second.loops, **first.loops})


def _pair(first: Function | None, second: Function | None, target: Target, loops: Sequence[IrLoop]) -> Pair:
    if first is None or second is None:
        alone = [None if side is None else cost_of_function(side, target, loops) for side in (first, second)]
        return Pair(alone[0], alone[1])
    matched = match(first, second, target, loops)
    return Pair(
        cost_of_function(first, target, trips=matched.first),
        cost_of_function(second, target, trips=matched.second),
        matched.problem,
    )


class Reference:
    """Functions that others are compared with: their loops keep the counts that they have here.

    Attributes:
        costs: of these functions, by name.
    """

    def __init__(self, functions: Sequence[Function], target: Target, costs_of: Mapping[str, KernelCost]) -> None:
        self._functions = {function.name: function for function in functions}
        self._target = target
        self.costs = dict(costs_of)

    @classmethod
    def of_assembly(cls, text: str, target: Target, *, where: str = "") -> Reference:
        """
        Raises:
            InputError: the text is no AMDGPU assembly, is for another target, is truncated, or has no function.
        """
        functions = parse_assembly(text, target, where=where)
        return cls(functions, target, costs(functions, target))

    def costs_of_assembly(self, text: str, *, where: str = "") -> dict[str, KernelCost]:
        """The costs of other code of these functions; those that do not compare are left out.

        Raises:
            InputError: as for ``of_assembly``.
        """
        found = {f.name: self.cost_of(f) for f in parse_assembly(text, self._target, where=where)}
        return {name: cost for name, cost in found.items() if cost is not None}

    def cost_of(self, function: Function) -> KernelCost | None:
        """The cost of other code of one of these functions; None where it does not compare."""
        own = self._functions.get(function.name)
        if own is None:
            return None
        fixed = {loop.index: (loop.trips, loop.source) for loop in self.costs[own.name].loops}
        matched = match(own, function, self._target, fixed=fixed)
        return None if matched.problem else cost_of_function(function, self._target, trips=matched.second)
