"""Which part of the data set a kernel belongs to: its contents decide, never its file or the order.

The hash covers source, family, shape and configuration, but neither target nor limits: the same kernel for another GPU
or with another budget is in the same part. One source and one target are kept out of the base model's training, in
every part, to see what the model does with kernels that it has never met. Adaptation to that target uses its ``train``
part.
"""

from __future__ import annotations

from typing import Literal

from verilocc_model.corpus.cells import Cell

Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")

HELD_OUT_SOURCE = "iree"
HELD_OUT_TARGET = "gfx1201"
_TEST, _VALID = 0.12, 0.05


def split_of(cell: Cell) -> Split:
    position = int(cell.configuration[:8], 16) / 2**32
    if position < _TEST:
        return "test"
    return "valid" if position < _TEST + _VALID else "train"


def held_out(cell: Cell) -> tuple[str, ...]:
    """Why the base model must not see a cell: ``source``, ``target``; empty where it may."""
    return reasons_held_out(cell.source, cell.target)


def reasons_held_out(source: str, target: str) -> tuple[str, ...]:
    """``held_out`` of a cell of that source for that target."""
    reasons = (("source", source == HELD_OUT_SOURCE), ("target", target == HELD_OUT_TARGET))
    return tuple(name for name, holds in reasons if holds)
