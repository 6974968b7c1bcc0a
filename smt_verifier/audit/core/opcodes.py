"""What the audit must know about an opcode, and nothing more: one record. Every list names its source in LLVM.

Everything not listed is *mandatory*: it must stand on both sides, in order, and is otherwise an uninterpreted
function of its operands. A list that lacks an opcode therefore costs a proof, never soundness.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.target.instructions import InstructionDescription
from verilocc_mlir.target.instructions import instruction as described

# Which instructions look at threads that are not active, or write them: one reviewed list, each entry with its source.
#
# LLVM's tables do not say this, but they say which opcodes are convergent. A convergent vector instruction that is not
# on the list counts as one that reads inactive threads. An opcode that LLVM does not have counts as unclear. All others
# read and write the threads in EXEC alone. So does inline assembly, unless a word in it hints at other threads.


class Reach(Enum):
    """What an instruction does in threads that are not active."""

    ACTIVE = "reads other threads, but active ones only"
    FIRST = "reads lane 0 where EXEC is 0"
    READS = "reads them"
    WRITES = "reads and writes them"
    UNCLEAR = "reads or writes some of them, or changes EXEC on the way"


class Entry(NamedTuple):
    """Opcodes that begin as the pattern says, what they do, and who says so."""

    opcodes: str
    reach: Reach
    source: str


REVIEWED = (
    Entry("V_READFIRSTLANE_", Reach.FIRST, "ISA manuals, V_READFIRSTLANE_B32: lane 0 where EXEC is 0"),
    Entry(r"DS_(?:GWS_|ORDERED_COUNT)", Reach.FIRST, "ISA manuals, DS_GWS_*: the data of the first active thread"),
    Entry("V_READLANE_", Reach.READS, "ISA manuals, V_READLANE_B32: the lane is not asked whether it is active"),
    Entry("V_WRITELANE_", Reach.WRITES, "ISA manuals, V_WRITELANE_B32: likewise; a tied operand keeps the other lanes"),
    Entry("V_(?:MFMA|SMFMAC|WMMA|SWMMAC)_", Reach.WRITES, "ISA manuals, matrix instructions: EXEC is ignored"),
    Entry("V_SET_INACTIVE_", Reach.WRITES, "SIInstrInfo::expandPostRAPseudo: written for the threads outside a mask"),
    Entry("V_PERMLANE", Reach.READS, "ISA manuals, V_PERMLANE*: with FI set, and V_PERMLANE64 always"),
    Entry("DS_BPERMUTE_FI_", Reach.READS, "RDNA4 ISA, DS_BPERMUTE_FI_B32: fetch inactive"),
    Entry("DS_B?PERMUTE_", Reach.ACTIVE, "ISA manuals, DS_PERMUTE_B32: 0 from threads that are not active"),
    Entry("DS_SWIZZLE_", Reach.ACTIVE, "ISA manuals, DS_SWIZZLE_B32: 0 from threads that are not active"),
    Entry(r"\w+_dpp8(?:_|\Z)", Reach.READS, "VOPInstructions.td, DPP8: its FI operand may be set"),
    Entry(r"\w+_dpp_gfx", Reach.READS, "VOPInstructions.td, DPP16 of one GPU: its FI operand may be set"),
    Entry(r"\w+_(?:dpp|DPP_PSEUDO)\Z", Reach.ACTIVE, "VOPInstructions.td, DPP without FI: 0 or the old value instead"),
    Entry(r"V_INTERP_\w+_inreg", Reach.READS, "RDNA3 ISA, V_INTERP_*: takes parameters from other threads of the quad"),
    Entry("V_CMPS?X_", Reach.ACTIVE, "ISA manuals, VOPC: EXEC becomes the result, 0 for threads that are not in it"),
    Entry(
        r"IMAGE_(?:SAMPLE|GATHER4H?|GET_LOD)(?!\w*_(?:LZ|L|C?D)_)", Reach.READS, "ISA manuals: derivatives of the quad"
    ),
    Entry(r"\w*(?:WWM|WQM)", Reach.WRITES, "SIInstructions.td, whole-wave and whole-quad pseudo-instructions"),
    Entry(r"(?:LDS|DS)_(?:PARAM|DIRECT)_LOAD", Reach.UNCLEAR, "RDNA3 and 4 ISA, LDS_PARAM_LOAD: works on whole quads"),
    Entry(r"\w+_(?:LOAD|READ)_\w*TR(?:\d|_)", Reach.UNCLEAR, "ISA manuals, transposing loads: across threads"),
    Entry("V_INDIRECT_REG_", Reach.ACTIVE, "SIInstrInfo::expandPostRAPseudo: V_MOV_B32 or V_MOVREL*, a scalar index"),
    Entry(r"SI_(?:INDIRECT|INIT_EXEC|PS_LIVE|KILL|DEMOTE)", Reach.UNCLEAR, "SIInstructions.td: change EXEC"),
)
"""The first entry that matches counts."""
_ASSEMBLY = re.compile(
    r"&\"[^\"]*(?:exec|lane|dpp|perm(?!_b32)|swizzle|row_|wave_|quad|mfma|wmma|_tr|sample|gather|get_lod|interp"
    r"|lds_direct|direct_load|param_load|barrier_arrive|async_barrier)",
    re.IGNORECASE,
)
_VECTOR = ("V_", "DS_", "BUFFER_", "FLAT_", "GLOBAL_", "IMAGE_", "SCRATCH_", "LDS_", "TBUFFER_")


def reach(opcode: str) -> Reach | None:
    """What an opcode does in threads that are not active; None: nothing, and it reads no other thread."""
    entry = next((entry for entry in REVIEWED if re.match(entry.opcodes, opcode)), None)
    if entry is not None:
        return entry.reach
    description = described(opcode)
    if description is None:
        return Reach.UNCLEAR
    return Reach.READS if "convergent" in description.properties and opcode.startswith(_VECTOR) else None


def asks_other_threads(assembly: str) -> bool:
    """Whether a word in the text of inline assembly hints at other threads."""
    return bool(_ASSEMBLY.search(assembly))


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

SPILLS = "SI_SPILL_"
"""How the name of spill code begins."""
_SPILL = re.compile(r"SI_SPILL_(?P<kind>S|(?:WWM_)?(?:V|A|AV))(?P<bits>\d+)_(?P<way>SAVE|RESTORE)\Z")
_PURE_FORMATS = frozenset({"SOP1", "SOP2", "SOPK", "VOP1", "VOP2", "VOP3"})
_NEVER_PURE = frozenset(
    {"may-load", "may-store", "side-effects", "convergent", "call", "return", "branch", "terminator", "barrier"}
) | frozenset({"variadic", "IsMAI", "IsWMMA", "IsSWMMAC", "VINTRP", "DPP", "SDWA"})
HIDDEN_INPUT = re.compile(
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
PSEUDO_PURE = frozenset({"SI_PC_ADD_REL_OFFSET", "SI_PC_ADD_REL_OFFSET64", "V_MOV_B64_PSEUDO", "S_MOV_B64_IMM_PSEUDO"})
"""Pseudo-instructions without a format that are expanded to moves and additions (SIInstrInfo::expandPostRAPseudo)."""
LOADS_ONLY = frozenset({"may-load", "pseudo", "rematerialisable"})
_COMPARISON = re.compile(r"V_CMP_\w+_e64\Z")
_SCALAR_LOAD = re.compile(r"S_(?:BUFFER_)?LOAD_")
_MFMA_FORM = re.compile(r"(V_(?:MFMA|SMFMAC)_\w+?)(?:_vgprcd)?_e64\Z")
_PACKED_F32 = re.compile(r"V_PK_(?:ADD|MUL|FMA)_F32(?:_gfx12)?\Z")
"""``D.lo = f(S[op_sel])``, ``D.hi = f(S[op_sel_hi])`` for each source (CDNA 3 ISA, VOP3P; SISrcMods in SIDefines.h:
OP_SEL_0 is bit 2 of the modifiers before a source, OP_SEL_1 bit 3)."""

_MIXED = re.compile(r"V_(?:FMA|MAD)_MIX(?:_F32|(?:LO|HI)_F16)\Z")
"""Each source is 32 bits wide, or where op_sel_hi is set (OP_SEL_1) 16 bits: the high ones where op_sel is (OP_SEL_0),
else the low ones (RDNA 3 ISA, V_FMA_MIX_F32; Vega ISA, V_MAD_MIX_F32; VOP3PInstructions.td, VOP3P_Mix_Profile). The
modifiers stand before each of the three sources; what is tied to a result of 16 bits is read whole."""
_WIDE_MAD = re.compile(r"V_MAD_[UI]64_[UI]32(?:_gfx11)?_e64\Z")
"""``D = S0 * S1 + S2`` in 64 bits: no carry runs down, so the low half of D does not depend on the high half of S2."""
_LANE = re.compile(r"V_(?:READ|WRITE)LANE_B32\Z")
_BINARY = re.compile(r"S_(AND|OR|XOR|ANDN2|ORN2|NAND|NOR|XNOR)_B(?:32|64)(?:_term)?\Z")
_SAVE = re.compile(r"S_(AND|OR|XOR|ANDN2|ORN2|ANDN1|ORN1|NAND|NOR|XNOR)_SAVEEXEC_B(?:32|64)(?:_term)?\Z")
_MOVE = re.compile(r"(?:COPY|S_MOV_B(?:32|64)(?:_term)?|S_MOV_B64_IMM_PSEUDO|EXIT_STRICT_WWM)\Z")
_COMPARE_EQUAL = re.compile(r"V_CMP_EQ_U(?:32|64)_e64\Z")
_COMPARE = re.compile(r"V_CMP_")
_FIRST_SET_BIT = re.compile(r"S_FF1_I32_B(?:32|64)\Z")


class Spill(NamedTuple):
    """What a spill pseudo-instruction moves (SIInstructions.td, SI_SPILL_*).

    ``kind`` is S, V, A, AV, or one with WWM_ before it, which moves the lanes of all threads.
    """

    kind: str
    bits: int
    is_save: bool


class MaskForm(NamedTuple):
    """What an opcode does to masks: the operation of ``binary`` or ``save``, where it is such, and other kinds."""

    binary: str
    save: str
    moves: bool
    compares: bool
    compares_equal: bool
    finds_first_bit: bool


@dataclass(frozen=True, slots=True)
class OpcodeFacts:
    """All that is known of one opcode. What LLVM's table says is False or empty of one that it does not have.

    Attributes:
        table: what LLVM's table says, on any target; None for an opcode that it does not have.
        canonical: the opcode up to the choice of register file for C and D of MFMA (``_vgprcd_e64`` and ``_e64``
            compute the same); AMDGPURewriteAGPRCopyMFMA.cpp switches between the two during allocation.
        reach: what it does in threads that are not active (``REVIEWED``).
        takes_lane: whether it reads or writes the one thread that its lane operand numbers.
        is_ordinary: whether it touches active threads alone, and no register but those in its text.
        spill: what it moves, if it is spill code.
        restores_scalar: whether it gives a scalar register back what was saved, from a lane or a slot.
        may_move: whether it ``is_move``, or may be one, as its operands are.
        is_pure: whether LLVM's table and the lists above say that it only computes its one result: thread by thread,
            or from what the active threads hold.
        asks_exec: whether the one result depends on which threads are active, and on what all of these hold, and on
            nothing else.
        loads_scalars: whether it is a load of scalars, pure where its memory operand says that it gives the same
            anywhere.
        is_packed: a packed operation of f32, of which ``is_read`` has something to say, as of ``is_mixed``.
        is_wide_mad: whether ``addend_of_high_half`` has something to say of it.
        reads_all_first: whether all lanes of all operands are read, and before any result is written, whatever the
            operands are.
        may_raise: whether it may raise a floating-point exception, so that LLVM neither repeats nor drops it without
            nofpexcept.
        returns: whether control goes back to the caller, or on to a function that returns to it; S_ENDPGM ends the
            wave.
        terminates: whether only terminators may follow it in its block (MachineBasicBlock::getFirstTerminator).
        ties: operands that LLVM's table ties, with the definitions they are tied to.
        early_clobbers: numbers of the results that LLVM's table has written before all is read.
    """

    table: InstructionDescription | None
    canonical: str
    reach: Reach | None
    takes_lane: bool
    is_ordinary: bool
    spill: Spill | None
    restores_scalar: bool
    may_move: bool
    is_pure: bool
    asks_exec: bool
    loads_scalars: bool
    is_packed: bool
    is_mixed: bool
    is_wide_mad: bool
    reads_all_first: bool
    may_raise: bool
    returns: bool
    terminates: bool
    ties: tuple[tuple[int, int], ...]
    early_clobbers: frozenset[int]
    mask: MaskForm

    @property
    def ignores_exec(self) -> bool:
        """Whether vector results are written in inactive lanes too."""
        return self.reach is Reach.WRITES

    @property
    def reads_inactive_lanes(self) -> bool:
        """Whether a vector operand is read in inactive lanes too.

        What writes them reads them as well: a tied operand keeps there what the result does not change.
        """
        return self.reach in (Reach.READS, Reach.WRITES)

    @property
    def reads_first_lane(self) -> bool:
        """Whether it reads the first active thread, or lane 0 where there is none."""
        return self.reach is Reach.FIRST


@lru_cache(maxsize=None)
def facts(opcode: str) -> OpcodeFacts:
    """What is known of an opcode."""
    table = described(opcode)
    properties = frozenset[str]() if table is None else table.properties
    rows = () if table is None else table.operands
    reached = reach(opcode)
    spill = spill_of(opcode)
    takes_lane = bool(_LANE.match(opcode))
    packed, mixed, wide = (bool(form.match(opcode)) for form in (_PACKED_F32, _MIXED, _WIDE_MAD))
    early_clobbers = frozenset(number for number, row in enumerate(rows) if row.early_clobber)
    asks_exec = _asks_exec(opcode, table, reached)
    mfma = _MFMA_FORM.match(opcode)
    assembly = opcode in INLINE_ASSEMBLY
    return OpcodeFacts(
        table=table,
        canonical=f"{mfma[1]}_e64" if mfma else opcode,
        reach=reached,
        takes_lane=takes_lane,
        is_ordinary=not (reached or takes_lane or may_call(properties) or assembly or opcode == "BUNDLE"),
        spill=spill,
        restores_scalar=opcode == LANE_RESTORE or (spill is not None and spill.kind == "S" and not spill.is_save),
        may_move=opcode in COPIES | WHOLE_WAVE_COPIES | LANE_MOVES or spill is not None,
        is_pure=asks_exec or _is_pure(opcode, table),
        asks_exec=asks_exec,
        loads_scalars=bool(_SCALAR_LOAD.match(opcode)),
        is_packed=packed,
        is_mixed=mixed,
        is_wide_mad=wide,
        reads_all_first=not (opcode in BLENDS or packed or mixed or wide or assembly or early_clobbers),
        may_raise="may-raise-fp-exception" in properties,
        returns="return" in properties and not opcode.startswith("S_ENDPGM"),
        terminates="terminator" in properties,
        ties=tuple((number, row.tied_to) for number, row in enumerate(rows) if row.tied_to >= 0),
        early_clobbers=early_clobbers,
        mask=_mask_form(opcode),
    )


def listed(opcode: str) -> OpcodeFacts:
    """As ``facts``, of an opcode of which LLVM's table must say something.

    Raises:
        UnsupportedError: LLVM's table does not have it.
    """
    known = facts(opcode)
    if known.table is None:
        raise _not_listed(opcode)
    return known


def table_of(opcode: str) -> InstructionDescription:
    """What LLVM's table says of an opcode, on any target.

    Raises:
        UnsupportedError: LLVM's table does not have it.
    """
    table = described(opcode)
    if table is None:
        raise _not_listed(opcode)
    return table


def _not_listed(opcode: str) -> UnsupportedError:
    return UnsupportedError(f"{opcode} is not an instruction of the LLVM whose tables the audit has")


def may_call(properties: frozenset[str]) -> bool:
    """Whether LLVM's table lets it have a register mask: calls, and what takes any operands."""
    return not properties.isdisjoint(("call", "variadic"))


