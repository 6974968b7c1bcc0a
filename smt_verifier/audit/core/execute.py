"""Symbolic execution of a block on both sides at once: the transfer functions of the audit's theorem.

The executor is used twice: by inference, with terms that are believed equal, and by the check, where every comparison
becomes a goal for the solver. What it does to the state is trusted; what inference made of it is not.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from smt_verifier.audit.core.alone import OneSided
from smt_verifier.audit.core.lanes import key_name
from smt_verifier.audit.core.machine import Goal
from smt_verifier.audit.core.masks import defines_exec
from smt_verifier.audit.core.moves import is_whole_wave_move
from smt_verifier.audit.core.opcodes import BLENDS, NO_CODE, facts
from smt_verifier.audit.core.pairs import Definition, Pair, PureArguments, Step, Use
from smt_verifier.audit.core.semantics import (
    addend_of_high_half,
    exec_unclear,
    is_call,
    preserved_by,
)
from smt_verifier.audit.core.state import UNDEFINED, Atom, Expression, Side, Signature, State
from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.mir.model import Instruction


class _Class(NamedTuple):
    """Where the lanes are that an operand is compared in: the rule, the lanes missed, and the tables of both sides."""

    rule: str
    missed: Collection[int]
    pre: dict[int, int]
    post: dict[int, int]


_NONE: frozenset[int] = frozenset()


def _class(atom: Atom) -> _Class:
    return _Class("value" if atom.active else "inactive-lanes", atom.missed, atom.pre, atom.post)


class Executor(OneSided):
    """Runs steps over a state."""

    def run(self, steps: list[Step], state: State) -> None:
        """Execute ``steps`` in place.

        Raises:
            UnsupportedError: something the audit does not follow (whole-wave code, an EXEC of unknown origin).
        """
        cells = bool(self.cell_registers(Side.PRE) or self.cell_registers(Side.POST))
        for step in steps:
            self.step = step
            pre, post = step
            alone = pre if post is None else post if pre is None else None
            if alone is not None and defines_exec(alone):
                self.refute("instruction-sequence", "EXEC is written on one side alone")
            if post is not None and self.saved_for_all_threads is not None:
                self._spare_callers_threads(post, self.saved_for_all_threads, state)
            if pre is None:
                assert post is not None
                self.post_only(post, state)
            elif post is None:
                self.pre_only(pre, state)
            else:
                self._pair(pre, post, state)
            for instruction, side in ((pre, Side.PRE), (post, Side.POST)) if cells else ():
                if instruction is not None:
                    self.spoil_cells(instruction, side, state)

    def _spare_callers_threads(self, post: Instruction, saved: frozenset[int], state: State) -> None:
        """A called function may write registers in threads that its caller has waiting only where it saves them there.

        AMDGPU's calling convention: vector registers of threads that are not active survive a call, whichever they are.
        Whole-wave moves write those threads, and so does all vector code while EXEC holds every thread.
        """
        outside = [a for a in state.atoms if a.outside]
        everywhere = is_whole_wave_move(post) or (bool(outside) and all(a.active for a in outside))
        if not everywhere or post.opcode in NO_CODE:
            return
        for key in (k for op in post.all_operands if op.is_def and op.is_reg for k in self.post_lanes.keys(op)):
            if key < 0 and self.post_lanes.is_vector(key) and key not in saved:
                name = key_name(key, self.post_lanes.grain)
                message = f"{name} is written in threads that wait in the caller, and is not in wwmReservedRegs"
                self.refute("callee-saved", message)

    def _pair(self, pre: Instruction, post: Instruction, state: State) -> None:
        pair = self.pairs.of(pre, post)
        known = facts(pre.opcode)
        if known.is_ordinary and not self.masks.follows(pre):
            self._compare_reads(pre, post, pair, state, everywhere=False)
            self._define(pre, post, pair, state, everywhere=False)
            return
        if exec_unclear(pre) and not all(a.active for a in state.atoms):
            raise UnsupportedError(f"{pre.opcode} while some threads are inactive")
        sources = self.masks.read(pre, state)
        if pre.opcode != "BUNDLE":
            active_only = self.masks.touches_active_only(pre, state)
            self._compare_reads(pre, post, pair, state, everywhere=known.reads_inactive_lanes and not active_only)
            if is_call(pre):
                self._clobber(preserved_by(pre) | self.kept_units, state)
            self._define(pre, post, pair, state, everywhere=known.ignores_exec and not active_only)
            self.masks.note_first(pre, state, self.terms.maybe_undefined)
        self.masks.transfer(pre, sources, state)

    def _compare_reads(
        self, pre: Instruction, post: Instruction, pair: Pair, state: State, *, everywhere: bool
    ) -> None:
        if self.goals is None:
            return
        if pair.finds_first and not state.entered:
            self.leave_open(
                "inactive-lanes", f"{pre.opcode} may find EXEC 0, and reads lane 0 of a thread that waits then"
            )
        reads = self.real_reads.setdefault(id(post), set())
        wave: list[_Class] | None = None
        reached: list[_Class] | None = None
        for number, use in pair.uses:
            if not (use.vector or use.post_vector):
                classes = wave = wave or [_Class("value", _NONE, state.pre, state.post)]
            elif pre.opcode in BLENDS:
                atoms = [a for a in state.atoms if a.reached(everywhere)]
                gone = [all(self._blended_away(pre, number, s, state) for s in a.signatures) for a in atoms]
                classes = [_class(a) for a, blended_away in zip(atoms, gone, strict=True) if not blended_away]
            else:
                if reached is None:
                    reached = [_class(a) for a in state.atoms if a.active or a.reached(everywhere)]
                classes = reached
            if use.vector is not use.post_vector:
                # A rule refuses that already; here it only counts that no operand goes uncompared.
                side = Side.POST if use.vector else Side.PRE
                classes = [c._replace(**{side.value: side.scalars(state)}) for c in classes]
            self._compare_lanes(use, classes, reads, state)

    def _compare_lanes(self, use: Use, classes: list[_Class], reads: set[tuple[int, int]], state: State) -> None:
        assert self.goals is not None
        assumed = self.assumed
        for pre_key, post_key, place, overwritten in use.lanes:
            if overwritten:
                self._early_clobber(pre_key, post_key, state)
            for rule, missed, pre_table, post_table in classes:
                if pre_key in missed and rule != "value":
                    continue
                of, now = pre_table.get(pre_key), post_table.get(post_key)
                if of is None:
                    of = self.read(pre_key, pre_table)
                if now is None:
                    now = self.read(post_key, post_table)
                if of == UNDEFINED:
                    continue
                reads.add(place)
                if use.undef:
                    self.goals(Goal("undef-flag", of, -1, self.step, pre_key, post_key))
                elif of == now or (of, now) in assumed:
                    self.literal += 1
                else:
                    self.goals(Goal(rule, of, now, self.step, pre_key, post_key))

    def _blended_away(self, pre: Instruction, number: int, signature: Signature, state: State) -> bool:
        """Whether an operand is one that V_SET_INACTIVE does not read for the threads of a class."""
        blend = BLENDS[pre.opcode]
        selected = self.masks.includes(pre.operands[blend.mask], signature, state)
        return (number == blend.inside and selected is False) or (number == blend.outside and selected is True)

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

    def _clobber(self, preserved: frozenset[int], state: State) -> None:
        """A call: every physical register it does not preserve holds something new, in active threads.

        Stack pointer, scratch descriptor and the like are preserved by every callee: AMDGPU's calling
        convention.
        """
        for side in Side:
            table = side.scalars(state)
            for key in table:
                if key < 0 and -1 - key not in preserved and not self.pre_lanes.is_vector(key):
                    table[key] = self._left_by_call(side)
        for side in Side:
            for container in self.cell_registers(side):
                if container < 0 and -1 - container not in preserved:
                    self.forget_cells(container, side.scalars(state))
        for atom in state.atoms:
            for side in Side if atom.active else ():
                table = side.threads(atom)
                for key in table:
                    if key < 0 and -1 - key not in preserved:
                        table[key] = self._left_by_call(side)

    def _left_by_call(self, side: Side) -> int:
        """Before allocation, what a call may overwrite is undefined after it, but for its results."""
        return UNDEFINED if side is Side.PRE else self.terms.fresh("what the call left")

    def _define(self, pre: Instruction, post: Instruction, pair: Pair, state: State, *, everywhere: bool) -> None:
        if pair.lost:
            why = f"nothing (implicit definition by {post})"
            for key in pair.lost:
                self.garbage(key, state, why)
        scalar_arguments, vector_arguments = self.pure_arguments(pre, post, state)
        halves_apart = pair.addend >= 0
        for number, defined in enumerate(pair.definitions):
            if defined is None:
                continue
            count = len(defined.pre_keys)
            if defined.vector and not (everywhere or vector_arguments or halves_apart):
                self._define_in_active(number, pre, defined, state)
                continue
            if not defined.vector:
                row = self.terms.fresh_result(number, pre, count)
                self._place(row, defined, state.pre, state.post)
                if halves_apart:
                    for key in defined.post_keys:
                        self.garbage(key, state, f"the carry of {post}, which depends on the upper half of its addend")
                if number == 0 and scalar_arguments is not None:
                    self.note_results(pre, row, defined.pre_keys, *scalar_arguments)
                continue
            self.miss(defined.pre_keys, state, everywhere=everywhere)
            rows: dict[PureArguments | None, range] = {}
            for atom in state.atoms:
                if everywhere or atom.active:
                    if not atom.reached(everywhere):
                        self._unknown(defined.pre_keys, defined.post_keys, atom)
                        continue
                    arguments = vector_arguments.get(id(atom)) if number == 0 else None
                    # What a half depends on may differ from class to class: it is said of terms of its own.
                    row = None if halves_apart else rows.get(arguments)
                    if row is None:
                        row = rows[arguments] = self.terms.fresh_result(number, pre, count)
                        if arguments is not None:
                            self.note_results(pre, row, defined.pre_keys, *arguments)
                    high = self._high_half(pre, post, row, state, atom) if halves_apart and number == 0 else None
                    self._place(row, defined, atom.pre, atom.post, high)

    def _define_in_active(self, number: int, pre: Instruction, defined: Definition, state: State) -> None:
        """One result for all active classes; the others miss it (``miss``)."""
        row: range | None = None
        for atom in state.atoms:
            if not atom.active:
                atom.missed.update(defined.pre_keys)
                continue
            if atom.missed:
                atom.missed.difference_update(defined.pre_keys)
            row = row or self.terms.fresh_result(number, pre, len(defined.pre_keys))
            self._place(row, defined, atom.pre, atom.post)

    def _unknown(self, pre_keys: tuple[int, ...], post_keys: tuple[int, ...], atom: Atom) -> None:
        """Results in threads of which nothing is claimed: each side has its own."""
        for keys, table in ((pre_keys, atom.pre), (post_keys, atom.post)):
            for key in keys:
                table[key] = self.terms.fresh("what a matrix operation left in threads that never entered the function")

    def _high_half(self, pre: Instruction, post: Instruction, row: range, state: State, atom: Atom) -> list[int] | None:
        """Terms of the post-RA result where its upper half depends on an operand that need not agree
        (``addend_of_high_half``): what it is computed from says whether it is the pre-RA one.
        """
        number = addend_of_high_half(pre)
        if number < 0 or not pre.operands[number].is_use or pre.operands[number].undef:
            return None
        sides: list[tuple[int, ...]] = []
        for operand, lanes, side in (
            (pre.operands[number], self.pre_lanes, Side.PRE),
            (post.operands[number], self.post_lanes, Side.POST),
        ):
            keys = lanes.keys(operand)
            tables = (side.threads(atom) if lanes.is_vector(k) else side.scalars(state) for k in keys)
            sides.append(tuple(self.read(k, table) for k, table in zip(keys, tables, strict=True)))
        if UNDEFINED in sides[0] or self.terms.maybe_undefined.intersection(sides[0]):
            return None
        terms = list(row)
        for index in range(len(row) // 2, len(row)):
            terms[index] = self.terms.fresh(f"the upper half of {post}")
            # The low term stands for the operands that agree.
            for term, addend in ((row[index], sides[0]), (terms[index], sides[1])):
                self.note(Expression(f"upper half of {pre.opcode}", index, (row[0], *addend), term))
        return terms

    def _place(
        self, row: range, defined: Definition, pre: dict[int, int], post: dict[int, int], high: list[int] | None = None
    ) -> None:
        """Put one new term a lane into both sides: equal operations on equal inputs give equal outputs.

        Classes of threads may share the terms, because no goal compares one class with another; only results of pure
        operations on different arguments must not be shared, because they are equated with their expressions.
        """
        _, _, pre_keys, post_keys, _ = defined
        if defined.pre.undef:
            self.undefine_rest(Side.PRE, defined.pre, pre_keys, pre)
        if defined.post.undef:
            self.undefine_rest(Side.POST, defined.post, post_keys, post)
        if len(row) == 1 and high is None:
            pre[pre_keys[0]] = post[post_keys[0]] = row[0]
            return
        pre.update(zip(pre_keys, row, strict=True))
        post.update(zip(post_keys, row if high is None else high, strict=False))
