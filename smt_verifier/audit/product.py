"""Both sides of one function, block by block, ready to be executed together."""

from __future__ import annotations

from collections.abc import Callable

from smt_verifier.audit.align import Step, acts_alone, align
from smt_verifier.audit.execute import Executor
from smt_verifier.audit.lanes import LaneMap, uses_halves
from smt_verifier.audit.liveness import live_at_entry
from smt_verifier.audit.masks import MaskTracker
from smt_verifier.audit.operations import operation_name
from smt_verifier.audit.relation import Claims
from smt_verifier.audit.semantics import is_pure
from smt_verifier.audit.state import EXEC, UNDEFINED, Atom, State
from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.mir.model import BasicBlock, MachineFunction

Assume = Callable[[int, int], None]


class Product:
    """Pre-RA and post-RA function with blocks matched by layout position.

    Args:
        pre: the function before allocation.
        post: the function after it, with as many blocks.
        wave_size: 32 or 64.
        reserved: units of registers no allocator hands out; calls preserve them.

    Raises:
        UnsupportedError: the entry block has predecessors.
    """

    def __init__(self, pre: MachineFunction, post: MachineFunction, wave_size: int, reserved: frozenset[int]) -> None:
        grain = 1 if uses_halves(pre, post) else 2
        self.pre = pre
        self.post = post
        self.pre_lanes = LaneMap(pre, grain, wave_size)
        self.post_lanes = LaneMap(post, grain, wave_size)
        position = {b.number: n for n, b in enumerate(pre.blocks)}
        self.successors = [[position[s] for s, _ in b.successors] for b in pre.blocks]
        if any(0 in row for row in self.successors):
            raise UnsupportedError("a branch back to the entry block")
        self.idle_edges = [_idle_edges(b, row, position) for b, row in zip(pre.blocks, self.successors, strict=True)]
        self.steps: list[list[Step]] = [
            align(a.instructions, b.instructions) for a, b in zip(pre.blocks, post.blocks, strict=True)
        ]
        self.order = _reverse_postorder(self.successors)
        self.live = live_at_entry(pre, self.pre_lanes)
        self.masks = MaskTracker(pre, self.pre_lanes)
        self.executor = Executor(
            pre, post, self.pre_lanes, self.post_lanes, self.masks, self._repeated_operations(), reserved
        )

    def _repeated_operations(self) -> frozenset[str]:
        """Pure operations that stand on one side alone somewhere: only their results are worth following."""
        alone = (s.pre or s.post for row in self.steps for s in row if s.pre is None or s.post is None)
        return frozenset(operation_name(i) for i in alone if i is not None and not acts_alone(i) and is_pure(i))

    def leave(self, block: int, successor: int, state: State) -> State:
        """The state on an edge: where EXEC is known to be 0, no thread is in an active class."""
        if successor not in self.idle_edges[block]:
            return state
        return State(state.pre, state.post, [a for a in state.atoms if not a.active], state.masks)

    def real_reads(self) -> dict[int, frozenset[int]]:
        """For each paired post-RA instruction, by ``id``, the lanes it really reads; known once all blocks are
        checked.
        """
        paired = {id(s.post): set[int]() for row in self.steps for s in row if s.pre is not None and s.post is not None}
        for instruction, key in self.executor.real_reads:
            paired[instruction].add(key)
        return {k: frozenset(v) for k, v in paired.items()}

    def partners(self) -> dict[int, int]:
        """``id`` of the pre-RA instruction for the ``id`` of each paired post-RA one."""
        return {id(s.post): id(s.pre) for row in self.steps for s in row if s.pre is not None and s.post is not None}

    def entry_state(self, block: int, claims: Claims | None, assume: Assume) -> State:
        """The state at a block's entry: the claims, or for block 0 the function's initial state."""
        if block == 0:
            return self._initial_state()
        assert claims is not None, "a block without claims is not reached and not executed"
        return claims.state(self.executor, assume)

    def _initial_state(self) -> State:
        """Both sides start in one machine state; virtual registers are undefined, threads outside EXEC are not
        followed.
        """
        terms = self.executor.terms
        scalar_pre: dict[int, int] = {}
        scalar_post: dict[int, int] = {}
        atom = Atom(frozenset({EXEC}), {}, {})
        for block in self.pre.blocks:
            for instruction in block.instructions:
                for op in instruction.all_operands:
                    if op.vreg >= 0:
                        for key in self.pre_lanes.keys(op):
                            (atom.pre if self.pre_lanes.is_vector(key) else scalar_pre)[key] = UNDEFINED
        physical = {
            k for f, lanes in ((self.pre, self.pre_lanes), (self.post, self.post_lanes)) for k in _physical(f, lanes)
        }
        for key in sorted(physical):
            pre, post = (atom.pre, atom.post) if self.pre_lanes.is_vector(key) else (scalar_pre, scalar_post)
            term = terms.fresh("its value at function entry")
            pre[key] = post[key] = term
        return State(scalar_pre, scalar_post, [atom])


def _idle_edges(block: BasicBlock, successors: list[int], position: dict[int, int]) -> frozenset[int]:
    """Successors that are reached only with EXEC = 0, by what S_CBRANCH_EXECZ and S_CBRANCH_EXECNZ test."""
    branches = [i for i in block.instructions if i.opcode.startswith(("S_CBRANCH", "S_BRANCH"))]
    tests = [i for i in branches if i.opcode in ("S_CBRANCH_EXECZ", "S_CBRANCH_EXECNZ")]
    conditional = [i for i in branches if i.opcode != "S_BRANCH"]
    if len(tests) != 1 or len(conditional) != 1 or tuple(branches) != block.instructions[-len(branches) :]:
        return frozenset()
    target = position[int(tests[0].operands[0].text.removeprefix("%bb.").split(".")[0])]
    rest = frozenset(successors) - {target}
    if len(successors) != 2 or len(rest) != 1:
        return frozenset()
    return frozenset({target}) if tests[0].opcode == "S_CBRANCH_EXECZ" else rest


def _physical(function: MachineFunction, lanes: LaneMap) -> set[int]:
    return {
        k
        for block in function.blocks
        for instruction in block.instructions
        for op in instruction.all_operands
        if op.phys and op.is_reg
        for k in lanes.keys(op)
    }


def _reverse_postorder(successors: list[list[int]]) -> list[int]:
    """Blocks from the entry, every one before its successors where no cycle prevents it; unreached ones left out."""
    order: list[int] = []
    seen = {0}
    stack = [(0, iter(successors[0]))] if successors else []
    while stack:
        block, rest = stack[-1]
        following = next((s for s in rest if s not in seen), None)
        if following is None:
            order.append(block)
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, iter(successors[following])))
    return order[::-1]
