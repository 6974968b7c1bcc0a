"""Both sides of one function, block by block, ready to be executed together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from itertools import count, groupby
from typing import NamedTuple

from smt_verifier.audit.core.execute import Executor
from smt_verifier.audit.core.flags import Liveness, defined_at_exit
from smt_verifier.audit.core.header import whole_wave_keys
from smt_verifier.audit.core.lanes import ENTRY, GHOST, LaneMap, address_keys, cell_keys, registers_of, uses_halves
from smt_verifier.audit.core.machine import Goal
from smt_verifier.audit.core.masks import MaskTracker, Precision, defines_exec
from smt_verifier.audit.core.moves import lane_move, slot_keys
from smt_verifier.audit.core.opcodes import facts, listed
from smt_verifier.audit.core.pairs import Ghosts, Step, operation_name, pure_inputs, require_merge
from smt_verifier.audit.core.relation import Claims
from smt_verifier.audit.core.semantics import (
    acts_alone,
    is_call,
    is_pure,
    preserved_by,
    spill_slot,
)
from smt_verifier.audit.core.spills import moving_addresses
from smt_verifier.audit.core.state import IN_EXEC, IN_OUTSIDE, UNDEFINED, Atom, MaskBits, Side, State, Trait
from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.mir.header import header_field
from verilocc_mlir.mir.model import BasicBlock, Instruction, MachineFunction

Assume = Callable[[int, int], None]


class Product:
    """Pre-RA and post-RA function with blocks matched by layout position.

    Args:
        post: the function after it, with as many blocks.
        wave_size: 32 or 64.
        kept: units that calls leave alone whatever their mask says: stack pointer, scratch descriptor and the like.
        callee_saved: units of scalar registers that must hold at a return what they held at function entry, once no
            virtual registers are left (SILowerSGPRSpills.cpp saves them between the phases; vector registers and the
            frame pointer are saved later, in PEI).
        steps: a pairing of each block's instructions, whoever proposed it.
        precision: see ``MaskTracker``.
        outside: follow the threads that are not active at function entry.
        by_path: read both sides path by path, as if EXEC did not exist: every vector instruction writes all threads,
            and every branch may be taken. LLVM's passes behind allocation read them so.

    Raises:
        UnsupportedError: the entry block has predecessors.
        InputError: the pairing is not a merge of both sides.
    """

    def __init__(
        self,
        pre: MachineFunction,
        post: MachineFunction,
        wave_size: int,
        steps: list[list[Step]],
        kept_units: frozenset[int],
        callee_saved: frozenset[int] = frozenset(),
        precision: Precision = Precision.FINE,
        outside: bool = False,
        by_path: bool = False,
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
        self.tests = [_test(b, row, position) for b, row in zip(pre.blocks, self.successors, strict=True)]
        self.steps = steps
        for row, a, b in zip(steps, pre.blocks, post.blocks, strict=True):
            require_merge(row, a, b)
        self.order = _reverse_postorder(self.successors)
        final = bool(callee_saved) and not post.has_virtual_registers
        written = _written(post, self.post_lanes, callee_saved) if final else set[int]()
        self.saved_keys = sorted(k for k in written if k < 0 and -1 - k in callee_saved)
        self.defined = defined_at_exit(pre, self.pre_lanes)
        self.originals = instructions_of(pre, self.pre_lanes, self._followed_operations())
        ghosts = _ghosts(self.originals, self.pre_lanes)
        remembered = frozenset(key for row in ghosts.values() for key in row.threads)
        self.masks = MaskTracker(pre, self.pre_lanes, precision, remembered, by_path=by_path)
        self.by_path = by_path
        self._outside = outside
        self._at_entry: tuple[list[int], list[int], list[int]] | None = None
        self.executor = Executor(
            pre, post, self.pre_lanes, self.post_lanes, self.masks, self.originals, ghosts, kept_units
        )
        moving = moving_addresses((pre, post), kept_units)
        self.executor.addressing = tuple(sorted(-1 - u for u in moving if u % grain == 0))
        # LLVM fills the list of what is saved behind the whole-wave phase (AMDGPUReserveWWMRegs.cpp).
        if header_field(post, "isEntryFunction") != "true" and not post.has_virtual_registers:
            self.executor.saved_for_all_threads = whole_wave_keys(post, self.post_lanes)

    def _followed_operations(self) -> set[str]:
        """Pure operations whose results are worth following: those that stand on one side alone somewhere, and
        constants that are made more than once, because equal ones may have been paired in another order.
        """
        alone = [(s.pre, self.pre_lanes) for row in self.steps for s in row if s.post is None]
        alone += [(s.post, self.post_lanes) for row in self.steps for s in row if s.pre is None]
        followed = {operation_name(i, of) for i, of in alone if i is not None and not acts_alone(i) and is_pure(i)}
        constants = Counter(
            operation_name(i, self.pre_lanes)
            for b in self.pre.blocks
            for i in b.instructions
            if i.defs and not any(op.is_reg and not op.implicit for op in i.operands) and is_pure(i)
            if not facts(i.opcode).asks_exec
        )
        return followed | {name for name, times in constants.items() if times > 1}

    def is_idle(self, block: int, successor: int) -> bool:
        """Whether an edge is taken only where EXEC is 0."""
        test = self.tests[block]
        return not self.by_path and test is not None and test.of_exec and not test.nonzero(successor)

    @property
    def knows_exec(self) -> bool:
        """Whether the text before allocation writes EXEC or branches on it, so that the reading by paths is another."""
        exec_branches = any(test is not None and test.of_exec for test in self.tests)
        return exec_branches or any(defines_exec(i) for b in self.pre.blocks for i in b.instructions)

    def leave(self, block: int, successor: int, state: State) -> State:
        """The state on an edge, with what its test tells: where EXEC is 0, no thread is in an active class."""
        self.masks.spend(sum(len(a.signatures) for a in state.atoms))
        test = self.tests[block]
        if self.is_idle(block, successor):
            frozen = [a for a in state.atoms if not a.active]
            waiting = {frozenset(s for s in classes if not s & IN_EXEC) for classes in state.inhabited}
            return replace(state, atoms=frozen, inhabited=waiting - {frozenset()})
        if test is None or not test.nonzero(successor):
            return state
        if test.of_exec:
            active = frozenset(s for a in state.atoms if a.active for s in a.signatures)
            return replace(state, inhabited=state.inhabited | {active})
        mask = self.masks.tested(state)
        return state if mask is None else replace(state, known_traits=state.known_traits | {(Trait.NOT_EMPTY, mask)})

    def callee_saved_goals(self, block: int, state: State) -> list[Goal]:
        """At a return, the callee-saved registers hold again what they held at entry."""
        step = next(
            (s for s in reversed(self.steps[block]) if s.pre is not None and listed(s.pre.opcode).returns), None
        )
        if step is None:
            return []
        read = self.executor.read
        return [
            Goal("callee-saved", read(ENTRY - 1 - k, state.pre), read(k, state.post), step, ENTRY - 1 - k, k)
            for k in self.saved_keys
        ]

    def real_reads(self) -> dict[int, Collection[tuple[int, int]]]:
        """For each paired post-RA instruction, by ``id``, the lanes it really reads, each with the pre-RA lane it reads
        it for; known once all blocks are checked.
        """
        reads, none = self.executor.real_reads, frozenset[tuple[int, int]]()
        return {id(s.post): reads.get(id(s.post), none) for row in self.steps for s in row if s.pre and s.post}

    def liveness(self, always_available: Callable[[int], bool]) -> Liveness:
        """What the post-RA text must say about liveness; known once all blocks are checked.

        Args:
            always_available: units that need no declaration: reserved registers, EXEC, MODE and the like.
        """
        return Liveness(
            self.steps,
            self.successors,
            self.order,
            self.pre_lanes,
            self.post_lanes,
            self.real_reads(),
            self.defined,
            always_available,
        )

    def partners(self) -> dict[int, int]:
        """For the ``id`` of a post-RA instruction, that of the corresponding pre-RA one.

        That is its partner; for a move, the next one with the same text up to kill flags, or a copy of the same
        physical register between the same two pairs.
        """
        partners = {
            id(s.post): id(s.pre) for row in self.steps for s in row if s.pre is not None and s.post is not None
        }
        for row in self.steps:
            waiting: dict[str, list[Instruction]] = {}
            for step in row:
                if step.pre is not None and step.post is None:
                    waiting.setdefault(_unkilled(step.pre), []).append(step.pre)
            for step in row:
                if step.post is not None and step.pre is None and (same := waiting.get(_unkilled(step.post))):
                    partners[id(step.post)] = id(same.pop(0))
            for moves in _between_pairs(row):
                self._same_source(moves, partners)
        return partners

    def _same_source(self, moves: list[Step], partners: dict[int, int]) -> None:
        """Add copies of one physical register that have different destinations on the two sides.

        Only the last read of the register among the moves between two pairs counts: an earlier one cannot kill it.
        """
        sources = {source: s.pre for s in moves if s.pre is not None and (source := _copied(s.pre))}
        read_later: set[int] = set()
        for post in reversed([s.post for s in moves if s.post is not None]):
            pre = sources.get(_copied(post))
            if pre is not None and read_later.isdisjoint(self.post_lanes.keys(post.operands[0])):
                partners.setdefault(id(post), id(pre))
            read_later.update(
                k for op in post.all_operands if op.is_use and op.is_reg for k in self.post_lanes.keys(op)
            )

    def entry_state(self, block: int, claims: Claims | None, assume: Assume) -> State:
        """The state at a block's entry: the claims, or for block 0 the function's initial state."""
        if block == 0:
            return self._initial_state()
        assert claims is not None, "a block without claims is not reached and not executed"
        return claims.state(self.executor, assume)

    def _initial_cells(self, scalar_pre: dict[int, int], scalar_post: dict[int, int]) -> None:
        """Cells of physical registers hold the same on both sides at first, those of virtual ones and slots nothing."""
        executor = self.executor
        for container in executor.cell_registers(Side.PRE) | executor.cell_registers(Side.POST):
            for thread in executor.cell_threads:
                for cell in cell_keys(container, thread, self.pre_lanes.grain):
                    if container < 0:
                        term = executor.terms.fresh("the value of {} at function entry", cell)
                        scalar_pre[cell] = scalar_post[cell] = term
                    else:
                        scalar_pre[cell] = UNDEFINED

    def _initial_addresses(self, scalar_pre: dict[int, int], scalar_post: dict[int, int]) -> None:
        """A slot counts as addressed as at function entry until it is saved: what is in it is undefined so long."""
        addressing = self.executor.addressing
        for function, lanes, table in (
            (self.pre, self.pre_lanes, scalar_pre),
            (self.post, self.post_lanes, scalar_post),
        ):
            slots = (spill_slot(i) for b in function.blocks for i in b.instructions) if addressing else ()
            for cell in (cell for slot in slots if slot is not None for cell in slot_keys(slot, lanes)):
                table.update(zip(address_keys(cell, len(addressing)), (table[k] for k in addressing), strict=True))

    def _entry_keys(self) -> tuple[list[int], list[int], list[int]]:
        """Scalar and vector pre-RA keys that are undefined at function entry, and the physical ones of both sides."""
        scalar: dict[int, None] = {}
        vector: dict[int, None] = {}
        spilled = (i for b in self.pre.blocks for i in b.instructions if facts(i.opcode).spill is not None)
        for slot in map(spill_slot, spilled if any(facts(opcode).spill for opcode in self.pre.opcodes) else ()):
            if slot is not None:
                table = scalar if slot.kind == "S" else vector
                table.update(dict.fromkeys(slot_keys(slot, self.pre_lanes)))
        for op in registers_of(self.pre):
            if op.vreg >= 0 and (keys := self.pre_lanes.keys(op)):
                # All lanes of a register are of one file.
                (vector if self.pre_lanes.is_vector(keys[0]) else scalar).update(dict.fromkeys(keys))
        physical = _physical(self.pre, self.pre_lanes) | _physical(self.post, self.post_lanes)
        return list(scalar), list(vector), sorted(physical.union(self.saved_keys))

    def _initial_state(self) -> State:
        """Both sides start in one machine state; virtual registers are undefined. Threads outside EXEC are followed
        only where that is asked for.
        """
        terms = self.executor.terms
        scalar_pre: dict[int, int] = {}
        scalar_post: dict[int, int] = {}
        atom = Atom({IN_EXEC}, {}, {})
        if self._at_entry is None:
            self._at_entry = self._entry_keys()
        scalar, vector, physical = self._at_entry
        scalar_pre.update(dict.fromkeys(scalar, UNDEFINED))
        atom.pre.update(dict.fromkeys(vector, UNDEFINED))
        for key in physical:
            pre, post = (atom.pre, atom.post) if self.pre_lanes.is_vector(key) else (scalar_pre, scalar_post)
            term = terms.fresh("the value of {} at function entry", key)
            pre[key] = post[key] = term
        self._initial_cells(scalar_pre, scalar_post)
        self._initial_addresses(scalar_pre, scalar_post)
        for key in self.saved_keys:
            scalar_pre[ENTRY - 1 - key] = scalar_post[key]
        atoms = [atom]
        if self._outside:
            atoms.append(atom.split({IN_OUTSIDE}))
        return State(
            scalar_pre,
            scalar_post,
            atoms,
            inhabited={frozenset(atom.signatures)},
            bits=MaskBits(self.masks.variables.taken),
        )


class Test(NamedTuple):
    """The conditional branch of a block that has one: to ``target`` if EXEC (or SCC) is zero, as ``on_zero`` says, or
    if it is not; else control goes to the other successor.
    """

    of_exec: bool
    on_zero: bool
    target: int

    def nonzero(self, successor: int) -> bool:
        """Whether what is tested is not zero on the way to a successor."""
        return (successor == self.target) != self.on_zero


_TESTS = {
    "S_CBRANCH_EXECZ": (True, True),
    "S_CBRANCH_EXECNZ": (True, False),
    "S_CBRANCH_SCC0": (False, True),
    "S_CBRANCH_SCC1": (False, False),
}


def _test(block: BasicBlock, successors: list[int], position: dict[int, int]) -> Test | None:
    """What tells the two successors of a block apart, if the audit follows it."""
    branches = [i for i in block.instructions if i.opcode.startswith(("S_CBRANCH", "S_BRANCH"))]
    if not branches or branches[0].opcode not in _TESTS or any(i.opcode != "S_BRANCH" for i in branches[1:]):
        return None
    first = branches[0]
    target = position[int(first.operands[0].text.removeprefix("%bb.").split(".")[0])]
    ends_block = tuple(branches) == block.instructions[-len(branches) :]
    if not ends_block or len(successors) != 2 or len(set(successors) - {target}) != 1:
        return None
    return Test(*_TESTS[first.opcode], target)


def _between_pairs(row: list[Step]) -> Iterator[list[Step]]:
    """Runs of steps that stand on one side alone."""
    for alone, steps in groupby(row, key=lambda s: s.pre is None or s.post is None):
        if alone:
            yield list(steps)


def _copied(instruction: Instruction) -> str:
    """The physical register that a COPY reads, ``""`` for all else."""
    return instruction.operands[0].phys if instruction.opcode == "COPY" and instruction.operands else ""


def _unkilled(instruction: Instruction) -> str:
    """The text without kill flags; of a move of a scalar through a lane, without the vector register, which changes."""
    move = lane_move(instruction)
    text = str(instruction) if move is None else f"{instruction.opcode} {move.scalar} {move.lane}"
    return text.replace("killed ", "")


def instructions_of(
    function: MachineFunction, lanes: LaneMap, operations: Collection[str]
) -> dict[str, list[Instruction]]:
    """The instructions of a function, by pure operation."""
    by_operation: dict[str, list[Instruction]] = {}
    opcodes = {name.split(" ", 1)[0] for name in operations}
    for block in function.blocks if operations else ():
        for instruction in block.instructions:
            if facts(instruction.opcode).canonical not in opcodes:
                continue
            if is_pure(instruction) and (name := operation_name(instruction, lanes)) in operations:
                by_operation.setdefault(name, []).append(instruction)
    return by_operation


def _ghosts(originals: dict[str, list[Instruction]], lanes: LaneMap) -> dict[int, Ghosts]:
    """Keys for each instruction of a repeated operation, by ``id``."""
    numbers = count(GHOST // 2)

    def keys(vectors: Iterable[bool]) -> tuple[int, ...]:
        return tuple(2 * next(numbers) + vector for vector in vectors)

    ghosts: dict[int, Ghosts] = {}
    for instruction in (i for row in originals.values() for i in row):
        arguments = keys(lanes.is_vector(k) for op in pure_inputs(instruction) for k in lanes.keys(op))
        ghosts[id(instruction)] = Ghosts(arguments)
        if facts(instruction.opcode).asks_exec:
            threads = keys([False] * (lanes.wave_size // (16 * lanes.grain)))
            label = keys(lanes.is_vector(k) for k in lanes.keys(instruction.defs[0])[:1])
            ghosts[id(instruction)] = Ghosts(arguments, threads, label)
    return ghosts


def _written(function: MachineFunction, lanes: LaneMap, callee_saved: frozenset[int]) -> set[int]:
    """What the function defines, and what of ``callee_saved`` its calls do not preserve."""
    written: set[int] = set()
    for block in function.blocks:
        for instruction in block.instructions:
            written.update(k for op in instruction.all_operands if op.is_def and op.is_reg for k in lanes.keys(op))
            if is_call(instruction):
                written.update(-1 - u for u in callee_saved - preserved_by(instruction) if u % lanes.grain == 0)
    return written


def _physical(function: MachineFunction, lanes: LaneMap) -> set[int]:
    return {k for op in registers_of(function) if op.phys for k in lanes.keys(op)}


def _reverse_postorder(successors: list[list[int]]) -> list[int]:
    """Blocks from the entry, every one before its successors where no cycle prevents it; unreached ones left out."""
    order: list[int] = []
    visited = {0}
    stack = [(0, iter(successors[0]))] if successors else []
    while stack:
        block, remaining = stack[-1]
        following = next((s for s in remaining if s not in visited), None)
        if following is None:
            order.append(block)
            stack.pop()
        else:
            visited.add(following)
            stack.append((following, iter(successors[following])))
    return order[::-1]
