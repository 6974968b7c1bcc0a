"""What inactive threads hold while a matrix instruction runs.

A thread that skips a branch or has left a loop waits until EXEC has it again. Code that it does not run may lay its own
values over those that it waits with, where every write keeps to the threads in EXEC. A matrix instruction does not: it
writes its result for all threads (ISA manuals, matrix instructions: EXEC is ignored). So a register that waits is live
at each matrix instruction under a narrower EXEC, although no path from there reads it before it is written. LLVM 22
does not know this, and its allocation is wrong for such code.

How narrow EXEC is comes from the forms in which LLVM narrows and restores it (SILowerControlFlow.cpp): a stack of the
instructions that narrowed it. Code of another form gets no answer here. Nothing rests on it: the audit follows EXEC.
"""

from __future__ import annotations

import re

from verilocc_mlir.analysis.cfg import ControlFlow
from verilocc_mlir.analysis.execution import EXEC, writes_exec
from verilocc_mlir.analysis.lanes import Access
from verilocc_mlir.analysis.liveness import (
    LaneLiveness,
    LaneSegments,
    bit_set,
    join_segments,
    set_bits,
    solve_backward,
    solve_forward,
)
from verilocc_mlir.mir.model import Instruction, MachineFunction

_MATRIX = re.compile(r"V_(?:MFMA|SMFMAC|WMMA|SWMMAC)_")
_RESTORES = re.compile(r"S_OR(?:_SAVEEXEC)?_B(?:32|64)")
_NARROWS = re.compile(r"S_(?:MOV|AND|ANDN2|AND_NOT1|XOR)(?:_B32|_B64)_term|S_(?:AND|XOR)_B|S_AND_SAVEEXEC_B|V_CMPS?X_")

_Stack = tuple[int, ...]


def with_waiting(function: MachineFunction, cfg: ControlFlow, live: LaneLiveness) -> LaneLiveness:
    """The same liveness, in which what waits is live at the matrix instructions too."""
    if not any(_MATRIX.match(i.opcode) for block in function.blocks for i in block.instructions):
        return live
    stacks = _stacks(function, cfg)
    if stacks is None:
        return live
    depths = [len(stack) for stack in stacks]
    instructions = [i for block in function.blocks for i in block.instructions]
    matrix = {k for k, i in enumerate(instructions) if depths[k] and _MATRIX.match(i.opcode)}
    more: dict[int, set[int]] = {}
    for depth in range(max((depths[k] for k in matrix), default=0)):
        inside = {k for k in matrix if depths[k] > depth}
        for atom, at in _waiting(cfg, live.accesses.blocks, depths, depth, inside):
            more.setdefault(atom, set()).add(at)
    return _extended(live, more) if more else live


def _waiting(
    cfg: ControlFlow, blocks: tuple[tuple[Access, ...], ...], depths: list[int], depth: int, matrix: set[int]
) -> list[tuple[int, int]]:
    """Atoms and matrix instructions at which they wait for code that is at most so deep."""
    reads: list[int] = []
    kills: list[int] = []
    defines: list[int] = []
    for block in blocks:
        needed: set[int] = set()
        ended: set[int] = set()
        for access in reversed(block):
            if depths[access.index] <= depth:
                _before(access, needed)
                ended.update(access.early, access.writes, access.undefines, access.implicit)
        reads.append(bit_set(needed))
        kills.append(bit_set(ended))
        defines.append(bit_set({a for access in block for a in (*access.early, *access.writes)}))
    needed_in = solve_backward(cfg, reads, kills)
    defined_out = solve_forward(cfg, defines, [0] * len(blocks))
    found: list[tuple[int, int]] = []
    for position, block in enumerate(blocks):
        inside = [k for k in range(cfg.first[position], cfg.first[position + 1]) if k in matrix]
        if not inside:
            continue
        defined = set(set_bits(_union(defined_out, cfg.predecessors[position]) | defines[position]))
        waits = set(set_bits(_union(needed_in, cfg.successors[position])))
        accesses = list(block)
        for at in reversed(inside):
            while accesses and accesses[-1].index > at:
                access = accesses.pop()
                if depths[access.index] <= depth:
                    _before(access, waits)
            found += [(atom, at) for atom in waits & defined]
    return found


def _before(access: Access, needed: set[int]) -> None:
    """What is needed before an access, of what is needed after it."""
    needed.difference_update(access.writes, access.implicit, access.undefines, access.early)
    needed.update(access.reads)


def _union(sets: list[int], blocks: tuple[int, ...]) -> int:
    whole = 0
    for block in blocks:
        whole |= sets[block]
    return whole


def _extended(live: LaneLiveness, more: dict[int, set[int]]) -> LaneLiveness:
    """With what ``more`` says, by atom, held while those instructions write."""
    ranges = dict(live.ranges)
    for vreg, atoms in live.accesses.atoms.items():
        if not any(atom in more for atom in atoms):
            continue
        groups: dict[tuple[tuple[int, int], ...], int] = {}
        for atom in atoms:
            lanes = live.accesses.lanes[atom]
            held = next((segments for mask, segments in ranges[vreg] if mask & lanes), ())
            waits = [(4 * at + 1, 4 * at + 3) for at in more.get(atom, ())] if held else []
            if joined := join_segments([*held, *waits]):
                groups[joined] = groups.get(joined, 0) | lanes
        ordered = sorted(groups.items(), key=lambda group: group[1] & -group[1])
        ranges[vreg] = tuple(LaneSegments(mask, segments) for segments, mask in ordered)
    return LaneLiveness(live.accesses, ranges, live.live_in, live.live_out)


def _stacks(function: MachineFunction, cfg: ControlFlow) -> list[_Stack] | None:
    """For each instruction, what narrowed EXEC before it; None: EXEC is written in another form."""
    entering: dict[int, _Stack] = {cfg.order[0]: ()} if cfg.order else {}
    waiting = [*cfg.order]
    before: list[_Stack] = [()] * cfg.first[-1]
    while waiting:
        block = waiting.pop(0)
        if block not in entering:
            continue
        stack = entering[block]
        for k, instruction in enumerate(function.blocks[block].instructions, cfg.first[block]):
            before[k] = stack
            after = _after(instruction, k, stack) if writes_exec(instruction) else stack
            if after is None:
                return None
            stack = after
        for successor in cfg.successors[block]:
            known = entering.get(successor)
            # Around a loop EXEC is as narrow as the last iteration left it.
            short, long = sorted((stack, known or ()), key=len)
            if long[: len(short)] != short:
                return None
            if known is None or long != known:
                entering[successor] = long
                waiting.append(successor)
    return before


def _after(instruction: Instruction, index: int, stack: _Stack) -> _Stack | None:
    if instruction.opcode == "COPY":
        # LLVM's copy of EXEC says that it writes EXEC, so that it stays where it is.
        return stack if instruction.defs and instruction.defs[0].phys not in EXEC else None
    if _RESTORES.match(instruction.opcode):
        return stack[:-1]
    if _NARROWS.match(instruction.opcode):
        return (*stack[: stack.index(index)], index) if index in stack else (*stack, index)
    return None
