"""What a step writes, by structure alone, a move from another place, a result, or something undefined; and which paths
may lose a value.

Explanations walk executions backwards with it. Nothing here is trusted: it only chooses which path to look at and how
to word what was found there; ``journal.py`` executes the path with the audit's own transfer functions.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass

from smt_verifier.audit.core.lanes import CELL, ENTRY, STACK, LaneMap, cell_container
from smt_verifier.audit.core.masks import defines_exec
from smt_verifier.audit.core.moves import is_whole_wave_move, lane_move, scalar_moves
from smt_verifier.audit.core.opcodes import NO_CODE, facts
from smt_verifier.audit.core.pairs import Step
from smt_verifier.audit.core.product import Product
from smt_verifier.audit.core.semantics import is_move
from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.mir.model import Instruction, OperandKind
from verilocc_mlir.target.callingconv import regmask


@dataclass(frozen=True, slots=True)
class Write:
    """How one lane is written.

    Attributes:
        source: the lane whose value moves here; None for anything but a move.
        result: ``(result number, lane)`` of a pair of instructions, which is the same value on both sides.
        undefined: the value is undefined from here on.
        masked: only the threads in EXEC are written.
    """

    source: int | None = None
    result: tuple[int, int] | None = None
    undefined: bool = False
    masked: bool = False


@dataclass(frozen=True, slots=True)
class Effect:
    """Lanes a step writes on either side.

    Attributes:
        pre: writes of the pre-RA side by key.
        post: writes of the post-RA side by key.
        preserved: units that a call leaves alone; None: there is no call.
        changes_exec: EXEC is written.
        carries: sides on which scalars in single lanes of a vector register survive that the step writes it.
    """

    pre: dict[int, Write]
    post: dict[int, Write]
    preserved: frozenset[int] | None = None
    changes_exec: bool = False
    carries: frozenset[str] = frozenset()

    def written(self, side: str, key: int) -> Write | None:
        writes = self.pre if side == "pre" else self.post
        write = writes.get(key)
        if write is None and CELL <= key < ENTRY and side not in self.carries:
            register = writes.get(cell_container(key))
            return None if register is None else Write(undefined=register.undefined and side == "pre")
        if write is None and self.preserved is not None and key < 0 and -1 - key not in self.preserved:
            return Write()
        return write


class Effects:
    """Effects of the steps of one product, computed on first use."""

    def __init__(self, product: Product) -> None:
        self._product = product
        self._effects: dict[int, Effect] = {}

    def of(self, step: Step) -> Effect:
        effect = self._effects.get(id(step))
        if effect is None:
            effect = self._effects[id(step)] = self._compute(step)
        return effect

    def _compute(self, step: Step) -> Effect:
        product = self._product
        threads = product.executor.cell_threads
        if step.pre is None:
            assert step.post is not None, "a step has an instruction"
            written = _unpaired_writes(step.post, product.post_lanes, threads)
            return Effect({}, written, carries=frozenset({"post"}) if _carries(step.post) else frozenset())
        changes_exec = defines_exec(step.pre)
        if step.post is None:
            written = _unpaired_writes(step.pre, product.pre_lanes, threads, is_pre=True)
            carries = frozenset({"pre"}) if _carries(step.pre) else frozenset[str]()
            return Effect(written, {}, changes_exec=changes_exec, carries=carries)
        mask = next((op for op in step.pre.operands if op.kind is OperandKind.REGMASK), None)
        preserved = None if mask is None else regmask(mask.text) | product.executor.kept_units
        return Effect(*self._pair_writes(step.pre, step.post), preserved, changes_exec)

    def _pair_writes(self, pre: Instruction, post: Instruction) -> tuple[dict[int, Write], dict[int, Write]]:
        everywhere = facts(pre.opcode).ignores_exec
        pre_writes: dict[int, Write] = {}
        post_writes: dict[int, Write] = {}
        number = 0
        for a, b in zip(pre.all_operands, post.all_operands, strict=False):
            if not (a.is_def and a.is_reg and b.is_def and b.is_reg):
                continue
            pre_keys, post_keys = self._product.pre_lanes.keys(a), self._product.post_lanes.keys(b)
            masked = bool(pre_keys) and self._product.pre_lanes.is_vector(pre_keys[0]) and not everywhere
            if a.undef and a.sub and a.vreg >= 0:
                for key in self._product.pre_lanes.register_lanes(a.vreg):
                    pre_writes[key] = Write(undefined=True, masked=masked)
            for lane, (x, y) in enumerate(zip(pre_keys, post_keys, strict=False)):
                pre_writes[x] = post_writes[y] = Write(result=(number, lane), masked=masked)
            number += 1
        for op in post.all_operands:
            if op.is_def and op.is_reg:
                for key in self._product.post_lanes.keys(op):
                    post_writes.setdefault(key, Write(masked=self._product.post_lanes.is_vector(key)))
        return pre_writes, post_writes


def _carries(instruction: Instruction) -> bool:
    """As ``Machine.spoil_cells``: whole-wave moves and moves of single lanes leave other lanes as they are."""
    return is_whole_wave_move(instruction) or lane_move(instruction) is not None


def _unpaired_writes(
    instruction: Instruction, lanes: LaneMap, threads: frozenset[int], *, is_pre: bool = False
) -> dict[int, Write]:
    opcode = instruction.opcode
    if opcode == "KILL":
        return {}
    writes: dict[int, Write] = {}
    if is_move(instruction):
        for key in _undefined_lanes(instruction, lanes) if is_pre else _implicit(instruction, lanes):
            writes[key] = Write(undefined=True, masked=lanes.is_vector(key))
        writes.update(_move_writes(instruction, lanes, threads))
        return writes
    undefined = opcode in NO_CODE
    for op in instruction.all_operands:
        if op.is_def and op.is_reg:
            whole = is_pre and undefined and op.undef and op.vreg >= 0
            for key in lanes.register_lanes(op.vreg) if whole else lanes.keys(op):
                writes[key] = Write(undefined=undefined, masked=lanes.is_vector(key))
    return writes


def _move_writes(instruction: Instruction, lanes: LaneMap, threads: frozenset[int]) -> dict[int, Write]:
    """What a move writes; a source marked undef leaves its destination undefined."""
    try:
        moves = scalar_moves(instruction, lanes, threads)
    except UnsupportedError:
        return {}
    everywhere = is_whole_wave_move(instruction)
    if moves:
        return {to: Write(of, masked=not everywhere and _in_threads(to, of, lanes)) for to, of in moves}
    keys = [k for op in instruction.defs for k in lanes.keys(op)]
    return {k: Write(undefined=True, masked=not everywhere and lanes.is_vector(k)) for k in keys}


def _in_threads(to: int, of: int, lanes: LaneMap) -> bool:
    """Whether a move writes one value a thread: to a vector register, or from one to a slot."""
    return lanes.is_vector(of if STACK <= to < CELL else to)


def _undefined_lanes(instruction: Instruction, lanes: LaneMap) -> list[int]:
    """Lanes that ``undef %5.sub1 = …`` leaves undefined, those it writes included."""
    return [k for op in instruction.defs if op.undef and op.sub and op.vreg >= 0 for k in lanes.register_lanes(op.vreg)]


def _implicit(instruction: Instruction, lanes: LaneMap) -> list[int]:
    return [k for op in instruction.operands if op.is_def and op.is_reg for k in lanes.keys(op)]


# Which paths of blocks may lose a value: a backward search from the operand that reads it.
#
# The search follows a lane of the pre-RA side and the place of the post-RA side that should hold its value together,
# through moves on both sides, until one of them is written and the other is not. It goes backwards over blocks breadth
# first, so the first path found is a shortest one. It guesses which threads are active; ``journal.py`` executes the
# path and knows.


_MAX_STATES = 20_000
_MAX_VISITS = 4
"""How often the search goes through one state: of the paths that lead there, not all need be taken by some thread."""


@dataclass(frozen=True, slots=True)
class _Walk:
    """A point of the walk: before step ``index`` of ``block``; ``post`` None: its wrong value is known already."""

    block: int
    index: int
    pre: int
    post: int | None
    active: bool
    blocks: tuple[int, ...]


class PathSearch:
    """Candidate paths in one product."""

    def __init__(self, product: Product, effects: Effects) -> None:
        self.product = product
        self.effects = effects
        self.predecessors: list[list[int]] = [[] for _ in product.steps]
        for block in product.order:
            for successor in dict.fromkeys(product.successors[block]):
                self.predecessors[successor].append(block)
        self.diverges = any(effects.of(s).changes_exec for row in product.steps for s in row)
        self._prefix = self._shortest()

    def candidates(self, block: int, index: int, pre: int, post: int | None) -> Iterator[tuple[int, ...]]:
        """Paths from the function's entry to step ``index`` of ``block``, as layout positions, shortest first.

        Args:
            block: layout position of the block of the operand.
            index: of its step in ``product.steps[block]``.
            post: the place that should hold its value; None: any path on which ``pre`` is defined.
        """
        modes = (True, False) if self.diverges else (True,)
        queue = deque(_Walk(block, index, pre, post, mode, (block,)) for mode in modes)
        visits: Counter[tuple[int, int, int, int | None, bool]] = Counter()
        queued: set[_Walk] = set(queue)
        proposed: set[tuple[int, ...]] = set()
        while queue and len(queued) < _MAX_STATES:
            path, following, sideways = self._back(queue.popleft())
            if path is not None and path not in proposed:
                proposed.add(path)
                yield self._prefix[path[0]] + path
            for enqueue, walks in ((queue.appendleft, sideways), (queue.append, following)):
                for walk in walks:
                    state = (walk.block, walk.index, walk.pre, walk.post, walk.active)
                    if walk not in queued and visits[state] < _MAX_VISITS:
                        queued.add(walk)
                        visits[state] += 1
                        enqueue(walk)

    def _back(self, walk: _Walk) -> tuple[tuple[int, ...] | None, list[_Walk], list[_Walk]]:
        """Walk back to the block's start.

        Returns:
            A path, if the two lanes parted in this block; walks that go on in its predecessors; walks of the other
            set of threads, where EXEC changes.
        """
        block, pre, post = walk.block, walk.pre, walk.post
        sideways: list[_Walk] = []
        for index in range(walk.index - 1, -1, -1):
            effect = self.effects.of(self.product.steps[block][index])
            pre_write = effect.written("pre", pre)
            post_write = None if post is None else effect.written("post", post)
            pre_write = None if pre_write is not None and pre_write.masked and not walk.active else pre_write
            post_write = None if post_write is not None and post_write.masked and not walk.active else post_write
            if pre_write is not None and pre_write.undefined:
                return None, [], sideways
            if pre_write is not None and pre_write.source is None:
                same = (
                    post_write is not None and post_write.result is not None and post_write.result == pre_write.result
                )
                return (None if same else walk.blocks), [], sideways
            if pre_write is not None and pre_write.source is not None:
                pre = pre_write.source
            if post_write is not None:
                post = post_write.source
            if effect.changes_exec and self.diverges:
                sideways.append(_Walk(block, index, pre, post, not walk.active, walk.blocks))
        if block == 0:
            return (walk.blocks if pre < 0 and pre != post else None), [], sideways
        following = [
            _Walk(p, len(self.product.steps[p]), pre, post, walk.active, (p, *walk.blocks))
            for p in self.predecessors[block]
            if not (walk.active and self.product.is_idle(p, block))
        ]
        return None, following, sideways

    def _shortest(self) -> list[tuple[int, ...]]:
        """For each block, a shortest path from the entry up to it, itself left out; threads stay active if they can."""
        prefix: list[tuple[int, ...]] = [()] * len(self.product.steps)
        reached = {0}
        for idle in (False, True):
            queue = deque(sorted(reached))
            while queue:
                block = queue.popleft()
                for successor in self.product.successors[block]:
                    if successor not in reached and (idle or not self.product.is_idle(block, successor)):
                        reached.add(successor)
                        prefix[successor] = (*prefix[block], block)
                        queue.append(successor)
        return prefix
