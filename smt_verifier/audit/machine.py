"""The symbolic machine that executes both sides: reading and writing lanes, and what is known of pure results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from smt_verifier.audit.align import Step
from smt_verifier.audit.lanes import LaneMap, key_name
from smt_verifier.audit.masks import MaskTracker
from smt_verifier.audit.operations import PureArguments, operation_name, pure_inputs
from smt_verifier.audit.report import Finding
from smt_verifier.audit.semantics import is_pure
from smt_verifier.audit.state import UNDEFINED, Atom, Expression, State, Terms
from smt_verifier.outcome import Outcome
from verilocc_mlir.mir.header import header_field
from verilocc_mlir.mir.model import Instruction, MachineFunction, Operand


@dataclass(frozen=True, slots=True)
class Goal:
    """Terms that must be equal, unless the pre-RA lane is undefined; ``post`` -1: it must be undefined."""

    rule: str
    pre: int
    post: int
    step: Step
    pre_key: int
    post_key: int


GoalSink = Callable[[Goal], None]


class Machine:
    """State that outlives an instruction, and the elementary steps.

    Args:
        pre: the function before allocation.
        post: the function after it.
        pre_lanes: lanes of ``pre``.
        post_lanes: lanes of ``post``.
        masks: follows EXEC.
        operations: pure operations whose results are worth following.
        reserved: units that calls preserve.

    ``goals`` and ``findings`` receive goals and violated rules while checking; both are None while inferring.
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

    def read(self, key: int, table: dict[int, int]) -> int:
        """Term of a lane in ``table``; a lane nothing is known of gets a new one."""
        term = table.get(key)
        if term is None:
            term = self.terms.fresh(f"whatever {key_name(key, self.pre_lanes.grain)} held at the block's start")
            table[key] = term
        return term

    def write_pre(self, key: int, term: int, state: State) -> None:
        if not self.pre_lanes.is_vector(key):
            state.pre[key] = term
            return
        for atom in state.atoms:
            if atom.active:
                atom.pre[key] = term

    def garbage(self, key: int, state: State, why: str) -> None:
        """The post-RA lane holds something unknown from here on."""
        term = self.terms.fresh(why)
        if not self.post_lanes.is_vector(key):
            state.post[key] = term
            return
        for atom in state.atoms:
            if atom.active:
                atom.post[key] = term

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

    def pure_arguments(
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

    def note_results(
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

    def undefine_rest(self, left: Operand, to: tuple[int, ...], pre_map: dict[int, int]) -> None:
        """``undef %5.sub1 = …`` leaves the other lanes of %5 undefined (MachineOperand::isUndef on a definition)."""
        if left.undef and left.sub and left.vreg >= 0:
            for key in self.pre_lanes.register_lanes(left.vreg):
                if key not in to:
                    pre_map[key] = UNDEFINED

    def refute(self, rule: str, message: str) -> None:
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
