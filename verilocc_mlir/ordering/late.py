"""Blocks of an allocated text in an order of our own, with the certificate that the checkers read (spec 16)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from verilocc_mlir.mir.model import BasicBlock, Instruction, MachineFunction
from verilocc_mlir.ordering.dependences import Item, items_of
from verilocc_mlir.ordering.schedule import scheduled
from verilocc_mlir.target.targets import Target

_KILLED = re.compile(r"\bkilled ")


@dataclass(frozen=True)
class Ordered:
    """A function in another order.

    Attributes:
        orders: by block, where its items stood; blocks that stay as they are have none.
        moved: how many items stand elsewhere.
    """

    function: MachineFunction
    orders: Mapping[int, Sequence[int]]
    moved: int

    @property
    def certificate(self) -> str:
        return certificate_of(self.function.name, self.orders)


def ordered(function: MachineFunction, target: Target) -> Ordered:
    """The function with each block in the order of the list scheduler."""
    blocks: list[BasicBlock] = []
    orders: dict[int, list[int]] = {}
    moved = 0
    for number, block in enumerate(function.blocks):
        items = items_of(block.instructions)
        order = scheduled(items, target, loops=any(to == block.number for to, _ in block.successors))
        elsewhere = sum(at != of for at, of in enumerate(order))
        if elsewhere:
            moved += elsewhere
            orders[number] = order
            block = replace(block, instructions=in_order(items, order))
        blocks.append(block)
    return Ordered(replace(function, blocks=tuple(blocks)), orders, moved)


def certificate_of(name: str, orders: Mapping[int, Sequence[int]]) -> str:
    """The certificate of a function's orders by block."""
    lines = [f"block {number} {' '.join(_runs(order))}" for number, order in sorted(orders.items())]
    return "\n".join(["verilocc-order 1", f"function {name}", *lines, "end", ""])


def in_order(items: Sequence[Item], order: Sequence[int]) -> tuple[Instruction, ...]:
    """A block's instructions in a new order. Where a register dies is another place now, and need not be said."""
    return tuple(_without_deaths(i) for of in order for i in items[of].instructions)


def _without_deaths(i: Instruction) -> Instruction:
    if not any(o.killed for o in i.operands):
        return i
    operands = tuple(
        replace(
            o,
            text=_KILLED.sub("", o.text, count=1),
            flags=tuple(flag for flag in o.flags if flag != "killed"),
            killed=False,
        )
        if o.killed
        else o
        for o in i.operands
    )
    return replace(i, operands=operands)


def _runs(order: Sequence[int]) -> list[str]:
    """Neighbours as ``first-last``."""
    runs: list[list[int]] = []
    for of in order:
        if runs and runs[-1][-1] + 1 == of:
            runs[-1].append(of)
        else:
            runs.append([of])
    return [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
