"""How long the values that are live at a point lie idle there, and what might free their registers.

Hints rest on how often a value is defined and where it is next used. Whether the memory that a load reads has changed
by then is not looked at: they are for people to judge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from verilocc_mlir.mir.model import Instruction
from verilocc_mlir.spilling.gaps import Gap, RegisterGaps


@dataclass(frozen=True)
class Idle:
    """A stretch of code in which a value is live and nothing touches it.

    Attributes:
        instructions: in it, over all blocks.
        uses: instructions that touch it next, ascending.
        opened_by: instructions at which it begins.
    """

    instructions: int
    uses: tuple[int, ...]
    opened_by: tuple[int, ...]


_WORTH_A_HINT = 8
"""Instructions that a value must lie idle."""

NOT_IDLE = Idle(0, (), ())


def idle_at(register: RegisterGaps | None, index: int) -> Idle:
    """The stretch around the instruction ``index``; nothing where it touches the register."""
    start = next((gap for gap in register.gaps if gap.first <= index < gap.stop), None) if register else None
    if start is None:
        return NOT_IDLE
    stretch = {start}
    work = [start]
    while work:
        gap: Gap = work.pop()
        for neighbour in (*gap.predecessors, *gap.successors):
            if neighbour not in stretch:
                stretch.add(neighbour)
                work.append(neighbour)
    return Idle(
        sum(gap.stop - gap.first for gap in stretch),
        tuple(sorted(gap.closes.index for gap in stretch if gap.closes is not None)),
        tuple(sorted(gap.opens.index for gap in stretch if gap.opens is not None)),
    )


def hint(
    idle: Idle, register: RegisterGaps | None, constant: bool, at: int, placed: Mapping[int, tuple[Instruction, int]]
) -> str:
    """What might free the registers at instruction ``at``, in a few words, or ``""``.

    Args:
        placed: each instruction with its loop depth.
    """
    if idle.instructions < _WORTH_A_HINT or register is None:
        return ""
    if constant:
        return "constant: make it again"
    deepest = max((placed[use][1] for use in idle.uses), default=0)
    opener = next((access for access in register.accesses if (access.index,) == idle.opened_by), None)
    if idle.uses and opener is not None and opener.after is not None and opener.writes and not opener.reads:
        instruction, depth = placed[opener.index]
        whole = not opener.after.live & ~opener.writes
        fixed = any(op.phys and not op.implicit for op in instruction.operands)
        if whole and not fixed and deepest <= depth:
            return "load it later" if any("load" in m for m in instruction.memory) else "compute it later"
    in_loop = deepest and deepest >= placed[at][1]
    return "let it wait in memory, loaded again in the loop" if in_loop else "let it wait in memory"
