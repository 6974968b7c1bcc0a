"""Both sides of one function, block by block, ready to be executed together."""

from __future__ import annotations

from collections.abc import Callable

from smt_verifier.audit.align import Step, acts_alone, align
from smt_verifier.audit.execute import Executor, operation_name
from smt_verifier.audit.lanes import LaneMap, uses_halves
from smt_verifier.audit.liveness import live_at_entry
from smt_verifier.audit.masks import MaskTracker
from smt_verifier.audit.relation import Claims
from smt_verifier.audit.semantics import is_pure
from smt_verifier.audit.state import EXEC, UNDEFINED, Atom, State
from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.mir.model import MachineFunction

Assume = Callable[[int, int], None]


class Product:
    """Pre-RA and post-RA function with blocks matched by layout position.

    Args:
        pre: the function before allocation.
        post: the function after it, with as many blocks.
        wave_size: 32 or 64.
        always_available: post-RA units that hold their value across blocks without being declared live-in: reserved
            registers and EXEC, MODE and the like.

    Raises:
        UnsupportedError: the entry block has predecessors.
    """

    def __init__(
        self, pre: MachineFunction, post: MachineFunction, wave_size: int, always_available: Callable[[int], bool]
    ) -> None:
        grain = 1 if uses_halves(pre, post) else 2
        self.pre = pre
        self.post = post
        self.pre_lanes = LaneMap(pre, grain, wave_size)
        self.post_lanes = LaneMap(post, grain, wave_size)
        position = {b.number: n for n, b in enumerate(pre.blocks)}
        self.successors = [[position[s] for s, _ in b.successors] for b in pre.blocks]
        if any(0 in row for row in self.successors):
            raise UnsupportedError("a branch back to the entry block")
        self.steps: list[list[Step]] = [
            align(a.instructions, b.instructions) for a, b in zip(pre.blocks, post.blocks, strict=True)
        ]
        self.order = _reverse_postorder(self.successors)
        self.live = live_at_entry(pre, self.pre_lanes)
        self.masks = MaskTracker(pre, self.pre_lanes)
        self.executor = Executor(pre, post, self.pre_lanes, self.post_lanes, self.masks, self._repeated_operations())
        self._always_available = always_available
        self._declared = [
            {k for livein in block.liveins for k in self.post_lanes.livein_keys(livein)} for block in post.blocks
        ]

    def _repeated_operations(self) -> frozenset[str]:
        """Pure operations that stand on one side alone somewhere: only their results are worth following."""
        alone = (s.pre or s.post for row in self.steps for s in row if s.pre is None or s.post is None)
        return frozenset(operation_name(i) for i in alone if i is not None and not acts_alone(i) and is_pure(i))

    def available(self, block: int) -> Callable[[int], bool]:
        """Which post-RA keys may hold a value at a block's entry: declared live-ins, reserved registers, slots, virtual ones."""
        declared = self._declared[block]
        return lambda key: key >= 0 or key in declared or self._always_available(-1 - key)

    def entry_state(self, block: int, claims: Claims | None, assume: Assume) -> State:
        """The state at a block's entry: the claims, or for block 0 the function's initial state."""
        if block == 0:
            return self._initial_state()
        assert claims is not None, "a block without claims is not reached and not executed"
        return claims.state(self.executor, self.available(block), assume)

    def _initial_state(self) -> State:
        """Both sides start in one machine state; virtual registers are undefined, threads outside EXEC are not followed."""
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
        available = self.available(0)
        for key in sorted(physical):
            pre, post = (atom.pre, atom.post) if self.pre_lanes.is_vector(key) else (scalar_pre, scalar_post)
            term = terms.fresh("its value at function entry")
            pre[key] = term
            if available(key):
                post[key] = term
        return State(scalar_pre, scalar_post, [atom])


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
