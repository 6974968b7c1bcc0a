"""Which pre-RA lanes are still read: only a help for inference, to keep relations small. Nothing trusts it."""

from __future__ import annotations

from smt_verifier.audit.lanes import LaneMap
from verilocc_mlir.mir.model import MachineFunction


def live_at_entry(function: MachineFunction, lanes: LaneMap) -> list[set[int]]:
    """For each block, in layout order, the keys that some path from its entry reads before it writes them."""
    position = {b.number: n for n, b in enumerate(function.blocks)}
    reads: list[set[int]] = []
    writes: list[set[int]] = []
    for block in function.blocks:
        read: set[int] = set()
        written: set[int] = set()
        for instruction in block.instructions:
            for op in instruction.operands:
                if op.is_use and not op.undef:
                    read.update(k for k in lanes.keys(op) if k not in written)
            for op in instruction.all_operands:
                if op.is_def and op.is_reg:
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
