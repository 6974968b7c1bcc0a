"""What one instruction does, by its opcode (``opcodes.py``) and its operands: moves, pure operations, loads, calls,
ties, and lanes of operands that are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from smt_verifier.audit.core.opcodes import (
    COPIES,
    EXEC_NAMES,
    INLINE_ASSEMBLY,
    LANE_MOVES,
    LOADS_ONLY,
    NO_CODE,
    PSEUDO_PURE,
    WHOLE_WAVE_COPIES,
    Reach,
    asks_other_threads,
    facts,
    listed,
    may_call,
    table_of,
)
from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.mir.model import Instruction, Operand, OperandKind
from verilocc_mlir.target.callingconv import regmask
from verilocc_mlir.target.instructions import instruction as described

_ASM_KINDS = {"reguse": 1, "regdef": 2, "regdef-ec": 3, "clobber": 4, "imm": 5, "mem": 6, "func": 7}
_TIED_TO = re.compile(r"tiedto:\$(\d+)")
_RELATIVE = re.compile(r"target-flags\((?!amdgpu-abs)")
"""An address relative to the instruction that holds it (SIInstrInfo.h, MO_REL32 and the like)."""
_INVARIANT_LOAD = re.compile(
    r'(?:"amdgpu-noclobber" )?(?:(?:dereferenceable invariant|invariant dereferenceable) load \('
    r"|invariant load \([^()]*\)[^()]*, addrspace 4\Z)"
)
"""A load that gives the same wherever it stands, once it was executed: no volatile, no ordering, no scope. What is not
said to be dereferenceable is in constant memory, of which nothing is given back while a kernel runs."""
_PLAIN_LOAD = re.compile(r'(?:non-temporal )?(?:dereferenceable )?(?:invariant )?(?:"amdgpu-[a-z-]+" )?load \(')
"""A load that is not volatile and not atomic (MachineMemOperand::print)."""
_DEBUG_LOCATION = re.compile(r",? debug-location !(?:\d+|DILocation\([^()]*\))")
_NO_PLACES = frozenset(
    {"scc", "src_vccz", "src_execz", "src_scc", "src_pops_exiting_wave_id", "lds_direct", "asynccnt"}
)
"""Registers that do not keep what is copied into them, or change by themselves."""
ALIASES = frozenset({"src_vccz", "src_execz", "src_scc"})
"""Registers that show the state of another one; LLVM's code generator reads none of them."""
_ORDINARY = re.compile(r"[vsa]gpr\d")
_PURE_RESULT = re.compile(r"[vsa]gpr\d|vcc(?:_lo|_hi)?\Z")
_PURE_INPUT = re.compile(
    r"(?:[vsa]gpr|ttmp)\d|vcc(?:_lo|_hi)?\Z|m0\Z|scc\Z|mode\Z|sgpr_null"
    r"|src_(?:shared|private)_(?:base|limit)|src_flat_scratch"
)
"""Registers whose content the audit follows, or that never changes; others (``src_vccz``, ``src_pops…``) do."""


def is_copy(instruction: Instruction) -> bool:
    """Whether it copies a value and nothing else: into and out of EXEC, SCC or a volatile register, COPY does more.

    EXEC decides which threads the instructions around the copy run for. SCC is one bit: a copy into it compares with
    0, one out of it selects (SIInstrInfo::copyPhysReg). Such a copy must pair, and keeps its place.
    """
    if instruction.opcode in WHOLE_WAVE_COPIES:
        return True
    if instruction.opcode not in COPIES:
        return False
    target, source = instruction.defs[0].phys, instruction.operands[0].phys
    return target not in _NO_PLACES and target not in EXEC_NAMES and source not in _NO_PLACES


def is_move(instruction: Instruction) -> bool:
    """Whether it moves values and computes none: copies, spill code, scalars into and out of vector lanes."""
    return is_copy(instruction) or instruction.opcode in LANE_MOVES or facts(instruction.opcode).spill is not None


def acts_alone(instruction: Instruction) -> bool:
    """Moves and instructions that emit nothing: they never pair."""
    return instruction.opcode in NO_CODE or (facts(instruction.opcode).may_move and is_move(instruction))


@dataclass(frozen=True, slots=True)
class SpillSlot:
    """What a spill pseudo-instruction moves: ``bits`` between ``register`` and byte ``offset`` of ``%stack.number``.

    ``kind`` is that of the opcode: S, V, A, AV, or one with WWM_ before it, which moves the lanes of all threads.
    """

    kind: str
    bits: int
    is_save: bool
    register: Operand
    number: int
    offset: int


