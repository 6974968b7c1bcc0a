"""What the audit must know about opcodes, and nothing more. Every list names its source in LLVM.

Everything not listed is *mandatory*: it must stand on both sides, in order, and is otherwise an uninterpreted
function of its operands. A list that lacks an opcode therefore costs a proof, never soundness.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from smt_verifier.audit.core.inactive import Reach, reach
from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.mir.model import Instruction, Operand, OperandKind
from verilocc_mlir.target.callingconv import regmask
from verilocc_mlir.target.instructions import InstructionDescription
from verilocc_mlir.target.instructions import instruction as described

EXEC_NAMES = frozenset({"exec", "exec_lo", "exec_hi"})
COPIES = frozenset({"COPY"})
WHOLE_WAVE_COPIES = frozenset({"WWM_COPY"})
LANE_SAVE = "SI_SPILL_S32_TO_VGPR"
LANE_RESTORE = "SI_RESTORE_S32_FROM_VGPR"
LANE_MOVES = frozenset({LANE_SAVE, LANE_RESTORE})
NO_CODE = frozenset({"IMPLICIT_DEF", "KILL"})
INLINE_ASSEMBLY = frozenset({"INLINEASM", "INLINEASM_BR"})
DEBUG = frozenset({"DBG_VALUE", "DBG_VALUE_LIST", "DBG_LABEL", "DBG_INSTR_REF", "DBG_PHI"})


class Blend(NamedTuple):
    """Operand numbers of an instruction that takes one value for the threads in a mask, and another for the rest."""

    inside: int
    outside: int
    mask: int


BLENDS = {"V_SET_INACTIVE_B32": Blend(inside=1, outside=3, mask=4)}
"""``D = mask ? S0 : S1`` (VOP2Instructions.td, SIInstrInfo::expandPostRAPseudo): its mask is read though undef."""

_ASM_KINDS = {"reguse": 1, "regdef": 2, "regdef-ec": 3, "clobber": 4, "imm": 5, "mem": 6, "func": 7}
_TIED_TO = re.compile(r"tiedto:\$(\d+)")
_SPILL = re.compile(r"SI_SPILL_(?P<kind>S|(?:WWM_)?(?:V|A|AV))(?P<bits>\d+)_(?P<way>SAVE|RESTORE)\Z")
_PURE_FORMATS = frozenset({"SOP1", "SOP2", "SOPK", "VOP1", "VOP2", "VOP3"})
_NEVER_PURE = frozenset(
    {"may-load", "may-store", "side-effects", "convergent", "call", "return", "branch", "terminator", "barrier"}
) | frozenset({"variadic", "IsMAI", "IsWMMA", "IsSWMMAC", "VINTRP", "DPP", "SDWA"})
_HIDDEN_INPUT = re.compile(
    r"[SV]_MOVREL|.*indirect|S_CMOV|S_GETPC|S_GETREG|V_PERMLANE|V_INTERP|V_S?W?MMAC?_|V_S?MFMA|V_S?WMMA|.*BALLOT|(?:ENTER|EXIT)_"
)
"""Reads more than its operands, though LLVM's table does not say so: registers chosen by M0 (MOVREL), what the
destination held (S_CMOV), the program counter, hardware registers, other threads (PERMLANE, matrix operations,
BALLOT), LDS (INTERP), EXEC (STRICT)."""
_NARROW = re.compile(
    r"V_(?!PK_|CVT_(?:SR_|SCALEF32_)*PK|PACK_|M?SAD_|LERP_)(?:(?![FIUB]F?\d)[A-Z0-9]+_)*(?:B?F|[BIU])(?:16|8)(?:_|\Z)"
    r"|V_(?:SAT|ASHR)_PK|V_CVT_PK_(?:FP8|BF8)_F16|V_CVT_SCALEF32_(?:SR_)?PK_FP4"
)
"""Computes at most 16 bits."""
_ZEROES_HALF = re.compile(
    r"V_(?:(?:ADD|SUB|SUBREV|MUL|MAX|MIN|LDEXP|RCP|SQRT|RSQ|LOG|EXP|SIN|COS|FLOOR|CEIL|TRUNC|RNDNE|FRACT|FREXP_MANT)_F16"
    r"|(?:ADD|SUB|SUBREV|MAX|MIN|MUL_LO)_U16|(?:MAX|MIN|ASHRREV)_I16|(?:LSHL|LSHR)REV_B16|FREXP_EXP_I16_F16"
    r"|CVT_(?:F16_F32|[FIU]16_[FIU]16))(?:_e32|_e64)?(?:_dpp)?\Z"
)
"""Of these the opcodes of gfx9, which write zeros to the upper half of the register (SIISelLowering.cpp,
fp16SrcZerosHighBits; GCNSubtarget::zeroesHigh16BitsOfDest). All others leave it alone."""
_ROUNDS = re.compile(
    r"[SV]_(?:PK_)?(?:MAXIMUM|MINIMUM)(?:3|MINIMUM|MAXIMUM)?_F|V_CVT_(?:FLR_|RPI_|PKNORM_|SCALE_|(?:SR_)?(?:PK_)?(?:BF8|FP8|BF16|F16)_F)"
)
"""Of these the opcodes that by LLVM's table do not read MODE, which says how floating-point numbers are rounded and
whether small ones become 0: it does not say of the hardware that nothing of this concerns them."""
_PSEUDO_PURE = frozenset({"SI_PC_ADD_REL_OFFSET", "SI_PC_ADD_REL_OFFSET64", "V_MOV_B64_PSEUDO", "S_MOV_B64_IMM_PSEUDO"})
"""Pseudo-instructions without a format that are expanded to moves and additions (SIInstrInfo::expandPostRAPseudo)."""
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
_LOADS_ONLY = frozenset({"may-load", "pseudo", "rematerialisable"})
_COMPARISON = re.compile(r"V_CMP_\w+_e64\Z")
_SCALAR_LOAD = re.compile(r"S_(?:BUFFER_)?LOAD_")
_DEBUG_LOCATION = re.compile(r",? debug-location !(?:\d+|DILocation\([^()]*\))")
_MFMA_FORM = re.compile(r"(V_(?:MFMA|SMFMAC)_\w+?)(?:_vgprcd)?_e64\Z")
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


@lru_cache(maxsize=None)
def spill(opcode: str) -> tuple[str, int, bool] | None:
    """``(kind, bits, is_save)`` of a spill pseudo-instruction (SIInstructions.td, SI_SPILL_*), or None."""
    match = _SPILL.match(opcode)
    return (match["kind"], int(match["bits"]), match["way"] == "SAVE") if match else None


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


@lru_cache(maxsize=None)
def restores_scalar(opcode: str) -> bool:
    """Whether it gives a scalar register back what was saved, from a lane or a slot."""
    kind = spill(opcode)
    return opcode == LANE_RESTORE or (kind is not None and kind[0] == "S" and not kind[2])


@lru_cache(maxsize=None)
def may_move(opcode: str) -> bool:
    """Whether it ``is_move``, or may be one, as its operands are."""
    return opcode in COPIES | WHOLE_WAVE_COPIES | LANE_MOVES or spill(opcode) is not None


def is_move(instruction: Instruction) -> bool:
    """Whether it moves values and computes none: copies, spill code, scalars into and out of vector lanes."""
    return is_copy(instruction) or instruction.opcode in LANE_MOVES or spill(instruction.opcode) is not None


def acts_alone(instruction: Instruction) -> bool:
    """Moves and instructions that emit nothing: they never pair."""
    return _may_act_alone(instruction.opcode) and (instruction.opcode in NO_CODE or is_move(instruction))


@lru_cache(maxsize=None)
def _may_act_alone(opcode: str) -> bool:
    return opcode in NO_CODE or may_move(opcode)


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
    kind = spill(instruction.opcode)
    if kind is None:
        return None
    letter, bits, is_save = kind
    operands = instruction.all_operands
    if len(operands) < 2:
        raise UnsupportedError(f"spill code of an unknown form: {instruction}")
    frame = operands[1]
    number = frame.text.removeprefix("%stack.").split(".")[0]
    if frame.kind is not OperandKind.FRAME_INDEX or not number.isdigit():
        raise UnsupportedError(f"spill code of an unknown form: {instruction}")
    offset = next((int(op.text) for op in operands[2:] if op.kind is OperandKind.IMMEDIATE), 0)
    return SpillSlot(letter, bits, is_save, operands[0], int(number), offset)


@lru_cache(maxsize=None)
def is_pure_opcode(opcode: str) -> bool:
    """Whether LLVM's table and the list above say that an opcode only computes its one result: thread by thread, or
    from what the active threads hold (``result_depends_on_exec``).
    """
    if opcode in _PSEUDO_PURE or result_depends_on_exec(opcode):
        return True
    table = instruction_table(opcode)
    if table is None or table.definitions != 1 or _HIDDEN_INPUT.match(opcode) or _leaves_half(opcode, table):
        return False
    if _ROUNDS.match(opcode) and "mode" not in table.implicit_uses:
        return False
    if not table.format & _PURE_FORMATS or (table.properties | table.format) & _NEVER_PURE:
        return opcode.startswith("V_ACCVGPR_")
    return "VALU" not in table.format or table.operands[0].register_class.startswith(("v", "a"))


def _leaves_half(opcode: str, table: InstructionDescription) -> bool:
    """Whether it writes a half of a 32-bit register: the other half keeps what the register held before, which differs
    where the instruction stands again. What is tied is read, and so is that half, but for the old value of DPP.
    """
    result, *sources = table.operands
    return (
        "_32" in result.register_class
        and bool(_NARROW.match(opcode))
        and not _ZEROES_HALF.match(opcode)
        and (opcode.endswith("_dpp") or all(source.tied_to != 0 for source in sources))
    )


@lru_cache(maxsize=None)
def result_depends_on_exec(opcode: str) -> bool:
    """Whether the one result depends on which threads are active, and on what all of these hold, and on nothing else.

    That is so for the mask of a comparison, which is 0 for threads that are not active (ISA manuals, VOPC), and for DPP
    that LLVM repeats and that reads no inactive thread (``inactive.py``).
    """
    table = instruction_table(opcode)
    if table is None or table.definitions != 1 or _HIDDEN_INPUT.match(opcode) or _leaves_half(opcode, table):
        return False
    if _ROUNDS.match(opcode) and "mode" not in table.implicit_uses:
        return False
    properties = table.properties | table.format
    if not properties & _NEVER_PURE:
        return bool(_COMPARISON.match(opcode)) and "VALU" in properties
    return (
        not properties & (_NEVER_PURE - {"DPP", "convergent"})
        and {"DPP", "VALU", "rematerialisable"} <= properties
        and reach(opcode) is Reach.ACTIVE
    )


def leaves_old(instruction: Instruction) -> bool:
    """Whether it is DPP that leaves its first operand, the old value, unread: no row or bank is masked, and threads out
    of bounds read 0 (GCNDPPCombine.cpp: ``MaskAllLanes && BoundCtrlZero``).
    """
    if not instruction.opcode.endswith("_dpp") or not result_depends_on_exec(instruction.opcode):
        return False
    return [op.text for op in instruction.operands if not op.implicit][-3:] in (["15", "15", "1"], ["15", "15", "-1"])


def is_pure(instruction: Instruction) -> bool:
    """Whether the result depends on the written operands only, and nothing else happens.

    Such an instruction may be rematerialised or, when dead, deleted (TargetInstrInfo::isReMaterializable,
    SIInstrInfo::isReMaterializableImpl). One explicit result; no memory but invariant loads; it may clobber SCC,
    which is treated as a definition like any other, as is the rest of a tuple that is implicitly defined with its part.
    EXEC is not an input: the result of an active thread does not depend on it, but for ``result_depends_on_exec``.
    """
    loads = is_scalar_load(instruction.opcode)
    if not (loads or is_pure_opcode(instruction.opcode)):
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
    if instruction.opcode not in _PSEUDO_PURE and any(map(_RELATIVE.match, others)):
        return False
    if loads:
        return bool(instruction.memory) and all(map(_INVARIANT_LOAD.match, instruction.memory))
    if instruction.memory:
        return False
    return "nofpexcept" in instruction.flags or not may_raise(instruction.opcode)


def is_plain_load(instruction: Instruction) -> bool:
    """Whether it loads, does nothing else, and may be left out where nothing reads its result (LiveRangeEdit.cpp,
    eliminateDeadDef; MachineInstr::isSafeToMove): it is not volatile, not atomic, and no monitor is set by it.
    """
    table = instruction_table(instruction.opcode)
    return (
        table is not None
        and "may-load" in table.properties <= _LOADS_ONLY
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


@lru_cache(maxsize=None)
def is_scalar_load(opcode: str) -> bool:
    """Whether it is a load of scalars, which is pure where its memory operand says that it gives the same anywhere."""
    return bool(_SCALAR_LOAD.match(opcode))


@lru_cache(maxsize=None)
def instruction_table(opcode: str) -> InstructionDescription | None:
    """What LLVM's table says of an opcode, on any target; None for one it does not have."""
    return described(opcode)


