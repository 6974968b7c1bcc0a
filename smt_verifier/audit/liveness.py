"""Which pre-RA lanes are still read, and which may have been written, for the wave: along paths, without EXEC.

That lanes are read is only a help for inference, to keep relations small. ``flags.py`` asks both: registers need not be
declared live for a lane that is dead or that no path has defined, as LLVM sees it.
"""

from __future__ import annotations

from smt_verifier.audit.lanes import LaneMap
from smt_verifier.audit.moves import cell_threads, really_written, scalar_moves
from smt_verifier.audit.semantics import moves_only
from verilocc_mlir.mir.model import MachineFunction


def live_at_entry(function: MachineFunction, lanes: LaneMap) -> list[set[int]]:
    """For each block, in layout order, the keys that some path from its entry reads before it writes them."""
    position = {b.number: n for n, b in enumerate(function.blocks)}
    threads = cell_threads(function)
    reads: list[set[int]] = []
    writes: list[set[int]] = []
    for block in function.blocks:
        read: set[int] = set()
        written: set[int] = set()
        for instruction in block.instructions:
            for op in instruction.operands:
                if op.is_use and not op.undef:
                    read.update(k for k in lanes.keys(op) if k not in written)
            if moves_only(instruction.opcode):
                moved = scalar_moves(instruction, lanes, threads) or ()
                read.update(of for _, of in moved if of not in written)
                written.update(to for to, _ in moved)
            for op in really_written(instruction):
                written.update(lanes.keys(op))
        reads.append(read)
        writes.append(written)
    live = [set(r) for r in reads]
    changed = True
    while changed:
        changed = False
        for n in range(len(function.blocks) - 1, -1, -1):
            out: set[int] = set()
            for successor, _ in function.blocks[n].successors:
                out |= live[position[successor]]
            new = (out - writes[n]) | reads[n]
            if len(new) != len(live[n]):
                live[n] = new
                changed = True
    return live


def defined_at_exit(function: MachineFunction, lanes: LaneMap) -> list[set[int]]:
    """For each block, in layout order, the keys of virtual registers that some path to its end defines.

    ``IMPLICIT_DEF`` and the lanes that ``undef %5.sub1 = …`` leaves out end a definition.
    """
    position = {b.number: n for n, b in enumerate(function.blocks)}
    made: list[set[int]] = []
    ended: list[set[int]] = []
    for block in function.blocks:
        here: set[int] = set()
        gone: set[int] = set()
        for instruction in block.instructions:
            for op in instruction.all_operands:
                if not op.is_def or op.vreg < 0:
                    continue
                keys = set(lanes.keys(op))
                rest = set(lanes.register_lanes(op.vreg)) if op.undef else set[int]()
                lost = rest | keys if instruction.opcode == "IMPLICIT_DEF" else rest - keys
                here, gone = here - lost, gone | lost
                if instruction.opcode != "IMPLICIT_DEF":
                    here, gone = here | keys, gone - keys
        made.append(here)
        ended.append(gone)
    entry: list[set[int]] = [set() for _ in function.blocks]
    pending = list(range(len(function.blocks)))
    while pending:
        n = pending.pop()
        out = (entry[n] - ended[n]) | made[n]
        for successor, _ in function.blocks[n].successors:
            at = position[successor]
            if not out <= entry[at]:
                entry[at] |= out
                pending.append(at)
    return [(entry[n] - ended[n]) | made[n] for n in range(len(entry))]
