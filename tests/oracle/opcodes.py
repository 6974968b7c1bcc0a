"""What the oracle knows of opcodes, written from the ISA manuals and SIInstrInfo, without a look at the audit's lists.

Where the two differ, a run of the campaign shows it: as a difference the audit did not see, or the other way round.
"""

from __future__ import annotations

import re
from functools import lru_cache

from verilocc_mlir.mir.model import Instruction, OperandKind

EXEC_REGISTERS = frozenset({"exec", "exec_lo", "exec_hi"})
IGNORED = frozenset({"BUNDLE", "DBG_VALUE", "DBG_VALUE_LIST", "DBG_LABEL", "DBG_INSTR_REF", "DBG_PHI"})
SPILL = re.compile(r"SI_SPILL_(WWM_)?(?:S|V|A|AV)(\d+)_(SAVE|RESTORE)\Z")

BITWISE = re.compile(r"S_(AND|OR|XOR|ANDN2|ORN2|NAND|NOR|XNOR)_B(?:32|64)(?:_term)?\Z")
SAVE_EXEC = re.compile(r"S_(AND|OR|XOR|ANDN2|ORN2|ANDN1|ORN1|NAND|NOR|XNOR)_SAVEEXEC_B(?:32|64)(?:_term)?\Z")
MOVE = re.compile(r"S_MOV_B(?:32|64)(?:_term)?\Z|S_MOV_B64_IMM_PSEUDO\Z|EXIT_STRICT_W[WQ]M\Z")
SELECT = re.compile(r"S_CSELECT_B(?:32|64)\Z")
NOT = re.compile(r"S_NOT_B(?:32|64)(?:_term)?\Z")
FIRST_ONE = re.compile(r"S_FF1_I32_B(?:32|64)\Z")
SHIFT_LEFT = re.compile(r"S_LSHL_B(?:32|64)\Z")
ONE_LANE = re.compile(r"V_(READ|WRITE)LANE_B32\Z")
FIRST_LANE = re.compile(r"V_READFIRSTLANE_B32\Z")
EQUAL = re.compile(r"V_CMP_EQ_[UI](?:16|32|64)_(?:t16_|fake16_)?e(?:32|64)\Z")
WIDE_PRODUCT = re.compile(r"V_MAD_(?:U64_U32|I64_I32)_(?:gfx11_)?e64\Z")
ENTER_WHOLE_WAVE = "ENTER_STRICT_WWM"

_THREAD_MASK_RESULT = re.compile(r"V_CMPX?_|V_(?:ADD|SUB|SUBREV)_CO_|V_(?:ADDC|SUBB|SUBBREV)_|V_DIV_SCALE|V_MAD_[UI]64")
_CROSS_LANE = re.compile(
    r"V_(?:MFMA|SMFMAC|WMMA|SWMMAC|READLANE|WRITELANE|PERMLANE|SET_INACTIVE)|.*_(?:dpp8|DPP8)|DS_BPERMUTE_FI"
    r"|SI_(?:SPILL_S32_TO|RESTORE_S32_FROM)_VGPR"
)
_WRITES_INACTIVE = re.compile(r"V_(?:MFMA|SMFMAC|WMMA|SWMMAC|WRITELANE|SET_INACTIVE)|SI_SPILL_S32_TO_VGPR")
_WHOLE_WAVE_LANES = re.compile(r"SI_(?:SPILL_S32_TO|RESTORE_S32_FROM)_VGPR")
_IMPURE_VALU = re.compile(
    r"V_(?:CMP|READ|WRITELANE|PERMLANE|MFMA|SMFMAC|WMMA|SWMMAC|SET_INACTIVE|SWAP|NOP|CLREXCP|MOVREL|INDIRECT|INTERP)"
    r"|.*_(?:dpp|DPP|sdwa|SDWA)|V_ILLEGAL|V_.*_indirect"
)
_IMPURE_SALU = re.compile(
    r"S_(?:\w*SAVEEXEC|\w*WREXEC|GETREG|SETREG|MEM|SENDMSG|ATOMIC|STORE|BUFFER_(?:STORE|ATOMIC)|BARRIER|WAIT|NOP|SLEEP"
    r"|CBRANCH|BRANCH|ENDPGM|TRAP|GETPC_B64\Z|SETPC|SWAPPC|CALL|RFE|DCACHE|ICACHE|TTRACE|INCPERF|DECPERF|SETPRIO"
    r"|SETHALT|SETKILL|CMP|BITCMP|SET_GPR|DENORM|ROUND|CLAUSE|DELAY|VERSION|CODE_END|INST_PREFETCH|SCRATCH|PREFETCH"
    r"|ALLOC|GET_|QUADMASK|WQM|MOVREL|SHADER_CYCLES)|S_.*_sideeffects"
)
_INVARIANT_LOAD = re.compile(r"S_(?:BUFFER_)?LOAD_")
_MFMA = re.compile(r"(V_(?:MFMA|SMFMAC)_\w+?)(?:_vgprcd)?_e64\Z")
_PURE_PSEUDO = frozenset({"SI_PC_ADD_REL_OFFSET", "SI_PC_ADD_REL_OFFSET64"})


