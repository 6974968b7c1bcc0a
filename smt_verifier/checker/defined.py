"""Virtual registers that are left for a later phase are defined on every path to each of their reads."""

from __future__ import annotations

from smt_verifier.checker.model import Function
from smt_verifier.checker.outcome import Refused
from smt_verifier.checker.tables import Tables


def reads_are_defined(function: Function, tables: Tables) -> None:
    """Every read of a virtual register has a definition before it on every path.

    An undefined value counts as a definition; one that is marked dead does not, and a read marked as the last one ends
    it (MachineVerifier, checkLiveness: "defs don't dominate all uses", "using a killed virtual register"). A set of
    virtual registers is a number with the bits of its members.

    Raises:
        Refused: a read without one.
    """
    bit = {number: 1 << place for place, number in enumerate(function.registers)}
    defined: list[int] = []
    ended: list[int] = []
    early: list[int] = []
    for block in function.blocks:
        here = over = before = 0
        for instruction in block.instructions:
            opcode = tables.opcode(instruction.opcode)
            if opcode is not None and "debug" in opcode.traits:
                continue
            operands = [op for op in instruction.operands if op.vreg >= 0]
            read = sum({bit[op.vreg] for op in operands if op.reads}) & ~here
            if read & over:
                raise _undefined(f"line {instruction.line}")
            finished = sum({bit[op.vreg] for op in operands if not op.flags.isdisjoint(("killed", "dead"))})
            here, over, before = here & ~finished, over | finished, before | read
            here |= sum({bit[op.vreg] for op in operands if op.is_def and "dead" not in op.flags})
        defined.append(here)
        ended.append(over)
        early.append(before)
    every = -1
    entry = [0] + [every] * (len(function.blocks) - 1)
    pending = set(range(len(function.blocks)))
    while pending:
        place = pending.pop()
        for successor, _ in function.blocks[place].successors if entry[place] != every else ():
            arriving = entry[successor] & (entry[place] & ~ended[place] | defined[place])
            if arriving != entry[successor]:
                entry[successor] = arriving
                pending.add(successor)
    for place, block in enumerate(function.blocks):
        if early[place] & ~entry[place]:
            raise _undefined(f"bb.{block.number}")


def _undefined(where: str) -> Refused:
    message = "a virtual register is read, but not defined on every path, or called dead or killed before"
    return Refused("undefined", message, where)
