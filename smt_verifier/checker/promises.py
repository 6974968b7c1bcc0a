"""What the calls in a file say of a function: registers that it leaves alone beyond its convention (section 9)."""

from __future__ import annotations

from smt_verifier.checker.lanes import Lanes
from smt_verifier.checker.model import File, Function, Instruction, Kind
from smt_verifier.checker.outcome import Refused
from smt_verifier.checker.tables import Tables

_WRITTEN_OUT = "CustomRegMask("


def check_promises(file: File, before: Lanes, after: Lanes, convention: frozenset[int]) -> None:
    """Q writes nothing that a mask written out in P's file says is kept, unless P's own instructions do.

    Args:
        convention: units that the function's calling convention preserves anyway.

    Raises:
        Refused: it does.
    """
    function = before.function
    promised = _promised(file, function, before.tables) - convention
    if not promised:
        return
    if len(after.function.stack) > len(function.stack):
        raise Refused("call-mask", "LLVM takes registers for the frame, and a call's own mask keeps what LLVM may take")
    own = {unit for i in _instructions(function) for unit in _lost(i, promised, before)}
    for instruction in _instructions(after.function):
        if not _lost(instruction, promised, after) <= own:
            raise Refused(
                "call-mask",
                f"{instruction.opcode} writes what a call of {function.name} keeps",
                f"line {instruction.line}",
            )


def _instructions(function: Function) -> list[Instruction]:
    return [i for block in function.blocks for i in block.instructions]


def _promised(file: File, function: Function, data: Tables) -> set[int]:
    """Units that masks of calls of the function preserve, as far as they are written out."""
    units: set[int] = set()
    for instruction in (i for f in file.functions for i in _instructions(f)):
        masks = [o.text for o in instruction.operands if o.kind is Kind.REGMASK]
        callees = [o.text.removeprefix("@").strip('"') for o in instruction.operands if o.kind is Kind.GLOBAL]
        if function.name in callees and any(m.startswith(_WRITTEN_OUT) for m in masks):
            kept = [data.mask(m) or frozenset[int]() for m in masks]
            units |= kept[0].intersection(*kept)
    return units


def _lost(instruction: Instruction, units: set[int], lanes: Lanes) -> set[int]:
    """Those of ``units`` that an instruction may write, or that a call of it may."""
    opcode = lanes.tables.opcode(instruction.opcode)
    if opcode is None or "debug" in opcode.traits:
        return set()
    names = [lanes.name(o, instruction) for o in instruction.operands if o.is_def and o.is_register and o.vreg < 0]
    written = {u for name in (*names, *opcode.implicit_definitions) for u in lanes.register(name).units}
    masks = [lanes.tables.mask(o.text) or frozenset[int]() for o in instruction.operands if o.kind is Kind.REGMASK]
    if masks:
        written |= units - masks[0].intersection(*masks)
    elif "call" in opcode.traits:
        return units
    return units & written