@lru_cache(maxsize=None)
def function_of(opcode: str) -> str:
    """Opcode up to the file that an MFMA accumulates in, which the allocator chooses."""
    match = _MFMA.match(opcode)
    return match[1] if match else opcode


@lru_cache(maxsize=None)
def reads_all_threads(opcode: str) -> bool:
    """Vector operands are read whether a thread is active or not.

    DPP with 16 bits of control and the DS permutations and swizzles are not among them: a source thread that is not
    active gives 0 or the old value (ISA manuals, "DPP", "DS_BPERMUTE_B32").
    """
    return bool(_CROSS_LANE.match(opcode))


@lru_cache(maxsize=None)
def writes_all_threads(opcode: str) -> bool:
    """Vector results are written whether a thread is active or not."""
    return bool(_WRITES_INACTIVE.match(opcode))


@lru_cache(maxsize=None)
def lanes_are_scalars(opcode: str) -> bool:
    """The threads of the vector operand are a place for scalars, also those of threads that never were active."""
    return bool(_WHOLE_WAVE_LANES.match(opcode))


@lru_cache(maxsize=None)
def gives_thread_mask(opcode: str) -> bool:
    """A scalar result has one bit a thread, 0 for inactive ones."""
    return bool(_THREAD_MASK_RESULT.match(opcode))


@lru_cache(maxsize=None)
def _pure_opcode(opcode: str) -> bool:
    if opcode in _PURE_PSEUDO:
        return True
    if opcode.startswith(("V_", "AV_")):
        return not _IMPURE_VALU.match(opcode)
    return opcode.startswith("S_") and not _IMPURE_SALU.match(opcode)


_OF_ALL_ACTIVE = re.compile(r"V_CMP_\w+_e64\Z|V_\w+_dpp\Z")


def asks_all_active(instruction: Instruction) -> bool:
    """A function of EXEC and of what all active threads read, so that it too may be repeated or dropped: a comparison's
    mask, and DPP, whose lanes come from other active threads, or are 0 or the old value (ISA manuals).
    """
    if not _OF_ALL_ACTIVE.match(instruction.opcode) or instruction.memory or len(instruction.defs) != 1:
        return False
    carries = instruction.opcode.endswith("_dpp") and gives_thread_mask(instruction.opcode)
    return not (carries or instruction.bundled or instruction.opens_bundle)


def leaves_old_unread(instruction: Instruction) -> bool:
    """DPP that writes every row and bank, and 0 for lanes out of bounds, has no use for the old value."""
    last = [op.text for op in instruction.operands if not op.implicit][-3:]
    return instruction.opcode.endswith("_dpp") and last[:2] == ["15", "15"] and last[2] in ("1", "-1")


ORDINARY = re.compile(r"[vsa]gpr\d")
"""Named implicitly beside a result or an input: the rest of a tuple, which is not computed and computes nothing."""


def may_be_left_out(instruction: Instruction) -> bool:
    """A load that does nothing else, neither volatile nor atomic: where nothing reads its result, nobody misses it."""
    words = [m.partition(" (")[0].split() for m in instruction.memory]
    return (
        bool(words)
        and all(w and w[-1] == "load" and {"volatile", "store", "syncscope"}.isdisjoint(w) for w in words)
        and len(instruction.defs) == 1
        and not (instruction.bundled or instruction.opens_bundle)
        and not re.search(r"ATOMIC|_RTN|MONITOR|_LDS_|CONSUME|APPEND|INLINEASM|_TR_", instruction.opcode)
    )


def is_pure(instruction: Instruction) -> bool:
    """A function of what it reads, so that it may be repeated or dropped: one result, no memory but constant memory."""
    if len(instruction.defs) != 1 or instruction.bundled or instruction.opens_bundle:
        return False
    for op in instruction.all_operands:
        if op.phys in EXEC_REGISTERS and (op.is_def or not op.implicit):
            return False
        if op.kind is OperandKind.REGMASK:
            return False
        special = op.is_def and op.implicit and op.phys != "scc" and not ORDINARY.match(op.phys)
        if special and gives_thread_mask(instruction.opcode):
            return False
    if instruction.memory:
        constant = all(
            "invariant" in m and ("dereferenceable" in m or m.endswith("addrspace 4")) and "volatile" not in m
            for m in instruction.memory
        )
        return constant and bool(_INVARIANT_LOAD.match(instruction.opcode))
    return _pure_opcode(instruction.opcode) and not _INVARIANT_LOAD.match(instruction.opcode)