def table_of(opcode: str) -> InstructionDescription:
    """As ``instruction_table``.

    Raises:
        UnsupportedError: LLVM's table does not have the opcode.
    """
    table = instruction_table(opcode)
    if table is None:
        raise UnsupportedError(f"{opcode} is not an instruction of the LLVM whose tables the audit has")
    return table


@lru_cache(maxsize=None)
def canonical_opcode(opcode: str) -> str:
    """Opcode up to the choice of register file for C and D of MFMA (``_vgprcd_e64`` and ``_e64`` compute the same).

    AMDGPURewriteAGPRCopyMFMA.cpp switches between the two during allocation.
    """
    match = _MFMA_FORM.match(opcode)
    return f"{match[1]}_e64" if match else opcode


_ACCUMULATORS = (0, 3)
"""Numbers of D and C among the operands of an MFMA (VOP3PInstructions.td)."""


def reads_matrices(opcode: str) -> bool:
    """Whether it is an MFMA, which reads A and B from either vector register file (VOP3PInstructions.td)."""
    return opcode.startswith("V_MFMA_")


@lru_cache(maxsize=None)
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


@lru_cache(maxsize=None)
def is_return(opcode: str) -> bool:
    """Whether control goes back to the caller, or on to a function that returns to it; S_ENDPGM ends the wave."""
    return "return" in table_of(opcode).properties and not opcode.startswith("S_ENDPGM")


