"""Instructions with their operands as places of the machine, decoded once and then run many times.

A *place* is an integer: a unit of a physical register (``verilocc_mlir.target.registers``), a lane of a virtual
register, or 16 bits of a stack slot. Where neither side names a 16-bit half, every second place stands for 32 bits.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass, field, replace

from oracle.opcodes import (
    BITWISE,
    ENTER_WHOLE_WAVE,
    EXEC_REGISTERS,
    FIRST_ONE,
    IGNORED,
    MOVE,
    NOT,
    ORDINARY,
    SAVE_EXEC,
    SELECT,
    SHIFT_LEFT,
    SPILL,
    asks_all_active,
    function_of,
    gives_thread_mask,
    is_pure,
    lanes_are_scalars,
    leaves_old_unread,
    reads_all_threads,
    writes_all_threads,
)
from verilocc_mlir.mir.header import header_field
from verilocc_mlir.mir.model import BasicBlock, Instruction, MachineFunction, Operand, OperandKind
from verilocc_mlir.target.callingconv import regmask
from verilocc_mlir.target.classes import register_class
from verilocc_mlir.target.registers import (
    SGPR_BASE,
    lane_list,
    llvm_lane_mask,
    physical_register,
    subregister_lanes,
    unit_name,
)

VIRTUAL = 1 << 20
STACK = 1 << 40
_STRIDE = 128
_HALVES = re.compile(r"lo16|hi16|_16\b")
_OBJECT = re.compile(r"%(fixed-stack|stack)\.(\d+)")
_ID = re.compile(r"\bid: \d+")


class UnsupportedCode(Exception):
    """The oracle does not know how to run this; it then says nothing about the function."""


@dataclass(frozen=True, slots=True)
class Place:
    """A register operand: the places it names, lowest first."""

    places: tuple[int, ...]
    vector: bool
    undef: bool = False
    early: bool = False
    tied: int = -1
    fixed: bool = False
    implicit: bool = False
    rest: tuple[int, ...] = ()
    """Of an ``undef`` partial definition: the other places of the register, which it leaves undefined."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """One instruction ready to run.

    Attributes:
        kind: ``copy``, ``save``, ``restore``, ``lane`` (a scalar put into a lane of a vector register, or taken from
            there), ``undefine``, ``pure``, ``event``, or ``nothing``.
        shape: what two instructions must share to be the same operation on the same non-register operands.
        reads: by operand number right of the opcode; None where the operand is no register that is read.
        writes: all definitions, explicit ones first.
        source: the instruction.
        slots: of spill code: the stack places it moves to or from; empty where the access is outside the slot.
        preserved: of a call: units it leaves alone.
        ended: places whose value the text says nobody reads any more: killed operands and dead results.
        read_places, written_places: all places that are read or written, slots included, each with whether it is a
            vector's.
    """

    kind: str
    shape: int
    reads: tuple[Place | None, ...]
    writes: tuple[Place, ...]
    explicit_writes: int
    source: Instruction
    slots: tuple[int, ...] = ()
    preserved: frozenset[int] | None = None
    everywhere: bool = False
    writes_everywhere: bool = False
    mask_result: bool = False
    immediates: tuple[int | None, ...] = ()
    real: str = ""
    targets: tuple[int, ...] = ()
    ended: tuple[tuple[int, bool], ...] = ()
    read_places: tuple[tuple[int, bool], ...] = ()
    written_places: tuple[tuple[int, bool], ...] = ()
    inputs: tuple[Place, ...] = field(default=())
    """``reads`` without the implicit ones: the inputs of a pure operation, special registers included."""


def names_halves(*functions: MachineFunction) -> bool:
    """Whether any register or class of the functions is finer than 32 bits."""
    for function in functions:
        if any(_HALVES.search(row.cls) for row in function.registers.values()):
            return True
        for block in function.blocks:
            for instruction in block.instructions:
                for op in instruction.all_operands:
                    if op.is_reg and _HALVES.search(op.phys + "." + op.sub):
                        return True
    return False


def has_scalar_registers(function: MachineFunction) -> bool:
    """Whether the body uses scalar virtual registers: they are allocated in the first phase."""
    scalar = {n for n, row in function.registers.items() if not register_class(row.cls).is_vector}
    return any(op.vreg in scalar for b in function.blocks for i in b.instructions for op in i.all_operands)


def place_name(place: int) -> str:
    """A readable name of a place."""
    if place >= STACK:
        return f"stack object {(place - STACK) // _STRIDE}, 16-bit lane {(place - STACK) % _STRIDE}"
    if place >= VIRTUAL:
        return f"%{(place - VIRTUAL) // _STRIDE}, 16-bit lane {(place - VIRTUAL) % _STRIDE}"
    return unit_name(place) if place < 1 << 18 else unit_name(place - (1 << 18))


class Decoder:
    """Decodes the instructions of one side of a function.

    Args:
        function: the side.
        grain: 1 to tell 16-bit halves apart, 2 not to.
        wave_size: 32 or 64.
    """

    def __init__(self, function: MachineFunction, grain: int, wave_size: int) -> None:
        self.function = function
        self.grain = grain
        self.wave_size = wave_size
        self.position = {b.number: n for n, b in enumerate(function.blocks)}
        self.stack_pointer = (header_field(function, "stackPtrOffsetReg") or "").removeprefix("$")
        self._objects = {
            **{("fixed-stack", k): "fixed " + _ID.sub("", row.text) for k, row in function.fixed_stack.items()},
            **{("stack", k): f"stack {k}" for k in function.stack},
        }
        self._places: dict[str, Place] = {}

    def _units(self, op: Operand) -> tuple[tuple[int, ...], bool, tuple[int, ...]]:
        if op.vreg >= 0:
            row = self.function.registers.get(op.vreg)
            if row is None:
                raise UnsupportedCode(f"%{op.vreg} has no class")
            cls = register_class(row.cls)
            base = VIRTUAL + op.vreg * _STRIDE
            every = tuple(range(base, base + cls.bits // 16))
            chosen = tuple(base + k for k in lane_list(subregister_lanes(op.sub))) if op.sub else every
            rest = tuple(u for u in every[:: self.grain] if u not in chosen)
            return chosen[:: self.grain], cls.is_vector, rest
        name = op.phys
        if self.wave_size == 32 and name in ("vcc", "exec") and op.implicit:
            name += "_lo"
        units = physical_register(name).units
        if name.startswith("src_") and name.endswith(("_base", "_limit")):
            units += tuple(u + (1 << 18) for u in units)
        return units[:: self.grain], bool(units) and units[0] < SGPR_BASE, ()

    def place(self, op: Operand) -> Place:
        """The places of a register operand."""
        found = self._places.get(op.text)
        if found is None:
            units, vector, rest = self._units(op)
            found = Place(
                units, vector, op.undef, op.early_clobber, op.tied, bool(op.phys), op.implicit,
                rest if op.is_def and op.undef and op.sub else (),
            )  # fmt: skip
            self._places[op.text] = found
        return found

    def _object_names(self, text: str) -> str:
        def name(match: re.Match[str]) -> str:
            return self._objects.get((match[1], int(match[2])), match[0])

        return _OBJECT.sub(name, text) if "stack." in text else text

    def _operand_shape(self, op: Operand) -> str:
        if op.kind is OperandKind.REGISTER:
            if op.phys == "noreg":
                return "noreg"
            return "" if op.implicit else "R"
        if op.kind is OperandKind.BLOCK:
            return f"block {self.position.get(_block_number(op), -1)}"
        return self._object_names(op.text)

    def _ended(self, instruction: Instruction) -> tuple[tuple[int, bool], ...]:
        written = {u for op in instruction.all_operands if op.is_def and op.is_reg for u in self.place(op).places}
        found: list[tuple[int, bool]] = []
        for op in instruction.all_operands:
            if op.phys and op.is_reg and (op.dead or (op.killed and op.is_use)):
                place = self.place(op)
                found += [(u, place.vector) for u in place.places if op.is_def or u not in written]
        return tuple(found)

    def live_ins(self, block: BasicBlock) -> frozenset[int]:
        """Places that a block declares live-in."""
        found: set[int] = set()
        for livein in block.liveins:
            units = physical_register(livein.reg).units
            mask = llvm_lane_mask(livein.mask) if livein.mask >= 0 else -1
            found.update(u for k, u in enumerate(units) if mask >> k & 1)
        return frozenset(found)

    def decode(self, instruction: Instruction) -> Decoded:
        """Decode one instruction.

        Raises:
            UnsupportedCode: the oracle cannot run it.
        """
        decoded = self._decode(instruction)
        if instruction.opcode in IGNORED:
            return decoded
        read, written = _touched(decoded)
        return replace(decoded, ended=self._ended(instruction), read_places=read, written_places=written)

    def _decode(self, instruction: Instruction) -> Decoded:
        opcode = instruction.opcode
        reads = tuple(self.place(op) if op.is_use else None for op in instruction.operands)
        writes = tuple(self.place(op) for op in instruction.all_operands if op.is_def and op.is_reg)
        explicit = sum(1 for op in instruction.defs if op.is_reg)
        shape = "|".join((
            function_of(opcode), " ".join(sorted(instruction.flags)), str(len(instruction.defs)),
            *(s for s in map(self._operand_shape, instruction.operands) if s),
            *map(self._object_names, instruction.memory), str(instruction.bundled), str(instruction.opens_bundle),
        ))  # fmt: skip
        number = zlib.crc32(shape.encode())
        if opcode == "KILL":
            return self._kill(instruction, number, writes, explicit)
        if opcode in IGNORED:
            return Decoded("nothing", number, (), (), 0, instruction)
        if opcode == "IMPLICIT_DEF":
            return Decoded("undefine", number, (), writes, explicit, instruction)
        if opcode in ("COPY", "WWM_COPY"):
            return self._copy(instruction, number, reads, writes)
        if SPILL.match(opcode):
            return self._spill(instruction, number)
        kind = "lane" if lanes_are_scalars(opcode) else "pure" if is_pure(instruction) else "event"
        if kind == "event" and asks_all_active(instruction):
            kind = "wave"
        read = [
            op
            for op in instruction.operands
            if op.is_use and not (op.implicit and (_only_orders(op.phys) or ORDINARY.match(op.phys)))
        ]
        if kind == "wave" and leaves_old_unread(instruction):
            read = read[1:]
        # A special register that is named twice is read once.
        named = [op.phys if op.implicit else "" for op in read]
        inputs = tuple(self.place(op) for n, op in enumerate(read) if not named[n] or named.index(named[n]) == n)
        mask = next((op for op in instruction.operands if op.kind is OperandKind.REGMASK), None)
        targets = tuple(
            self.position.get(_block_number(op), -1) for op in instruction.operands if op.kind is OperandKind.BLOCK
        )
        defined = [n for n, op in enumerate(instruction.all_operands) if op.is_def and op.is_reg]
        reads = tuple(
            replace(p, tied=defined.index(p.tied) if p.tied in defined else -1) if p is not None and p.tied >= 0 else p
            for p in reads
        )
        return Decoded(
            kind, number, reads, writes, explicit, instruction,
            preserved=regmask(mask.text) if mask is not None else None,
            everywhere=reads_all_threads(opcode), writes_everywhere=writes_all_threads(opcode),
            mask_result=gives_thread_mask(opcode),
            immediates=tuple(
                int(op.text.split()[0]) if op.kind is OperandKind.IMMEDIATE else None for op in instruction.operands
            ),
            real=_real(opcode), targets=targets, inputs=inputs,
        )  # fmt: skip

    def _copy(
        self, instruction: Instruction, shape: int, reads: tuple[Place | None, ...], writes: tuple[Place, ...]
    ) -> Decoded:
        if not writes or not reads or reads[0] is None:
            raise UnsupportedCode(f"a copy of an unknown form: {instruction}")
        kept = [writes[0], *(w for w, op in _implicit_writes(writes, instruction) if not op.phys.startswith("exec"))]
        everywhere = instruction.opcode == "WWM_COPY"
        return Decoded("copy", shape, reads, tuple(kept), 1, instruction, writes_everywhere=everywhere)

    def _kill(self, instruction: Instruction, shape: int, writes: tuple[Place, ...], explicit: int) -> Decoded:
        """It emits nothing: what it defines and does not read as well is nothing from here on."""
        kept = {
            u for op in instruction.operands if op.is_use and op.is_reg and not op.undef for u in self.place(op).places
        }
        ends = tuple(replace(w, places=tuple(u for u in w.places if u not in kept)) for w in writes)
        return Decoded("undefine", shape, (), ends, explicit, instruction)

    def _spill(self, instruction: Instruction, shape: int) -> Decoded:
        match = SPILL.match(instruction.opcode)
        assert match is not None
        operands = instruction.all_operands
        frame = _OBJECT.match(operands[1].text)
        if frame is None or frame[1] != "stack":
            raise UnsupportedCode(f"spill code of an unknown form: {instruction}")
        number, bits = int(frame[2]), int(match[2])
        offset = next((int(op.text) for op in operands[2:] if op.kind is OperandKind.IMMEDIATE), 0)
        base = next((op.phys for op in operands[2:] if op.phys and not op.implicit), "")
        row = self.function.stack.get(number)
        inside = row is not None and offset >= 0 and offset * 8 + bits <= row.size * 8 and offset % 2 == 0
        own_frame = base in ("", self.stack_pointer)
        first = STACK + number * _STRIDE + offset // 2
        slots = tuple(range(first, first + bits // 16, self.grain)) if inside and own_frame else ()
        register = self.place(operands[0])
        extra = tuple(self.place(op) for op in instruction.operands if op.is_def and op.is_reg)
        everywhere = bool(match[1])
        if match[3] == "SAVE":
            return Decoded("save", shape, (register,), extra, 0, instruction, slots, writes_everywhere=everywhere)
        return Decoded("restore", shape, (), (register, *extra), 1, instruction, slots, writes_everywhere=everywhere)


def _touched(one: Decoded) -> tuple[tuple[tuple[int, bool], ...], tuple[tuple[int, bool], ...]]:
    read = [(u, p.vector) for p in one.reads if p is not None and not p.undef for u in p.places]
    written = [(u, p.vector) for p in one.writes for u in p.places]
    if one.kind == "restore":
        read += [(u, one.writes[0].vector) for u in one.slots]
    elif one.kind == "save" and one.reads[0] is not None:
        written += [(u, one.reads[0].vector) for u in one.slots]
    return tuple(read), tuple(written)


def _only_orders(name: str) -> bool:
    """An implicit use that no pure operation computes with: EXEC, or a whole register whose part is read."""
    return name in EXEC_REGISTERS or "gpr" in name


def _implicit_writes(writes: tuple[Place, ...], instruction: Instruction) -> list[tuple[Place, Operand]]:
    operands = [op for op in instruction.operands if op.is_def and op.is_reg]
    return list(zip(writes[1:], operands, strict=True))


def _block_number(op: Operand) -> int:
    digits = re.search(r"%bb\.(\d+)", op.text)
    return int(digits[1]) if digits else -1


def _real(opcode: str) -> str:
    """The operation of a scalar instruction that the oracle computes bit for bit, because thread masks need it."""
    if opcode == ENTER_WHOLE_WAVE:
        return "enter"
    for pattern, name in ((SAVE_EXEC, "save "), (BITWISE, "bits ")):
        if match := pattern.match(opcode):
            return name + match[1]
    for pattern, name in (
        (MOVE, "move"), (NOT, "not"), (SELECT, "select"), (FIRST_ONE, "first"), (SHIFT_LEFT, "shift"),
    ):  # fmt: skip
        if pattern.match(opcode):
            return name
    return ""
