"""Pure operations: when two instructions compute the same function of what they read."""

from __future__ import annotations

from typing import NamedTuple

from smt_verifier.audit.core.lanes import LaneMap
from smt_verifier.audit.core.opcodes import EXEC_NAMES, facts
from smt_verifier.audit.core.semantics import leaves_old
from verilocc_mlir.mir.model import Instruction, Operand, OperandKind

PureArguments = tuple[tuple[int, ...], tuple[int, ...]]
"""Terms of a pure operation's arguments, and the ghost lanes that remember them."""


class Ghosts(NamedTuple):
    """Keys that remember the last execution of a pure instruction: the lanes it read.

    Two more where the result depends on which threads were active (``asks_exec``): ``threads``, a mask of
    those threads, and ``label``, a new value for each thread that got a result. The result counts as a function of it.
    """

    arguments: tuple[int, ...]
    threads: tuple[int, ...] = ()
    label: tuple[int, ...] = ()


def operation_name(instruction: Instruction, lanes: LaneMap) -> str:
    """Opcode, flags and non-register operands of a pure instruction: what makes it the same function of its inputs.

    The inputs are one row of lanes. So the name says how many lanes of it each operand has, and which operands have
    none: ``$sgpr_null`` and ``$noreg`` stand there by name, as constants do.
    """
    shape = ",".join(_named(op, lanes) for op in instruction.operands if not op.implicit)
    implicit = ",".join(op.phys or _named(op, lanes) for op in pure_inputs(instruction) if op.implicit)
    memory = ";".join(instruction.memory)
    flags = " ".join(sorted(instruction.flags))
    return f"{facts(instruction.opcode).canonical} {flags} {shape} {implicit} {memory}".strip()


def _named(op: Operand, lanes: LaneMap) -> str:
    """An operand with its lanes blanked, and counted in bits; all else of it in full."""
    if op.kind is not OperandKind.REGISTER or not op.is_use:
        return op.text
    keys = lanes.keys(op)
    return f"R{16 * lanes.grain * len(keys)}" if keys else f"${op.phys}"


def pure_inputs(instruction: Instruction) -> list[Operand]:
    """Register operands a pure instruction reads. EXEC is left out: no thread's result depends on it, or the callers
    handle it (``asks_exec``).

    An implicit use that is printed twice (LLVM adds EXEC again when it rematerialises) counts once.
    """
    inputs: list[Operand] = []
    implicit_names: set[str] = set()
    for op in instruction.operands[1:] if leaves_old(instruction) else instruction.operands:
        if op.is_use and op.phys not in EXEC_NAMES and not (op.implicit and op.phys in implicit_names):
            inputs.append(op)
            if op.implicit:
                implicit_names.add(op.phys)
    return inputs


def arguments_of(pre: Instruction, post: Instruction | None) -> list[Operand]:
    """What a pure instruction reads: the operands of its partner where it has one, else its own."""
    inputs = pure_inputs(pre)
    if post is None:
        return inputs
    place = {id(op): n for n, op in enumerate(pre.operands)}
    return [post.operands[place[id(op)]] for op in inputs]
