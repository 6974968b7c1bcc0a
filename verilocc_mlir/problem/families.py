"""Normalised opcode families: what kind of unit executes an instruction, without the target's own mnemonic.

Opcode names are LLVM's (llvm/lib/Target/AMDGPU/*Instructions.td); the families follow the execution units of the ISA
manuals.
"""

from __future__ import annotations

import re

FAMILIES = (
    "mfma", "wmma", "valu", "trans", "load", "store", "lds", "salu", "smem", "copy", "branch", "call", "other",
)  # fmt: skip
"""Every family, in a fixed order."""

_TRANSCENDENTAL = re.compile(r"V_(?:S_)?(?:EXP|LOG|RCP|RSQ|SQRT|SIN|COS|TANH)_")
_VECTOR_MEMORY = re.compile(r"(?:GLOBAL|FLAT|SCRATCH|BUFFER|TBUFFER|IMAGE|CLUSTER)_")
_STORES = re.compile(r"_(?:STORE|ATOMIC)(?:_|\Z)|_WBL|_INV")
_BRANCH = re.compile(
    r"S_(?:C?BRANCH|ENDPGM|SETPC|SWAPPC|CALL)|SI_(?:RETURN|IF|ELSE|LOOP|END_CF|WATERFALL|KILL|DEMOTE|WHOLE_WAVE_FUNC_RETURN)"
)
_IDLE = re.compile(
    r"S_(?:BARRIER|WAIT|NOP|SLEEP|SENDMSG|SETPRIO|SET_GPR|SETHALT|TRAP|ICACHE|INST_PREFETCH|CLAUSE|CODE_END|DELAY|TTRACE|INCPERF)"
)
_SCALAR_MEMORY = re.compile(
    r"S_(?:LOAD|BUFFER_LOAD|STORE|BUFFER_STORE|SCRATCH|ATOMIC|BUFFER_ATOMIC|DCACHE|PREFETCH|MEMTIME)_?"
)
_COPIES = frozenset({"COPY", "PRED_COPY", "WWM_COPY", "V_ACCVGPR_MOV_B32", "SCHED_COPY"})


def opcode_family(opcode: str) -> str:
    """The family of an opcode; ``"other"`` for what executes nothing (``IMPLICIT_DEF``, ``KILL``, fences, waits)."""
    if opcode in _COPIES:
        return "copy"
    if opcode.startswith(("V_MFMA", "V_SMFMAC")):
        return "mfma"
    if opcode.startswith(("V_WMMA", "V_SWMMAC")):
        return "wmma"
    if _TRANSCENDENTAL.match(opcode):
        return "trans"
    if opcode.startswith(("V_", "AV_MOV", "DPP_", "SI_INIT_M0_VALU")):
        return "valu"
    if opcode.startswith(("DS_", "LDS_", "SI_LDS")):
        return "lds"
    if _VECTOR_MEMORY.match(opcode):
        # An atomic that returns nothing behaves as a store; one that returns a value must be waited for like a load.
        return "store" if _STORES.search(opcode) and "_RTN" not in opcode else "load"
    if opcode.startswith(("SI_CALL", "SI_TCRETURN", "SI_CS_CHAIN")):
        return "call"
    if _BRANCH.match(opcode):
        return "branch"
    if _IDLE.match(opcode):
        return "other"
    if _SCALAR_MEMORY.match(opcode):
        return "smem"
    return "salu" if opcode.startswith("S_") or opcode == "SI_PC_ADD_REL_OFFSET" else "other"
