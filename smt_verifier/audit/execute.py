"""Symbolic execution of a block on both sides at once: the transfer functions of the audit's theorem.

The executor is used twice: by inference, with terms that are believed equal, and by the check, where every comparison
becomes a goal for the solver. What it does to the state is trusted; what inference made of it is not.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from smt_verifier.audit.align import Step
from smt_verifier.audit.lanes import LaneMap, key_name, stack_keys
from smt_verifier.audit.masks import MaskTracker
from smt_verifier.audit.report import Finding
from smt_verifier.audit.semantics import (
    SpillSlot,
    canonical_opcode,
    exec_unclear,
    explicit_shape,
    ignores_exec,
    is_pure,
    reads_inactive_lanes,
    spill_slot,
)
from smt_verifier.audit.state import UNDEFINED, Atom, Expression, State, Terms
from smt_verifier.outcome import Outcome
from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.mir.header import header_field
from verilocc_mlir.mir.model import Instruction, MachineFunction, Operand, OperandKind
from verilocc_mlir.target.callingconv import regmask

_EXEC_NAMES = frozenset({"exec", "exec_lo", "exec_hi"})


@dataclass(frozen=True, slots=True)
class Goal:
    """``pre`` and ``post`` must be equal, unless the pre-RA lane is undefined. ``post`` -1: the lane must be
    undefined.
    """

    rule: str
    pre: int
    post: int
    step: Step
    pre_key: int
    post_key: int
    note: str = ""


GoalSink = Callable[[Goal], None]
PureArguments = tuple[tuple[int, ...], tuple[int, ...]]
"""Terms of a pure operation's arguments, and the pre-RA lanes that hold them."""


