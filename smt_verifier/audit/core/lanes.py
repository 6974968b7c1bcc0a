"""Operands as lists of lane keys: the alphabet in which both sides of an audit are compared.

A *key* is an integer. ``vreg * 128 + lane`` for lane *lane* of a virtual register, ``-1 - unit`` for a unit of a
physical register, ``STACK + slot * 128 + lane`` for a lane of a spill slot, ``CELL + …`` for a scalar that is kept in
one thread's lane of a vector register or slot (``moves.py``), ``ADDRESS + …`` for what addressed a lane of a slot when
it was saved, ``ENTRY + unit`` for what a physical register held at
function entry, ``GHOST + …`` for what a repeated operation was last computed from. Lanes and units are 16 bits wide.
Where neither side of a function names a 16-bit half, only the even ones are used and stand for 32 bits (``grain`` 2).
That halves the work and loses nothing, because then both halves are always read and written together.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from msgspec.structs import replace

from smt_verifier.audit.core.opcodes import INLINE_ASSEMBLY
from verilocc_mlir.errors import InputError
from verilocc_mlir.mir.model import Instruction, LiveIn, MachineFunction, Operand
from verilocc_mlir.target.classes import RegisterClass, register_class
from verilocc_mlir.target.registers import (
    SGPR_BASE,
    Bank,
    lane_list,
    llvm_lane_mask,
    physical_register,
    subregister_lanes,
    unit_bank,
    unit_name,
)

STACK = 1 << 40
CELL = 1 << 42
ADDRESS = 1 << 58
ENTRY = 1 << 60
GHOST = 1 << 61
_THREADS = 64
_LANES_PER_REGISTER = 128
_HALF = re.compile(r"lo16|hi16")
_NARROW = re.compile(r"_16(?:_|\Z)|lo16|hi16")


_HIGH_HALF = 1 << 20
_APERTURES = frozenset(
    {"src_shared_base", "src_shared_limit", "src_private_base", "src_private_limit", "src_flat_scratch_base"}
)


def registers_of(function: MachineFunction) -> Collection[Operand]:
    """The register operands of a function; of those with the same text, one."""
    return [op for op in function.distinct_operands if op.is_reg]


def uses_halves(*functions: MachineFunction) -> bool:
    """Whether any operand, class or block live-in of the functions is finer than 32 bits."""
    for function in functions:
        of_halves = {name for name in {row.cls for row in function.registers.values()} if _NARROW.search(name)}
        narrow = {n for n, row in function.registers.items() if row.cls in of_halves}
        for operand in registers_of(function):
            if operand.vreg in narrow:
                return True
            if "16" in operand.text and (_HALF.search(operand.phys) or _HALF.search(operand.sub)):
                return True
        if any(_is_of_halves(livein) for livein in {r for block in function.blocks for r in block.liveins}):
            return True
    return False


def _is_of_halves(livein: LiveIn) -> bool:
    """Whether a block live-in is half a register, or its lane mask has one half of a register and not the other."""
    lanes = llvm_lane_mask(livein.mask) if livein.mask >= 0 else 0
    low = sum(1 << bit for bit in range(0, lanes.bit_length(), 2))
    return _HALF.search(livein.reg) is not None or lanes & low != lanes >> 1 & low


def as_llvm_reads(function: MachineFunction, wave_size: int) -> MachineFunction:
    """The function with ``$vcc_lo`` for each implicit ``$vcc`` on wave32, but for inline assembly, which may touch all
    of it (SIInstrInfo::fixImplicitOperands).
    """
    if wave_size != 32 or not any(op.phys == "vcc" and op.implicit for op in function.distinct_operands):
        return function
    blocks = tuple(replace(b, instructions=tuple(map(_with_vcc_lo, b.instructions))) for b in function.blocks)
    return replace(function, blocks=blocks)


def _with_vcc_lo(instruction: Instruction) -> Instruction:
    if instruction.opcode in INLINE_ASSEMBLY:
        return instruction
    operands = tuple(
        replace(op, phys="vcc_lo", text=op.text.replace("$vcc", "$vcc_lo")) if op.phys == "vcc" and op.implicit else op
        for op in instruction.operands
    )
    return instruction if operands == instruction.operands else replace(instruction, operands=operands)


class LaneMap:
    """Keys of the operands of one function, cached by operand text."""

    def __init__(self, function: MachineFunction, grain: int, wave_size: int) -> None:
        self.grain = grain
        self.wave_size = wave_size
        self._rows = function.registers
        self._classes: dict[int, RegisterClass] = {}
        self._keys: dict[str, tuple[int, ...]] = {}
        self._vector: dict[int, bool] = {}

    def class_of(self, vreg: int) -> RegisterClass:
        """Register class of a virtual register.

        Raises:
            InputError: the ``registers:`` table does not give one.
        """
        cls = self._classes.get(vreg)
        if cls is None:
            row = self._rows.get(vreg)
            if row is None:
                raise InputError(f"%{vreg} has no register class", hint="the registers: table must list it")
            cls = self._classes[vreg] = register_class(row.cls)
        return cls

    def flags_of(self, vreg: int) -> tuple[str, ...]:
        """What the ``registers:`` table marks a virtual register as: ``WWM_REG`` and the like."""
        row = self._rows.get(vreg)
        return () if row is None else row.flags

    def keys(self, operand: Operand) -> tuple[int, ...]:
        """Keys of the lanes a register operand touches, lowest lane first."""
        text = operand.text
        keys = self._keys.get(text)
        if keys is None:
            keys = self._compute(operand)
            self._keys[text] = keys
        return keys

    def _compute(self, operand: Operand) -> tuple[int, ...]:
        if operand.vreg >= 0:
            bits = self.class_of(operand.vreg).bits
            if not operand.sub:
                return self.register_lanes(operand.vreg)
            mask = subregister_lanes(operand.sub)
            if mask >> (bits // 16):
                raise InputError(f"%{operand.vreg}.{operand.sub} reaches beyond its class")
            return tuple(operand.vreg * _LANES_PER_REGISTER + k for k in lane_list(mask)[:: self.grain])
        return self.register_keys(operand.phys)

    def register_lanes(self, vreg: int) -> tuple[int, ...]:
        """Keys of all lanes of a virtual register."""
        lanes = self.class_of(vreg).bits // 16
        return tuple(range(vreg * _LANES_PER_REGISTER, vreg * _LANES_PER_REGISTER + lanes, self.grain))

    def register_keys(self, name: str) -> tuple[int, ...]:
        """Keys of a physical register by name without ``$``."""
        units = physical_register(name).units
        if name in _APERTURES:
            # LLVM gives the high half of these read-only constants no unit of its own (SIRegisterInfo.td).
            units += tuple(u + _HIGH_HALF for u in units)
        return tuple(-1 - u for u in units[:: self.grain])

    def livein_keys(self, livein: LiveIn) -> tuple[int, ...]:
        """Keys of a block live-in, cut down to its lane mask."""
        units = physical_register(livein.reg).units
        lanes = llvm_lane_mask(livein.mask) if livein.mask >= 0 else -1
        return tuple(-1 - units[k] for k in range(0, len(units), self.grain) if lanes >> k & 1)

    def is_vector(self, key: int) -> bool:
        """Whether the key belongs to a vector register (one value a thread); spill slots are asked elsewhere."""
        if key < 0:
            return -1 - key < SGPR_BASE
        if key >= GHOST:
            return bool(key & 1)
        if key >= CELL:
            return False
        vreg = key // _LANES_PER_REGISTER
        is_vector = self._vector.get(vreg)
        if is_vector is None:
            is_vector = self._vector[vreg] = self.class_of(vreg).is_vector
        return is_vector


def is_vgpr(key: int) -> bool:
    """Whether the key is of a physical VGPR."""
    return key < 0 and unit_bank(-1 - key) is Bank.VGPR


def stack_keys(slot: int, first: int, count: int, grain: int) -> tuple[int, ...]:
    """Keys of ``count`` lanes (of ``16 * grain`` bits) of a spill slot from 16-bit lane ``first``."""
    return tuple(STACK + slot * _LANES_PER_REGISTER + first + k * grain for k in range(count))


def address_keys(cell: int, count: int) -> tuple[int, ...]:
    """Keys of what ``count`` addressing registers held when the lane ``cell`` of a slot was saved."""
    first = ADDRESS + (cell - STACK) * _MOST_ADDRESSES
    return tuple(range(first, first + count))


_MOST_ADDRESSES = 32
"""16-bit units of the stack, frame and base pointers, flat scratch and the descriptor, and some more."""


def cell_keys(container: int, thread: int, grain: int) -> tuple[int, ...]:
    """Keys of the 32-bit scalar in lane ``thread`` of a vector register or slot whose first key is ``container``."""
    place = -2 * container - 1 if container < 0 else 2 * container
    first = CELL + (place * _THREADS + thread) * 2
    return (first,) if grain == 2 else (first, first + 1)


def cell_container(key: int) -> int:
    """First key of the register or slot that holds a cell."""
    place = (key - CELL) // (2 * _THREADS)
    return -(place + 1) // 2 if place % 2 else place // 2


def key_name(key: int, grain: int) -> str:
    """A readable name: ``%12.sub3``, ``v7``, ``spill slot 3, lane 2``, ``lane 5 of v63``, ``s30 at function entry``."""
    if key >= GHOST:
        return "an argument of a repeated operation"
    if key >= ENTRY:
        return f"{key_name(-1 - (key - ENTRY), grain)} at function entry"
    if key >= ADDRESS:
        return f"the address of {key_name(STACK + (key - ADDRESS) // _MOST_ADDRESSES, grain)}"
    if key >= CELL:
        return f"thread {(key - CELL) // 2 % _THREADS} of {key_name(cell_container(key), grain)}"
    if key >= STACK:
        slot, lane = divmod(key - STACK, _LANES_PER_REGISTER)
        return f"spill slot {slot}, bits {16 * lane} up"
    if key >= 0:
        vreg, lane = divmod(key, _LANES_PER_REGISTER)
        half = ("", ".lo16" if lane % 2 == 0 else ".hi16")[grain == 1]
        return f"%{vreg}.sub{lane // 2}{half}"
    unit = -1 - key
    name = unit_name(unit) if unit < _HIGH_HALF else f"{unit_name(unit - _HIGH_HALF)} (high half)"
    if grain == 2:
        return name.removesuffix(".lo").removesuffix("[0:15]")
    return name


def other_half(key: int) -> int:
    """The other 16 bits of a 32-bit register, lane or slot: keys of physical registers count down from -1."""
    return key ^ 1 if key >= 0 else -1 - ((-1 - key) ^ 1)