def spill_slot(instruction: Instruction) -> SpillSlot | None:
    """The move of a spill pseudo-instruction; None for any other instruction.

    Raises:
        UnsupportedError: spill code of a form that is not known.
    """
    kind = facts(instruction.opcode).spill
    if kind is None:
        return None
    operands = instruction.all_operands
    if len(operands) < 2:
        raise UnsupportedError(f"spill code of an unknown form: {instruction}")
    frame = operands[1]
    number = frame.text.removeprefix("%stack.").split(".")[0]
    if frame.kind is not OperandKind.FRAME_INDEX or not number.isdigit():
        raise UnsupportedError(f"spill code of an unknown form: {instruction}")
    offset = next((int(op.text) for op in operands[2:] if op.kind is OperandKind.IMMEDIATE), 0)
    return SpillSlot(*kind, operands[0], int(number), offset)


def leaves_old(instruction: Instruction) -> bool:
    """Whether it is DPP that leaves its first operand, the old value, unread: no row or bank is masked, and threads out
    of bounds read 0 (GCNDPPCombine.cpp: ``MaskAllLanes && BoundCtrlZero``).
    """
    if not instruction.opcode.endswith("_dpp") or not facts(instruction.opcode).asks_exec:
        return False
    return [op.text for op in instruction.operands if not op.implicit][-3:] in (["15", "15", "1"], ["15", "15", "-1"])


def is_pure(instruction: Instruction) -> bool:
    """Whether the result depends on the written operands only, and nothing else happens.

    Such an instruction may be rematerialised or, when dead, deleted (TargetInstrInfo::isReMaterializable,
    SIInstrInfo::isReMaterializableImpl). One explicit result; no memory but invariant loads; it may clobber SCC,
    which is treated as a definition like any other, as is the rest of a tuple that is implicitly defined with its part.
    EXEC is not an input: the result of an active thread does not depend on it, but for ``asks_exec``.
    """
    known = facts(instruction.opcode)
    loads = known.loads_scalars
    if not (loads or known.is_pure):
        return False
    if len(instruction.defs) != 1 or instruction.bundled or instruction.opens_bundle:
        return False
    if instruction.tail and not _DEBUG_LOCATION.fullmatch(instruction.tail):
        return False
    if any(op.phys and not _PURE_RESULT.match(op.phys) for op in instruction.defs):
        return False
    if not all(map(_is_pure_operand, instruction.operands)):
        return False
    others = [op.text for op in instruction.operands if not op.is_reg]
    if instruction.opcode not in PSEUDO_PURE and any(map(_RELATIVE.match, others)):
        return False
    if loads:
        return bool(instruction.memory) and all(map(_INVARIANT_LOAD.match, instruction.memory))
    if instruction.memory:
        return False
    return "nofpexcept" in instruction.flags or not known.may_raise


def is_plain_load(instruction: Instruction) -> bool:
    """Whether it loads, does nothing else, and may be left out where nothing reads its result (LiveRangeEdit.cpp,
    eliminateDeadDef; MachineInstr::isSafeToMove): it is not volatile, not atomic, and no monitor is set by it.
    """
    table = facts(instruction.opcode).table
    return (
        table is not None
        and "may-load" in table.properties <= LOADS_ONLY
        and "MONITOR" not in instruction.opcode
        and len(instruction.defs) == 1
        and not (instruction.bundled or instruction.opens_bundle)
        and (not instruction.tail or _DEBUG_LOCATION.fullmatch(instruction.tail) is not None)
        and bool(instruction.memory)
        and all(map(_PLAIN_LOAD.match, instruction.memory))
    )


def _is_pure_operand(op: Operand) -> bool:
    """Whether a pure instruction may have it right of its opcode, if it is a register."""
    if op.is_def:
        return op.phys == "scc" or bool(_ORDINARY.match(op.phys))
    if op.phys in EXEC_NAMES:
        return op.implicit
    return not op.phys or bool(_PURE_INPUT.match(op.phys))


_ACCUMULATORS = (0, 3)
"""Numbers of D and C among the operands of an MFMA (VOP3PInstructions.td)."""


def reads_matrices(opcode: str) -> bool:
    """Whether it is an MFMA, which reads A and B from either vector register file (VOP3PInstructions.td)."""
    return opcode.startswith("V_MFMA_")


