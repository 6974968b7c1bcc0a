"""Calls whose callee is known, and what their register masks make of it: registers that it must leave alone.

A callee keeps what its calling convention says. A mask that is written out (``CustomRegMask``) may say that it keeps
more; then it must, and whoever allocates the callee, and whoever checks it, reads that off the calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from verilocc_mlir.mir.model import Instruction, MachineFunction, MirFile, OperandKind
from verilocc_mlir.target.attributes import function_attributes, unquote
from verilocc_mlir.target.callingconv import callee_saved, regmask
from verilocc_mlir.target.targets import Target


@dataclass(frozen=True, slots=True)
class Call:
    """One instruction with a register mask.

    Attributes:
        caller: the function it stands in.
        callee: the function that it names; ``""`` where the address alone says.
        masks: its register masks as written.
    """

    caller: str
    callee: str
    instruction: Instruction
    masks: tuple[str, ...]

    @property
    def is_written_out(self) -> bool:
        """Whether a mask is not one of the calling conventions'."""
        return any(mask.startswith("CustomRegMask") for mask in self.masks)

    @property
    def kept(self) -> frozenset[int]:
        """Units that the caller counts on: those that every mask preserves."""
        first, *others = map(regmask, self.masks)
        return first.intersection(*others)


def calls_in(function: MachineFunction) -> Iterator[Call]:
    """The calls of a function, in layout order."""
    for block in function.blocks:
        for instruction in block.instructions:
            masks = tuple([op.text for op in instruction.operands if op.kind is OperandKind.REGMASK])
            if masks:
                names = [op.text for op in instruction.operands if op.kind is OperandKind.GLOBAL]
                callee = unquote(names[0].removeprefix("@")) if len(names) == 1 else ""
                yield Call(function.name, callee, instruction, masks)


def beyond_convention(call: Call, file: MirFile, target: Target) -> frozenset[int]:
    """Units that a call's caller counts on and its callee's calling convention does not preserve.

    Raises:
        InputError: the file does not define the callee. UnsupportedError: a convention or mask that is not known.
    """
    return call.kept - callee_saved(function_attributes(file.preamble, call.callee).calling_convention, target)


def kept_for_callers(file: MirFile, name: str, target: Target) -> frozenset[int]:
    """Units that the function ``name`` must leave alone because calls in its file say so, beyond its convention.

    Raises:
        UnsupportedError: as for ``beyond_convention``.
    """
    calls = (c for f in file.functions for c in calls_in(f) if c.callee == name and c.is_written_out)
    return frozenset[int]().union(*(beyond_convention(call, file, target) for call in calls))
