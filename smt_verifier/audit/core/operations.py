"""Pure operations: when two instructions compute the same function of what they read."""

from __future__ import annotations

from typing import NamedTuple

from smt_verifier.audit.core.semantics import EXEC_NAMES, canonical_opcode, explicit_shape, leaves_old
from verilocc_mlir.mir.model import Instruction, Operand

PureArguments = tuple[tuple[int, ...], tuple[int, ...]]
"""Terms of a pure operation's arguments, and the ghost lanes that remember them."""


class Ghosts(NamedTuple):
    """Keys that remember the last execution of a pure instruction: the lanes it read. Where its result depends on which
    threads were active (``asks_exec``), also those, as a mask, and a ``label``: a value of its own for each thread that
    got a result, of which the result is taken for a function.
    """

    arguments: tuple[int, ...]
    threads: tuple[int, ...] = ()
    label: tuple[int, ...] = ()


def operation_name(instruction: Instruction) -> str:
    """Opcode, flags and non-register operands of a pure instruction: what makes it the same function of its inputs."""
    shape = ",".join(explicit_shape(instruction.operands))
    implicit = ",".join(sorted({op.phys for op in pure_inputs(instruction) if op.implicit}))
    memory = ";".join(instruction.memory)
    flags = " ".join(sorted(instruction.flags))
    return f"{canonical_opcode(instruction.opcode)} {flags} {shape} {implicit} {memory}".strip()


def pure_inputs(instruction: Instruction) -> list[Operand]:
    """Register operands a pure instruction reads; EXEC is left out, because no thread's result depends on it, or it is
    asked for apart (``asks_exec``).

    An implicit use that is printed twice (LLVM adds EXEC again when it rematerialises) counts once.
    """
    found: list[Operand] = []
    seen: set[str] = set()
    for op in instruction.operands[1:] if leaves_old(instruction) else instruction.operands:
        if op.is_use and op.phys not in EXEC_NAMES and not (op.implicit and op.phys in seen):
            found.append(op)
            if op.implicit:
                seen.add(op.phys)
    return found


def arguments_of(pre: Instruction, post: Instruction | None) -> list[Operand]:
    """What a pure instruction reads: the operands of its partner where it has one, else its own."""
    inputs = pure_inputs(pre)
    if post is None:
        return inputs
    place = {id(op): n for n, op in enumerate(pre.operands)}
    return [post.operands[place[id(op)]] for op in inputs]
