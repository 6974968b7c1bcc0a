"""What a step writes, by structure alone: a move from another place, a result, or something undefined.

Explanations walk executions backwards with it. Nothing here is trusted: it only chooses which path to look at and how
to word what was found there; ``journal.py`` executes the path with the audit's own transfer functions.
"""

from __future__ import annotations

from dataclasses import dataclass

from smt_verifier.audit.align import Step
from smt_verifier.audit.lanes import LaneMap, stack_keys
from smt_verifier.audit.masks import defines_exec
from smt_verifier.audit.product import Product
from smt_verifier.audit.semantics import COPIES, NO_CODE, ignores_exec, spill_slot
from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.mir.model import Instruction, Operand, OperandKind
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
    """Lanes a step writes on either side. ``preserved``: units that a call leaves alone; None: there is no call."""

    pre: dict[int, Write]
    post: dict[int, Write]
    preserved: frozenset[int] | None = None
    changes_exec: bool = False

    def written(self, side: str, key: int) -> Write | None:
        """How the step writes ``key`` of ``side``, or None."""
        found = (self.pre if side == "pre" else self.post).get(key)
        if found is None and self.preserved is not None and key < 0 and -1 - key not in self.preserved:
            return Write()
        return found


class Effects:
    """Effects of the steps of one product, made when they are first asked for."""

    def __init__(self, product: Product) -> None:
        self._product = product
        self._made: dict[int, Effect] = {}

    def of(self, step: Step) -> Effect:
        """The effect of a step of the product."""
        found = self._made.get(id(step))
        if found is None:
            found = self._made[id(step)] = self._make(step)
        return found

    def _make(self, step: Step) -> Effect:
        product = self._product
        if step.pre is None:
            return Effect({}, {} if step.post is None else _alone(step.post, product.post_lanes))
        changes_exec = defines_exec(step.pre)
        if step.post is None:
            return Effect(_alone(step.pre, product.pre_lanes, before=True), {}, changes_exec=changes_exec)
        mask = next((op for op in step.pre.operands if op.kind is OperandKind.REGMASK), None)
        preserved = None if mask is None else regmask(mask.text) | product.executor.reserved
        return Effect(*self._pair(step.pre, step.post), preserved, changes_exec)

    def _pair(self, pre: Instruction, post: Instruction) -> tuple[dict[int, Write], dict[int, Write]]:
        everywhere = ignores_exec(pre.opcode)
        left: dict[int, Write] = {}
        right: dict[int, Write] = {}
        number = 0
        for a, b in zip(pre.all_operands, post.all_operands, strict=False):
            if not (a.is_def and a.is_reg and b.is_def and b.is_reg):
                continue
            to, at = self._product.pre_lanes.keys(a), self._product.post_lanes.keys(b)
            masked = bool(to) and self._product.pre_lanes.is_vector(to[0]) and not everywhere
            if a.undef and a.sub and a.vreg >= 0:
                for key in self._product.pre_lanes.register_lanes(a.vreg):
                    left[key] = Write(undefined=True, masked=masked)
            for lane, (x, y) in enumerate(zip(to, at, strict=False)):
                left[x] = right[y] = Write(result=(number, lane), masked=masked)
            number += 1
        for op in post.all_operands:
            if op.is_def and op.is_reg:
                for key in self._product.post_lanes.keys(op):
                    right.setdefault(key, Write(masked=self._product.post_lanes.is_vector(key)))
        return left, right


def _alone(instruction: Instruction, lanes: LaneMap, *, before: bool = False) -> dict[int, Write]:
    opcode = instruction.opcode
    if opcode in COPIES:
        return _copy(instruction, lanes, before=before)
    if opcode == "KILL":
        return {}
    try:
        slot = spill_slot(instruction)
    except UnsupportedError:
        slot = None
    if slot is not None:
        keys = lanes.keys(slot.register)
        cells = stack_keys(slot.number, slot.offset // 2, len(keys), lanes.grain)
        masked = slot.kind != "S"
        to, of = (cells, keys) if slot.is_save else (keys, cells)
        if slot.is_save and slot.register.undef:
            return {key: Write(undefined=True, masked=masked) for key in to}
        return {key: Write(source, masked=masked) for key, source in zip(to, of, strict=True)}
    undefined = opcode in NO_CODE
    written: dict[int, Write] = {}
    for op in instruction.all_operands:
        if op.is_def and op.is_reg:
            whole = before and undefined and op.undef and op.vreg >= 0
            for key in lanes.register_lanes(op.vreg) if whole else lanes.keys(op):
                written[key] = Write(undefined=undefined, masked=lanes.is_vector(key))
    return written


def _copy(instruction: Instruction, lanes: LaneMap, *, before: bool) -> dict[int, Write]:
    target, source = instruction.defs[0], instruction.operands[0]
    to, of = lanes.keys(target), lanes.keys(source)
    masked = bool(to) and lanes.is_vector(to[0])
    written: dict[int, Write] = {}
    for key in _rest(target, lanes) if before else _implicit(instruction, lanes):
        written[key] = Write(undefined=True, masked=lanes.is_vector(key))
    for key, origin in zip(to, of, strict=False):
        written[key] = Write(undefined=True, masked=masked) if source.undef else Write(origin, masked=masked)
    return written


def _rest(target: Operand, lanes: LaneMap) -> tuple[int, ...]:
    """Lanes that ``undef %5.sub1 = …`` leaves undefined, those it writes included."""
    return lanes.register_lanes(target.vreg) if target.undef and target.sub and target.vreg >= 0 else ()


def _implicit(instruction: Instruction, lanes: LaneMap) -> list[int]:
    return [k for op in instruction.operands if op.is_def and op.is_reg for k in lanes.keys(op)]