@lru_cache(maxsize=None)
def may_raise(opcode: str) -> bool:
    """Whether it may raise a floating-point exception, so that LLVM neither repeats nor drops it without nofpexcept."""
    return "may-raise-fp-exception" in table_of(opcode).properties


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


@lru_cache(maxsize=None)
def is_terminator(opcode: str) -> bool:
    """Whether only terminators may follow it in its block (MachineBasicBlock::getFirstTerminator)."""
    return "terminator" in table_of(opcode).properties


@lru_cache(maxsize=None)
def _ties_of(opcode: str) -> tuple[tuple[int, int], ...]:
    rows = table_of(opcode).operands
    return tuple((number, row.tied_to) for number, row in enumerate(rows) if row.tied_to >= 0)


def ties(instruction: Instruction) -> dict[int, int]:
    """For each operand that must be the register of a definition, the number of that definition (LLVM's numbering).

    LLVM ties what its table ties when it reads the text, whether the text says so or not (MachineInstr::addOperand);
    the ties of inline assembly and of SDWA stand in the text alone.
    """
    in_text = {number: op.tied for number, op in enumerate(instruction.all_operands) if op.tied >= 0}
    by_table = _ties_of(instruction.opcode)
    if instruction.opcode in INLINE_ASSEMBLY:
        in_text.update((number, tied) for number, _, tied in asm_operands(instruction) if tied >= 0)
    return {**in_text, **dict(by_table)} if by_table else in_text


