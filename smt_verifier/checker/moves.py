"""Moves: the closed list of forms that LLVM lowers faithfully (specification 7)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from smt_verifier.checker.certificate import Key
from smt_verifier.checker.lanes import Lanes, cell, container
from smt_verifier.checker.model import Instruction, Kind, Operand
from smt_verifier.checker.outcome import Refused
from smt_verifier.checker.tables import Opcode, Processor
from smt_verifier.checker.threads import EXEC_NAMES

_EXEC_COPY = "machineFunctionInfo.sgprForEXECCopy"


class Move:
    """What a move does.

    Attributes:
        to: lanes written; of a ``lane-save``, none.
        of: lanes read, as many.
        vector: whether the first are vector lanes, and whether the second are.
        undef: the source says that it holds nothing.
        everywhere: it runs for all classes of threads.
        is_copy: a COPY, which LLVM's copy propagation looks at.
        thread: of a move through a lane: the thread; the scalar is ``to`` or ``of``, ``register`` the vector register.
        saves: of a move through a lane: the scalar goes into the lane.
        fresh: of such a save: the other cells of the register hold nothing.
    """

    def __init__(
        self,
        to: tuple[int, ...],
        of: tuple[int, ...],
        vector: tuple[bool, bool],
        undef: bool,
        everywhere: bool = False,
        is_copy: bool = False,
        thread: int = -1,
        register: tuple[int, ...] = (),
        saves: bool = False,
        fresh: bool = False,
    ) -> None:
        self.to, self.of, self.vector, self.undef, self.everywhere = to, of, vector, undef, everywhere
        self.is_copy, self.thread, self.register, self.saves, self.fresh = is_copy, thread, register, saves, fresh


class Moves:
    """Reads the moves of one text."""

    def __init__(self, lanes: Lanes, processor: Processor) -> None:
        self.lanes = lanes
        self._processor = processor
        self._stack_pointer = lanes.function.fields.get("machineFunctionInfo.stackPtrOffsetReg", "").strip("'")
        self.kinds = self._slot_kinds()
        """Of each slot that spill code names, whether that is of scalars (``"S"``) or of vectors (``"V"``)."""
        self.cells = self._named_cells()
        """The cells that some instruction names, of each vector register by its first lane."""

    def _named_cells(self) -> dict[int, set[Key]]:
        cells: defaultdict[int, set[Key]] = defaultdict(set)
        for block in self.lanes.function.blocks:
            for instruction in block.instructions:
                opcode = self.lanes.tables.opcode(instruction.opcode)
                if opcode is not None and not opcode.traits.isdisjoint(("lane-save", "lane-restore")):
                    move = self._lane(instruction, saves="lane-save" in opcode.traits)
                    register, count = move.register[0], len(move.of or move.to)
                    cells[register].update(cell(register, move.thread, half) for half in range(count))
        return cells

    def _slot_kinds(self) -> dict[int, str]:
        """Slots belong to spill code alone (7.3), and to one kind of it (3.4)."""
        kinds: defaultdict[int, set[str]] = defaultdict(set)
        for block in self.lanes.function.blocks:
            for instruction in block.instructions:
                opcode = self.lanes.tables.opcode(instruction.opcode)
                spill = opcode.value("spill") if opcode is not None else ""
                kind = "" if not spill else "S" if spill.startswith("S,") else "V"
                for operand in instruction.operands:
                    if operand.kind is Kind.FRAME_INDEX:
                        kinds[operand.number].add(kind)
                for memory in instruction.memory:
                    if memory.stack_object >= 0:
                        kinds[memory.stack_object].add(kind)
        mixed = next((n for n, of in kinds.items() if len(of) > 1), None)
        if mixed is not None:
            raise Refused("spill-slot", f"%stack.{mixed} is named by spill code of two kinds, or by other code too")
        return {n: kind for n, of in kinds.items() for kind in of if kind}

    def read(self, instruction: Instruction, opcode: Opcode) -> Move | None:
        """The move that an instruction is; None for any other instruction, copies that pair (7.1) included.

        Raises:
            Refused: it has an opcode of moves and a form that is not on the list.
        """
        if opcode.value("spill"):
            return self._spill(instruction, *opcode.value("spill").split(","))
        if "lane-save" in opcode.traits or "lane-restore" in opcode.traits:
            return self._lane(instruction, saves="lane-save" in opcode.traits)
        return self._copy(instruction) if "copy" in opcode.traits else None

    def _bad(self, instruction: Instruction, why: str) -> Refused:
        return Refused("move", f"{instruction.opcode}: {why}", f"line {instruction.line}")

    def _copy(self, instruction: Instruction) -> Move | None:
        explicit = [o for o in instruction.operands if not o.is_implicit]
        if instruction.definitions != 1 or len(explicit) != 2 or not all(o.is_register for o in explicit):
            raise self._bad(instruction, "not one register into one other")
        target, source = explicit
        if target.register in EXEC_NAMES or not (self._keeps(target) and self._keeps(source)):
            return None
        to, of = (self.lanes.keys(o, instruction) for o in explicit)
        if not to or not of:
            raise self._bad(instruction, "a register without storage")
        vector = self.lanes.is_vector(to[0]), self.lanes.is_vector(of[0])
        if vector == (False, True):
            raise self._bad(instruction, "from a vector to a scalar register")
        halves = self.lanes.grain == 1 and {len(to), len(of)} <= {1, 2} and self._is_vgpr(target)
        of_scalar = not vector[1] and (len(to), len(of)) == (1, 2) and self._processor.half_moves
        if (len(to) != len(of) or len(to) * self.lanes.grain % 2) and not (
            halves and (of_scalar or self._is_vgpr(source))
        ):
            raise self._bad(instruction, "registers of different width, or halves that are not of VGPRs")
        if len(to) != len(of):
            to, of = to[:1], of[:1]
        return Move(to, of, vector, "undef" in source.flags, is_copy=vector[0])

    def _keeps(self, operand: Operand) -> bool:
        """Whether it is a register that keeps what is copied into it (7.1)."""
        if operand.vreg >= 0:
            return True
        marks = self.lanes.register(operand.register).marks
        return operand.register != "scc" and marks.isdisjoint(("alias", "changes", "wide"))

    def _is_vgpr(self, operand: Operand) -> bool:
        """Whether it is a VGPR or a half of one, whatever the allocation."""
        if operand.vreg >= 0:
            return all(run.file == "v" for run in self.lanes.register_class(operand.vreg).runs)
        return self.lanes.register(operand.register).file == "v"

    def _spill(self, instruction: Instruction, kind: str, bits_text: str, way: str) -> Move:
        bits, saves = int(bits_text), way == "save"
        operands = instruction.operands
        if len(operands) < 4 or operands[1].kind is not Kind.FRAME_INDEX or not operands[0].is_register:
            raise self._bad(instruction, "not a register and a slot")
        register, frame = operands[0], operands[1]
        offset = operands[3].number if kind != "S" else 0
        exec_, pointer = ("exec", frozenset({"implicit"})), self._stack_pointer.strip("$")
        if kind == "S":
            expected = [exec_, (pointer, frozenset({"implicit"}))]
        else:
            expected = [(pointer, frozenset[str]()), (str(offset), frozenset[str]()), exec_]
        written = [(o.register if o.kind is Kind.REGISTER else o.text, o.flags) for o in operands[2:]]
        if written[: len(expected)] != expected or instruction.definitions == saves or register.is_implicit:
            raise self._bad(instruction, "not the operands that LLVM writes")
        if any(not (o.is_register and o.is_implicit) for o in operands[2 + len(expected) :]):
            raise self._bad(instruction, "operands that LLVM does not write")
        keys = self.lanes.keys(register, instruction)
        if len(keys) * self.lanes.grain * 16 != bits:
            raise self._bad(instruction, f"not a register of {bits} bits")
        if bits < 32 and self._processor.align2:
            raise self._bad(instruction, "a half, and the whole register is reloaded (SRAM ECC)")
        if self.lanes.is_vector(keys[0]) != (kind != "S") or (kind == "S" and not self._spills(register)):
            raise self._bad(instruction, "not a register of its kind")
        self._check_slot(instruction, frame.number, offset, bits, saves=saves, kind=kind)
        slot = self.lanes.slot(frame.number, offset, bits)
        to, of = (slot, keys) if saves else (keys, slot)
        vector, everywhere = kind != "S", kind.startswith("WWM")
        # LLVM keeps EXEC there meanwhile (7.5).
        if everywhere and self.lanes.function.fields.get(_EXEC_COPY, "''") == "''":
            raise self._bad(instruction, "the header has no register that keeps EXEC meanwhile (sgprForEXECCopy)")
        return Move(to, of, (vector, vector), saves and "undef" in register.flags, everywhere=everywhere)

    def _spills(self, register: Operand) -> bool:
        """Whether LLVM spills a scalar register: M0 and EXEC serve the spilling itself (SIRegisterInfo::spillSGPR)."""
        if register.vreg >= 0:
            return True
        return self.lanes.register(register.register).file == "s" or register.register.startswith("vcc")

    def _check_slot(
        self, instruction: Instruction, number: int, offset: int, bits: int, *, saves: bool, kind: str
    ) -> None:
        row = self.lanes.function.stack.get(number)
        if row is None or row.get("type") != "spill-slot":
            raise self._bad(instruction, f"%stack.{number} is no slot for spills")
        place = row.get("stack-id", "default")
        if place != "default" and not (kind == "S" and place == "sgpr-spill"):
            raise self._bad(instruction, f"%stack.{number} is in {place}")
        size, alignment = int(row.get("size", "0")), int(row.get("alignment", "1"))
        if offset < 0 or offset % 4 or offset * 8 + bits > 8 * size:
            raise self._bad(instruction, f"{bits} bits at {offset} do not fit %stack.{number}")
        if kind != "S" and self._processor.has_agprs and (offset or bits != 8 * size):
            raise self._bad(instruction, f"a part of %stack.{number}, which accumulators may hold")
        if [m.text for m in instruction.memory] != [_memory(number, offset, bits, alignment, saves=saves)]:
            raise self._bad(instruction, "not the memory operand that LLVM writes")

    def _lane(self, instruction: Instruction, *, saves: bool) -> Move:
        """A scalar goes into a lane of a vector register, or comes from there (7.4)."""
        explicit = [o for o in instruction.operands if not o.is_implicit]
        if instruction.definitions != 1 or len(explicit) != (4 if saves else 3):
            raise self._bad(instruction, "not the operands that LLVM writes")
        scalar, register = (explicit[1], explicit[0]) if saves else (explicit[0], explicit[1])
        thread = explicit[2]
        if not scalar.is_register or not register.is_register or thread.kind is not Kind.IMMEDIATE:
            raise self._bad(instruction, "not the operands that LLVM writes")
        keys, lanes = (self.lanes.keys(o, instruction) for o in (scalar, register))
        whole = 2 // self.lanes.grain
        if (
            len(keys) != whole
            or len(lanes) != whole
            or self.lanes.is_vector(keys[0])
            or not self.lanes.is_vector(lanes[0])
        ):
            raise self._bad(instruction, "not a 32-bit scalar and a 32-bit vector register")
        if not 0 <= thread.number < self.lanes.wave or container(lanes[0]) != lanes[0]:
            raise self._bad(instruction, "no such thread")
        fresh = False
        if saves:
            tied, target = explicit[3], explicit[0]
            if (tied.register, tied.vreg, tied.sub) != (target.register, target.vreg, target.sub) or tied.is_def:
                raise Refused("tied-operand", f"{target.text} must be the register of {tied.text}")
            fresh = "undef" in tied.flags
        to, of = ((), keys) if saves else (keys, ())
        undef = "undef" in (scalar if saves else register).flags
        return Move(to, of, (False, False), undef, thread=thread.number, register=lanes, saves=saves, fresh=fresh)

    def beside(self, instruction: Instruction, move: Move, *, after: bool) -> Iterator[int]:
        """Lanes that a move (``after``: of Q) defines implicitly and does not carry (7.2), or that keep EXEC meanwhile
        (7.5). LLVM takes a move of Q that defines a register apart from its own for one that writes it.
        """
        read = {
            k for o in instruction.operands if o.is_use and o.is_implicit and "undef" not in o.flags
            for k in self.lanes.keys(o, instruction)
        }  # fmt: skip
        own = {*move.to, *move.register}
        for o in instruction.operands:
            if not o.is_def or not o.is_register or o.register in EXEC_NAMES:
                continue
            keys = self.lanes.keys(o, instruction)
            apart = after and not move.saves and own.isdisjoint(keys)
            yield from (k for k in keys if k not in own and (apart or k not in read))
        if move.everywhere:
            yield from self.lanes.register(self.lanes.function.fields[_EXEC_COPY].strip("'$")).units[
                :: self.lanes.grain
            ]


def _memory(number: int, offset: int, bits: int, alignment: int, *, saves: bool) -> str:
    """The memory operand of spill code, as MachineMemOperand::print writes it; ``alignment`` is the object's."""
    at = f" + {offset}" if offset else ""
    aligned = min(alignment, offset & -offset) if offset else alignment
    align = f", align {aligned}" if 8 * aligned != bits else ""
    base = f", basealign {alignment}" if aligned != alignment else ""
    way = ("store", "into") if saves else ("load", "from")
    return f"{way[0]} (s{bits}) {way[1]} %stack.{number}{at}{align}{base}, addrspace 5"
