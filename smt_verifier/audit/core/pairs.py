"""Steps of both sides: pairs of instructions, and what executing a pair compares and writes, as far as no state decides
it; pure operations, when two of them are the same.

A pair is executed several times: by inference, again in loops, and by the check. What is read off its two texts is the
same each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from smt_verifier.audit.core.lanes import LaneMap
from smt_verifier.audit.core.opcodes import BLENDS, DEBUG, EXEC_NAMES, facts, listed
from smt_verifier.audit.core.semantics import (
    addend_of_high_half,
    early_clobbers,
    is_read,
    leaves_old,
)
from verilocc_mlir.errors import InputError
from verilocc_mlir.mir.model import BasicBlock, Instruction, Operand, OperandKind

# Steps of the product of both sides, and what a pairing must be whoever proposed it.


class Step(NamedTuple):
    """One step of the product of both sides: a pair, or an instruction of one side alone."""

    pre: Instruction | None
    post: Instruction | None


def require_merge(steps: Sequence[Step], pre: BasicBlock, post: BasicBlock) -> None:
    """Every instruction of either side, debug ones aside, stands in ``steps`` once and in its side's order.

    Raises:
        InputError: the pairing leaves something out, repeats it, or changes its order.
    """
    for block, side in ((pre, [s.pre for s in steps]), (post, [s.post for s in steps])):
        expected = [id(i) for i in block.instructions if i.opcode not in DEBUG]
        if [id(i) for i in side if i is not None] != expected:
            raise InputError(f"the pairing of bb.{block.number} is not a merge of both sides")


# Pure operations: when two instructions compute the same function of what they read.


PureArguments = tuple[tuple[int, ...], tuple[int, ...]]
"""Terms of a pure operation's arguments, and the ghost lanes that remember them."""


class Ghosts(NamedTuple):
    """Keys that remember the last execution of a pure instruction: the lanes it read.

    Two more where the result depends on which threads were active (``asks_exec``): ``threads``, a mask of
    those threads, and ``label``, a new value for each thread that got a result. The result counts as a function of it.
    """

    arguments: tuple[int, ...]
    threads: tuple[int, ...] = ()
    label: tuple[int, ...] = ()


def operation_name(instruction: Instruction, lanes: LaneMap) -> str:
    """Opcode, flags and non-register operands of a pure instruction: what makes it the same function of its inputs.

    The inputs are one row of lanes. So the name says how many lanes of it each operand has, and which operands have
    none: ``$sgpr_null`` and ``$noreg`` stand there by name, as constants do.
    """
    shape = ",".join(_named(op, lanes) for op in instruction.operands if not op.implicit)
    implicit = ",".join(op.phys or _named(op, lanes) for op in pure_inputs(instruction) if op.implicit)
    memory = ";".join(instruction.memory)
    flags = " ".join(sorted(instruction.flags))
    return f"{facts(instruction.opcode).canonical} {flags} {shape} {implicit} {memory}".strip()


def _named(op: Operand, lanes: LaneMap) -> str:
    """An operand with its lanes blanked, and counted in bits; all else of it in full."""
    if op.kind is not OperandKind.REGISTER or not op.is_use:
        return op.text
    keys = lanes.keys(op)
    return f"R{16 * lanes.grain * len(keys)}" if keys else f"${op.phys}"


def pure_inputs(instruction: Instruction) -> list[Operand]:
    """Register operands a pure instruction reads. EXEC is left out: no thread's result depends on it, or the callers
    handle it (``asks_exec``).

    An implicit use that is printed twice (LLVM adds EXEC again when it rematerialises) counts once.
    """
    inputs: list[Operand] = []
    implicit_names: set[str] = set()
    for op in instruction.operands[1:] if leaves_old(instruction) else instruction.operands:
        if op.is_use and op.phys not in EXEC_NAMES and not (op.implicit and op.phys in implicit_names):
            inputs.append(op)
            if op.implicit:
                implicit_names.add(op.phys)
    return inputs


def arguments_of(pre: Instruction, post: Instruction | None) -> list[Operand]:
    """What a pure instruction reads: the operands of its partner where it has one, else its own."""
    inputs = pure_inputs(pre)
    if post is None:
        return inputs
    place = {id(op): n for n, op in enumerate(pre.operands)}
    return [post.operands[place[id(op)]] for op in inputs]


Lane = tuple[int, int, tuple[int, int], bool]
"""A lane that is read: its keys before and after allocation, both the other way round, and whether an early-clobber
result is written over it before it is read.
"""


class Use(NamedTuple):
    """An operand that both sides read.

    Attributes:
        vector: whether the pre-RA side reads vector lanes.
        post_vector: whether the post-RA side does.
        undef: whether the post-RA side says that it may hold anything.
    """

    vector: bool
    post_vector: bool
    undef: bool
    lanes: tuple[Lane, ...]


class Definition(NamedTuple):
    """What both sides define, with its keys."""

    pre: Operand
    post: Operand
    pre_keys: tuple[int, ...]
    post_keys: tuple[int, ...]
    vector: bool


class Pair(NamedTuple):
    """A pair of instructions.

    Attributes:
        finds_first: whether it reads a register in the first active thread, or in lane 0 where there is none.
        uses: the operands whose lanes must agree, by their place right of the opcode.
        definitions: in order; None for one without lanes.
        lost: lanes that only the post-RA side defines, implicitly, and does not read.
        addend: place of the operand that only the upper half of the result depends on (``addend_of_high_half``), or -1.
    """

    finds_first: bool
    uses: tuple[tuple[int, Use], ...]
    definitions: tuple[Definition | None, ...]
    lost: tuple[int, ...]
    addend: int


