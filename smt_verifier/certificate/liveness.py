"""Which names matter at the entry of each block: what P reads later, and the masks that may reach EXEC."""

from __future__ import annotations

from dataclasses import dataclass

from smt_verifier.checker.certificate import Key
from smt_verifier.checker.check import code_of
from smt_verifier.checker.effects import Both
from smt_verifier.checker.lanes import Lanes, cell
from smt_verifier.checker.model import Instruction
from smt_verifier.checker.threads import EXEC_NAMES, writes_exec


@dataclass(frozen=True, slots=True)
class Wanted:
    """At each block's entry.

    Attributes:
        live: names that some path reads before it writes them.
        read_later: names that some instruction on some path reads.
        masks: scalar names whose values may reach EXEC.
        splits: for each block, the comparisons whose results may.
    """

    live: list[set[int]]
    read_later: list[set[int]]
    masks: list[set[Key]]
    splits: list[set[int]]


def _operands(instruction: Instruction, lanes: Lanes) -> tuple[set[int], set[int]]:
    """Keys that it reads, and that it writes whole."""
    reads: set[int] = set()
    writes: set[int] = set()
    for o in instruction.operands:
        if o.is_register:
            (writes if o.is_def else reads).update(lanes.keys(o, instruction))
            if o.is_def and o.vreg >= 0 and "undef" in o.flags:
                writes.update(lanes.all_lanes(o.vreg))
    return reads, writes


def wanted(both: Both, *, witnesses: bool = False) -> Wanted:
    """By backward data flow over P.

    Args:
        witnesses: what EXEC was saved in is wanted too where an instruction follows that needs an active thread.
    """
    lanes, blocks = both.before, both.before.function.blocks
    codes = [code_of(block, lanes.tables) for block in blocks]
    rows = [[_operands(i, lanes) for i in code] for code in codes]
    slots = {
        key for number, _ in both.moves[0].kinds.items() for key in both.before.slot(number, 0, _bits(both, number))
    }
    successors = [[s for s, _ in block.successors] for block in blocks]
    live: list[set[int]] = [set() for _ in blocks]
    later: list[set[int]] = [set() for _ in blocks]
    changed = True
    while changed:
        changed = False
        for n in range(len(blocks) - 1, -1, -1):
            alive = {k for s in successors[n] for k in live[s]}
            after = {k for s in successors[n] for k in later[s]}
            for reads, writes in reversed(rows[n]):
                alive = (alive - writes) | reads
                after |= reads
            alive |= slots
            after |= slots
            if alive != live[n] or after != later[n]:
                live[n], later[n], changed = alive, after, True
    masks, splits = _masks(both, codes, successors)
    if witnesses:
        _add_witnesses(both, codes, successors, masks)
    return Wanted(live, later, masks, splits)


def _bits(both: Both, number: int) -> int:
    return 8 * int(both.before.function.stack[number].get("size", "0"))


def _masks(
    both: Both, codes: list[list[Instruction]], successors: list[list[int]]
) -> tuple[list[set[Key]], list[set[int]]]:
    entry: list[set[Key]] = [set() for _ in codes]
    splits: list[set[int]] = [set() for _ in codes]
    flows = [[_flow(i, both) for i in code] for code in codes]
    if not any(to_exec for flow in flows for to_exec, _, _, _ in flow):
        return entry, splits
    changed = True
    while changed:
        changed = False
        for n in range(len(codes) - 1, -1, -1):
            needed = {k for s in successors[n] for k in entry[s]}
            for number in range(len(codes[n]) - 1, -1, -1):
                to_exec, carries, sources, written = flows[n][number]
                hit = to_exec or not needed.isdisjoint(written)
                needed -= written
                if hit and carries:
                    needed |= sources
                opcode = both.forms.opcode(codes[n][number])
                if hit and "compare" in opcode.traits:
                    splits[n].add(number)
            if needed != entry[n]:
                entry[n], changed = needed, True
    return entry, splits


def _add_witnesses(
    both: Both, codes: list[list[Instruction]], successors: list[list[int]], masks: list[set[Key]]
) -> None:
    """Registers that EXEC is saved in, defined once: they stay what they are, read or not."""
    lanes = both.before
    saved: set[Key] = set()
    defined: set[int] = set()
    needing = [any(both.forms.opcode(i).value("reach") == "first" for i in code) for code in codes]
    for instruction in (i for code in codes for i in code):
        opcode = both.forms.opcode(instruction)
        saves = opcode.value("save") or not opcode.traits.isdisjoint(("copy", "mask-move"))
        saves = saves and any(o.is_use and o.register in EXEC_NAMES for o in instruction.operands)
        for o in instruction.operands:
            if o.is_def and o.vreg >= 0:
                keys = lanes.keys(o, instruction)
                saved.update(keys if saves else ())
                saved.difference_update(defined.intersection(keys))
                defined.update(keys)
    changed = True
    while changed:
        changed = False
        for n, following in enumerate(successors):
            if not needing[n] and any(needing[s] for s in following):
                needing[n] = changed = True
    for n, needs in enumerate(needing):
        masks[n] |= saved if needs else set()


def _flow(instruction: Instruction, both: Both) -> tuple[bool, bool, set[Key], set[Key]]:
    """Whether it writes EXEC, whether masks go through it, and the scalar keys that it reads and writes."""
    lanes, opcode = both.before, both.forms.opcode(instruction)
    sides: list[set[Key]] = [set(), set()]
    for o in instruction.operands:
        if o.is_register and o.register not in EXEC_NAMES and o.register != "scc":
            sides[o.is_def].update(k for k in lanes.keys(o, instruction) if not lanes.is_vector(k))
    moves = both.moves[False].read(instruction, opcode) if "no-code" not in opcode.traits else None
    if moves is not None and moves.thread >= 0:
        register = moves.register[0]
        cells: set[Key] = {cell(register, moves.thread, half) for half in range(len(moves.of or moves.to))}
        return False, True, {*moves.of} or cells, {*moves.to} or cells
    if moves is not None:
        scalars: list[set[Key]] = [
            {k for k in keys if not both.is_vector(k, after=False)} for keys in (moves.of, moves.to)
        ]
        return False, True, scalars[0], scalars[1]
    carries = bool(
        opcode.value("mask") or opcode.value("save") or "mask-move" in opcode.traits or "copy" in opcode.traits
    )
    finds = "first-bit" in opcode.traits  # Which thread it is of a mask that is known (10.8).
    return finds or writes_exec(instruction, opcode), finds or carries, sides[0], sides[1]
