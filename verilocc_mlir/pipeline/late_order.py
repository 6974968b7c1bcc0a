"""The order of instructions behind allocation: a list scheduler's in place of LLVM's, where both checkers prove it.

LLVM schedules once more behind allocation. Here its text before that is taken, each block is put in the order of
``verilocc_mlir/ordering``, and LLVM goes on from there with its own scheduler off: waits, hazards and dual issue are
its work as ever. A file is taken as a whole, because that scheduler is off for all of its functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from smt_verifier.certificate.reordered import order_answers
from smt_verifier.certificate.second import second_program
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.mir.printer import print_mir
from verilocc_mlir.pipeline.plan_rules import LEAST_PROMISE, promise
from verilocc_mlir.pipeline.plans import Planned
from verilocc_mlir.toolchain.frame_marks import with_frame_marks, without_frame_marks

if TYPE_CHECKING:
    from verilocc_mlir.cost.model import KernelCost

LEAST_GAIN = 0.005
"""Share of its modelled cycles that a function must gain. Nothing else differs: no instruction, register or wave."""


@dataclass(frozen=True)
class LateOrder:
    """A text in another order, and a note on each function that gains by it; ``text`` is ``""`` where none is taken."""

    text: str
    notes: tuple[str, ...]


def late_order(given: Planned, text: str, costs: Mapping[str, KernelCost]) -> LateOrder:
    """An allocated text's order behind allocation.

    Args:
        costs: of its functions, as LLVM orders them.

    Raises:
        VeriloccError: a tool fails, or finds a fault in the ordered text.
    """
    names = [name for name, cost in costs.items() if promise(cost) > LEAST_PROMISE]
    if not names or second_program() is None:
        return LateOrder("", ())
    compiler, path = given.compiler, given.path
    late, marks = without_frame_marks(compiler.before_late_order(text))
    with given.clock.measure("order"):
        from verilocc_mlir.ordering.late import ordered

        file = parse_mir(late, path)
        found = [ordered(function, given.target) for function in file.functions]
        new = print_mir(replace(file, functions=tuple(one.function for one in found)))
    refused: list[str] = []
    with given.clock.measure("audit"):
        for function, one in zip(file.functions, found, strict=True):
            answers = order_answers(late, new, one.certificate, function.name, given.target.name)
            refused += [f"{function.name}: LLVM's order stays, ours is refused: {a}" for a in answers if not a.accepted]
    if refused:
        return LateOrder("", tuple(refused))
    whole = with_frame_marks(new, marks)
    after = given.costs(compiler.finish_ordered(whole, "asm"))
    if not _is_better(costs, after):
        return LateOrder("", ())
    moved = {one.function.name: one.moved for one in found}
    return LateOrder(
        whole, tuple(_note(name, moved[name], costs[name], after[name]) for name in costs if moved.get(name))
    )


def _is_better(before: Mapping[str, KernelCost], after: Mapping[str, KernelCost]) -> bool:
    """No function takes more cycles, and one takes fewer by enough."""
    if before.keys() != after.keys() or any(after[n].cycles > cost.cycles for n, cost in before.items()):
        return False
    return any(after[n].cycles < (1 - LEAST_GAIN) * cost.cycles for n, cost in before.items())


def _note(name: str, moved: int, before: KernelCost, after: KernelCost) -> str:
    ratio = after.cycles / before.cycles
    return (
        f"{name}: {moved:,} instructions stand elsewhere than in LLVM's order behind allocation, proved by both"
        f" checkers: {ratio:.3f} of the modelled cycles"
    )
