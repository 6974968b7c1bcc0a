"""Steps of the product of both sides, and what a pairing must be whoever proposed it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from smt_verifier.audit.core.opcodes import DEBUG
from verilocc_mlir.errors import InputError
from verilocc_mlir.mir.model import BasicBlock, Instruction


class Step(NamedTuple):
    """One step of the product of both sides: a pair, or an instruction of one side alone."""

    pre: Instruction | None
    post: Instruction | None


def require_merge(steps: Sequence[Step], pre: BasicBlock, post: BasicBlock) -> None:
    """Every instruction of either side, debug ones aside, stands in ``steps`` once and in its side's order.

    Raises:
        InputError: the pairing leaves something out, repeats it, or changes its order.
    """
    for block, side in ((pre, [s.pre for s in steps]), (post, [s.post for s in steps])):
        expected = [id(i) for i in block.instructions if i.opcode not in DEBUG]
        if [id(i) for i in side if i is not None] != expected:
            raise InputError(f"the pairing of bb.{block.number} is not a merge of both sides")
