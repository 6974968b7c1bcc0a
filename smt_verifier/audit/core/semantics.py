"""What the audit must know about opcodes, and nothing more. Every list names its source in LLVM.

Everything not listed is *mandatory*: it must stand on both sides, in order, and is otherwise an uninterpreted
function of its operands. A list that lacks an opcode therefore costs a proof, never soundness.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.mir.model import Instruction, Operand, OperandKind

EXEC_NAMES = frozenset({"exec", "exec_lo", "exec_hi"})
COPIES = frozenset({"COPY"})
WHOLE_WAVE_COPIES = frozenset({"WWM_COPY"})
LANE_SAVE = "SI_SPILL_S32_TO_VGPR"
LANE_RESTORE = "SI_RESTORE_S32_FROM_VGPR"
LANE_MOVES = frozenset({LANE_SAVE, LANE_RESTORE})
NO_CODE = frozenset({"IMPLICIT_DEF", "KILL"})
DEBUG = frozenset({"DBG_VALUE", "DBG_VALUE_LIST", "DBG_LABEL", "DBG_INSTR_REF", "DBG_PHI"})


class Blend(NamedTuple):
    """Operand numbers of an instruction that takes one value for the threads in a mask, and another for the rest."""

    inside: int
    outside: int
    mask: int


BLENDS = {"V_SET_INACTIVE_B32": Blend(inside=1, outside=3, mask=4)}
"""``D = mask ? S0 : S1`` (VOP2Instructions.td, SIInstrInfo::expandPostRAPseudo): its mask is read though undef."""

_SPILL = re.compile(r"SI_SPILL_(?P<kind>S|(?:WWM_)?(?:V|A|AV))(?P<bits>\d+)_(?P<way>SAVE|RESTORE)\Z")
_VALU_PURE = re.compile(
    r"(?:V|AV)_(?!READ|WRITELANE|PERMLANE|MFMA|SMFMAC|WMMA|SWMMAC|INTERP|CMPX?_|MOVREL|SWAP|NOP|ADD_CO|SUB_CO|SUBREV_CO|ADDC|SUBB"
    r"|DIV_SCALE|INDIRECT|SET_INACTIVE|CLREXCP|PIPEFLUSH|DOT|ILLEGAL|LDS|MAD_U64|MAD_I64)"
)
_VALU_TOUCHES_OTHER_THREADS = re.compile(r"_(?:dpp8?|dpp16|dpp_\w+|sdwa)(?:_|\Z)|_DPP|_SDWA")
_SALU_PURE = re.compile(
    r"S_(?:MOV_B|MOVK_I32|MOV_FED|ADD_|SUB_|LSHL|LSHR|ASHR|AND_B|OR_B|XOR_B|NOT_B|ANDN2_B|ORN2_B|NAND_B|NOR_B|XNOR_B|MUL_|BFE_|BFM_|BREV_"
    r"|PACK_|SEXT_|ABS_I32|BCNT|FF0|FF1|FLBIT|MIN_|MAX_|GETPC_B64_pseudo\Z)"
)
_PSEUDO_PURE = frozenset({"SI_PC_ADD_REL_OFFSET", "V_MOV_B64_PSEUDO", "S_MOV_B64_IMM_PSEUDO", "SI_PC_ADD_REL_OFFSET64"})
_SCALAR_LOAD = re.compile(r"S_(?:BUFFER_)?LOAD_")
_IGNORES_EXEC = re.compile(r"V_(?:MFMA|SMFMAC|WMMA|SWMMAC|WRITELANE|INDIRECT|SET_INACTIVE)|.*WWM|.*WQM")
_EXEC_UNCLEAR = re.compile(
    r"LDS_(?:PARAM|DIRECT)_LOAD|.*LOAD_(?:MONITOR_)?TR|V_INDIRECT|SI_(?:INDIRECT|INIT_EXEC|PS_LIVE|KILL|DEMOTE)"
)
_READS_INACTIVE = re.compile(
    r"V_(?:READLANE|MFMA|SMFMAC|WMMA|SWMMAC|PERMLANE|WRITELANE|SET_INACTIVE)|.*_(?:dpp8|DPP8)|.*WWM|.*WQM"
)
_DEBUG_LOCATION = re.compile(r",? debug-location !(?:\d+|DILocation\([^()]*\))")
_MFMA_FORM = re.compile(r"(V_(?:MFMA|SMFMAC)_\w+?)(?:_vgprcd)?_e64\Z")
_EITHER_FILE_RESULT = re.compile(r"AV_MOV_B|(?:GLOBAL|FLAT|BUFFER|SCRATCH)_LOAD_(?!.*LDS)|DS_READ")
_EITHER_FILE_SOURCE = re.compile(r"(?:GLOBAL|FLAT|BUFFER|SCRATCH)_STORE_|DS_WRITE_")
_ORDINARY = re.compile(r"[vsa]gpr\d")
_TIES_FIRST = re.compile(r".*_(?:dpp8?|sdwa)(?:_|\Z)|.*_ATOMIC")
_RETURN = re.compile(r"SI_RETURN\Z|SI_TCRETURN|S_SETPC_B64_return")
_TIED = re.compile(
    r"V_(?:FMAC|MAC|PK_FMAC|DOT2C|DOT4C|DOT8C|WRITELANE|SWAP|PERMLANE(?:X?16|16_SWAP|32_SWAP)|INTERP_P2)"
    r"|V_\w+_(?:dpp|dpp8|sdwa)|V_(?:SMFMAC|SWMMAC)|V_WMMA\w*_twoaddr\w*|V_MFMA\w*_mac\w*"
    r"|\w+_D16(?:_HI)?(?:_|\Z)|DS_READ_\w+_D16\w*|(?:BUFFER|IMAGE)_ATOMIC\w*|S_(?:ADDK|MULK|CMOVK?|BITSET[01])_\w+|V_CVT_SR\w*|V_MOVREL"
)


def spill(opcode: str) -> tuple[str, int, bool] | None:
    """``(kind, bits, is_save)`` of a spill pseudo-instruction (SIInstructions.td, SI_SPILL_*), or None."""
    match = _SPILL.match(opcode)
    return (match["kind"], int(match["bits"]), match["way"] == "SAVE") if match else None


def moves_only(opcode: str) -> bool:
    """Whether it moves values and computes none: copies, spill code, scalars into and out of vector lanes."""
    return opcode in COPIES or opcode in WHOLE_WAVE_COPIES or opcode in LANE_MOVES or spill(opcode) is not None


def acts_alone(instruction: Instruction) -> bool:
    """Copies, spill code and instructions that emit nothing: they never pair."""
    return instruction.opcode in NO_CODE or moves_only(instruction.opcode)


@dataclass(frozen=True, slots=True)
class SpillSlot:
    """What a spill pseudo-instruction moves: ``bits`` between ``register`` and byte ``offset`` of ``%stack.number``.

    ``kind`` is that of the opcode: S, V, A, AV, or one with WWM_ before it, which moves the lanes of all threads.
    ``base`` is the stack pointer it addresses the slot with, ``""`` for scalar spills, which LLVM lowers to vector
    lanes.
    """

    kind: str
    bits: int
    is_save: bool
    register: Operand
    number: int
    offset: int
    base: str


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
    base = next((op.phys for op in operands[2:] if op.phys and not op.implicit), "")
    return SpillSlot(letter, bits, is_save, operands[0], int(number), offset, base)


@lru_cache(maxsize=None)
def _is_pure_opcode(opcode: str) -> bool:
    if opcode in _PSEUDO_PURE:
        return True
    if _VALU_PURE.match(opcode):
        return not _VALU_TOUCHES_OTHER_THREADS.search(opcode)
    return bool(_SALU_PURE.match(opcode) and "SAVEEXEC" not in opcode and "WREXEC" not in opcode)


def is_pure(instruction: Instruction) -> bool:
    """Whether the result depends on the written operands only, thread by thread, and nothing else happens.

    Such an instruction may be rematerialised or, when dead, deleted (TargetInstrInfo::isReMaterializable,
    SIInstrInfo::isReMaterializableImpl). One explicit result; no memory but invariant loads; it may clobber SCC,
    which is treated as a definition like any other, as is the rest of a tuple that is implicitly defined with its part.
    EXEC is not an input: the result of an active thread does not
    depend on it.
    """
    if len(instruction.defs) != 1 or instruction.bundled or instruction.opens_bundle:
        return False
    if instruction.tail and not _DEBUG_LOCATION.fullmatch(instruction.tail):
        return False
    if any(op.phys in EXEC_NAMES for op in instruction.defs):
        return False
    if any(op.phys in EXEC_NAMES and not op.implicit for op in instruction.operands):
        return False
    if any(op.is_def and op.phys != "scc" and not _ORDINARY.match(op.phys) for op in instruction.operands):
        return False
    if _SCALAR_LOAD.match(instruction.opcode):
        return bool(instruction.memory) and all(
            "invariant" in m and "dereferenceable" in m and "volatile" not in m and " load " in f" {m}"
            for m in instruction.memory
        )
    return not instruction.memory and _is_pure_opcode(instruction.opcode)


@lru_cache(maxsize=None)
def ignores_exec(opcode: str) -> bool:
    """Whether vector results are written in inactive lanes too (ISA manuals: matrix operations, v_writelane)."""
    return bool(_IGNORES_EXEC.match(opcode))


@lru_cache(maxsize=None)
def exec_unclear(opcode: str) -> bool:
    """Whether the ISA lets it write some inactive threads but not others, or changes EXEC on the way.

    LDS parameter and direct loads work on whole quads, transposing loads across threads, indirect pseudos in a loop
    of their own. Fine while all threads are active; not followed while some wait.
    """
    return bool(_EXEC_UNCLEAR.match(opcode))


@lru_cache(maxsize=None)
def reads_inactive_lanes(opcode: str) -> bool:
    """Whether a vector operand is read in inactive lanes too (matrix operations, v_readlane, permutations).

    DPP (16 bits of control) and the DS permutations take 0 or the old value instead (ISA manuals: disabled lanes).

    What writes inactive lanes reads them as well: a tied operand keeps there what the result does not change.
    """
    return bool(_READS_INACTIVE.match(opcode)) or ignores_exec(opcode)


@lru_cache(maxsize=None)
def canonical_opcode(opcode: str) -> str:
    """Opcode up to the choice of register file for C and D of MFMA (``_vgprcd_e64`` and ``_e64`` compute the same).

    AMDGPURewriteAGPRCopyMFMA.cpp switches between the two during allocation.
    """
    match = _MFMA_FORM.match(opcode)
    return f"{match[1]}_e64" if match else opcode


@lru_cache(maxsize=None)
def takes_either_file(opcode: str, defined: bool) -> bool:
    """Whether the data operand may be a VGPR or an AGPR on targets with one vector register file (gfx90a on).

    Loads and stores, and moves of constants (AV_MOV_*): getEquivalentAGPRClass and AVLdSt operands in
    SIRegisterInfo.td. LLVM widens a live range's class so when all its operands allow it (recomputeRegClass).
    """
    return bool((_EITHER_FILE_RESULT if defined else _EITHER_FILE_SOURCE).match(opcode))


def reads_matrices(opcode: str) -> bool:
    """Whether it is an MFMA, which reads A and B from either vector register file (VOP3PInstructions.td)."""
    return opcode.startswith("V_MFMA_")


@lru_cache(maxsize=None)
def may_be_tied(opcode: str) -> bool:
    """Whether LLVM ties a use to the definition without printing it (``$vdst = $src`` constraints in
    VOP*Instructions.td,
    DSInstructions.td, BUFInstructions.td, SOPInstructions.td)."""
    return bool(_TIED.match(opcode))


@lru_cache(maxsize=None)
def ties_first(opcode: str) -> bool:
    """Whether a form that ``may_be_tied`` ties its first register use (``old`` of DPP, the data of an atomic).

    Else it is the last.
    """
    return bool(_TIES_FIRST.match(opcode))


@lru_cache(maxsize=None)
def is_return(opcode: str) -> bool:
    """Whether control goes back to the caller, or on to a function that returns to it (SIInstructions.td)."""
    return bool(_RETURN.match(opcode))


def is_call(instruction: Instruction) -> bool:
    """Whether a register mask makes it a call."""
    return any(op.kind is OperandKind.REGMASK for op in instruction.operands)


_BLANKED = {OperandKind.REGISTER: "R", OperandKind.BLOCK: "B"}


def explicit_shape(operands: tuple[Operand, ...]) -> tuple[str, ...]:
    """Explicit operands with registers and branch targets blanked: what two forms of one instruction must share."""
    return tuple(_BLANKED.get(op.kind, op.text) for op in operands if not op.implicit)
