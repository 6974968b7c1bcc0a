"""The symbolic machine that executes both sides: reading and writing lanes, and what is known of pure results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from smt_verifier.audit.core.lanes import LaneMap, cell_keys
from smt_verifier.audit.core.masks import MaskTracker
from smt_verifier.audit.core.moves import cell_registers, cell_threads, is_whole_wave_move, lane_move
from smt_verifier.audit.core.pairs import Ghosts, Pairs, PureArguments, Step, arguments_of, operation_name
from smt_verifier.audit.core.report import Finding
from smt_verifier.audit.core.state import UNDEFINED, Atom, Expression, Side, State, Terms
from smt_verifier.outcome import Outcome
from verilocc_mlir.mir.model import Instruction, MachineFunction, Operand

UNDECIDED = frozenset({"relation", "inactive-lanes"})
"""Rules whose violation makes the verdict UNKNOWN: claims that inference made, and lanes of inactive threads. Of those
LLVM promises only that a value written for them is still there.
"""


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
        masks: follows EXEC.
        originals: pure pre-RA instructions that are repeated or dropped somewhere, by operation.
        ghosts: keys that remember the last execution of a pure pre-RA instruction, by its ``id``, where its results are
            worth following.
        kept: units that calls leave alone whatever their mask says.

    ``goals`` and ``findings`` receive goals and violated rules while checking; both are None while inferring.
    """

    def __init__(
        self,
        pre: MachineFunction,
        post: MachineFunction,
        pre_lanes: LaneMap,
        post_lanes: LaneMap,
        masks: MaskTracker,
        originals: Mapping[str, Sequence[Instruction]],
        ghosts: dict[int, Ghosts],
        kept_units: frozenset[int],
    ) -> None:
        self.pre = pre
        self.post = post
        self.pre_lanes = pre_lanes
        self.post_lanes = post_lanes
        self.masks = masks
        self.originals = originals
        self.ghosts = ghosts
        self.repeated: dict[int, int] = {}
        """For the ``id`` of an added instruction, that of the pre-RA one which inference believes to have read the same
        before: a hint, of which the check makes goals.
        """
        self.kept_units = kept_units
        self.pairs = Pairs(pre_lanes, post_lanes)
        self._cell_registers = {
            Side.PRE: cell_registers(pre, pre_lanes),
            Side.POST: cell_registers(post, post_lanes),
        }
        self.cell_threads = cell_threads(pre) | cell_threads(post)
        self.addressing: tuple[int, ...] = ()
        """Keys of the registers that address slots for spills and that something writes."""
        self.saved_for_all_threads: frozenset[int] | None = None
        """Registers that a called function saves in threads of its caller too; None where no caller has any."""
        self.real_reads: dict[int, set[tuple[int, int]]] = {}
        """``(key, pre-RA key)`` of the lanes that a paired post-RA instruction, by ``id``, reads and the pre-RA side
        does not leave undefined.
        """
        self.assumed: set[tuple[int, int]] = set()
        """Pairs of terms that the claims at the block's entry make equal, while checking."""
        self.literal: int = 0
        """Goals of this block that are ``t = t``, or such a pair: they are only counted."""
        self.terms = Terms(pre_lanes.grain)
        self.expressions: list[Expression] = []
        self._by_operation: dict[tuple[str, int, int], list[tuple[tuple[int, ...], set[int]]]] = {}
        self.goals: GoalSink | None = None
        self.findings: Callable[[Finding], None] | None = None
        self.step = Step(None, None)

    def reset(self) -> None:
        """Forget all terms: a new block begins."""
        self.terms = Terms(self.pre_lanes.grain)
        self.expressions = []
        self._by_operation = {}
        self.assumed = set()
        self.literal = 0

    def read(self, key: int, table: dict[int, int]) -> int:
        """Term of a lane in ``table``; a lane nothing is known of gets a new one."""
        term = table.get(key)
        if term is None:
            term = self.terms.fresh("whatever {} held at the block's start", key)
            table[key] = term
        return term

    def lanes(self, side: Side) -> LaneMap:
        return self.pre_lanes if side is Side.PRE else self.post_lanes

    def tables(self, side: Side, state: State, vector: bool, *, everywhere: bool = False) -> list[dict[int, int]]:
        """The tables that a move writes: one a class of threads for vector registers, else the scalar one.

        Args:
            side: whose tables.
            state: where they are.
            vector: whether the destination is a vector register.
            everywhere: whether the move is whole-wave: threads that are not active are written too.
        """
        if not vector:
            return [side.scalars(state)]
        return [side.threads(a) for a in state.atoms if everywhere or a.active]

    def miss(self, keys: tuple[int, ...], state: State, *, everywhere: bool = False) -> None:
        """The pre-RA side defines vector lanes: threads that are not active now do not get the new value."""
        for atom in state.atoms:
            if everywhere or atom.active:
                if atom.missed:
                    atom.missed.difference_update(keys)
            else:
                atom.missed.update(keys)

    def cell_registers(self, side: Side) -> frozenset[int]:
        """Vector registers and slots that hold scalars in single lanes, anywhere on one side."""
        return self._cell_registers[side]

    def spoil_cells(self, instruction: Instruction, side: Side, state: State) -> None:
        """An ordinary write of a vector register may destroy the scalars in its lanes."""
        containers = self._cell_registers[side]
        if not containers or is_whole_wave_move(instruction) or lane_move(instruction) is not None:
            return
        lanes, table = self.lanes(side), side.scalars(state)
        for op in instruction.all_operands:
            if op.is_def and op.is_reg:
                for key in lanes.keys(op):
                    if key in containers:
                        undefined = side is Side.PRE and instruction.opcode == "IMPLICIT_DEF"
                        self.forget_cells(key, table, undefined=undefined)

    def forget_cells(self, container: int, table: dict[int, int], *, undefined: bool = False) -> None:
        """Nothing is known of the scalars in a register's lanes any more, or they are undefined."""
        for thread in self.cell_threads:
            for cell in cell_keys(container, thread, self.pre_lanes.grain):
                if undefined:
                    table[cell] = UNDEFINED
                else:
                    table.pop(cell, None)

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
        by_arguments = self._by_operation.setdefault(shape, [])
        for arguments, results in by_arguments:
            if all(map(self.terms.alike, arguments, expression.arguments)):
                results.add(expression.term)
                break
        else:
            results = {expression.term}
            by_arguments.append((expression.arguments, results))
        self.terms.believe_result(expression.term, results)

    def pure_arguments(
        self, instruction: Instruction, post: Instruction | None, state: State
    ) -> tuple[PureArguments | None, dict[int, PureArguments]]:
        """Argument terms and ghost keys of a pure instruction that is repeated or dropped somewhere, before it writes.

        The arguments are the partner's, which are never undefined; where there is none, the pre-RA side's, if they are
        not undefined. The *ghost* lanes remember them until the instruction is executed again.

        Returns:
            The scalar form, and one for each active atom, by ``id``, where the result is a vector.
        """
        ghosts = self.ghosts.get(id(instruction))
        if ghosts is None:
            return None, {}
        operands = arguments_of(instruction, post)
        side, lanes = (Side.PRE, self.pre_lanes) if post is None else (Side.POST, self.post_lanes)
        keys = tuple(key for op in operands for key in lanes.keys(op))
        target = self.pre_lanes.keys(instruction.defs[0])
        if any(op.undef for op in operands) or len(keys) != len(ghosts.arguments) or not target:
            return None, {}
        scalar = not self.pre_lanes.is_vector(target[0])

        def terms(atom: Atom | None) -> tuple[int, ...] | None:
            row = tuple(
                self.read(k, side.threads(atom) if atom is not None and lanes.is_vector(k) else side.scalars(state))
                for k in keys
            )
            if side is Side.PRE and any(t == UNDEFINED or t in self.terms.maybe_undefined for t in row):
                return None
            return row

        def remember(atom: Atom | None, row: tuple[int, ...]) -> None:
            for ghost, term in zip(ghosts.arguments, row, strict=True):
                table = atom.pre if atom is not None and self.pre_lanes.is_vector(ghost) else state.pre
                table[ghost] = term

        depends_on_exec = bool(ghosts.threads)
        rows = [
            (a, terms(a)) for a in ([None] if scalar and not depends_on_exec else [a for a in state.atoms if a.active])
        ]
        if depends_on_exec and any(row is None for _, row in rows):
            return None, {}
        for atom, row in rows:
            if row is not None:
                remember(atom, row)
        if depends_on_exec:
            return self._remember_execution(ghosts, scalar, state)
        if scalar:
            return (None if (row := rows[0][1]) is None else (row, ghosts.arguments)), {}
        return None, {id(a): (row, ghosts.arguments) for a, row in rows if row is not None}

    def _remember_execution(
        self, ghosts: Ghosts, scalar: bool, state: State
    ) -> tuple[PureArguments | None, dict[int, PureArguments]]:
        """Which threads are active now, and a label of this execution for what the result is in them.

        The result is a function of what all of them read, which terms of one class cannot say. It is one of the label,
        a new value for each execution and thread: another execution by the same threads, in which each reads what it
        read then, has the label's result (``OneSided._rematerialise``).
        """
        row = self.terms.fresh_many("the active threads", len(ghosts.threads))
        state.pre.update(zip(ghosts.threads, row, strict=True))
        self.masks.remember_exec(tuple(row), state)
        labels: dict[int, PureArguments] = {}
        for atom in [None] if scalar else [a for a in state.atoms if a.active]:
            term = self.terms.fresh("an execution")
            (state.pre if atom is None else atom.pre)[ghosts.label[0]] = term
            labels[id(atom)] = (term,), ghosts.label
        return (labels[id(None)], {}) if scalar else (None, labels)

    def note_results(
        self,
        instruction: Instruction,
        row: range,
        to: tuple[int, ...],
        arguments: tuple[int, ...],
        keys: tuple[int, ...],
    ) -> None:
        operation = operation_name(instruction, self.pre_lanes)
        for index, (term, key) in enumerate(zip(row, to, strict=True)):
            self.note(Expression(operation, index, arguments, term), (key, keys))

    def undefine_rest(self, side: Side, operand: Operand, to: tuple[int, ...], table: dict[int, int]) -> None:
        """``undef %5.sub1 = …`` leaves the other lanes of %5 undefined (MachineOperand::isUndef on a definition)."""
        if operand.undef and operand.sub and operand.vreg >= 0:
            for key in self.lanes(side).register_lanes(operand.vreg):
                if key not in to:
                    table[key] = UNDEFINED if side is Side.PRE else self.terms.fresh("nothing (lane left undefined)")

    def refute(self, rule: str, message: str) -> None:
        """The step breaks a rule."""
        self._complain(rule, Outcome.REFUTED, message)

    def leave_open(self, rule: str, message: str) -> None:
        """Of the step it is not known whether it does what it should."""
        self._complain(rule, Outcome.UNKNOWN, message)

    def _complain(self, rule: str, outcome: Outcome, message: str) -> None:
        if self.findings is None:
            return
        step = self.step
        post = step.post or step.pre
        self.findings(
            Finding(
                rule,
                outcome,
                message,
                pre_line=step.pre.line if step.pre else 0,
                post_line=step.post.line if step.post else 0,
                instruction=str(post) if post else "",
            )
        )
