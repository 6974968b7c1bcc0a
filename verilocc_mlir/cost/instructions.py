"""One instruction of final machine code: its unit, what it reads and what it writes.

It is read from its text, which llc and llvm-objdump print alike. LLVM prints no implicit operands, so those that matter
for timing (EXEC, SCC, a destination that is also read) are added here, by mnemonic. Sources: the ISA manuals' opcode
tables and llvm/lib/Target/AMDGPU/{SOP,VOP}*Instructions.td.
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache

from msgspec import Struct


class Kind(IntEnum):
    """The unit that executes an instruction, or what else it is."""

    VALU = 0
    MFMA = 1
    WMMA = 2
    SALU = 3
    SMEM = 4
    LDS = 5
    VMEM = 6
    WAIT = 7
    NOP = 8
    BRANCH = 9
    BARRIER = 10
    FREE = 11


class Rate(IntEnum):
    """How fast a VALU or SALU instruction is; ``rates.py`` has the figures."""

    FULL = 0
    TRANS = 1
    WIDE = 2
    DOUBLE = 3
    TRANS_DOUBLE = 4
    MULTIPLY = 5
    FLOAT = 6


class Instruction(Struct, frozen=True, eq=False):
    """One instruction. ``decode`` gives the same object for the same text, so objects are compared by identity.

    Attributes:
        text: mnemonic and operands, without comments.
        mnemonic: as printed, encoding suffix (``_e32``) included.
        base: the mnemonic without its encoding suffix.
        operands: operands and modifiers as printed; a ``v_dual_*`` has those of both halves.
        kind: the unit that executes it.
        rate: its speed there.
        defs: numbers of the registers written (``py``), implicit ones included.
        uses: numbers of the registers read, likewise.
        is_store: a memory instruction that returns nothing to a register.
        is_dual: two instructions in one (VOPD).
    """

    text: str
    mnemonic: str
    base: str
    operands: tuple[str, ...]
    kind: Kind
    rate: Rate
    defs: tuple[int, ...]
    uses: tuple[int, ...]
    is_store: bool
    is_dual: bool

    @property
    def modifiers(self) -> str:
        """The text after the mnemonic, in which modifiers are searched for by name."""
        return self.text[len(self.mnemonic) :]


_SUFFIX = re.compile(r"_(?:e32|e64|dpp8|dpp|sdwa|e64_dpp|e64_dpp8|gfx\d+)$")
_TRANS = re.compile(r"v_(?:s_)?(?:exp|log|rcp|rcp_iflag|rsq|sqrt|sin|cos|tanh|prng)_(?:legacy_)?(?:bf16|f16|f32|b32)")
_TRANS_DOUBLE = re.compile(r"v_(?:rcp|rsq|sqrt)_f64")
_DOUBLE = re.compile(r"v_\w*f64")
_WIDE = re.compile(r"v_(?:lshl|lshr|ashr)\w*64|v_mov_b64|v_(?:mad|add|sub)\w*_[ui]64|v_lshl_add_u64|v_cmpx?_\w+_[ui]64")
_MULTIPLY = re.compile(r"v_mul_(?:lo|hi)_[ui]32|v_mad_(?:co_|nc_)?[ui]64_[ui]32")
_SCALAR_FLOAT = re.compile(r"s_\w+_f(?:16|32)(?:_|$)")
_NO_TIME = ("s_delay_alu", "s_clause", "s_code_end", "s_set_inst_prefetch", "s_inst_prefetch", "s_setprio")
_READ_DESTINATION = re.compile(
    r"v_(?:fmac|mac|pk_fmac|dot\d+c|smfmac|swmmac|writelane|swap|permlane)|s_(?:cmov|addk|mulk|bitset|bitreplicate)"
)
_TWO_RESULTS = re.compile(
    r"v_(?:add|sub|subrev)(?:_co|_co_ci|c_co|brev_co|b_co)_|v_(?:addc|subb|subbrev)_co_|v_div_scale|v_mad_(?:co_)?[ui]64_[ui]32"
)
_WRITES_SCC = re.compile(
    r"s_(?:add|addk|addc|sub|subb|and|andn2|or|orn2|xor|nand|nor|xnor|not|lshl|lshr|ashr|bfe|min|max|abs|absdiff|wqm|"
    r"cmp|cmpk|bitcmp|bcnt|quadmask|and_not\d|or_not\d)"
)
_READS_SCC = re.compile(r"s_(?:addc|subb|add_co_ci|sub_co_ci|cselect|cmov|cbranch_scc)")
_NO_RESULT = re.compile(
    r"s_(?:cmp|cmpk|bitcmp|setreg|set|sleep|trap|sendmsg|ttrace|icache|dcache|gl1|wakeup|incperf|decperf|setpc|rfe|"
    r"prefetch|buffer_prefetch|store|buffer_store|atc|call_|version|endpgm|barrier|wait|nop|branch|cbranch|round_mode|"
    r"denorm_mode|monitor)|v_nop|v_pipeflush|ds_(?:write|store|nop|gws|barrier)|exp|export|tensor_|"
    r"(?:global|buffer|tbuffer|scratch|flat|image)_(?:store|wb|inv|wbinv|gl|load_lds|load_async)|buffer_wbl2"
)
_LEAST_OPERANDS = (
    (("v_readlane", "v_writelane", "buffer_load", "buffer_store", "scratch_load", "scratch_store"), 3),
    (("v_mfma", "v_smfmac", "v_wmma", "v_swmmac"), 4),
    (("v_mov", "v_accvgpr", "v_pk_mov", "s_mov", "s_cselect", "s_and_b", "v_cmp", "s_cmp", "s_add"), 2),
    (("s_nop", "s_branch", "s_cbranch"), 1),
)
_RETURNS = re.compile(r"\b(?:glc|sc0)\b|TH_ATOMIC_RETURN")


@lru_cache(maxsize=1 << 16)
def decode(text: str, generation: int) -> Instruction:
    """The instruction that ``text`` (without comment and label) spells, for a target of ISA ``generation``."""
    mnemonic, _, operand_text = text.partition(" ")
    if "::" in text:
        return _dual(text, mnemonic, generation)
    operands = tuple(split_operands(operand_text))
    base = _SUFFIX.sub("", _SUFFIX.sub("", mnemonic))
    kind = _kind(base)
    results = _results(base, operands, operand_text, generation)
    operand_units = [units(operand) for operand in operands]
    defs = [u for group in operand_units[:results] for u in group]
    uses = [u for group in operand_units[results:] for u in group]
    if results and (_READ_DESTINATION.match(base) or "_dpp" in mnemonic or "d16" in base):
        uses += operand_units[0]
    if base.startswith(("v_swap", "v_permlane16_swap", "v_permlane32_swap")):
        defs += operand_units[1]
    _implicit(base, kind, defs, uses)
    store = kind in (Kind.VMEM, Kind.LDS, Kind.SMEM) and not results
    return Instruction(
        text, mnemonic, base, operands, kind, _rate(base, kind), tuple(defs), tuple(uses), store, is_dual=False
    )


def is_complete(instruction: Instruction) -> bool:
    """Whether it has the operands that the rules of this package use; truncated or hand-written text may lack them."""
    if instruction.is_dual:
        pair = halves(instruction.text)
        return len(pair) == 2 and all(len(split_operands(half.partition(" ")[2])) >= 2 for half in pair)
    if instruction.base == "s_nop":
        return re.fullmatch(r"0x[0-9a-f]+|\d+", instruction.text.partition(" ")[2]) is not None
    for prefixes, count in _LEAST_OPERANDS:
        if instruction.base.startswith(prefixes) and not instruction.base.startswith("buffer_load_lds"):
            return len(instruction.operands) >= count
    return True


def split_operands(text: str) -> list[str]:
    """Operands at the top-level commas of ``text``; modifiers stay with the last one."""
    if "[" not in text:
        return [part.strip() for part in text.split(",")] if text else []
    operands: list[str] = []
    depth = start = 0
    for k, ch in enumerate(text):
        if ch == "[":
            depth += 1
        elif ch == "]":
            depth -= 1
        elif ch == "," and depth == 0:
            operands.append(text[start:k].strip())
            start = k + 1
    operands.append(text[start:].strip())
    return operands


def halves(text: str) -> list[str]:
    """The two instructions of a ``v_dual_*``, spelt as single ones."""
    return [half.strip().replace("v_dual_", "v_", 1) for half in text.split("::")]


def _dual(text: str, mnemonic: str, generation: int) -> Instruction:
    pair = [decode(half, generation) for half in halves(text)]
    return Instruction(
        text,
        mnemonic,
        mnemonic,
        tuple(operand for half in pair for operand in half.operands),
        Kind.VALU,
        Rate.FULL,
        tuple(u for half in pair for u in half.defs),
        tuple(dict.fromkeys(u for half in pair for u in half.uses)),
        False,
        is_dual=True,
    )


def _kind(base: str) -> Kind:
    if base.startswith("v_"):
        if base.startswith(("v_mfma", "v_smfmac")):
            return Kind.MFMA
        if base.startswith(("v_wmma", "v_swmmac")):
            return Kind.WMMA
        return Kind.NOP if base == "v_nop" else Kind.VALU
    if base.startswith("s_"):
        if base.startswith("s_wait"):
            return Kind.WAIT
        if base == "s_nop":
            return Kind.NOP
        if base.startswith(("s_branch", "s_cbranch", "s_setpc", "s_swappc", "s_swap_pc", "s_set_pc", "s_call")):
            return Kind.BRANCH
        if base.startswith("s_barrier"):
            return Kind.BARRIER
        if base.startswith(("s_load", "s_buffer_load", "s_scratch", "s_store", "s_buffer_store", "s_atomic")):
            return Kind.SMEM
        return Kind.FREE if base in _NO_TIME else Kind.SALU
    if base.startswith("ds_"):
        return Kind.LDS
    if base.startswith(("global_", "buffer_", "tbuffer_", "flat_", "scratch_", "image_", "tensor_", "exp")):
        return Kind.VMEM
    return Kind.SALU


def _rate(base: str, kind: Kind) -> Rate:
    if kind is Kind.SALU:
        return Rate.FLOAT if _SCALAR_FLOAT.match(base) else Rate.FULL
    if kind is not Kind.VALU:
        return Rate.FULL
    if _TRANS_DOUBLE.match(base):
        return Rate.TRANS_DOUBLE
    if _TRANS.match(base):
        return Rate.TRANS
    if _DOUBLE.match(base):
        return Rate.DOUBLE
    if _MULTIPLY.match(base):
        return Rate.MULTIPLY
    return Rate.WIDE if _WIDE.match(base) else Rate.FULL


def _results(base: str, operands: tuple[str, ...], operand_text: str, generation: int) -> int:
    """How many of the first operands are written."""
    if not operands or not operands[0]:
        return 0
    if base.startswith("v_cmpx"):
        return 1 if generation < 10 else 0
    if _NO_RESULT.match(base):
        return 0
    if base.startswith("ds_"):
        return 1 if _lds_returns(base) else 0
    if "atomic" in base:
        return 1 if _RETURNS.search(operand_text) else 0
    if re.search(r"\blds\b", operand_text) or "_lds" in base:
        return 0
    return 2 if _TWO_RESULTS.match(base) and len(operands) > 3 else 1


def _lds_returns(base: str) -> bool:
    return base.startswith(
        ("ds_read", "ds_load", "ds_bpermute", "ds_permute", "ds_swizzle", "ds_consume", "ds_append", "ds_ordered")
    ) or ("_rtn" in base)


def _implicit(base: str, kind: Kind, defs: list[int], uses: list[int]) -> None:
    if kind in (Kind.VALU, Kind.MFMA, Kind.WMMA, Kind.LDS, Kind.VMEM):
        if not base.startswith(("v_readlane", "v_readfirstlane", "v_writelane", "v_s_")):
            uses.append(EXEC)
        if base.startswith("v_cmpx"):
            defs.append(EXEC)
    elif kind is Kind.BRANCH:
        if "exec" in base:
            uses += units("exec")
        elif "vcc" in base:
            uses += units("vcc")
        elif "scc" in base:
            uses.append(SCC)
    elif kind is Kind.SALU:
        if "saveexec" in base or "wrexec" in base:
            uses += units("exec")
            defs += units("exec")
            defs.append(SCC)
        elif _WRITES_SCC.match(base):
            defs.append(SCC)
        if _READS_SCC.match(base):
            uses.append(SCC)


# Registers in the text of an operand, as numbers. The files' numbers do not overlap.


AGPR = 2048
SGPR = 4096
TTMP = 4300
VCC = 4400
EXEC = 4410
SCC = 4420
M0 = 4421
_OTHER = 4430

_FILES = {"v": 0, "a": AGPR, "s": SGPR, "ttmp": TTMP}
_SPECIAL: dict[str, tuple[int, ...]] = {
    "vcc": (VCC, VCC + 1),
    "vcc_lo": (VCC,),
    "vcc_hi": (VCC + 1,),
    "exec": (EXEC, EXEC + 1),
    "exec_lo": (EXEC,),
    "exec_hi": (EXEC + 1,),
    "scc": (SCC,),
    "m0": (M0,),
    "flat_scratch": (_OTHER, _OTHER + 1),
    "flat_scratch_lo": (_OTHER,),
    "flat_scratch_hi": (_OTHER + 1,),
    "xnack_mask": (_OTHER + 2, _OTHER + 3),
    "xnack_mask_lo": (_OTHER + 2,),
    "xnack_mask_hi": (_OTHER + 3,),
}
# gfx1250 encodes the low eight bits of a VGPR's number. LLVM prints the number in a comment: v[0:1] /*v[256:257]*/.
_REGISTER = re.compile(
    r"(?:[va](?:\d+|\[\d+(?::\d+)?\])(?:\.[lh])?\s*/\*(?P<high>[va][^*]*)\*/)"
    r"|(?<![\w.])(?:(?P<file>ttmp|[vas])(?:(?P<one>\d+)|\[(?P<low>\d+)(?::(?P<top>\d+))?\])(?:\.[lh])?"
    r"|(?P<special>vcc_lo|vcc_hi|vcc|exec_lo|exec_hi|exec|scc|m0|flat_scratch_lo|flat_scratch_hi|flat_scratch"
    r"|xnack_mask_lo|xnack_mask_hi|xnack_mask))(?!\w)"
)


@lru_cache(maxsize=1 << 16)
def units(operand: str) -> tuple[int, ...]:
    """Numbers of the 32-bit registers that ``operand`` names, lowest first; none for immediates and labels.

    A half (``v3.l``) counts as its register, a list (``[s4, s5]``) as all of its registers.
    """
    numbers: list[int] = []
    for match in _REGISTER.finditer(operand):
        if match["high"]:
            numbers += units(match["high"])
        elif match["special"]:
            numbers += _SPECIAL[match["special"]]
        else:
            base = _FILES[match["file"]]
            low = int(match["one"] or match["low"])
            top = int(match["top"]) if match["top"] else low
            numbers += range(base + low, base + top + 1)
    return tuple(numbers)


def is_vgpr(unit: int) -> bool:
    """Whether the number is that of a VGPR, not of an AGPR."""
    return unit < AGPR


def is_vector(unit: int) -> bool:
    return unit < SGPR