def either_file_operands(opcode: str) -> frozenset[int]:
    """Numbers of the operands whose class in LLVM's table holds VGPRs and AGPRs, on targets with one vector file
    (gfx90a on), with what is tied to them; C and D of an MFMA are of either file, as its form says. The scales of an
    MFMA are VGPRs.
    """
    table = described(opcode, "gfx90a")
    rows = () if table is None else table.operands
    either = {number for number, row in enumerate(rows) if row.register_class.startswith("av_")}
    if reads_matrices(opcode):
        either.update(number for number in _ACCUMULATORS if rows[number:])
    return frozenset(either.union(number for number, row in enumerate(rows) if row.tied_to in either))


def is_followed(instruction: Instruction) -> bool:
    """Whether no operand shows the state of another register, and control leaves at terminators only (no asm goto)."""
    return instruction.opcode != "INLINEASM_BR" and ALIASES.isdisjoint([op.phys for op in instruction.operands])


def changes_addressing(instruction: Instruction) -> bool:
    """Whether it may change which registers the vector instructions behind it name, or whether they are executed.

    Moves that are added or dropped behind it would be indexed or skipped too, and nothing in their text says so.
    """
    if _ADDRESSING.match(instruction.opcode):
        return True
    if not instruction.opcode.startswith("S_SETREG_"):
        return False
    explicit = [op for op in instruction.operands if not op.implicit]
    if not explicit or explicit[-1].kind is not OperandKind.IMMEDIATE:
        return True
    place = int(explicit[-1].text.split()[0])
    register, offset, size = place & 0x3F, place >> 6 & 0x1F, (place >> 11 & 0x1F) + 1
    return register == _MODE and not _ADDRESSING_BITS.isdisjoint(range(offset, offset + size))


_ADDRESSING = re.compile(r"S_SET_GPR_IDX_|S_SETVSKIP|S_SET_VGPR_MSB")
_MODE = 1
_ADDRESSING_BITS = frozenset({27, 28})
"""GPR_IDX_EN and VSKIP in the hardware register MODE (Vega and CDNA ISA manuals, "Mode register"; hwreg in
SIDefines.h)."""


def ties(instruction: Instruction) -> dict[int, int]:
    """For each operand that must be the register of a definition, the number of that definition (LLVM's numbering).

    LLVM ties what its table ties when it reads the text, whether the text says so or not (MachineInstr::addOperand);
    the ties of inline assembly and of SDWA stand in the text alone.
    """
    in_text = {number: op.tied for number, op in enumerate(instruction.all_operands) if op.tied >= 0}
    by_table = listed(instruction.opcode).ties
    if instruction.opcode in INLINE_ASSEMBLY:
        in_text.update((number, tied) for number, _, tied in asm_operands(instruction) if tied >= 0)
    return {**in_text, **dict(by_table)} if by_table else in_text


def may_be_tied(instruction: Instruction) -> bool:
    """Whether its text, or LLVM's table, may tie an operand."""
    if instruction.opcode in INLINE_ASSEMBLY or listed(instruction.opcode).ties:
        return True
    return any(op.tied >= 0 for op in instruction.all_operands)


def early_clobbers(instruction: Instruction) -> frozenset[int]:
    """Numbers of the definitions that are written before all operands are read, by the text or by LLVM's table."""
    by_table = listed(instruction.opcode).early_clobbers
    in_text = [number for number, op in enumerate(instruction.all_operands) if op.early_clobber]
    if instruction.opcode in INLINE_ASSEMBLY:
        in_text += [number for number, kind, _ in asm_operands(instruction) if kind == 3]
    return by_table.union(in_text) if in_text else by_table


def asm_operands(instruction: Instruction) -> Iterator[tuple[int, int, int]]:
    """For each register operand of inline assembly ``(number, kind, tied)`` as its flag word says (InlineAsm.h, Flag):
    kind 1 use, 2 definition, 3 early-clobber definition, 4 clobber; the number of the operand it is tied to, or -1.

    Raises:
        UnsupportedError: the words do not describe the operands.
    """
    rows = instruction.operands
    first_of_group: list[int] = []
    number = 2
    while number < len(rows) and rows[number].kind in (OperandKind.IMMEDIATE, OperandKind.ASM_FLAG):
        kind, count, group = _asm_flag(rows, number)
        if number + count >= len(rows) or group >= len(first_of_group):
            raise UnsupportedError(f"operand words of inline assembly are not as LLVM writes them: {instruction}")
        first_of_group.append(number + 1)
        for k in range(count):
            yield number + 1 + k, kind, first_of_group[group] + k if group >= 0 else -1
        number += count + 1