def may_be_tied(instruction: Instruction) -> bool:
    """Whether its text, or LLVM's table, may tie an operand."""
    if instruction.opcode in INLINE_ASSEMBLY or _ties_of(instruction.opcode):
        return True
    return any(op.tied >= 0 for op in instruction.all_operands)


@lru_cache(maxsize=None)
def _early_clobbers_of(opcode: str) -> frozenset[int]:
    return frozenset(number for number, row in enumerate(table_of(opcode).operands) if row.early_clobber)


def has_early_clobbers(opcode: str) -> bool:
    """Whether LLVM's table, or the text of inline assembly, may have results that are written before all is read."""
    return opcode in INLINE_ASSEMBLY or bool(_early_clobbers_of(opcode))


def early_clobbers(instruction: Instruction) -> frozenset[int]:
    """Numbers of the definitions that are written before all operands are read, by the text or by LLVM's table."""
    by_table = _early_clobbers_of(instruction.opcode)
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


def is_call(instruction: Instruction) -> bool:
    """Whether a register mask makes it a call."""
    return may_call(instruction.opcode) and any(op.kind is OperandKind.REGMASK for op in instruction.operands)


@lru_cache(maxsize=None)
def may_call(opcode: str) -> bool:
    """Whether LLVM's table lets it have a register mask: calls, and what takes any operands."""
    return not table_of(opcode).properties.isdisjoint(("call", "variadic"))


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