def spill_of(opcode: str) -> Spill | None:
    """What an opcode moves, if it is spill code."""
    match = _SPILL.match(opcode)
    return Spill(match["kind"], int(match["bits"]), match["way"] == "SAVE") if match else None


def _mask_form(opcode: str) -> MaskForm:
    binary, save = _BINARY.match(opcode), _SAVE.match(opcode)
    others = [bool(form.match(opcode)) for form in (_MOVE, _COMPARE, _COMPARE_EQUAL, _FIRST_SET_BIT)]
    return MaskForm(binary[1] if binary else "", save[1] if save else "", *others)


def _is_pure(opcode: str, table: InstructionDescription | None) -> bool:
    """``OpcodeFacts.is_pure`` of an opcode that does not ask EXEC."""
    if opcode in PSEUDO_PURE:
        return True
    if table is None or not _is_function(opcode, table):
        return False
    if not table.format & _PURE_FORMATS or (table.properties | table.format) & _NEVER_PURE:
        return opcode.startswith("V_ACCVGPR_")
    return "VALU" not in table.format or table.operands[0].register_class.startswith(("v", "a"))


def _asks_exec(opcode: str, table: InstructionDescription | None, reached: Reach | None) -> bool:
    """That is so for the mask of a comparison, which is 0 for threads that are not active (ISA manuals, VOPC), and for
    DPP that LLVM repeats and that reads no inactive thread (``REVIEWED``).
    """
    if table is None or not _is_function(opcode, table):
        return False
    properties = table.properties | table.format
    if not properties & _NEVER_PURE:
        return bool(_COMPARISON.match(opcode)) and "VALU" in properties
    return (
        not properties & (_NEVER_PURE - {"DPP", "convergent"})
        and {"DPP", "VALU", "rematerialisable"} <= properties
        and reached is Reach.ACTIVE
    )


def _is_function(opcode: str, table: InstructionDescription) -> bool:
    """Whether it has one result, and computes all of it from what its operands and LLVM's table say that it reads."""
    if table.definitions != 1 or HIDDEN_INPUT.match(opcode) or _leaves_half(opcode, table):
        return False
    return not _ROUNDS.match(opcode) or "mode" in table.implicit_uses


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
