"""Which names matter at the entry of each block: what P reads later, and the masks that may reach EXEC."""

from __future__ import annotations

from dataclasses import dataclass

from smt_verifier.checker.certificate import Key
from smt_verifier.checker.effects import Both
from smt_verifier.checker.lanes import Lanes, cell
from smt_verifier.checker.model import Instruction
from smt_verifier.checker.tables import Opcode
from smt_verifier.checker.threads import EXEC_NAMES, writes_exec


@dataclass(frozen=True, slots=True)
class Wanted:
    """At each block's entry.

    Attributes:
        live: names that some path reads before it writes them.
        read_later: names that some instruction on some path reads.
        masks: scalar names whose values may reach EXEC.
        waking: those of them that may make a thread active, not only narrow EXEC.
        splits: for each block, the comparisons and operations on masks whose results may reach EXEC.
        waking_splits: those of them on whose results it depends which threads a mask wakes.
    """

    live: list[set[int]]
    read_later: list[set[int]]
    masks: list[set[Key]]
    waking: list[set[Key]]
    splits: list[set[int]]
    waking_splits: list[set[int]]


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


def wanted(
    both: Both, *, witnesses: bool = False, waiting: bool = False, splits: bool = True, waking_splits: bool = True
) -> Wanted:
    """By backward data flow over P.

    Args:
        witnesses: what EXEC was saved in is wanted too where an instruction follows that needs an active thread.
        waiting: what is read of threads that wait is live from the start: a thread that waits meanwhile has the value
            that it had, whatever others write.
        splits: whether they are asked for; ``waking_splits`` likewise.
    """
    lanes, blocks = both.before, range(len(both.before.parts))
    codes = [lanes.code(number) for number in blocks]
    rows = [[_operands(i, lanes) for i in code] for code in codes]
    slots = {
        key for number, _ in both.moves[0].kinds.items() for key in both.before.slot(number, 0, _bits(both, number))
    }
    crossing = [
        _read_of_waiting(both, code, of_block) if waiting else set[int]()
        for code, of_block in zip(codes, rows, strict=True)
    ]
    successors = [lanes.successors(number) for number in blocks]
    live: list[set[int]] = [set() for _ in blocks]
    later: list[set[int]] = [set() for _ in blocks]
    changed = True
    while changed:
        changed = False
        for n in range(len(blocks) - 1, -1, -1):
            alive = {k for s in successors[n] for k in live[s]}
            after = {k for s in successors[n] for k in later[s]}
            for reads, writes in reversed(rows[n]):
                alive -= writes
                alive |= reads
                after |= reads
            crossing[n] |= {k for s in successors[n] for k in crossing[s]}
            alive |= slots | crossing[n]
            after |= slots
            if alive != live[n] or after != later[n]:
                live[n], later[n], changed = alive, after, True
    flows = [_flows(code, both) for code in codes]
    masks = _masks(flows, successors, waking=False)
    waking = _masks(flows, successors, waking=True)
    none: list[set[int]] = [set() for _ in blocks]
    of_masks = _splits(both, codes, flows, successors, masks, waking=False) if splits else none
    of_waking = _splits(both, codes, flows, successors, waking, waking=True) if waking_splits else none
    if witnesses:
        _add_witnesses(both, codes, successors, masks)
    return Wanted(live, later, masks, waking, of_masks, of_waking)


def _read_of_waiting(both: Both, code: list[Instruction], rows: list[tuple[set[int], set[int]]]) -> set[int]:
    """What a block reads of threads that wait, too."""
    found = (reads for i, (reads, _) in zip(code, rows, strict=True) if both.forms.opcode(i).value("reach") in _OF_ALL)
    return {key for reads in found for key in reads if both.is_vector(key, after=False)}


_OF_ALL = ("reads", "writes")


def _bits(both: Both, number: int) -> int:
    return 8 * int(both.before.function.stack[number].get("size", "0"))


def _masks(flows: list[list[_Flow]], successors: list[list[int]], *, waking: bool) -> list[set[Key]]:
    """At each block's entry the scalar names whose values may reach EXEC; ``waking``: not only to narrow it."""
    entry: list[set[Key]] = [set() for _ in flows]
    changed = any(flow.to_exec for rows in flows for flow in rows)
    while changed:
        changed = False
        for n in range(len(flows) - 1, -1, -1):
            needed = {k for s in successors[n] for k in entry[s]}
            for flow in reversed(flows[n]):
                flow.step(needed, waking=waking)
            if needed != entry[n]:
                entry[n], changed = needed, True
    return entry