def _asm_flag(rows: Sequence[Operand], number: int) -> tuple[int, int, int]:
    """Kind, number of operands and group tied to (-1: none) of the flag word at ``rows[number]``: LLVM 22's number, or
    LLVM 24's words, which leave the number of operands to what follows.
    """
    if rows[number].kind is OperandKind.IMMEDIATE:
        word = int(rows[number].text.split()[0])
        tied = word >> 31 & 1 and word & 7 == 1
        return word & 7, word >> 3 & 0x1FFF, word >> 16 & 0x7FFF if tied else -1
    kind = _ASM_KINDS.get(re.split(r"[: ]", rows[number].text, maxsplit=1)[0], 0)
    behind = rows[number + 1 :]
    clobber = kind == _ASM_KINDS["clobber"]
    others = (OperandKind.ASM_FLAG, OperandKind.OTHER)  # OTHER: the metadata behind all operands
    ends = (n for n, op in enumerate(behind) if op.kind in others or (op.implicit and not clobber))
    tied_to = _TIED_TO.search(rows[number].text)
    return kind, next(ends, len(behind)), int(tied_to[1]) if tied_to else -1


def exec_unclear(instruction: Instruction) -> bool:
    """Whether it is followed only while all threads are active."""
    if instruction.opcode in INLINE_ASSEMBLY:
        return asks_other_threads(str(instruction))
    return facts(instruction.opcode).reach is Reach.UNCLEAR


def is_call(instruction: Instruction) -> bool:
    """Whether a register mask makes it a call."""
    called = may_call(table_of(instruction.opcode).properties)
    return called and any(op.kind is OperandKind.REGMASK for op in instruction.operands)


def preserved_by(call: Instruction) -> frozenset[int]:
    """Units that a call leaves alone by all its register masks; reserved registers are no matter of masks."""
    first, *others = [regmask(op.text) for op in call.operands if op.kind is OperandKind.REGMASK]
    return first.intersection(*others)


def explicit_shape(operands: tuple[Operand, ...]) -> tuple[str, ...]:
    """Explicit operands with registers and branch targets blanked: what two forms of one instruction must share."""
    return tuple(
        [
            "R" if op.kind is OperandKind.REGISTER else "B" if op.kind is OperandKind.BLOCK else op.text
            for op in operands
            if not op.implicit
        ]
    )


_MIXED_SOURCES = (1, 3, 5)

_ADDEND = 2
"""Number of S2 among the operands right of the opcode."""
_CLAMP = 3
"""Number of the bit that saturates the result, by which its low half depends on all of S2."""


def is_read(instruction: Instruction, number: int, lane: int, lanes: int, *, vector: bool) -> bool:
    """Whether lane ``lane`` of the ``lanes`` of an operand is read; ``number`` is its place in ``operands``.

    ``vector``: it is in a vector register. Of a scalar pair the low half always is: gfx1250 takes it for both.
    """
    known = facts(instruction.opcode)
    if not (known.is_packed or known.is_mixed) or number == 0 or instruction.operands[number].implicit:
        return True
    modifiers = instruction.operands[number - 1]
    if modifiers.kind is not OperandKind.IMMEDIATE:
        return True
    bits = int(modifiers.text.split()[0])
    if known.is_mixed:
        # Where lanes are 32 bits wide there is one, and it is read.
        return not vector or number not in _MIXED_SOURCES or lanes != 2 or not bits & 8 or lane == bool(bits & 4)
    if not vector and 2 * lane < lanes:
        return True
    return (2 * lane >= lanes) in (bool(bits & 4), bool(bits & 8))


def addend_of_high_half(instruction: Instruction) -> int:
    """Number in ``operands`` of the operand whose upper half only the upper half of the result depends on; -1: none.

    The carry out depends on it too. Where the text says that it is dead, or where it goes nowhere, it counts as two
    values that need not agree (``execute.py``), so that a later read of it is no proof: the flag is not believed.
    """
    if not facts(instruction.opcode).is_wide_mad or len(instruction.defs) != 2:
        return -1
    carry = instruction.defs[1]
    if not carry.dead and not carry.phys.startswith("sgpr_null"):
        return -1
    return _ADDEND if instruction.operands[_CLAMP].text == "0" else -1
