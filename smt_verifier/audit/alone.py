"""Instructions of one side alone: copies, spill code, undefined values, and pure instructions repeated or dropped."""

from __future__ import annotations

import re

from smt_verifier.audit.lanes import stack_keys
from smt_verifier.audit.machine import Machine
from smt_verifier.audit.operations import operation_name, pure_inputs
from smt_verifier.audit.semantics import EXEC_NAMES, SpillSlot, is_pure, spill_slot
from smt_verifier.audit.state import UNDEFINED, Expression, State
from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.mir.model import Instruction


class OneSided(Machine):
    """Transfer functions of instructions that have no partner."""

    def pre_only(self, instruction: Instruction, state: State) -> None:
        opcode = instruction.opcode
        if opcode == "IMPLICIT_DEF":
            for op in instruction.defs:
                whole = op.undef and op.vreg >= 0
                for key in self.pre_lanes.register_lanes(op.vreg) if whole else self.pre_lanes.keys(op):
                    self.write_pre(key, UNDEFINED, state)
        elif opcode == "COPY":
            self._copy_pre(instruction, state)
        elif opcode == "KILL":
            return
        elif is_pure(instruction):
            self._pure_pre(instruction, state)
        else:
            self.refute("instruction-sequence", f"{instruction} is missing after allocation")
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
            self.undefine_rest(target, to, maps)
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
        scalar, vector = self.pure_arguments(instruction, state)
        for number, op in enumerate(o for o in instruction.all_operands if o.is_def and o.is_reg):
            keys = self.pre_lanes.keys(op)
            tables = (
                [(state.pre, scalar)]
                if not keys or not self.pre_lanes.is_vector(keys[0])
                else [(a.pre, vector.get(id(a))) for a in state.atoms if a.active]
            )
            for table, arguments in tables:
                self.undefine_rest(op, keys, table)
                row = self.terms.fresh_many(f"result {number} of {instruction}", len(keys))
                for key, term in zip(keys, row, strict=True):
                    table[key] = term
                if number == 0 and arguments is not None:
                    self.note_results(instruction, row, keys, *arguments)

    def post_only(self, instruction: Instruction, state: State) -> None:
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
                        self.garbage(key, state, "nothing (IMPLICIT_DEF)")
        elif is_pure(instruction):
            self._rematerialise(instruction, state)
        else:
            self.refute("instruction-sequence", f"{instruction} was not there before allocation")

    def _copy_post(self, instruction: Instruction, state: State) -> None:
        target, source = instruction.defs[0], instruction.operands[0]
        to = self.post_lanes.keys(target)
        of = _low_half(to, self.post_lanes.keys(source))
        if len(to) != len(of):
            self.refute("width", f"copy between different widths: {instruction}")
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
            if op.is_def and op.is_reg and op.phys not in EXEC_NAMES:
                for key in self.post_lanes.keys(op):
                    if key not in own:
                        self.garbage(key, state, f"nothing (implicit definition by {instruction})")
        for maps, terms in moved:
            for key, term in zip(to, terms, strict=True):
                maps[key] = term

    def _spill_post(self, instruction: Instruction, slot: SpillSlot, state: State) -> None:
        """Save or reload: lanes move between a register and a slot, for vector registers in active threads only."""
        row = self.post.stack.get(slot.number)
        register = slot.register
        keys = self.post_lanes.keys(register)
        if slot.number in self.pre.stack or row is None or row.type != "spill-slot":
            self.refute("spill-slot", f"stack object {slot.number} is not a slot the allocator made")
            return
        fits = slot.offset >= 0 and slot.offset % 4 == 0 and 8 * (row.size - slot.offset) >= slot.bits
        if len(keys) * self.post_lanes.grain * 16 != slot.bits or not fits:
            self.refute(
                "spill-slot",
                f"{slot.bits} bits at offset {slot.offset} do not fit slot {slot.number} of {row.size} bytes",
            )
            return
        if slot.kind != "S" and slot.base != self.stack_pointer:
            self.refute("spill-slot", f"${slot.base} is not this function's stack pointer ${self.stack_pointer}")
        place = f"%stack.{slot.number}"
        if not all(re.search(rf"{place}\b", text) for text in instruction.memory):
            self.refute("spill-slot", f"the memory operand does not name {place}")
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
                    self.garbage(key, state, f"a side result of {instruction}")
        for table, row in zip(maps, results, strict=True):
            for key, term in zip(keys, row, strict=True):
                table[key] = term


def _low_half(to: tuple[int, ...], of: tuple[int, ...]) -> tuple[int, ...]:
    """A copy of a 32-bit register into a 16-bit one takes the low half (SIInstrInfo::copyPhysReg)."""
    return of[:1] if len(to) == 1 and len(of) == 2 else of