def _splits(
    both: Both,
    codes: list[list[Instruction]],
    flows: list[list[_Flow]],
    successors: list[list[int]],
    masks: list[set[Key]],
    *,
    waking: bool,
) -> list[set[int]]:
    """For each block, the comparisons and operations on masks whose results may reach EXEC."""
    splits: list[set[int]] = [set() for _ in codes]
    for n, rows in enumerate(flows):
        needed = {k for s in successors[n] for k in masks[s]}
        for number in range(len(rows) - 1, -1, -1):
            hit = rows[number].step(needed, waking=waking)
            opcode = both.forms.opcode(codes[n][number])
            # A comparison joined with an unknown mask says nothing, and neither does what is made of both.
            if hit and ("compare" in opcode.traits or opcode.value("mask")):
                splits[n].add(number)
    return splits


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


@dataclass(frozen=True, slots=True)
class _Flow:
    """What an instruction does to masks.

    Attributes:
        to_exec: it writes EXEC.
        carries: masks go through it.
        narrows: its result holds no thread that is not active.
        sources: scalar names that it reads.
        written: scalar names that it writes.
    """

    to_exec: bool
    carries: bool
    narrows: bool
    sources: set[Key]
    written: set[Key]

    def step(self, needed: set[Key], *, waking: bool) -> bool:
        """Go back over it; says whether it makes something that is needed."""
        hit = self.to_exec or not needed.isdisjoint(self.written)
        needed -= self.written
        if hit and self.carries and not (waking and self.narrows):
            needed |= self.sources
        return hit


_NARROWING = ("AND", "ANDN2")


def _flows(code: list[Instruction], both: Both) -> list[_Flow]:
    """Of the instructions of a block, in order."""
    flows: list[_Flow] = []
    copies: set[Key] = set()
    """Scalar names that hold what EXEC is."""
    for instruction in code:
        flow = _flow(instruction, both, copies)
        flows.append(flow)
        opcode = both.forms.opcode(instruction)
        reads_exec = any(o.is_use and not o.is_implicit and o.register in EXEC_NAMES for o in instruction.operands)
        copies -= flow.written
        if writes_exec(instruction, opcode):
            copies.clear()
        elif reads_exec and not opcode.traits.isdisjoint(("copy", "mask-move")) and not opcode.value("mask"):
            copies |= flow.written
    return flows


def _flow(instruction: Instruction, both: Both, copies: set[Key]) -> _Flow:
    lanes, opcode = both.before, both.forms.opcode(instruction)
    sides: list[set[Key]] = [set(), set()]
    for o in instruction.operands:
        if o.is_register and o.register not in EXEC_NAMES and o.register != "scc":
            sides[o.is_def].update(k for k in lanes.keys(o, instruction) if not lanes.is_vector(k))
    moves = both.moves[False].read(instruction, opcode) if "no-code" not in opcode.traits else None
    if moves is not None and moves.thread >= 0:
        register = moves.register[0]
        cells: set[Key] = {cell(register, moves.thread, half) for half in range(len(moves.of or moves.to))}
        return _Flow(False, True, False, {*moves.of} or cells, {*moves.to} or cells)
    if moves is not None:
        scalars: list[set[Key]] = [
            {k for k in keys if not both.is_vector(k, after=False)} for keys in (moves.of, moves.to)
        ]
        return _Flow(False, True, False, scalars[0], scalars[1])
    carries = bool(
        opcode.value("mask") or opcode.value("save") or "mask-move" in opcode.traits or "copy" in opcode.traits
    )
    finds = "first-bit" in opcode.traits  # Which thread it is of a mask that is known (10.8).
    narrows = _narrows(instruction, opcode, lanes, copies)
    return _Flow(finds or writes_exec(instruction, opcode), finds or carries, narrows, sides[0], sides[1])


def _narrows(instruction: Instruction, opcode: Opcode, lanes: Lanes, copies: set[Key]) -> bool:
    if opcode.value("save") in _NARROWING:
        return True
    explicit = [o for o in instruction.operands if o.is_use and not o.is_implicit]
    places = {"AND": explicit[:2], "ANDN2": explicit[:1]}.get(opcode.value("mask"), [])
    return any(
        o.register in EXEC_NAMES or (o.is_register and copies.issuperset(lanes.keys(o, instruction))) for o in places
    )
