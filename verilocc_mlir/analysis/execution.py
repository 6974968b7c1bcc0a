"""Which EXEC mask each instruction runs under, as far as placing and spilling must know.

A reload fills the threads in EXEC only, so a value reloaded here may be read there only if no more threads are active
there. EXEC masks are numbered: 0 is the mask at function entry, every write of EXEC makes a new one, and so does a join
of different ones. No mask is wider than that at entry unless something sets EXEC outright (whole-wave code does).
"""

from __future__ import annotations

from msgspec import Struct

from verilocc_mlir.analysis.cfg import ControlFlow
from verilocc_mlir.mir.model import Instruction, MachineFunction

EXEC = frozenset({"exec", "exec_lo", "exec_hi"})
_TERMINATORS = ("S_BRANCH", "S_CBRANCH_", "S_ENDPGM", "S_SETPC", "SI_RETURN", "SI_TCRETURN", "SI_END_CF", "SI_IF")
_WIDENS = ("S_OR_SAVEEXEC", "S_ORN2_SAVEEXEC", "S_NOT_SAVEEXEC", "S_MOV_B", "ENTER_", "SI_INIT_EXEC", "S_WQM")
"""Opcodes that may set EXEC to threads that were not active at function entry (SIWholeQuadMode.cpp)."""


class ExecMasks(Struct, frozen=True):
    """Number of the EXEC mask under which each instruction executes.

    Attributes:
        before: for each instruction, the mask in force when it starts.
        leaving: for each block, the mask at its end.
        widest: whether mask 0 has every thread that is ever active.
    """

    before: tuple[int, ...]
    leaving: tuple[int, ...]
    widest: bool

    def covers(self, mask: int, other: int) -> bool:
        """Whether the threads of ``mask`` include those of ``other``."""
        return mask == other or (mask == 0 and self.widest)


def exec_masks(function: MachineFunction, cfg: ControlFlow) -> ExecMasks:
    count = len(function.blocks)
    writes = [
        [k for k, i in enumerate(block.instructions, start) if writes_exec(i)]
        for block, start in zip(function.blocks, cfg.first, strict=False)
    ]
    # Mask after instruction k is k + 1; the joined mask at the start of block b is -1 - b.
    entering = [0] * count
    leaving: list[int | None] = [None] * count
    changed = True
    while changed:
        changed = False
        for block in cfg.order:
            arriving = {m for p in cfg.predecessors[block] if (m := leaving[p]) is not None}
            if block == cfg.order[0]:
                arriving.add(0)
            mask = arriving.pop() if len(arriving) == 1 else -1 - block
            out = writes[block][-1] + 1 if writes[block] else mask
            if mask != entering[block] or out != leaving[block]:
                entering[block], leaving[block] = mask, out
                changed = True
    before: list[int] = []
    for block, start in zip(range(count), cfg.first, strict=False):
        mask = entering[block]
        for index in range(start, cfg.first[block + 1]):
            before.append(mask)
            if index in writes[block]:
                mask = index + 1
    opcodes = {i.opcode for b in function.blocks for i in b.instructions if writes_exec(i)}
    return ExecMasks(tuple(before), tuple(m or 0 for m in leaving), not any(o.startswith(_WIDENS) for o in opcodes))


def writes_exec(instruction: Instruction) -> bool:
    """Whether it changes which threads are active."""
    return any(op.is_def and op.phys in EXEC for op in instruction.all_operands)


def has_inactive_lanes(function: MachineFunction) -> bool:
    """Whether lanes that are active at function entry may be inactive later: it writes EXEC somewhere."""
    return any(writes_exec(i) for block in function.blocks for i in block.instructions)


def is_terminator(instruction: Instruction) -> bool:
    """Whether it belongs to the end of a block, after which nothing else may stand (``isTerminator`` in
    SIInstructions.td, SOPInstructions.td).
    """
    return instruction.opcode.startswith(_TERMINATORS) or instruction.opcode.endswith("_term")
