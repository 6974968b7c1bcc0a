"""What inactive threads hold while a matrix instruction runs.

A thread that skips a branch or has left a loop waits until EXEC has it again. Code that it does not run may lay its own
values over those that it waits with, where every write keeps to the threads in EXEC. A matrix instruction does not: it
writes its result for all threads (ISA manuals, matrix instructions: EXEC is ignored). So a register that waits is live
at each matrix instruction under a narrower EXEC, although no path from there reads it before it is written. LLVM 22
does not know this, and its allocation is wrong for such code.

A matrix instruction also reads its operands for all threads. A thread that has left a loop waits with what the operands
held in its last iteration, and the instruction reads that again in the others' iterations. So an operand's register is
given to nothing that the thread writes between its last read and the end of the loop, and no spill code brings back
what it holds for threads that wait.

How narrow EXEC is comes from the forms in which LLVM narrows and restores it (SILowerControlFlow.cpp): a stack of the
instructions that narrowed it. Code of another form gets no answer here. Nothing rests on it: the audit follows EXEC.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

from msgspec import Struct, field

from verilocc_mlir.analysis.cfg import ControlFlow, flow_graph
from verilocc_mlir.analysis.execution import EXEC, writes_exec
from verilocc_mlir.analysis.lanes import Access
from verilocc_mlir.analysis.liveness import (
    LaneLiveness,
    LaneSegments,
    Segment,
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


class Waiting(Struct, frozen=True):
    """Liveness with what waits.

    Attributes:
        at_matrices: what a problem needs: live for active threads, and held while matrix instructions write.
        throughout: what spilling needs: also live from where threads begin to wait up to where they go on.
        keeps: for registers and instructions that write them for some threads, the lanes that others still need.
        fixed: registers that a matrix instruction reads for threads that wait: nothing brings their lanes back.
        longer: registers that are live for longer than without it.
    """

    at_matrices: LaneLiveness
    throughout: LaneLiveness
    keeps: Mapping[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    fixed: frozenset[int] = frozenset()
    longer: frozenset[int] = frozenset()


def waiting(function: MachineFunction, cfg: ControlFlow, live: LaneLiveness) -> Waiting:
    """What inactive threads need, beside ``live``, the liveness of the same function without regard to it."""
    nothing = Waiting(live, live)
    if not any(_MATRIX.match(i.opcode) for block in function.blocks for i in block.instructions):
        return nothing
    stacks = _stacks(function, cfg)
    if stacks is None:
        return nothing
    instructions = [i for block in function.blocks for i in block.instructions]
    matrices = {k for k, i in enumerate(instructions) if stacks.before[k] and _MATRIX.match(i.opcode)}
    return _Threads(cfg, live, stacks, matrices).waiting() if matrices else nothing


class _Stacks(Struct, frozen=True):
    """What narrowed EXEC before each instruction, outermost first, and behind the last one of each block."""

    before: tuple[_Stack, ...]
    leaving: tuple[_Stack, ...]
    writers: frozenset[int]
    """Instructions that change EXEC."""


class _Node(NamedTuple):
    """Instructions of one block with the same EXEC, as a thread sees them.

    Attributes:
        first: the first instruction, and ``stop`` one past the last.
        waits: at which depth EXEC was narrowed without the thread, or -1: it is active.
    """

    block: int
    first: int
    stop: int
    waits: int


class _Threads:
    """Liveness over the ways of one thread: active, it executes all instructions; waiting, the matrix ones alone."""

    def __init__(self, cfg: ControlFlow, live: LaneLiveness, stacks: _Stacks, matrices: set[int]) -> None:
        self._live = live
        self._stacks = stacks
        self._matrices = matrices
        self._nodes: list[_Node] = []
        edges = self._edges(cfg)
        self._accesses = [self._seen(node) for node in self._nodes]
        self._flow = flow_graph(tuple(tuple(dict.fromkeys(e)) for e in edges), (n.stop - n.first for n in self._nodes))
        self._needed_in = solve_backward(self._flow, *self._needs())
        self._defined_out = solve_forward(self._flow, *self._defines())

    def _edges(self, cfg: ControlFlow) -> list[list[int]]:
        number: dict[tuple[int, int], int] = {}
        """By first instruction of a stretch (or -1 - block for an empty block), and ``waits``."""
        stretches: list[list[tuple[int, int, _Stack]]] = []
        for block in range(len(cfg.successors)):
            first, stop = cfg.first[block], cfg.first[block + 1]
            cuts = (k for k in range(first + 1, stop) if k - 1 in self._stacks.writers)
            bounds = [first, *cuts, stop]
            rows = [(a, b, self._stacks.before[a]) for a, b in pairwise(bounds) if a < b]
            stretches.append(rows or [(first, first, self._stacks.leaving[block])])
        keys: list[tuple[int, _Stack]] = []
        for block, rows in enumerate(stretches):
            for first, stop, stack in rows:
                key = first if first < stop else -1 - block
                for waits in range(-1, len(stack)):
                    number[key, waits] = len(self._nodes)
                    self._nodes.append(_Node(block, first, stop, waits))
                    keys.append((key, stack))
        edges: list[list[int]] = [[] for _ in self._nodes]
        for at, node in enumerate(self._nodes):
            rows = stretches[node.block]
            following = next(([r] for r in rows if r[0] == node.stop and r[0] > node.first), None)
            blocks = [node.block]
            if following is None:
                blocks = list(cfg.successors[node.block])
                following = [stretches[b][0] for b in blocks]
            behind = self._stacks.leaving[node.block] if node.stop == rows[-1][1] else following[0][2]
            narrows = bool(behind) and behind[-1] == node.stop - 1
            for block, (first, stop, stack) in zip(blocks, following, strict=True):
                key = first if first < stop else -1 - block
                edges[at].append(number[key, node.waits if node.waits < len(stack) else -1])
                if node.waits < 0 and narrows and len(behind) <= len(stack):
                    edges[at].append(number[key, len(behind) - 1])
        return edges

    def _seen(self, node: _Node) -> list[Access]:
        """What the thread executes, in order."""
        return [
            access
            for access in self._live.accesses.blocks[node.block]
            if node.first <= access.index < node.stop and (node.waits < 0 or access.index in self._matrices)
        ]

    def _needs(self) -> tuple[list[int], list[int]]:
        reads: list[int] = []
        kills: list[int] = []
        for accesses in self._accesses:
            needed: set[int] = set()
            ended: set[int] = set()
            for access in reversed(accesses):
                _before(access, needed)
                ended.update(access.early, access.writes, access.undefines, access.implicit)
            reads.append(bit_set(needed))
            kills.append(bit_set(ended))
        return reads, kills

    def _defines(self) -> tuple[list[int], list[int]]:
        made: list[int] = []
        ended: list[int] = []
        for accesses in self._accesses:
            has: set[int] = set()
            lost: set[int] = set()
            for access in accesses:
                has.difference_update(access.undefines)
                lost.update(access.undefines)
                has.update(access.early, access.writes)
                lost.difference_update(access.early, access.writes)
            made.append(bit_set(has))
            ended.append(bit_set(lost))
        return made, ended

    def waiting(self) -> Waiting:
        active: dict[int, list[Segment]] = {}
        matrices: dict[int, list[Segment]] = {}
        throughout: dict[int, list[Segment]] = {}
        keeps: dict[tuple[int, int], int] = {}
        fixed: set[int] = set()
        inward = list(self._live.live_in)
        outward = list(self._live.live_out)
        lanes, owner = self._live.accesses.lanes, self._live.accesses.owner
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for node in self._nodes:
            first[node.block] = min(node.first, first.get(node.block, node.first))
            last[node.block] = max(node.stop, last.get(node.block, node.stop))
        for at, node in enumerate(self._nodes):
            defined_in = _union(self._defined_out, self._flow.predecessors[at])
            leaving = _union(self._needed_in, self._flow.successors[at]) & self._defined_out[at]
            if node.stop == last[node.block]:
                outward[node.block] |= leaving
            if node.first == first[node.block]:
                inward[node.block] |= self._needed_in[at] & defined_in
            found = throughout if node.waits >= 0 else active
            for atom, segment in self._segments(at, leaving, defined_in):
                found.setdefault(atom, []).append(segment)
            if node.waits < 0:
                continue
            open_atoms = set(set_bits(leaving))
            defined = set(set_bits(defined_in | self._defined_out[at]))
            for access in reversed(self._within(node)):
                if access.index in self._matrices:
                    open_atoms.difference_update(access.early, access.writes)
                    for atom in open_atoms:
                        matrices.setdefault(atom, []).append((4 * access.index + 1, 4 * access.index + 3))
                    read = defined.intersection(access.reads)
                    fixed.update(owner[atom] for atom in read)
                    open_atoms.update(read)
                    continue
                for atom in open_atoms.intersection((*access.early, *access.writes, *access.implicit)):
                    key = owner[atom], access.index
                    keeps[key] = keeps.get(key, 0) | lanes[atom]
        everywhere = {a: [*active.get(a, ()), *throughout.get(a, ())] for a in active.keys() | throughout.keys()}
        at_matrices = {a: [*active.get(a, ()), *matrices.get(a, ())] for a in active.keys() | matrices.keys()}
        live = self._live
        ranges = _joined(live, everywhere)
        return Waiting(
            LaneLiveness(live.accesses, _joined(live, at_matrices), live.live_in, live.live_out),
            LaneLiveness(live.accesses, ranges, tuple(inward), tuple(outward)),
            keeps,
            frozenset(fixed),
            frozenset(vreg for vreg, held in ranges.items() if held != live.ranges[vreg]),
        )

    def _within(self, node: _Node) -> list[Access]:
        return [a for a in self._live.accesses.blocks[node.block] if node.first <= a.index < node.stop]

    def _segments(self, at: int, leaving: int, defined_in: int) -> Iterator[tuple[int, Segment]]:
        """When atoms are live in a node, in slots."""
        node = self._nodes[at]
        ends = dict.fromkeys(set_bits(leaving), 4 * node.stop)
        for access in reversed(self._accesses[at]):
            slot = 4 * access.index
            for start, atoms in ((slot + 2, access.writes), (slot + 1, access.early)):
                for atom in atoms:
                    if atom in ends:
                        yield atom, (start, ends.pop(atom))
            for atom in access.implicit:
                end = ends.pop(atom, 0)
                # As in liveness.py: it counts where an older value may be in the register.
                if end and defined_in >> atom & 1:
                    yield atom, (slot + 2, end)
            for atom in access.undefines:
                ends.pop(atom, None)
            for atom in access.reads:
                ends.setdefault(atom, slot + 2)
        for atom, end in ends.items():
            if defined_in >> atom & 1 and 4 * node.first < end:
                yield atom, (4 * node.first, end)


def _before(access: Access, needed: set[int]) -> None:
    """What is needed before an access, of what is needed after it."""
    needed.difference_update(access.writes, access.implicit, access.undefines, access.early)
    needed.update(access.reads)


def _union(sets: list[int], blocks: tuple[int, ...]) -> int:
    whole = 0
    for block in blocks:
        whole |= sets[block]
    return whole


def _joined(live: LaneLiveness, more: Mapping[int, list[Segment]]) -> dict[int, tuple[LaneSegments, ...]]:
    """The ranges, with what ``more`` says, by atom."""
    ranges = dict(live.ranges)
    for vreg, atoms in live.accesses.atoms.items():
        if not any(atom in more for atom in atoms):
            continue
        groups: dict[tuple[Segment, ...], int] = {}
        for atom in atoms:
            lanes = live.accesses.lanes[atom]
            held = next((segments for mask, segments in ranges[vreg] if mask & lanes), ())
            if joined := join_segments([*held, *more.get(atom, ())]):
                groups[joined] = groups.get(joined, 0) | lanes
        ordered = sorted(groups.items(), key=lambda group: group[1] & -group[1])
        ranges[vreg] = tuple(LaneSegments(mask, segments) for segments, mask in ordered)
    return ranges


def _stacks(function: MachineFunction, cfg: ControlFlow) -> _Stacks | None:
    """What narrowed EXEC; None: EXEC is written in another form."""
    entering: dict[int, _Stack] = {cfg.order[0]: ()} if cfg.order else {}
    waiting = [*cfg.order]
    before: list[_Stack] = [()] * cfg.first[-1]
    leaving: list[_Stack] = [()] * len(function.blocks)
    writers: set[int] = set()
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
            if after != stack or k in after:
                writers.add(k)
            stack = after
        leaving[block] = stack
        for successor in cfg.successors[block]:
            known = entering.get(successor)
            # Around a loop EXEC is as narrow as the last iteration left it.
            short, long = sorted((stack, known or ()), key=len)
            if long[: len(short)] != short:
                return None
            if known is None or long != known:
                entering[successor] = long
                waiting.append(successor)
    return _Stacks(tuple(before), tuple(leaving), frozenset(writers))


def _after(instruction: Instruction, index: int, stack: _Stack) -> _Stack | None:
    if instruction.opcode == "COPY":
        # LLVM's copy of EXEC says that it writes EXEC, so that it stays where it is.
        return stack if instruction.defs and instruction.defs[0].phys not in EXEC else None
    if _RESTORES.match(instruction.opcode):
        return stack[:-1]
    if _NARROWS.match(instruction.opcode):
        return (*stack[: stack.index(index)], index) if index in stack else (*stack, index)
    return None