class Executor:
    """Runs steps over a state.

    Args:
        goals: called with every goal; None while inferring.
        findings: called with violated machine rules; None while inferring.
    """

    def __init__(
        self,
        pre: MachineFunction,
        post: MachineFunction,
        pre_lanes: LaneMap,
        post_lanes: LaneMap,
        masks: MaskTracker,
        operations: frozenset[str],
        reserved: frozenset[int],
    ) -> None:
        self.pre = pre
        self.post = post
        self.pre_lanes = pre_lanes
        self.post_lanes = post_lanes
        self.masks = masks
        self.operations = operations
        self.reserved = reserved
        self.stack_pointer = (header_field(pre, "stackPtrOffsetReg") or "").removeprefix("$")
        self.real_reads: set[tuple[int, int]] = set()
        """``(id of a paired post-RA instruction, key)`` of the lanes it reads that the pre-RA side does not leave
        undefined.
        """
        self.terms = Terms()
        self.expressions: list[Expression] = []
        self._by_operation: dict[tuple[str, int, int], list[Expression]] = {}
        self.goals: GoalSink | None = None
        self.findings: Callable[[Finding], None] | None = None
        self.step = Step(None, None)

    def reset(self) -> None:
        """Forget all terms: a new block begins."""
        self.terms = Terms()
        self.expressions = []
        self._by_operation = {}

    def run(self, steps: list[Step], state: State) -> None:
        """Execute ``steps`` in place.

        Raises:
            UnsupportedError: something the audit does not follow (whole-wave code, an EXEC of unknown origin).
        """
        for step in steps:
            self.step = step
            if step.pre is None:
                assert step.post is not None
                self._post_only(step.post, state)
            elif step.post is None:
                self._pre_only(step.pre, state)
            else:
                self._pair(step.pre, step.post, state)

    # -- reading and writing lanes ------------------------------------------------------------------------------------

    def read(self, key: int, table: dict[int, int]) -> int:
        """Term of a lane in ``table``; a lane nothing is known of gets a new one."""
        term = table.get(key)
        if term is None:
            term = self.terms.fresh(f"whatever {key_name(key, self.pre_lanes.grain)} held at the block's start")
            table[key] = term
        return term

    def _write_pre(self, key: int, term: int, state: State) -> None:
        if not self.pre_lanes.is_vector(key):
            state.pre[key] = term
            return
        for atom in state.atoms:
            if atom.active:
                atom.pre[key] = term

    def _garbage(self, key: int, state: State, why: str) -> None:
        """The post-RA lane holds something unknown from here on."""
        term = self.terms.fresh(why)
        if not self.post_lanes.is_vector(key):
            state.post[key] = term
            return
        for atom in state.atoms:
            if atom.active:
                atom.post[key] = term

    # -- one side alone -----------------------------------------------------------------------------------------------

    def _pre_only(self, instruction: Instruction, state: State) -> None:
        opcode = instruction.opcode
        if opcode == "IMPLICIT_DEF":
            for op in instruction.defs:
                whole = op.undef and op.vreg >= 0
                for key in self.pre_lanes.register_lanes(op.vreg) if whole else self.pre_lanes.keys(op):
                    self._write_pre(key, UNDEFINED, state)
        elif opcode == "COPY":
            self._copy_pre(instruction, state)
        elif opcode == "KILL":
            return
        elif is_pure(instruction):
            self._pure_pre(instruction, state)
        else:
            self._refute("instruction-sequence", f"{instruction} is missing after allocation")
        self.masks.transfer(instruction, state)

    def _copy_pre(self, instruction: Instruction, state: State) -> None:
        target, source = instruction.defs[0], instruction.operands[0]
        to = self.pre_lanes.keys(target)
        of = _low_half(to, self.pre_lanes.keys(source))
        if len(to) != len(of):
            raise UnsupportedError(f"copy between different widths: {instruction}")
        vector = bool(to) and self.pre_lanes.is_vector(to[0])
        from_vector = bool(of) and self.pre_lanes.is_vector(of[0])
        for maps, sources in self._copy_maps("pre", state, vector, from_vector):
            terms = [UNDEFINED if source.undef else self.read(k, sources) for k in of]
            self._undefine_rest(target, to, maps)
            for key, term in zip(to, terms, strict=True):
                maps[key] = term

    def _copy_maps(
        self, side: str, state: State, to_vector: bool, from_vector: bool
    ) -> list[tuple[dict[int, int], dict[int, int]]]:
        """Pairs of maps (written, read) a move touches: one a class of active threads for vector registers."""
        scalar = state.pre if side == "pre" else state.post
        if not to_vector:
            if from_vector:
                raise UnsupportedError("a copy from a vector to a scalar register has no meaning of its own")
            return [(scalar, scalar)]
        atoms = [a for a in state.atoms if a.active]
        maps = [a.pre if side == "pre" else a.post for a in atoms]
        return [(m, m if from_vector else scalar) for m in maps]

    def _pure_pre(self, instruction: Instruction, state: State) -> None:
        """A pure instruction that only the pre-RA side still has: deleted because its result was rematerialised."""
        scalar, vector = self._pure_arguments(instruction, state)
        for number, op in enumerate(o for o in instruction.all_operands if o.is_def and o.is_reg):
            keys = self.pre_lanes.keys(op)
            tables = (
                [(state.pre, scalar)]
                if not keys or not self.pre_lanes.is_vector(keys[0])
                else [(a.pre, vector.get(id(a))) for a in state.atoms if a.active]
            )
            for table, arguments in tables:
                self._undefine_rest(op, keys, table)
                row = self.terms.fresh_many(f"result {number} of {instruction}", len(keys))
                for key, term in zip(keys, row, strict=True):
                    table[key] = term
                if number == 0 and arguments is not None:
                    self._note_results(instruction, row, keys, *arguments)

    def _post_only(self, instruction: Instruction, state: State) -> None:
        opcode = instruction.opcode
        if opcode == "COPY":
            self._copy_post(instruction, state)
        elif (slot := spill_slot(instruction)) is not None:
            self._spill_post(instruction, slot, state)
        elif opcode == "KILL":
            return
        elif opcode == "IMPLICIT_DEF":
            for op in instruction.all_operands:
                if op.is_def and op.is_reg:
                    for key in self.post_lanes.keys(op):
                        self._garbage(key, state, "nothing (IMPLICIT_DEF)")
        elif is_pure(instruction):
            self._rematerialise(instruction, state)
        else:
            self._refute("instruction-sequence", f"{instruction} was not there before allocation")

    def _copy_post(self, instruction: Instruction, state: State) -> None:
        target, source = instruction.defs[0], instruction.operands[0]
        to = self.post_lanes.keys(target)
        of = _low_half(to, self.post_lanes.keys(source))
        if len(to) != len(of):
            self._refute("width", f"copy between different widths: {instruction}")
            return
        vector = bool(to) and self.post_lanes.is_vector(to[0])
        from_vector = bool(of) and self.post_lanes.is_vector(of[0])
        moved: list[tuple[dict[int, int], list[int]]] = []
        for maps, sources in self._copy_maps("post", state, vector, from_vector):
            if source.undef:
                moved.append((maps, [self.terms.fresh("nothing (copy of an undefined register)") for _ in of]))
            else:
                moved.append((maps, [self.read(k, sources) for k in of]))
        own = set(to)
        for op in instruction.operands:
            if op.is_def and op.is_reg and op.phys not in _EXEC_NAMES:
                for key in self.post_lanes.keys(op):
                    if key not in own:
                        self._garbage(key, state, f"nothing (implicit definition by {instruction})")
        for maps, terms in moved:
            for key, term in zip(to, terms, strict=True):
                maps[key] = term

    def _spill_post(self, instruction: Instruction, slot: SpillSlot, state: State) -> None:
        """Save or reload: lanes move between a register and a slot, for vector registers in active threads only."""
        row = self.post.stack.get(slot.number)
        register = slot.register
        keys = self.post_lanes.keys(register)
        if slot.number in self.pre.stack or row is None or row.type != "spill-slot":
            self._refute("spill-slot", f"stack object {slot.number} is not a slot the allocator made")
            return
        fits = slot.offset >= 0 and slot.offset % 4 == 0 and 8 * (row.size - slot.offset) >= slot.bits
        if len(keys) * self.post_lanes.grain * 16 != slot.bits or not fits:
            self._refute(
                "spill-slot",
                f"{slot.bits} bits at offset {slot.offset} do not fit slot {slot.number} of {row.size} bytes",
            )
            return
        if slot.kind != "S" and slot.base != self.stack_pointer:
            self._refute("spill-slot", f"${slot.base} is not this function's stack pointer ${self.stack_pointer}")
        place = f"%stack.{slot.number}"
        if not all(re.search(rf"{place}\b", text) for text in instruction.memory):
            self._refute("spill-slot", f"the memory operand does not name {place}")
        cells = stack_keys(slot.number, slot.offset // 2, len(keys), self.post_lanes.grain)
        to, of = (cells, keys) if slot.is_save else (keys, cells)
        for table in [state.post] if slot.kind == "S" else [a.post for a in state.atoms if a.active]:
            if slot.is_save and register.undef:
                terms = [self.terms.fresh("nothing (undefined register saved)") for _ in of]
            else:
                terms = [self.read(k, table) for k in of]
            table.update(zip(to, terms, strict=True))

    def _rematerialise(self, instruction: Instruction, state: State) -> None:
        """A pure instruction that only the post-RA side has: its result is the pre-RA result of the same operation."""
        operation = operation_name(instruction)
        target = instruction.defs[0]
        keys = self.post_lanes.keys(target)
        vector = bool(keys) and self.post_lanes.is_vector(keys[0])
        uses = pure_inputs(instruction)
        usable = not any(op.undef for op in uses)
        maps = [a.post for a in state.atoms if a.active] if vector else [state.post]
        results: list[list[int]] = []
        for table in maps:
            arguments = tuple(
                self.read(key, table if self.post_lanes.is_vector(key) else state.post)
                for op in uses
                for key in self.post_lanes.keys(op)
            )
            row = [self.terms.fresh(f"the result of the added {instruction}") for _ in keys]
            if usable:
                for index, term in enumerate(row):
                    self.note(Expression(operation, index, arguments, term))
            results.append(row)
        for op in instruction.operands:
            if op.is_def and op.is_reg:
                for key in self.post_lanes.keys(op):
                    self._garbage(key, state, f"a side result of {instruction}")
        for table, row in zip(maps, results, strict=True):
            for key, term in zip(keys, row, strict=True):
                table[key] = term

    def note(self, expression: Expression, keys: tuple[int, tuple[int, ...]] | None = None) -> None:
        """Record that a term is the result of a pure operation; ``keys`` says which pre-RA lanes hold result and
        arguments.
        """
        if keys is not None:
            expression.key, expression.argument_keys = keys
        self.expressions.append(expression)
        if self.goals is not None:
            return
        shape = (expression.operation, expression.index, len(expression.arguments))
        same = self._by_operation.setdefault(shape, [])
        for other in same:
            left, right = (other, expression) if other.key is not None else (expression, other)
            if left.key is None or right.key is not None:
                continue
            if all(self.terms.believed_equal(a, b) for a, b in zip(left.arguments, right.arguments, strict=True)):
                self.terms.alternatives.setdefault(left.term, set()).add(right.term)
        same.append(expression)

    # -- pairs --------------------------------------------------------------------------------------------------------

    def _pair(self, pre: Instruction, post: Instruction, state: State) -> None:
        if exec_unclear(pre.opcode) and not all(a.active for a in state.atoms):
            raise UnsupportedError(f"{pre.opcode} while some threads are inactive")
        if pre.opcode != "BUNDLE":
            self._compare_reads(pre, post, state)
            mask = next((op for op in pre.operands if op.kind is OperandKind.REGMASK), None)
            if mask is not None:
                self._clobber(regmask(mask.text) | self.reserved, state)
            self._define(pre, post, state)
        self.masks.transfer(pre, state)

    def _compare_reads(self, pre: Instruction, post: Instruction, state: State) -> None:
        if self.goals is None:
            return
        everywhere = reads_inactive_lanes(pre.opcode)
        clobbered = self._early_clobbers(pre, post)
        for left, right in zip(pre.operands, post.operands, strict=False):
            if not left.is_use or left.undef or not right.is_reg:
                continue
            a, b = self.pre_lanes.keys(left), self.post_lanes.keys(right)
            for x, y in zip(a, b, strict=False):
                if y in clobbered and clobbered[y] != x:
                    self._early_clobber(x, y, state)
                if self.pre_lanes.is_vector(x):
                    if not self.post_lanes.is_vector(y):
                        continue
                    for atom in state.atoms:
                        if atom.active or everywhere:
                            self._goal(self.read(x, atom.pre), self.read(y, atom.post), x, y, right, post)
                elif not self.post_lanes.is_vector(y):
                    self._goal(self.read(x, state.pre), self.read(y, state.post), x, y, right, post)

    def _early_clobbers(self, pre: Instruction, post: Instruction) -> dict[int, int]:
        """Post-RA lanes that are written before the operands are read, with the pre-RA lane each stands for."""
        found: dict[int, int] = {}
        for left, right in zip(pre.all_operands, post.all_operands, strict=False):
            if left.is_def and left.early_clobber and left.is_reg and right.is_reg:
                found.update(zip(self.post_lanes.keys(right), self.pre_lanes.keys(left), strict=False))
        return found

    def _early_clobber(self, pre_key: int, post_key: int, state: State) -> None:
        """A read lane that an early-clobber result overwrites must be one the pre-RA side leaves undefined.

        A use of the very lane that is defined is the tied operand of a two-address form, which is meant to coincide.
        """
        assert self.goals is not None
        tables = [a.pre for a in state.atoms if a.active] if self.pre_lanes.is_vector(pre_key) else [state.pre]
        for table in tables:
            term = self.read(pre_key, table)
            if term != UNDEFINED:
                self.goals(Goal("early-clobber", term, -1, self.step, pre_key, post_key))

    def _goal(self, pre: int, post: int, pre_key: int, post_key: int, right: Operand, instruction: Instruction) -> None:
        assert self.goals is not None
        if pre == UNDEFINED:
            return
        self.real_reads.add((id(instruction), post_key))
        if right.undef:
            self.goals(Goal("undef-flag", pre, -1, self.step, pre_key, post_key))
        else:
            self.goals(Goal("value", pre, post, self.step, pre_key, post_key))

    def _clobber(self, preserved: frozenset[int], state: State) -> None:
        """A call: every physical register it does not preserve holds something new, in active threads.

        Reserved registers (stack pointer, scratch descriptor) are preserved by every callee: AMDGPU's calling
        convention.
        """
        for maps, side in ((state.pre, "pre"), (state.post, "post")):
            for key in maps:
                if key < 0 and -1 - key not in preserved and not self.pre_lanes.is_vector(key):
                    maps[key] = self.terms.fresh(f"what the call left ({side})")
        for atom in state.atoms:
            if atom.active:
                for maps in (atom.pre, atom.post):
                    for key in maps:
                        if key < 0 and -1 - key not in preserved:
                            maps[key] = self.terms.fresh("what the call left")
        self.masks.forget_physical(preserved, state)

    def _define(self, pre: Instruction, post: Instruction, state: State) -> None:
        everywhere = ignores_exec(pre.opcode)
        left_defs = [op for op in pre.all_operands if op.is_def and op.is_reg]
        right_defs = self._matching_defs(pre, post)
        for op in post.operands:
            if op.implicit and op.is_def and op.is_reg and not any(op is d for d in right_defs):
                for key in self.post_lanes.keys(op):
                    self._garbage(key, state, f"nothing (implicit definition by {post})")
        scalar_arguments, vector_arguments = self._pure_arguments(pre, state)
        for number, (left, right) in enumerate(zip(left_defs, right_defs, strict=False)):
            to, at = self.pre_lanes.keys(left), self.post_lanes.keys(right)
            if not to or not at:
                continue
            origin = f"result {number} of {pre}"
            if not self.pre_lanes.is_vector(to[0]):
                row = self.terms.fresh_many(origin, len(to))
                self._place(row, to, at, left, state.pre, state.post)
                if number == 0 and scalar_arguments is not None:
                    self._note_results(pre, row, to, *scalar_arguments)
                continue
            rows: dict[PureArguments | None, range] = {}
            for atom in state.atoms:
                if everywhere or atom.active:
                    arguments = vector_arguments.get(id(atom)) if number == 0 else None
                    row = rows.get(arguments)
                    if row is None:
                        row = rows[arguments] = self.terms.fresh_many(origin, len(to))
                        if arguments is not None:
                            self._note_results(pre, row, to, *arguments)
                    self._place(row, to, at, left, atom.pre, atom.post)

    def _place(
        self,
        row: range,
        to: tuple[int, ...],
        at: tuple[int, ...],
        left: Operand,
        pre_map: dict[int, int],
        post_map: dict[int, int],
    ) -> None:
        """Put one new term a lane into both sides: equal operations on equal inputs give equal outputs.

        Classes of threads may share the terms, because no goal compares one class with another; only results of pure
        operations on different arguments must not be shared, because they are equated with their expressions.
        """
        self._undefine_rest(left, to, pre_map)
        pre_map.update(zip(to, row, strict=True))
        post_map.update(zip(at, row, strict=False))

    def _undefine_rest(self, left: Operand, to: tuple[int, ...], pre_map: dict[int, int]) -> None:
        """``undef %5.sub1 = …`` leaves the other lanes of %5 undefined (MachineOperand::isUndef on a definition)."""
        if left.undef and left.sub and left.vreg >= 0:
            for key in self.pre_lanes.register_lanes(left.vreg):
                if key not in to:
                    pre_map[key] = UNDEFINED

    def _pure_arguments(
        self, instruction: Instruction, state: State
    ) -> tuple[PureArguments | None, dict[int, PureArguments]]:
        """Argument terms and keys of a pure instruction that is repeated or dropped somewhere, before it writes.

        The scalar form, and one for each active atom where the result is a vector; nothing where an argument may be
        undefined.
        """
        if not self.operations or not is_pure(instruction) or operation_name(instruction) not in self.operations:
            return None, {}
        uses = pure_inputs(instruction)
        keys = tuple(key for op in uses for key in self.pre_lanes.keys(op))
        target = self.pre_lanes.keys(instruction.defs[0])
        if any(op.undef for op in uses) or not target:
            return None, {}

        def terms(atom: Atom | None) -> tuple[int, ...] | None:
            row = tuple(
                self.read(k, atom.pre if atom is not None and self.pre_lanes.is_vector(k) else state.pre) for k in keys
            )
            defined = all(t != UNDEFINED and t not in self.terms.maybe_undefined for t in row)
            return row if defined else None

        if not self.pre_lanes.is_vector(target[0]):
            row = terms(None)
            return (None if row is None else (row, keys)), {}
        rows = {id(a): terms(a) for a in state.atoms if a.active}
        return None, {k: (row, keys) for k, row in rows.items() if row is not None}

    def _note_results(
        self,
        instruction: Instruction,
        row: range,
        to: tuple[int, ...],
        arguments: tuple[int, ...],
        keys: tuple[int, ...],
    ) -> None:
        operation = operation_name(instruction)
        for index, (term, key) in enumerate(zip(row, to, strict=True)):
            self.note(Expression(operation, index, arguments, term), (key, keys))

    def _matching_defs(self, pre: Instruction, post: Instruction) -> list[Operand]:
        """Post-RA definitions in the order of the pre-RA ones."""
        found: list[Operand] = []
        for left, right in zip(pre.all_operands, post.all_operands, strict=False):
            if left.is_def and left.is_reg and right.is_def and right.is_reg:
                found.append(right)
        return found

    def _refute(self, rule: str, message: str) -> None:
        if self.findings is None:
            return
        step = self.step
        post = step.post or step.pre
        self.findings(
            Finding(
                rule,
                Outcome.REFUTED,
                message,
                pre_line=step.pre.line if step.pre else 0,
                post_line=step.post.line if step.post else 0,
                instruction=str(post) if post else "",
            )
        )


def _low_half(to: tuple[int, ...], of: tuple[int, ...]) -> tuple[int, ...]:
    """A copy of a 32-bit register into a 16-bit one takes the low half (SIInstrInfo::copyPhysReg)."""
    return of[:1] if len(to) == 1 and len(of) == 2 else of


def operation_name(instruction: Instruction) -> str:
    """Opcode, flags and non-register operands of a pure instruction: what makes it the same function of its inputs."""
    shape = ",".join(explicit_shape(instruction.operands))
    implicit = ",".join(sorted({op.phys for op in pure_inputs(instruction) if op.implicit}))
    memory = ";".join(instruction.memory)
    flags = " ".join(sorted(instruction.flags))
    return f"{canonical_opcode(instruction.opcode)} {flags} {shape} {implicit} {memory}".strip()


def pure_inputs(instruction: Instruction) -> list[Operand]:
    """Register operands a pure instruction reads; EXEC is left out, because no thread's result depends on it.

    An implicit use that is printed twice (LLVM adds EXEC again when it rematerialises) counts once.
    """
    found: list[Operand] = []
    seen: set[str] = set()
    for op in instruction.operands:
        if op.is_use and op.phys not in _EXEC_NAMES and not (op.implicit and op.phys in seen):
            found.append(op)
            if op.implicit:
                seen.add(op.phys)
    return found
