"""Physical registers at a block's entry: what its ``liveins`` declare (specification 4.3 and 4.4).

LLVM's passes take a register that may be allocated, and that a block does not declare, for free there.
"""

from __future__ import annotations

from smt_verifier.checker.certificate import VIRTUAL, Key
from smt_verifier.checker.effects import Both
from smt_verifier.checker.lanes import Lanes, declared_units
from smt_verifier.checker.outcome import Refused
from smt_verifier.checker.state import NONE, Part, State


def live_virtual(lanes: Lanes) -> list[set[int]]:
    """For each block, lanes of virtual vector registers that are read on some path before they are written (11.3)."""
    blocks = lanes.function.blocks
    live: list[set[int]] = [set() for _ in blocks]
    pending = list(range(len(blocks))) if any(k >= VIRTUAL for k in lanes.named) else []
    before: list[list[int]] = [[] for _ in blocks]
    for n, block in enumerate(blocks):
        for successor, _ in block.successors:
            before[successor].append(n)
    while pending:
        number = pending.pop()
        needed = set[int]().union(*(live[successor] for successor, _ in blocks[number].successors))
        for i in reversed(blocks[number].instructions):
            operands = [o for o in i.operands if o.vreg >= 0]
            for o in operands:
                if o.is_def:
                    needed.difference_update(lanes.all_lanes(o.vreg) if "undef" in o.flags else lanes.keys(o, i))
            for o in operands:
                if o.is_use and o.reads and lanes.register_class(o.vreg).is_vector:
                    needed.update(lanes.keys(o, i))
        if needed != live[number]:
            live[number] = needed
            pending += before[number]
    return live


def may_hold(both: Both, place: Key, declared: frozenset[int]) -> bool:
    """Whether something may be claimed of a place at a block's entry (4.3)."""
    if isinstance(place, tuple) and place[0] == "&":
        place = place[1]
        declared |= both.reserved_after
    if not isinstance(place, int) or place >= VIRTUAL or place in declared:
        return True
    return place not in both.limits.allocatable and place not in both.before.register("scc").units


def leave_undeclared(both: Both, part: Part, declared: frozenset[int], *, every: bool) -> None:
    """Places hold nothing where nothing may be claimed of them (4.3); of vectors, ``every`` place."""
    places = [p for p in part.holds if every or not both.is_vector(p, after=True)]
    for place in [p for p in places if not may_hold(both, p, declared)]:
        part.write(place, NONE if place in both.named_after else part.holds[place] & {("^", place, 0, 0)})


def note_undeclared(both: Both, state: State, declared: frozenset[int]) -> None:
    """Which vector registers hold something only while the classes that hold it wait (4.3)."""
    held = {p for cls in state.classes if not cls.active for p in cls.part.holds if isinstance(p, int)}
    state.undeclared = {
        p for p in held if p < VIRTUAL and both.is_vector(p, after=True) and not may_hold(both, p, declared)
    }


def undefine_undeclared(both: Both, state: State, number: int) -> None:
    """Scalar units of P that it does not declare hold nothing at a block's entry (4.4)."""
    declared = declared_units(both.before, number)
    for unit in both.scalars_before:
        if unit not in declared:
            state.undefine(unit, False, ())


def reads_are_declared(lanes: Lanes, allocatable: frozenset[int]) -> None:
    """No scalar register is read of which nothing is defined (MachineVerifier, "Using an undefined physical register").

    LLVM's verifier asks this of P: a part of a register may be undefined, not all of it; nor does it ask for a part of
    what the instruction reads implicitly.

    Raises:
        Refused: a read of which no part is declared, or defined before in its block.
    """
    for number, block in enumerate(lanes.function.blocks):
        live = set(declared_units(lanes, number))
        for instruction in block.instructions:
            opcode = lanes.tables.opcode(instruction.opcode)
            if opcode is not None and "debug" in opcode.traits:
                continue
            registers = [o for o in instruction.operands if o.is_register and o.vreg < 0]
            whole = [lanes.keys(o, instruction) for o in registers if o.is_implicit and o.reads]
            for o in registers:
                keys = lanes.keys(o, instruction) if o.reads else ()
                if not keys or any(len(wider) > len(keys) and set(keys).issubset(wider) for wider in whole):
                    continue
                if allocatable.issuperset(keys) and not lanes.is_vector(keys[0]) and live.isdisjoint(keys):
                    raise Refused(
                        "undefined", f"${o.register} is read and not defined", f"line {instruction.line} before"
                    )
            live.update(key for o in registers if o.is_def for key in lanes.keys(o, instruction))
