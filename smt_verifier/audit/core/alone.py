"""Instructions of one side alone: what moves values, undefined values, and pure instructions repeated or dropped."""

from __future__ import annotations

from collections.abc import Iterator

from smt_verifier.audit.core.lanes import LaneMap, address_keys, cell_keys, is_vgpr, other_half
from smt_verifier.audit.core.machine import Goal, Machine
from smt_verifier.audit.core.moves import LaneMove, is_whole_wave_move, lane_cells, lane_move, slot_keys
from smt_verifier.audit.core.opcodes import EXEC_NAMES, LANE_SAVE, NO_CODE, facts
from smt_verifier.audit.core.pairs import Ghosts, operation_name, pure_inputs
from smt_verifier.audit.core.semantics import (
    SpillSlot,
    is_copy,
    is_plain_load,
    is_pure,
    spill_slot,
)
from smt_verifier.audit.core.state import UNDEFINED, Atom, Expression, Side, State
from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.mir.model import Instruction, Operand


class OneSided(Machine):
    """Transfer functions of instructions that have no partner."""

    def pre_only(self, instruction: Instruction, state: State) -> None:
        """Execute an instruction that only the pre-RA side has."""
        sources = self.masks.read(instruction, state)
        if not self._move(instruction, Side.PRE, state):
            if instruction.opcode in NO_CODE:
                for key in self._left_undefined(instruction, self.pre_lanes):
                    self.write_pre(key, UNDEFINED, state)
            elif is_pure(instruction) or is_plain_load(instruction):
                self._left_out(instruction, state)
            else:
                self.refute("instruction-sequence", f"{instruction} is missing after allocation")
        self.masks.transfer(instruction, sources, state)

    def post_only(self, instruction: Instruction, state: State) -> None:
        """Execute an instruction that only the post-RA side has."""
        if self._move(instruction, Side.POST, state):
            return
        if instruction.opcode in NO_CODE:
            for key in self._left_undefined(instruction, self.post_lanes):
                self.garbage(key, state, f"nothing ({instruction.opcode})")
        elif is_pure(instruction):
            self._rematerialise(instruction, state)
        else:
            self.refute("instruction-sequence", f"{instruction} was not there before allocation")

    @staticmethod
    def _left_undefined(instruction: Instruction, lanes: LaneMap) -> Iterator[int]:
        """Lanes that an instruction without code defines, explicitly or implicitly, and does not read itself.

        LLVM takes what they held before for dead from there on, so nothing may be relied on. What it reads too, it
        only passes on (KILL of the parts of a tuple).
        """
        passed_on = {k for op in instruction.operands if op.is_use and not op.undef for k in lanes.keys(op)}
        for op in instruction.all_operands:
            if op.is_def and op.is_reg:
                whole = op.undef and op.vreg >= 0
                yield from (
                    k for k in (lanes.register_lanes(op.vreg) if whole else lanes.keys(op)) if k not in passed_on
                )

    def _move(self, instruction: Instruction, side: Side, state: State) -> bool:
        """Execute an instruction that only moves values; whether it is one."""
        if is_copy(instruction):
            self._copy(instruction, side, state)
        elif (slot := spill_slot(instruction)) is not None:
            if side is Side.PRE or self._slot_is_right(instruction, slot):
                self._spill(instruction, slot, side, state)
        elif (move := lane_move(instruction)) is not None:
            self._lane_move(instruction, move, side, state)
        else:
            return False
        return True

    def _copy(self, instruction: Instruction, side: Side, state: State) -> None:
        lanes = self.lanes(side)
        target, source = instruction.defs[0], instruction.operands[0]
        to = lanes.keys(target)
        of = _low_half(to, lanes.keys(source))
        upper = to[1:] if len(to) == 2 and len(of) == 1 else ()
        to = to[:1] if upper else to
        if len(to) != len(of):
            if side is Side.PRE:
                raise UnsupportedError(f"a copy between different widths before allocation: {instruction}")
            self.refute("width", f"copy between different widths: {instruction}")
            return
        to_vector = bool(to) and lanes.is_vector(to[0])
        from_vector = bool(of) and lanes.is_vector(of[0])
        if from_vector and not to_vector:
            raise UnsupportedError("a copy from a vector to a scalar register has no meaning of its own")
        if is_whole_wave_move(instruction) and not from_vector:
            raise UnsupportedError("a whole-wave copy of a scalar has no meaning of its own")
        writes: list[tuple[dict[int, int], list[int]]] = []
        for table in self.tables(side, state, to_vector, everywhere=is_whole_wave_move(instruction)):
            origin = table if from_vector else side.scalars(state)
            writes.append((table, [self._source(source, k, origin, side) for k in of]))
        for table, _ in writes:
            self.undefine_rest(side, target, to, table)
        self._define_implicitly(instruction, frozenset(to), side, state)
        self._beside_halves(instruction, to, upper, of, side, state)
        if side is Side.PRE and to_vector:
            self.miss(to, state)
        for table, terms in writes:
            table.update(zip(to, terms, strict=True))
        if is_whole_wave_move(instruction):
            self._carry_cells(to, of, side, state)

    def _beside_halves(
        self,
        instruction: Instruction,
        to: tuple[int, ...],
        upper: tuple[int, ...],
        of: tuple[int, ...],
        side: Side,
        state: State,
    ) -> None:
        """A copy of 16 bits into a 32-bit register says nothing of the upper half. Of a copy into half a physical
        register, only that between halves of VGPRs leaves the other half as it was on every target: what reads or
        writes SGPRs or AGPRs may become S_MOV_B32, V_MOV_B32, V_ACCVGPR_READ or V_ACCVGPR_WRITE
        (SIInstrInfo::copyPhysReg).
        """
        if side is Side.PRE:
            for key in upper:
                self.write_pre(key, UNDEFINED, state)
            return
        half = len(to) == 1 and to[0] < 0 and self.post_lanes.grain == 1 and not all(map(is_vgpr, (*to, *of)))
        for key in (*upper, *((other_half(to[0]),) if half else ())):
            self.garbage(key, state, f"nothing (the other half of {instruction})")

    def _source(self, operand: Operand, key: int, table: dict[int, int], side: Side) -> int:
        if not operand.undef:
            return self.read(key, table)
        return UNDEFINED if side is Side.PRE else self.terms.fresh("nothing (an undefined register was moved)")

    def _define_implicitly(self, instruction: Instruction, own: frozenset[int], side: Side, state: State) -> None:
        """What a move defines implicitly is the rest of a tuple: undefined, unless it reads it as well.

        The first save of a tuple into lanes is printed as defining the tuple, of which the saves that follow read the
        rest (SIRegisterInfo::spillSGPR): it orders them and changes nothing. ``rules.py`` asks that they follow.
        """
        lanes = self.lanes(side)
        also_read = {
            k for op in instruction.operands if op.is_use and op.implicit and not op.undef for k in lanes.keys(op)
        }
        for op in instruction.operands:
            if op.is_def and op.is_reg and op.phys not in EXEC_NAMES:
                if instruction.opcode == LANE_SAVE and own < set(lanes.keys(op)):
                    continue
                for key in lanes.keys(op):
                    if key in own or key in also_read:
                        continue
                    if side is Side.POST:
                        self.garbage(key, state, f"nothing (implicit definition by {instruction})")
                    else:
                        self.write_pre(key, UNDEFINED, state)

    def _slot_is_right(self, instruction: Instruction, slot: SpillSlot) -> bool:
        """Whether a post-RA spill stays within a slot for spills; complains if not. See ``spills.py`` too."""
        row = self.post.stack.get(slot.number)
        pre_row = self.pre.stack.get(slot.number)
        if row is None or row.type != "spill-slot" or (pre_row is not None and pre_row.type != "spill-slot"):
            self.refute("spill-slot", f"stack object {slot.number} is not a slot for spills")
            return False
        fits = slot.offset >= 0 and slot.offset % 4 == 0 and 8 * (row.size - slot.offset) >= slot.bits
        if len(self.post_lanes.keys(slot.register)) * self.post_lanes.grain * 16 != slot.bits or not fits:
            self.refute(
                "spill-slot",
                f"{slot.bits} bits at offset {slot.offset} do not fit slot {slot.number} of {row.size} bytes",
            )
            return False
        return True

    def _spill(self, instruction: Instruction, slot: SpillSlot, side: Side, state: State) -> None:
        """Save or reload: lanes move between a register and a slot, of active threads only unless it is whole-wave."""
        lanes = self.lanes(side)
        keys, cells = lanes.keys(slot.register), slot_keys(slot, lanes)
        to, of = (cells, keys) if slot.is_save else (keys, cells)
        for cell in cells if self.addressing and slot.kind != "S" else ():
            self._same_address(cell, slot, side, state)
        for table in self.tables(side, state, slot.kind != "S", everywhere=is_whole_wave_move(instruction)):
            terms = [self._source(slot.register, k, table, side) if slot.is_save else self.read(k, table) for k in of]
            if not slot.is_save:
                self.undefine_rest(side, slot.register, to, table)
            table.update(zip(to, terms, strict=True))
        self._define_implicitly(instruction, frozenset(to), side, state)
        if slot.is_save:
            self._overwrite(cells, slot.kind == "S", side, state)
        if is_whole_wave_move(instruction):
            self._carry_cells(to, of, side, state)

    def _same_address(self, cell: int, slot: SpillSlot, side: Side, state: State) -> None:
        """A slot is reloaded from where it was saved; slots of scalars become lanes (SILowerSGPRSpills)."""
        table = side.scalars(state)
        for tag, key in zip(address_keys(cell, len(self.addressing)), self.addressing, strict=True):
            if slot.is_save:
                table[tag] = self.read(key, table)
                continue
            was, now = self.read(tag, table), self.read(key, table)
            if UNDEFINED in (was, now):
                self.leave_open("relation", f"slot {slot.number} may be reloaded from another address")
            elif self.goals is not None and was != now:
                self.goals(Goal("value", was, now, self.step, tag, key))

    def _overwrite(self, cells: tuple[int, ...], scalar: bool, side: Side, state: State) -> None:
        """A slot holds a scalar, a vector, or a vector with scalars in its lanes: what was saved there last."""
        tables = self.tables(side, state, True, everywhere=True) if scalar else [side.scalars(state)]
        for table in tables:
            for cell in cells:
                table.pop(cell, None)
        for cell in cells:
            self.forget_cells(cell, side.scalars(state))

    def _lane_move(self, instruction: Instruction, move: LaneMove, side: Side, state: State) -> None:
        """A scalar goes to one thread's lane of a vector register, or comes from there."""
        lanes = self.lanes(side)
        scalar, cells = lanes.keys(move.scalar), lane_cells(move, lanes)
        table = side.scalars(state)
        to, of = (cells, scalar) if move.is_save else (scalar, cells)
        if move.tied is not None and move.tied.undef:
            # The scalars in its other lanes are given up.
            self.forget_cells(lanes.keys(move.register)[0], table, undefined=side is Side.PRE)
        operand = move.scalar if move.is_save else move.register
        terms = [self._source(operand, k, table, side) for k in of]
        if move.is_save:
            # Which thread of the wave it is cannot be told, so the register's own values count as lost for all.
            for threads in self.tables(side, state, True, everywhere=True):
                for key in lanes.keys(move.register):
                    threads[key] = self.terms.fresh(f"what {instruction} left")
        else:
            self.undefine_rest(side, move.scalar, to, table)
        self._define_implicitly(instruction, frozenset(to), side, state)
        table.update(zip(to, terms, strict=True))

    def _carry_cells(self, to: tuple[int, ...], of: tuple[int, ...], side: Side, state: State) -> None:
        """A whole-wave move carries scalars that live in single lanes along; where there are none, those of its target
        are gone.
        """
        lanes, table = self.lanes(side), side.scalars(state)
        for target, source in zip(to, of, strict=True):
            for thread in self.cell_threads:
                pairs = zip(cell_keys(target, thread, lanes.grain), cell_keys(source, thread, lanes.grain), strict=True)
                for there, here in pairs:
                    term = table.get(here)
                    if term is None:
                        table.pop(there, None)
                    else:
                        table[there] = term

    def _left_out(self, instruction: Instruction, state: State) -> None:
        """An instruction that only the pre-RA side still has: its result was rematerialised, or nothing reads it."""
        scalar, vector = self.pure_arguments(instruction, None, state) if is_pure(instruction) else (None, {})
        for number, op in enumerate(o for o in instruction.all_operands if o.is_def and o.is_reg):
            keys = self.pre_lanes.keys(op)
            self.miss(keys, state)
            tables = (
                [(state.pre, scalar)]
                if not keys or not self.pre_lanes.is_vector(keys[0])
                else [(a.pre, vector.get(id(a))) for a in state.atoms if a.active]
            )
            for table, arguments in tables:
                self.undefine_rest(Side.PRE, op, keys, table)
                row = self.terms.fresh_result(number, instruction, len(keys))
                for key, term in zip(keys, row, strict=True):
                    table[key] = term
                if number == 0 and arguments is not None:
                    self.note_results(instruction, row, keys, *arguments)

    def _repeated_execution(self, instruction: Instruction, operation: str, state: State) -> Ghosts | None:
        """The execution of the pre-RA side that an added instruction repeats with equal operands; None, with a
        complaint, where there is none.

        A load must read where the pre-RA side has read on this path: elsewhere it might fault. What was dereferenceable
        there, and invariant, stays so (MachineMemOperand), and so does constant memory (SIInstrInfo.cpp, canRemat). A
        result that depends on which threads are active (``asks_exec``) is the same where the same threads
        are active, and each reads what it read then.
        """
        depends_on_exec = facts(instruction.opcode).asks_exec
        atoms = [a for a in state.atoms if a.active] if depends_on_exec else [None]
        keys = [key for op in pure_inputs(instruction) for key in self.post_lanes.keys(op)]

        def pairs(ghosts: Ghosts) -> Iterator[tuple[int, int, int, int]]:
            """What was read, and what is read now, with their keys, for each class of threads."""
            for atom in atoms:
                for ghost, key in zip(ghosts.arguments, keys, strict=True):
                    yield (
                        self._term(ghost, Side.PRE, atom, state),
                        self._term(key, Side.POST, atom, state),
                        ghost,
                        key,
                    )

        def same_threads(ghosts: Ghosts) -> bool:
            return not depends_on_exec or self.masks.is_exec(
                tuple(self.read(k, state.pre) for k in ghosts.threads), state
            )

        if self.goals is None:
            for original in self.originals.get(operation, ()):
                ghosts = self.ghosts[id(original)]
                fits = len(ghosts.arguments) == len(keys) and same_threads(ghosts)
                if fits and all(self.terms.alike(was, now) for was, now, _, _ in pairs(ghosts)):
                    self.repeated[id(instruction)] = id(original)
        # What the hint names must be an instruction of the same operation.
        originals = {id(original) for original in self.originals.get(operation, ())}
        hint = self.repeated.get(id(instruction), -1)
        ghosts = self.ghosts.get(hint) if hint in originals else None
        if ghosts is None or len(ghosts.arguments) != len(keys):
            reason = (
                "for threads, or from values, that it was not executed for"
                if depends_on_exec
                else "where its address was not read"
            )
            self.refute("instruction-sequence", f"{instruction} was added {reason} before")
            return None
        if not same_threads(ghosts):
            self.refute("instruction-sequence", f"{instruction} was added where other threads are active than before")
            return None
        if self.goals is not None:
            for was, now, ghost, key in pairs(ghosts):
                self.goals(Goal("value", was, now, self.step, ghost, key))
        return ghosts

    def _term(self, key: int, side: Side, atom: Atom | None, state: State) -> int:
        vector = atom is not None and self.lanes(side).is_vector(key)
        return self.read(key, side.threads(atom) if atom is not None and vector else side.scalars(state))

    def _rematerialise(self, instruction: Instruction, state: State) -> None:
        """A pure instruction that only the post-RA side has: its result is the pre-RA result of the same operation."""
        operation = operation_name(instruction, self.post_lanes)
        target = instruction.defs[0]
        keys = self.post_lanes.keys(target)
        vector = bool(keys) and self.post_lanes.is_vector(keys[0])
        uses = pure_inputs(instruction)
        usable = not any(op.undef for op in uses)
        depends_on_exec = facts(instruction.opcode).asks_exec
        ghosts = (
            self._repeated_execution(instruction, operation, state) if instruction.memory or depends_on_exec else None
        )
        results: list[list[int]] = []
        for atom in [a for a in state.atoms if a.active] if vector else [None]:
            if depends_on_exec:
                arguments = tuple(self._term(k, Side.PRE, atom, state) for k in ghosts.label) if ghosts else ()
            else:
                arguments = tuple(
                    self._term(k, Side.POST, atom, state) for op in uses for k in self.post_lanes.keys(op)
                )
            row = [self.terms.fresh(f"the result of the added {instruction}") for _ in keys]
            if usable and not (depends_on_exec and ghosts is None):
                for index, term in enumerate(row):
                    self.note(Expression(operation, index, arguments, term))
            results.append(row)
        for op in instruction.operands:
            if op.is_def and op.is_reg:
                for key in self.post_lanes.keys(op):
                    self.garbage(key, state, f"a side result of {instruction}")
        for table, row in zip(self.tables(Side.POST, state, vector), results, strict=True):
            self.undefine_rest(Side.POST, target, keys, table)
            table.update(zip(keys, row, strict=True))


def _low_half(to: tuple[int, ...], of: tuple[int, ...]) -> tuple[int, ...]:
    """A copy of a 32-bit register into a 16-bit one takes the low half (SIInstrInfo::copyPhysReg)."""
    return of[:1] if len(to) == 1 and len(of) == 2 else of