class Pairs:
    """The pairs of one function, worked out once."""

    def __init__(self, pre: LaneMap, post: LaneMap) -> None:
        self._pre = pre
        self._post = post
        self._pairs: dict[tuple[int, int], tuple[Pair, Instruction, Instruction]] = {}
        """By ``id``; the instructions are kept, so that their identities stay their own."""
        self._uses: dict[tuple[str, str], Use | None] = {}
        """Operands that are read whole, by their texts."""

    def of(self, pre: Instruction, post: Instruction) -> Pair:
        """What executing the two together compares and writes."""
        known = self._pairs.get((id(pre), id(post)))
        if known is None:
            known = self._pairs[id(pre), id(post)] = (self._pair(pre, post), pre, post)
        return known[0]

    def _pair(self, pre: Instruction, post: Instruction) -> Pair:
        pre_defs = [op for op in pre.all_operands if op.is_def and op.is_reg]
        post_defs = [
            b
            for a, b in zip(pre.all_operands, post.all_operands, strict=False)
            if a.is_def and b.is_def and a.is_reg and b.is_reg
        ]
        clobbers = any(d.early_clobber for d in pre_defs)
        if not clobbers and pre.opcode == post.opcode and listed(pre.opcode).reads_all_first:
            uses = [
                (number, use)
                for number, (a, b) in enumerate(zip(pre.operands, post.operands, strict=False))
                if a.is_use and (use := self._use(a, b)) is not None
            ]
            addend = -1
        else:
            addend = addend_of_high_half(pre)
            uses = self._uses_in_part(pre, post, addend)
        return Pair(
            facts(pre.opcode).reads_first_lane and not all(op.undef for op in pre.operands),
            tuple(uses),
            tuple([self._definition(a, b) for a, b in zip(pre_defs, post_defs, strict=False)]),
            self._lost(post, post_defs),
            addend,
        )

    def _definition(self, pre: Operand, post: Operand) -> Definition | None:
        pre_keys, post_keys = self._pre.keys(pre), self._post.keys(post)
        if not pre_keys or not post_keys:
            return None
        return Definition(pre, post, pre_keys, post_keys, self._pre.is_vector(pre_keys[0]))

    def _use(self, pre: Operand, post: Operand) -> Use | None:
        """Two operands of which every lane is read; None where there is none that the pre-RA side defines."""
        texts = pre.text, post.text
        if texts not in self._uses:
            self._uses[texts] = None if pre.undef or not post.is_reg else self._use_of(pre, post)
        return self._uses[texts]

    def _use_of(self, pre: Operand, post: Operand) -> Use | None:
        pre_keys, post_keys = self._pre.keys(pre), self._post.keys(post)
        if not pre_keys or not post_keys:  # a constant such as $sgpr_null; the rules compare names and widths
            return None
        # All lanes of a register are of one file.
        vector = self._pre.is_vector(pre_keys[0])
        lanes = tuple([(a, b, (b, a), False) for a, b in zip(pre_keys, post_keys, strict=False)])
        return Use(vector, self._post.is_vector(post_keys[0]), post.undef, lanes)

    def _uses_in_part(self, pre: Instruction, post: Instruction, addend: int) -> list[tuple[int, Use]]:
        """As ``_use``, without the lanes that are not read, and with what is overwritten before."""
        clobbered = self._early_clobbers(pre, post)
        known, blend = facts(pre.opcode), BLENDS.get(pre.opcode)
        uses: list[tuple[int, Use]] = []
        for number, (a, b) in enumerate(zip(pre.operands, post.operands, strict=False)):
            selects = blend is not None and number == blend.mask
            if not a.is_use or (a.undef and not selects) or not b.is_reg or (use := self._use_of(a, b)) is None:
                continue
            width = len(self._pre.keys(a))
            lanes = [
                (pre_key, post_key, place, clobbered.get(post_key, pre_key) != pre_key)
                for n, (pre_key, post_key, place, _) in enumerate(use.lanes)
                if not ((known.is_packed or known.is_mixed) and not is_read(pre, number, n, width, vector=use.vector))
                and not (number == addend and 2 * n >= width)
            ]
            uses.append((number, use._replace(lanes=tuple(lanes), undef=b.undef and not selects)))
        return uses

    def _early_clobbers(self, pre: Instruction, post: Instruction) -> dict[int, int]:
        """Post-RA lanes that are written before the operands are read, with the pre-RA lane each stands for."""
        clobbered: dict[int, int] = {}
        numbers = early_clobbers(pre)
        for number in numbers if pre.opcode == post.opcode else numbers | early_clobbers(post):
            a, b = pre.all_operands[number], post.all_operands[number]
            if a.is_def and a.is_reg and b.is_reg:
                clobbered.update(zip(self._post.keys(b), self._pre.keys(a), strict=False))
        return clobbered

    def _lost(self, post: Instruction, post_defs: list[Operand]) -> tuple[int, ...]:
        extra = [
            op
            for op in post.operands
            if op.is_def and op.implicit and op.is_reg and not any(op is d for d in post_defs)
        ]
        if not extra:
            return ()
        reads = (o for o in post.operands if o.is_use and o.implicit and not o.undef)
        passed_on = {k for o in reads for k in self._post.keys(o)}
        return tuple([key for op in extra for key in self._post.keys(op) if key not in passed_on])
