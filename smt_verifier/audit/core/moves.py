"""What moves values without computing any: copies, spill code, and scalars kept in lanes of vector registers.

``SI_SPILL_S32_TO_VGPR`` writes a scalar into one thread's lane of a vector register, whether that thread is active or
not, and ``SI_RESTORE_S32_FROM_VGPR`` reads it back (SILowerSGPRSpills.cpp; they become v_writelane and v_readlane).
Such a *cell* is a scalar place: it belongs to the wave, not to a class of threads. An ordinary vector write to its
register may destroy it; an ordinary copy of the register does not carry it along, because the thread may be inactive;
``WWM_COPY`` and whole-wave spills do.
"""

from __future__ import annotations

from dataclasses import dataclass

from smt_verifier.audit.core.lanes import LaneMap, cell_keys, stack_keys
from smt_verifier.audit.core.opcodes import LANE_MOVES, LANE_RESTORE, LANE_SAVE, WHOLE_WAVE_COPIES, facts
from smt_verifier.audit.core.semantics import SpillSlot, is_copy, spill_slot
from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.mir.model import Instruction, MachineFunction, Operand, OperandKind


@dataclass(frozen=True, slots=True)
class LaneMove:
    """``scalar`` goes into thread ``lane`` of the vector register ``register`` (``is_save``), or comes from there."""

    is_save: bool
    scalar: Operand
    register: Operand
    lane: int
    tied: Operand | None


def lane_move(instruction: Instruction) -> LaneMove | None:
    """The scalar move through a vector lane; None for any other instruction.

    Raises:
        UnsupportedError: the instruction has an unknown form.
    """
    opcode = instruction.opcode
    if opcode not in (LANE_SAVE, LANE_RESTORE):
        return None
    explicit = [op for op in instruction.operands if not op.implicit]
    explicit_count = 3 if opcode == LANE_SAVE else 2
    defined = instruction.defs
    if len(defined) != 1 or len(explicit) != explicit_count or explicit[1].kind is not OperandKind.IMMEDIATE:
        raise UnsupportedError(f"spill code of an unknown form: {instruction}")
    lane = int(explicit[1].text)
    if opcode == LANE_SAVE:
        return LaneMove(True, explicit[0], defined[0], lane, explicit[2])
    return LaneMove(False, defined[0], explicit[0], lane, None)


def lane_cells(move: LaneMove, lanes: LaneMap) -> tuple[int, ...]:
    """Keys of the cell, one for each key of the scalar.

    Raises:
        UnsupportedError: one of both is not a register of 32 bits, or the vector register has no such thread.
    """
    keys = lanes.keys(move.register)
    if (
        not len(keys) == len(lanes.keys(move.scalar)) == 2 // lanes.grain
        or not lanes.is_vector(keys[0])
        or not 0 <= move.lane < lanes.wave_size
    ):
        raise UnsupportedError(f"no lane {move.lane} of {move.register}")
    return cell_keys(keys[0], move.lane, lanes.grain)


def slot_keys(slot: SpillSlot, lanes: LaneMap) -> tuple[int, ...]:
    """Keys of the part of a stack slot that spill code moves, one for each key of the register."""
    return stack_keys(slot.number, slot.offset // 2, len(lanes.keys(slot.register)), lanes.grain)


def register_moves(instruction: Instruction, lanes: LaneMap) -> list[tuple[int, int]] | None:
    """``(written, read)`` keys of a copy, a save or a reload of whole registers; None for anything else.

    Nothing is read where the source is undefined.
    """
    if is_copy(instruction):
        target, source = instruction.defs[0], instruction.operands[0]
        return [] if source.undef else list(zip(lanes.keys(target), lanes.keys(source), strict=False))
    slot = spill_slot(instruction)
    if slot is None:
        return None
    keys, cells = lanes.keys(slot.register), slot_keys(slot, lanes)
    if not slot.is_save:
        return list(zip(keys, cells, strict=True))
    return [] if slot.register.undef else list(zip(cells, keys, strict=True))


def scalar_moves(
    instruction: Instruction, lanes: LaneMap, threads: frozenset[int] = frozenset()
) -> list[tuple[int, int]] | None:
    """``(written, read)`` keys of any instruction that only moves values, scalars in vector lanes included.

    ``threads``: the lanes that hold scalars somewhere in the function; whole-wave moves carry those along.
    """
    if not facts(instruction.opcode).may_move:
        return None
    move = lane_move(instruction)
    if move is not None:
        scalar, cells = lanes.keys(move.scalar), lane_cells(move, lanes)
        return list(zip(cells, scalar, strict=True) if move.is_save else zip(scalar, cells, strict=True))
    moves = register_moves(instruction, lanes)
    if moves and threads and is_whole_wave_move(instruction):
        moves += [
            pair
            for to, of in moves
            for thread in threads
            for pair in zip(cell_keys(to, thread, lanes.grain), cell_keys(of, thread, lanes.grain), strict=True)
        ]
    return moves


def cell_threads(function: MachineFunction) -> frozenset[int]:
    """Lanes that hold scalars, in any register, anywhere in a function."""
    if LANE_MOVES.isdisjoint(function.opcodes):
        return frozenset()
    moves = (lane_move(i) for b in function.blocks for i in b.instructions)
    return frozenset(m.lane for m in moves if m is not None)


def really_written(instruction: Instruction) -> tuple[Operand, ...]:
    """Register definitions of an instruction. A scalar saved in a lane is not written, though its tuple is printed as
    implicitly defined: that only orders the saves of its parts.
    """
    if instruction.opcode == LANE_SAVE:
        return instruction.defs
    return tuple([op for op in instruction.all_operands if op.is_def and op.is_reg])


def cell_registers(function: MachineFunction, lanes: LaneMap) -> frozenset[int]:
    """First keys of the vector registers and spill slots that hold scalars in some lane, anywhere in a function."""
    if LANE_MOVES.isdisjoint(function.opcodes):
        return frozenset()
    containers: set[int] = set()
    whole_wave_moves: list[tuple[int, int]] = []
    for block in function.blocks:
        for instruction in block.instructions:
            move = lane_move(instruction)
            if move is not None:
                containers.update(lanes.keys(move.register)[:1])
            elif is_whole_wave_move(instruction):
                whole_wave_moves += register_moves(instruction, lanes) or ()
    changed = bool(containers)
    while changed:
        new = {to for to, of in whole_wave_moves if of in containers} - containers
        containers |= new
        changed = bool(new)
    return frozenset(containers)


def is_whole_wave_move(instruction: Instruction) -> bool:
    """Whether a copy or spill moves the lanes of all threads, active or not."""
    return instruction.opcode in WHOLE_WAVE_COPIES or instruction.opcode.startswith("SI_SPILL_WWM")
